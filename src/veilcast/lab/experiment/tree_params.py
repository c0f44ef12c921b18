"""Parameters of runs of spanning trees."""

from __future__ import annotations

from typing import ClassVar, Literal

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import check_nodes
from veilcast.lab.experiment.params import RunParams, UserFile, check_steps, file_path
from veilcast.lab.experiment.relay_params import LATENCIES, LatencyChoice


class TreeParams(RunParams, frozen=True, kw_only=True):
    nodes: int = 500
    depth: int = 3
    """Depth of the trees, in hops."""
    chain: int = 3
    """Hardened trees: number of guards between the root and the subscriber."""

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        self.check_at_least(1, "depth", "chain")


class TreeCosts(TreeParams, frozen=True, kw_only=True, tag="tree.costs"):
    """The cost of publications."""

    tree: Literal["paper", "hardened"]
    """The profile."""
    tail: int = 0
    """Hardened trees: number of guards behind the subscriber's place."""
    readers: int = 1
    """Number of subscribers, to one topic."""
    routing: Literal["trees", "seen", "labels"] = "trees"
    """By tree; or by topic alone, with a memory of what was seen, or with labels in a header (P2)."""
    publications: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_not_negative("tail")
        self.check_at_least(1, "readers", "publications")


class TreeCoalition(TreeParams, frozen=True, kw_only=True):
    """A coalition over epochs, each of which has new trees."""

    STEP_UNIT: ClassVar[str] = "epochs"

    tree: Literal["paper", "hardened"]
    """The profile."""
    steps: tuple[float, ...]
    """Numbers of epochs after which the run is measured."""
    tail: int = 0
    """Above 0, this many guards more, and the subscriber stands behind any one of all guards."""
    guards: Literal["kept", "fresh"] = "kept"
    """Whether guards outlast an epoch. A share `churn` of them does not even then."""
    churn: float = 0.0
    """The share of guards that are replaced from one epoch to the next."""
    padded: bool = True
    """Hardened trees: whether bundles have one size."""
    insiders: float = 0.0
    """The share of nodes that are in the coalition."""
    publications: int = 1
    """Publications of each topic in an epoch."""
    attacks: tuple[str, ...] = ()
    """Names of attackers beside those that a run asks in any case: attackers of your own, mostly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares("churn", "insiders")
        self.check_not_negative("tail")
        self.check_at_least(1, "publications")
        check_steps(self.steps, required=True)

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps

    def named_attackers(self) -> tuple[str, ...]:
        return self.attacks


class TreeAttacks(TreeCoalition, frozen=True, kw_only=True, tag="tree.attacks"):
    """The knowledge that a coalition gains of one subscriber."""


class TreeDefinitions(TreeCoalition, frozen=True, kw_only=True, tag="tree.definitions"):
    """P2's three definitions of anonymity, for many users and topics."""

    topics: int
    """Number of topics that users read."""
    ratio: float = 0.1
    """The share of users that read the most popular topic."""
    origins: Literal["anonymous", "own"] = "anonymous"
    """Where publications begin: at random nodes, reached through the anonymous network; or, as a control, at the
    publisher itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares("ratio")
        self.check_at_least(1, "topics")


class TreeDroppers(TreeParams, frozen=True, kw_only=True, tag="tree.droppers"):
    """How a subscriber of hardened trees finds the nodes that drop publications."""

    STEP_UNIT: ClassVar[str] = "epochs"

    steps: tuple[float, ...]
    """Numbers of test publications after which the run is measured."""
    droppers: float
    """The share of nodes that drop what they should forward, each time with probability `drops`."""
    drops: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares("droppers", "drops")
        check_steps(self.steps, required=True)

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps


class TreeDelays(TreeParams, frozen=True, kw_only=True, tag="tree.delays"):
    """How long subscribers of trees wait, by a model of queues or on the nodes' machines."""

    STEP_UNIT: ClassVar[str] = "clients"

    tree: Literal["paper", "hardened"]
    """The profile."""
    timed: Literal["subscribing", "publishing", "crowd"]
    """The event that subscribers wait for, as for a relay (`runs.relay.delays`)."""
    steps: tuple[float, ...]
    """Numbers of subscribers, or of publishers in a crowd."""
    by: Literal["queues", "nodes"] = "queues"
    """A model of queues, or the machines of all nodes in the simulator, which bear some hundred nodes."""
    circuit: int = 6
    """Number of relays of an anonymous network between two nodes; 0: they talk directly."""
    latencies: LatencyChoice = "planetlab"
    """Round trips between hosts: those of PlanetLab, from the data folder, or "file:PATH", of your own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_not_negative("circuit")
        check_steps(self.steps, required=True)
        self.check_choice("latencies", LATENCIES, file="round trips")

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps

    def data_sources(self, engine: str) -> list[str]:
        return [] if file_path(self.latencies) else [self.latencies]

    def user_files(self) -> list[UserFile]:
        path = file_path(self.latencies)
        return [UserFile("latencies", path)] if path else []

    def check_hosts(self, readers: int) -> None:
        if max(*self.steps, readers) > self.nodes:
            raise ConfigError(f"there must be as many nodes as a step says, and {readers} at least, not {self.nodes}")
