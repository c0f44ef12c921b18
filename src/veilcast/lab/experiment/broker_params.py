"""What a run over P4's brokers is made from: the overlay, where users live, their trace, and what is asked of it.

Part of `Params`, apart because it has nothing in common with meshes. `nodes` are the brokers. Everything here may be an
axis of an experiment. A struct has one base, so what `Params` has of foiling is inherited through here.
"""

from __future__ import annotations

from typing import Final, Literal

from veilcast.errors import ConfigError
from veilcast.lab.experiment.foil_params import Foiling


class Replaying(Foiling, frozen=True, forbid_unknown_fields=True, kw_only=True):
    brokers: Literal["", "path", "shares", "refresh", "losses", "placement", "times", "messages", "delays"] = ""
    """Whether there are brokers in place of a mesh, and what is asked: what a path costs; what a trace costs; the same
    if a key serves for several publications; what is sent again because of Byzantine brokers; where replicas should
    stand; how long it takes to split and to reconstruct a key; how many messages a key takes over a line of nodes, with
    liars or without; or how long a publication takes over one."""
    counts: tuple[int, ...] = ()
    """The numbers, each a step of the run: of virtual nodes on a path, of publications that a key serves for, of
    Byzantine brokers, of shares into which a key is split; of nodes on a line, or of their replicas (`over`)."""
    family: Literal["geometric", "uniform", "complete"] = "geometric"
    """Of trees; the first two are drawn."""
    fanout: float = 2.0
    """The mean number of children of a broker that has any."""
    replicas: int = 3
    """Of a virtual node."""
    users_zipf: float = 0.5
    """How close users live together: alpha in P4's Fig. 9, and c in Fig. 11."""
    byzantine_zipf: float = 1.0
    """How close Byzantine brokers stand together: alpha in Fig. 11."""
    replacement: bool = True
    """Whether a broker may be drawn twice to be Byzantine, and counts once."""
    overlays: int = 1
    """Drawn in a run, or sets of Byzantine brokers; what is measured is the median over overlays, the mean over
    sets."""
    trace: Literal["synthetic", "facebook", "college"] = "synthetic"
    """The latter two are read from the data folder."""
    own_trace: str = ""
    """A file to replay in their place (`lab.own_trace`); executors must see it."""
    users: int = 3_000_000
    relations: int = 28_300_000
    interactions: int = 1_400_000
    """Of a synthetic trace, in a month; others are scaled to so many."""
    key_owner: Literal["publisher", "pair", "readers"] = "publisher"
    """With whom a key is shared that serves for several publications (`kernels.overlay_keys`)."""
    hops_counted: Literal["nodes", "edges"] = "nodes"
    refresh_mb: float = 200.0
    """On a path: after how many megabytes of content there is a new key."""
    branches: int = 1
    """On a path: into how many each node of it forks; shares are those of all branches."""
    losses: Literal["plain", "failover", "coded", "replicated"] = "plain"
    """What is done about brokers that drop (`kernels.overlay_losses`)."""
    finds: float = 0.9
    """Failover: how often a loss is put down to who caused it."""
    holds: int = 1_000
    """There, for how many publications it is not used."""
    key_bits: Literal[128, 256] = 128
    sharing: Literal["paper", "hardened"] = "hardened"
    """On a line: whether shares are split again at every hop, or redistributed."""
    over: Literal["hops", "replicas"] = "hops"
    hops: int = 3
    """There, by replicas: of how many nodes the line is."""
    lie: str = "none"
    """There, what as many replicas of each node do as it bears (`sim.broker_adversaries`)."""
    allocation: Literal["none", "phases", "once", "pairs", "told pairs"] = "none"
    """Who places replicas: nobody, P4's three phases, their variation, or greedily by pairs, with what failures tell of
    brokers or with the truth."""
    budget: int = 80
    """There, how many replicas."""
    paths: int = 40
    """There, how many paths matter."""
    scattered: bool = False
    """There, whether paths lead over any brokers, and not over a tree."""

    def check_replaying(self) -> None:
        if (self.brokers in COUNTED) != bool(self.counts):
            raise ConfigError(f"counts are for brokers = {', '.join(COUNTED)}, and needed there")
        if list(self.counts) != sorted(set(self.counts)) or min(self.counts, default=1) < 1:
            raise ConfigError("counts must rise, from 1 at least")
        for name in (
            "replicas",
            "hops",
            "overlays",
            "users",
            "relations",
            "interactions",
            "branches",
            "budget",
            "paths",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1")
        if self.refresh_mb <= 0:
            raise ConfigError("refresh_mb must be above 0")

    def replays(self) -> bool:
        """Whether interactions are asked for at all."""
        return self.brokers in ("shares", "refresh", "losses")

    def traced(self) -> list[str]:
        """What of the data folder is read."""
        return [self.trace] if self.replays() and not self.own_trace and self.trace != "synthetic" else []


COUNTED: Final = ("path", "refresh", "losses", "times", "messages", "delays")
