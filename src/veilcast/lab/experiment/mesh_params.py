"""Parameters of runs of a mesh.

The defaults are P0's: 500 nodes of degree 4, a tenth of them subscribers, no defence.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import RunParams, UserFile, check_steps, file_path

Outside: TypeAlias = Literal[
    "leaf",
    "majority",
    "persistence",
    "closure",
    "centrality",
    "intersection",
    "disclosure",
    "least-squares",
    "late-join",
    "survivor",
]
"""Attacks on subscribers by a global observer."""
Inside: TypeAlias = Literal["group-testing", "linear", "binned", "handed"]
"""Attacks on subscribers by a coalition of members."""
Combined: TypeAlias = Literal["combined"]
"""Attacks on subscribers by an adversary that is a global observer and a coalition at once."""
Source: TypeAlias = Literal[
    "flow-source", "roots", "rumor", "first-spy", "trilateration", "predecessor", "presence", "sender"
]
"""Attacks on the publisher: the first three by a global observer, the others by a coalition."""
ATTACKS: Final[tuple[str, ...]] = tuple(
    name for group in (Outside, Inside, Combined, Source) for name in get_args(group)
)


GRAPHS: Final = ("small-world", "regular", "scale-free", "scamp", "gnutella", "deezer", "drawn")
GraphChoice: TypeAlias = Annotated[str, msgspec.Meta(extra={"names": GRAPHS})]


class OverlayParams(RunParams, frozen=True, kw_only=True):
    """The basic overlay, and its subscribers."""

    graph: GraphChoice = "small-world"
    """The basic overlay G. gnutella and deezer are read from the data folder, and have their own size and degrees.
    "drawn" is one of the pictures of P0's worked example. "file:PATH" is a list of edges of your own."""
    component: Literal["largest", "all"] = "largest"
    """A graph from a file: its largest component is taken, or ("all") a graph of several components is refused."""
    subscriptions: str = ""
    """"file:PATH": the subscriptions of the nodes of a graph from a file, a node and a topic in a line."""
    picture: Literal[0, 2, 3] = 0
    """The picture of the worked example, by the number of its covers."""
    nodes: int = 500
    degree: int = 4
    rewire: float = 0.2
    """The probability that an edge of a small world is rewired."""
    sample: int = 0
    """Number of nodes that are taken of an overlay from a file, around a node drawn for the run; 0 is all."""
    links_max: int = 0
    """A node with more links than this loses some of them; 0 is no limit. Machines can have 64."""
    ratio: float = 0.1
    """The share of all nodes that subscribe, |Sa|/|V|."""
    topic: str = ""
    """The topic, where a file says which node subscribes to which topic. Empty: subscribers are drawn by `ratio`."""

    def __post_init__(self) -> None:
        self.check_shares("rewire", "ratio")
        check_nodes(self.nodes)
        if self.graph in ("small-world", "regular", "scale-free"):
            check_degree(self.degree, self.nodes)
        self.check_choice("graph", GRAPHS, file="a list of edges")
        if self.subscriptions and not (file_path(self.subscriptions) and file_path(self.graph)):
            raise ConfigError('subscriptions are "file:PATH", beside graph = "file:PATH"')
        if self.topic and not self.has_topics():
            raise ConfigError('topic is for graph = "deezer" and for subscriptions: other overlays have no topics')
        if (
            (self.sample and self.graph not in _STORED and not file_path(self.graph))
            or self.sample in (1, 2)
            or min(self.sample, self.links_max) < 0
        ):
            raise ConfigError("sample is 3 nodes at least, of an overlay from a file; links_max is not negative")

    def has_topics(self) -> bool:
        """Whether the overlay says which node subscribes to which topic."""
        return self.graph == "deezer" or bool(self.subscriptions)

    def data_sources(self, engine: str) -> list[str]:
        return [self.graph] if self.graph in _STORED else []

    def user_files(self) -> list[UserFile]:
        edges, topics = file_path(self.graph), file_path(self.subscriptions)
        return [
            *([UserFile("edges", edges, self.component)] if edges else []),
            *([UserFile("subscriptions", topics, edges)] if topics else []),
        ]


class MeshFlows(OverlayParams, frozen=True, kw_only=True, tag="mesh.flows"):
    """One mesh, and the flows of its publications as a global observer sees them."""

    ties: Literal["uniform", "first"] = "uniform"
    """How a node chooses among several parents at the same distance: at random, or the first in order."""
    pace: Literal["instant", "beats"] = "instant"
    """Whether adverts and invitations take no time, or wait for their sender's next heartbeat as on the machines."""
    cover: Literal["none", "one", "each"] = "none"
    """Probabilistic forwarding: a node can recruit one neighbour (fits P0's numbers), or each of them (P0's text)."""
    mu: float = 0.0
    """The probability that a node recruits a cover."""
    covers: Literal["fixed", "sole", "variable"] = "fixed"
    """Whether covers are drawn once ("fixed", "sole") or for every publication ("variable")."""
    publications: int = 1
    """Number of publications that the observer sees."""
    game: Literal["none", "events", "swaps"] = "none"
    """The shell game: "events" has timers, decay and locks; "swaps" is bare swaps of random inner nodes, for the limit
    of the game and for large meshes."""
    decay: float = 0.0
    """Lambda, the decay of the shell game."""
    decay_by: Literal["time", "count"] = "time"
    start: Literal["immediate", "wait"] = "immediate"
    """Whether a node plays when its first child connects, or waits first, as it does between games."""
    wait_s: float = 5.0
    """Mean wait of a node between games, in seconds."""
    lock_s: float = 0.0
    """How long a swap locks its neighbourhood against other swaps, in seconds."""
    hop_s: float = 0.05
    """How long a subscription takes from one node to the next, in seconds."""
    look: Literal["end", "swaps", "rounds", "seconds", "publications"] = "end"
    """The unit of `steps`. A round is one swap for each node of the mesh."""
    steps: tuple[float, ...] = ()
    """The moments at which the observer's success is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares("mu")
        self.check_not_negative("decay", "lock_s", "hop_s")
        self.check_at_least(1, "publications")
        check_wait(self.wait_s)
        if self.pace == "beats" and (self.ties != "uniform" or self.cover == "each"):
            raise ConfigError('pace = "beats" decides ties by who tells first, and knows covers by the rule "one"')
        if (self.look == "end") != (not self.steps):
            raise ConfigError('steps are the moments of look = "swaps", "rounds", "seconds" or "publications"')
        check_steps(self.steps, required=False)

    def step_unit(self) -> str:
        return self.look

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps


class MeshSwaps(OverlayParams, frozen=True, kw_only=True, tag="mesh.swaps"):
    """The shell game on the machines: what its heartbeats and a notification show an observer of all wires, and the
    number of messages of each kind."""

    game: Literal["none", "events"] = "events"
    """Whether nodes play the shell game."""
    decay: float = 0.05
    """Lambda, the decay of the shell game by time."""
    start: Literal["immediate", "wait"] = "immediate"
    """Whether a node plays as soon as its mesh is stable, or waits first, as it does between games."""
    wait_s: float = 5.0
    """Mean wait of a node between games, in seconds."""
    heartbeat_s: float = 1.0
    """Time between two heartbeats, in seconds."""
    reach: int = 0
    """Hops within which all nodes exchange heartbeats at all times; 0: heartbeats follow the swaps, as in P0."""
    hold_s: float = 0.0
    """How long a publication waits while nodes swap, in seconds."""
    cover: Literal["none", "one"] = "none"
    """Probabilistic forwarding: a node can recruit one neighbour."""
    mu: float = 0.0
    """The probability that a node recruits a cover."""
    publish_s: float = 0.0
    """Seconds after the start at which the publisher publishes; 0: never."""
    watch_s: float = 120.0
    """Seconds that the observer watches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares("mu")
        self.check_not_negative("decay", "reach", "hold_s", "publish_s")
        check_wait(self.wait_s)
        if self.heartbeat_s <= 0 or self.watch_s <= max(self.publish_s, self.hold_s):
            raise ConfigError("heartbeat_s is above 0, and watch_s longer than publish_s and hold_s")


class OverEpochsParams(OverlayParams, frozen=True, kw_only=True):
    """A mesh that is laid again in every epoch."""

    STEP_UNIT: ClassVar[str] = "epochs"

    steps: tuple[float, ...]
    """Numbers of epochs after which the run is measured."""
    cover: Literal["none", "one"] = "none"
    """Probabilistic forwarding: a node can recruit one neighbour."""
    mu: float = 0.0
    """The probability that a node recruits a cover."""
    covers: Literal["fixed", "sole", "variable"] = "fixed"
    """Whether covers are drawn once ("fixed") or in each epoch ("variable"). "sole": once, and a node whose cover
    refuses asks no other."""
    kappa: float = 0.0
    """The hardened mesh: the share of the other nodes that act as subscribers. Above 0 there is neither probabilistic
    forwarding nor a shell game."""
    insiders: float = 0.0
    """The share of nodes that are in the coalition."""
    churn: float = 0.0
    """The share of honest nodes that are away in an epoch."""
    origin: Literal["kept", "fresh"] = "kept"
    """Whether the same node publishes in each epoch, or another one in each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_shares("mu", "kappa", "insiders", "churn")
        check_steps(self.steps, required=True)
        if self.kappa and self.cover != "none":
            raise ConfigError("over epochs a hardened mesh has no covers by probabilistic forwarding")

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps


class MeshEpochs(OverEpochsParams, frozen=True, kw_only=True, tag="mesh.epochs"):
    """A mesh over epochs: its cost, and what attackers learn from all epochs up to a step."""

    KNOWN_ATTACKERS: ClassVar[tuple[str, ...]] = ATTACKS

    pace: Literal["instant", "beats"] = "instant"
    """Whether all nodes send their heartbeats at the same moments, or each at its own."""
    hop_s: float = 0.05
    """How long a hop takes, in seconds."""
    games: float = 0.0
    """Shell games in each epoch, for each node of the mesh; they begin and end with the epoch."""
    steady: bool = True
    """Whether the publisher of a hardened mesh is always present, or away as often as other nodes."""
    departures: int = 0
    """Hardened mesh: the publisher sends what it has once in this many epochs; 0: in every epoch."""
    hold: int = 0
    """Hardened mesh: longest time that the root delays a notification, in epochs."""
    parcels: bool = False
    """Hardened mesh: every member sends parcels over its stem, and a publisher draws how long its notification is held.
    Needs `steady = false` with the machines."""
    notes: float = 1.0
    """Hardened mesh: probability that the publisher writes a notification in an epoch in which it is present."""
    cover_life: int = 0
    """Hardened mesh: mean number of epochs after which a cover is drawn again; 0: covers for life, as the machines have
    them."""
    relay_epochs: int = 0
    """Hardened mesh: after this many epochs the publisher takes another first relay; 0: never."""
    attacks: tuple[str, ...] = ()
    """The attackers that look for subscribers and publisher, each with what it saw in the epochs up to a step: names of
    [attackers](#attackers), or of attackers of your own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_not_negative("hop_s", "games", "departures", "hold", "cover_life", "relay_epochs")
        if len(set(self.attacks)) < len(self.attacks):
            raise ConfigError("attacks are named once each")
        if not 0 < self.notes <= 1:
            raise ConfigError("notes is a probability above 0")
        if self.kappa and (self.games or self.origin == "fresh"):
            raise ConfigError("over epochs a hardened mesh has no games, and keeps its root")
        if not self.kappa and (self.departures or self.hold or self.relay_epochs or not self.steady):
            raise ConfigError("publishers come and go, and their notes wait, in a hardened mesh: kappa above 0")

    def named_attackers(self) -> tuple[str, ...]:
        return self.attacks


class MeshTopics(OverEpochsParams, frozen=True, kw_only=True, tag="mesh.topics"):
    """Several topics on one overlay. Insiders without keys try to name their tokens, and to link them over epochs."""

    topics: int
    """Number of topics. The most popular is read by a share `ratio`, the others by their rank; where a file has
    subscriptions, they are its most popular ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(1, "topics")
        if self.insiders == 0:
            raise ConfigError("several topics are for insiders who see their tokens: insiders above 0")


class MeshPruning(OverlayParams, frozen=True, kw_only=True, tag="mesh.pruning"):
    """One insider that prunes branches of the mesh."""

    pruner: Literal["publisher", "subscriber"]
    """The role of the insider."""


class MeshClocks(RunParams, frozen=True, kw_only=True, tag="mesh.clocks"):
    """Whether an observer of all cells recognises machines by the errors of their clocks."""

    STEP_UNIT: ClassVar[str] = "minutes"

    clocks: Literal["grid", "walk", "wander"]
    """Cells leave on a grid of the sender's clock; on a grid whose phase does a random walk; or as links send them,
    where each link also has its own period."""
    steps: tuple[float, ...]
    """Minutes that the observer watches."""
    nodes: int = 500
    degree: int = 4
    skew_ppm: float = 30.0
    """The spread of the errors of clocks, in parts per million; 0 is the null control."""

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        check_degree(self.degree, self.nodes)
        self.check_not_negative("skew_ppm")
        check_steps(self.steps, required=True)

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps


class MeshActive(RunParams, frozen=True, kw_only=True, tag="mesh.active"):
    """A coalition that does more than watch, on the machines, in a small world."""

    script: Literal["timing", "quitting", "siege", "refusing", "crawling", "bogus", "tagging", "replay"]
    """The behaviour of the coalition (`runs.mesh.active_insiders`)."""
    nodes: int = 500
    degree: int = 4
    rewire: float = 0.2
    ratio: float = 0.1
    """The share of nodes that subscribe."""
    insiders: float = 0.0
    """The share of nodes that are in the coalition."""
    kappa: float = 0.0
    """Above 0, the mesh is hardened, and this share of the other nodes act as subscribers."""
    game: Literal["none", "events"] = "none"
    """Whether honest nodes play the shell game."""
    decay: float = 0.0
    """Lambda, the decay of the shell game."""
    wait_s: float = 5.0
    """Mean wait of a node between games, in seconds."""

    def __post_init__(self) -> None:
        self.check_shares("rewire", "ratio", "insiders", "kappa")
        self.check_not_negative("decay")
        check_nodes(self.nodes)
        check_degree(self.degree, self.nodes)
        check_wait(self.wait_s)
        if self.script in ("refusing", "crawling", "bogus") and self.game != "events":
            raise ConfigError(f'script = "{self.script}" is for a shell game: game = "events"')


class MeshGrinding(RunParams, frozen=True, kw_only=True, tag="mesh.grinding"):
    """One insider that grinds addresses in a hardened mesh, on the machines."""

    STEP_UNIT: ClassVar[str] = "seconds"

    steps: tuple[float, ...]
    """Seconds of the attack after which the run is measured."""
    kappa: float
    """The share of the other nodes that act as subscribers."""
    nodes: int = 500
    first_relay: Literal["kept", "any"] = "kept"
    """Whether nodes keep their first relay, or rank all neighbours' addresses."""

    def __post_init__(self) -> None:
        self.check_shares("kappa")
        check_nodes(self.nodes)
        check_steps(self.steps, required=True)
        if not self.kappa:
            raise ConfigError("address grinding is for a hardened mesh, with kappa above 0")

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps


class MeshWires(RunParams, frozen=True, kw_only=True, tag="mesh.wires"):
    """A small world with encrypted links whose traffic is captured on all wires."""

    wire: Literal["prompt", "cells"]
    """"cells" is the hardened network, with a kappa above 0: each link is a stream of constant cells. "prompt" is the
    paper's: messages are encrypted and leave at once."""
    nodes: int = 500
    degree: int = 4
    rewire: float = 0.2
    ratio: float = 0.1
    """The share of nodes that subscribe."""
    kappa: float = 0.0
    """The share of the other nodes that act as subscribers."""
    publishers: int = 1
    publications: int = 1
    attacks: tuple[str, ...] = ()
    """Names of attackers beside those that a run asks in any case: attackers of your own, mostly."""

    def __post_init__(self) -> None:
        self.check_shares("rewire", "ratio", "kappa")
        self.check_at_least(1, "publishers", "publications")
        check_nodes(self.nodes)
        check_degree(self.degree, self.nodes)
        if (self.wire == "cells") != (self.kappa > 0):
            raise ConfigError('wire = "cells" is the hardened network, with a kappa above 0; "prompt" the paper\'s')

    def named_attackers(self) -> tuple[str, ...]:
        return self.attacks


def check_nodes(nodes: int) -> None:
    if nodes < 2:
        raise ConfigError(f"nodes must be at least 2, not {nodes}")


def check_degree(degree: int, nodes: int) -> None:
    if not 2 <= degree < nodes:
        raise ConfigError(f"degree must be at least 2 and less than the {nodes} nodes, not {degree}")


def check_wait(wait_s: float) -> None:
    if wait_s <= 0:
        raise ConfigError(f"wait_s must be above 0, not {wait_s}")


_STORED: Final = ("gnutella", "deezer")
"""Overlays that lie in the data folder."""
