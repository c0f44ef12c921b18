"""Parameters of runs over P4's brokers: the overlay, the places of users, and their trace of interactions."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import check_nodes
from veilcast.lab.experiment.params import RunParams, UserFile, file_path

TRACES: Final = ("synthetic", "facebook", "college")
TraceChoice: TypeAlias = Annotated[str, msgspec.Meta(extra={"names": TRACES})]


class BrokersPath(RunParams, frozen=True, kw_only=True, tag="brokers.path"):
    """The cost of one path."""

    counts: tuple[int, ...]
    """Numbers of virtual nodes on the path, each a step of the run."""
    replicas: int = 3
    """Replicas of a virtual node."""
    branches: int = 1
    """Number of branches into which each node of the path forks; shares are those of all branches."""
    refresh_mb: float = 200.0
    """Megabytes of content after which there is a new key."""

    def __post_init__(self) -> None:
        check_counts(self.counts)
        self.check_at_least(1, "replicas", "branches")
        if self.refresh_mb <= 0:
            raise ConfigError("refresh_mb must be above 0")


class TraceParams(RunParams, frozen=True, kw_only=True):
    """A trace of interactions, replayed on trees of brokers."""

    nodes: int = 500
    """Number of brokers."""
    family: Literal["geometric", "uniform", "complete"] = "geometric"
    """The family of trees; the first two are drawn."""
    fanout: float = 2.0
    """Mean number of children of a broker that has any."""
    replicas: int = 3
    """Replicas of a virtual node."""
    users_zipf: float = 0.5
    """How close users live together: alpha in P4's Fig. 9, and c in Fig. 11."""
    overlays: int = 1
    """Number of overlays drawn in a run, or of sets of Byzantine brokers. The measure is the median over overlays, the
    mean over sets."""
    trace: TraceChoice = "synthetic"
    """facebook and college are read from the data folder. "file:PATH" is a trace of your own."""
    users: int = 3_000_000
    relations: int = 28_300_000
    interactions: int = 1_400_000
    """Interactions of a synthetic trace in a month; other traces are scaled to this number."""

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        self.check_at_least(1, "replicas", "overlays", "users", "relations", "interactions")
        self.check_choice("trace", TRACES, file="a trace")

    def data_sources(self, engine: str) -> list[str]:
        return [] if self.trace == "synthetic" or file_path(self.trace) else [self.trace]

    def user_files(self) -> list[UserFile]:
        path = file_path(self.trace)
        return [UserFile("trace", path)] if path else []


class BrokersShares(TraceParams, frozen=True, kw_only=True, tag="brokers.shares"):
    """The cost of the key shares of a trace."""


class BrokersRefresh(TraceParams, frozen=True, kw_only=True, tag="brokers.refresh"):
    """The cost of the key shares of a trace if a key serves for several publications."""

    counts: tuple[int, ...]
    """Numbers of publications that a key serves for, each a step of the run; they begin with 1."""
    key_owner: Literal["publisher", "pair", "readers"] = "publisher"
    """The members that share a key (`models.broker_keys`)."""
    hops_counted: Literal["nodes", "edges"] = "nodes"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self.counts)


class BrokersLosses(TraceParams, frozen=True, kw_only=True, tag="brokers.losses"):
    """Retransmissions because Byzantine brokers drop publications."""

    counts: tuple[int, ...]
    """Numbers of Byzantine brokers, each a step of the run."""
    byzantine_zipf: float = 1.0
    """How close Byzantine brokers stand together: alpha in Fig. 11."""
    replacement: bool = True
    """Whether a broker can be drawn twice to be Byzantine, and counts once."""
    losses: Literal["plain", "failover", "coded", "replicated"] = "plain"
    """The defence against brokers that drop (`models.broker_losses`)."""
    finds: float = 0.9
    """Failover: the probability that a loss is attributed to the broker that caused it."""
    holds: int = 1_000
    """Failover: number of publications for which a suspected broker is not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self.counts)


class BrokersPlacement(RunParams, frozen=True, kw_only=True, tag="brokers.placement"):
    """Where replicas should stand."""

    nodes: int = 500
    """Number of brokers."""
    overlays: int = 1
    """Number of overlays drawn in a run; the measure is their mean."""
    allocation: Literal["none", "phases", "once", "pairs", "told pairs"] = "none"
    """How replicas are placed: not at all, by P4's three phases, by their variation, or greedily in pairs, with what
    failures tell of brokers ("pairs") or with the true risks ("told pairs")."""
    budget: int = 80
    """Number of replicas to place."""
    paths: int = 40
    """Number of paths that matter."""
    scattered: bool = False
    """Whether paths lead over any brokers, and not over a tree."""

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        self.check_at_least(1, "overlays", "budget", "paths")


class BrokersTimes(RunParams, frozen=True, kw_only=True, tag="brokers.times"):
    """How long it takes to split and to reconstruct a key."""

    counts: tuple[int, ...]
    """Numbers of shares into which a key is split, each a step of the run."""
    key_bits: Literal[128, 256] = 128

    def __post_init__(self) -> None:
        check_counts(self.counts)


class BrokerLineParams(RunParams, frozen=True, kw_only=True):
    """A line of virtual nodes, on the machines."""

    counts: tuple[int, ...]
    """Numbers of virtual nodes on the line, each a step of the run."""
    replicas: int = 3
    """Replicas of a virtual node."""
    sharing: Literal["paper", "hardened"] = "hardened"
    """Whether shares are split again at every hop, or redistributed."""
    lie: str = "none"
    """Behaviour of the Byzantine replicas, as many in each node as it tolerates (`sim.brokers`)."""

    def __post_init__(self) -> None:
        check_counts(self.counts)
        self.check_at_least(1, "replicas")


class BrokersMessages(BrokerLineParams, frozen=True, kw_only=True, tag="brokers.messages"):
    """How many messages a key takes over a line of nodes."""


class BrokersDelays(BrokerLineParams, frozen=True, kw_only=True, tag="brokers.delays"):
    """How long a publication takes over a line of nodes."""

    over: Literal["hops", "replicas"] = "hops"
    """Whether `counts` are numbers of nodes on the line, or of replicas of each node."""
    hops: int = 3
    """Number of nodes on the line, where `counts` are replicas."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(1, "hops")


class BrokersLoad(RunParams, frozen=True, kw_only=True, tag="brokers.load"):
    """Publications at a steady rate over a line of nodes: how long they take, and how many get through in a second."""

    replicas: int = 3
    """Replicas of a virtual node."""
    nodes: int = 4
    """Virtual nodes on the line."""
    lie: str = "none"
    """Behaviour of the Byzantine replicas (`sim.brokers`)."""
    liars: int = 1
    """Byzantine replicas of each node."""
    ahead: bool = True
    """Whether keys are dealt ahead of need."""
    notes: int = 300
    """Publications at a steady rate, and as many as fast as they are delivered."""
    every_ms: int = 100
    """Time between two publications at a steady rate."""
    window: int = 64
    """Publications under way at a time, when they follow as fast as they are delivered."""
    frame_us: int = 150
    """Processor time that a machine takes for each received frame; a sent one takes half of it."""

    def __post_init__(self) -> None:
        self.check_at_least(1, "replicas", "nodes", "notes", "every_ms", "window", "frame_us")
        self.check_at_least(0, "liars")


def check_counts(counts: tuple[int, ...]) -> None:
    if not counts:
        raise ConfigError("counts must name at least one number")
    if list(counts) != sorted(set(counts)) or min(counts) < 1:
        raise ConfigError("counts must rise, from 1 at least")
