"""What one run is made from, together with its seed: the overlay, who subscribes, the defence, and when to look.

A run is a function of its parameters and its seed and of nothing else: not of the partition it falls into, nor of what
ran before it. The defaults are P0's: 500 nodes of degree 4, a tenth of them subscribers, no defence, one look at the
mesh that stands.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.broker_params import Replaying

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
"""Against subscribers, by whoever sees all wires."""
Inside: TypeAlias = Literal["group-testing", "linear", "binned", "handed"]
"""Against subscribers, by a coalition of members."""
Source: TypeAlias = Literal[
    "flow-source", "roots", "rumor", "first-spy", "trilateration", "predecessor", "presence", "sender"
]
"""Against the publisher: the first three from outside, the others by a coalition."""
Attack: TypeAlias = Outside | Inside | Source
Observer: TypeAlias = Literal["server", "proxy", "wires", "server and wires"]
"""Of a relay."""


class Params(Replaying, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a run. Every one may be an axis of an experiment, or differ between its series."""

    graph: Literal["small-world", "regular", "scale-free", "scamp", "gnutella", "deezer", "drawn"] = "small-world"
    """The basic overlay G; gnutella and deezer are read from the data folder, and bring their own size and degrees;
    "drawn" is one of the pictures of P0's worked example."""
    picture: Literal[0, 2, 3] = 0
    """The number of its covers."""
    nodes: int = 500
    degree: int = 4
    rewire: float = 0.2
    sample: int = 0
    """Of an overlay from the data folder, so many nodes around one that is drawn for the run; 0 is all of it."""
    links_max: int = 0
    """Who has more links loses some; 0 is without end. Machines can have 64."""
    ties: Literal["uniform", "first"] = "uniform"
    """Which of several parents at the same distance a node takes: any, or the first in order."""
    pace: Literal["instant", "beats"] = "instant"
    """Whether adverts and invitations take no time, or wait for their sender's next heartbeat as the machines' do."""
    ratio: float = 0.1
    """The share of all nodes that subscribe, |Sa|/|V|."""
    topic: str = ""
    """Where the data folder says who subscribes to what: the topic; empty draws subscribers by the ratio."""
    cover: Literal["none", "one", "each"] = "none"
    """Probabilistic forwarding: a node may recruit one neighbour (fits P0's numbers), or each of them (its text)."""
    mu: float = 0.0
    covers: Literal["fixed", "sole", "variable"] = "fixed"
    """Whether covers are drawn once or for every publication, or in each epoch; "sole", over epochs: once, and where
    that one refuses nobody else is asked."""
    publications: int = 1
    """How many the observer sees."""
    game: Literal["none", "events", "swaps"] = "none"
    """The shell game: with timers, decay and locks; or bare swaps of random inner nodes, for its limit and for size."""
    decay: float = 0.0
    """Lambda."""
    decay_by: Literal["time", "count"] = "time"
    start: Literal["immediate", "wait"] = "immediate"
    """Whether a node plays when its first child connects, or waits as it does afterwards."""
    wait_s: float = 5.0
    """The mean of a node's waits between games."""
    lock_s: float = 0.0
    """How long a swap keeps its neighbourhood from another one."""
    hop_s: float = 0.05
    """How long a subscription takes from one node to the next."""
    look: Literal["end", "swaps", "rounds", "seconds", "publications", "epochs", "clients", "minutes"] = "end"
    """What `steps` count: the moments at which the observer's success is measured. A round is a swap for each node of
    the mesh."""
    steps: tuple[float, ...] = ()
    kappa: float = 0.0
    """The hardened mesh: the share of the other nodes that act as subscribers; over 0, there is neither PF nor SG."""
    insiders: float = 0.0
    """The share of nodes that are in the coalition."""
    script: Literal[
        "", "timing", "quitting", "siege", "refusing", "crawling", "bogus", "tagging", "replay", "grinding"
    ] = ""
    """What the coalition does besides watching (`active_runs`); on the machines only."""
    first_relay: Literal["kept", "any"] = "kept"
    """With the script "grinding": whether nodes keep their first relay, or rank all neighbours' addresses."""
    churn: float = 0.0
    """The share of honest nodes that are away in an epoch."""
    origin: Literal["kept", "fresh"] = "kept"
    """Over epochs, whether the same node publishes in each, or another one in each."""
    games: float = 0.0
    """Over epochs, the shell games in each for each node of the mesh; they begin and end with it."""
    steady: bool = True
    """Over epochs, whether the publisher of a hardened mesh is always there, or away as often as others."""
    departures: int = 0
    """There, once in how many epochs it lets go what it has; 0 in every one."""
    hold: int = 0
    """There, for how many epochs the root keeps a note at most."""
    relay_epochs: int = 0
    """There, after how many epochs the publisher has another first relay; 0 for never."""
    attacks: tuple[Attack, ...] = ()
    """Over epochs, who tries to find subscribers and publisher, each with what it saw in the epochs up to a step."""
    topics: int = 0
    """Over epochs, above 0: so many topics on one overlay, whose tokens insiders without keys try to name and to link.
    The most popular is read by `ratio`, the others by their rank; or they are the data's most popular ones."""
    pruner: Literal["none", "publisher", "subscriber"] = "none"
    """Whether there is one insider who prunes branches, and what it is."""
    wire: Literal["bare", "prompt", "cells"] = "bare"
    """Of machines: whether they talk without links, as P0's do, so that notes are seen as they are; over encrypted
    links; or over links that carry constant cells. With links, all wires are captured."""
    publishers: int = 1
    """How many there are, where wires are captured."""
    relay: Literal["", "paper", "hardened"] = ""
    """Whether there is a relay in place of a mesh, over epochs; `nodes` are its users, and `topics` what they read."""
    batch: float = 0.0
    """There, how many requests are in a batch of the proxy on the average; 0: each goes on at once."""
    constant: bool = False
    """There, whether clients and proxy exchange records at a constant rate."""
    queries: int = 0
    """There, how many topics the server, being a user too, may ask about in an epoch."""
    observers: tuple[Observer, ...] = ("server", "proxy", "wires", "server and wires")
    """There, who tries to find out anything."""
    tree: Literal["", "paper", "hardened"] = ""
    """Whether there are spanning trees in place of a mesh: what publications cost; over epochs, each of which has new
    trees, what a coalition finds out; or, with droppers, how subscribers find those."""
    depth: int = 3
    """Of trees, in hops."""
    readers: int = 1
    """How many subscribe, to one topic."""
    routing: Literal["trees", "seen", "labels"] = "trees"
    """By tree; or by topic alone, with a memory of what was seen, or with labels in a header (P2)."""
    chain: int = 3
    """Hardened, the guards by which a tree hangs."""
    tail: int = 0
    """Above 0, so many more, and the subscriber stands behind any of all of them."""
    guards: Literal["kept", "fresh"] = "kept"
    """Whether guards outlast an epoch; a share of them, `churn`, does not even so."""
    padded: bool = True
    """Hardened, whether bundles have one size."""
    droppers: float = 0.0
    """The share of nodes that throw away what they should hand on, each time with probability `drops`."""
    drops: float = 1.0
    circuit: int = 6
    """How many relays of an anonymous network stand between two nodes of a tree; 0: they talk directly."""
    timed: Literal["", "subscribing", "publishing", "crowd"] = ""
    """Of a relay or of trees, what clients wait for (`delay_runs`), with as many of them as each step says; on the
    machines only."""
    clocks: Literal["", "grid", "walk", "wander"] = ""
    """Whether an observer tries to know machines by their clocks (`clock_runs`): cells leave on a grid of the clock, on
    one whose phase does a random walk, or as links send them, with a period of each link's own besides."""
    skew_ppm: float = 30.0
    """There, the spread of the errors of clocks; 0 is the null control."""
    serial: bool = False
    """There, whether proxies wait for the server's answer to one request before they look at the next."""

    def __post_init__(self) -> None:
        for name in ("rewire", "ratio", "mu", "kappa", "insiders", "churn", "droppers", "drops"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be a share between 0 and 1, not {getattr(self, name)}")
        for name in (
            "decay",
            "lock_s",
            "hop_s",
            "games",
            "departures",
            "hold",
            "relay_epochs",
            "batch",
            "queries",
            "tail",
            "circuit",
            "skew_ppm",
        ):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative")
        if self.nodes < 2 or min(self.publications, self.publishers) < 1 or self.wait_s <= 0:
            raise ConfigError("nodes must be at least 2, publications and publishers at least 1, and wait_s above 0")
        if self.graph in ("small-world", "regular", "scale-free") and not 2 <= self.degree < self.nodes:
            raise ConfigError(f"degree must be at least 2 and less than the {self.nodes} nodes, not {self.degree}")
        if self.topic and self.graph != "deezer":
            raise ConfigError('topic is for graph = "deezer": elsewhere nobody knows who subscribes to what')
        if (self.sample and self.graph not in _STORED) or self.sample in (1, 2) or min(self.sample, self.links_max) < 0:
            raise ConfigError(
                "sample is 3 nodes at least, of an overlay from the data folder; links_max is not negative"
            )
        if self.pace == "beats" and (self.ties != "uniform" or self.cover == "each"):
            raise ConfigError('pace = "beats" decides ties by who tells first, and knows covers by the rule "one"')
        if (self.look == "end") != (not self.steps):
            raise ConfigError(
                "steps are the moments of look = "
                '"swaps", "rounds", "seconds", "publications", "epochs", "clients" or "minutes"'
            )
        if list(self.steps) != sorted(set(self.steps)) or any(step < 0 for step in self.steps):
            raise ConfigError("steps must rise, and not be negative")
        if self.relay and self.tree:
            raise ConfigError("a run is of a relay or of trees, not of both")
        if (self.timed != "") != (self.look == "clients") or (self.timed and not (self.relay or self.tree)):
            raise ConfigError('what is timed is a relay, or trees, at numbers of clients (look = "clients")')
        if self.tree and self.look not in ("end", "epochs", "clients"):
            raise ConfigError("trees are looked at in the end, over epochs, or at numbers of clients")
        if min(self.depth, self.readers, self.chain) < 1:
            raise ConfigError("depth, readers and chain must be at least 1")
        if self.relay and not self.timed and (not self.topics or self.look != "epochs"):
            raise ConfigError('a relay has topics, and is looked at over epochs (look = "epochs")')
        if self.topics < 0 or (self.topics and self.attacks):
            raise ConfigError("topics must not be negative, and where there are several no other attacks are run")
        if len(set(self.attacks)) < len(self.attacks):
            raise ConfigError("attacks are named once each")
        if self.foil:
            self.check_foiling()
        if self.brokers:
            self.check_replaying()

    def heed(self, runs: str, *switches: str) -> None:
        """Raise where something is switched on that these runs do not heed: they would be taken for what they are not.
        What only says more of a switch that is off does no harm."""
        idle = [name for name in _SWITCHES if name not in switches and getattr(self, name) != getattr(_OFF, name)]
        if idle:
            raise ConfigError(f"{runs} know nothing of {', '.join(idle)}")

    def sources(self, engine: str) -> list[str]:
        """What a run by this engine reads from the data folder, by the names of `lab.data`. On real sockets frames take
        the time that they take."""
        if self.timed:
            return [] if engine == "live" else ["planetlab"]
        return self.stocks() or self.traced() or ([self.graph] if self.graph in _STORED else [])


_STORED: Final = ("gnutella", "deezer")
"""Overlays that lie in the data folder."""
_SWITCHES: Final = (
    "cover",
    "publications",
    "game",
    "kappa",
    "insiders",
    "script",
    "first_relay",
    "churn",
    "origin",
    "games",
    "steady",
    "departures",
    "hold",
    "relay_epochs",
    "attacks",
    "topics",
    "pruner",
    "wire",
    "publishers",
    "relay",
    "tree",
    "readers",
    "routing",
    "droppers",
    "batch",
    "constant",
    "queries",
    "timed",
    "clocks",
    "serial",
    "foil",
    "brokers",
)
_OFF: Final = Params()


class Measure(msgspec.Struct, frozen=True, gc=False):
    """One number that came of a run: what an attack reached, or (with no attack) what the network did."""

    attack: str
    metric: str
    step: float
    """The moment of it, in what the parameters' `look` counts; 0 at the end."""
    value: float
