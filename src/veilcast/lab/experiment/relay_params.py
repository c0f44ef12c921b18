"""Parameters of runs of a relay."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import check_nodes
from veilcast.lab.experiment.params import RunParams, UserFile, check_steps, file_path

LATENCIES: Final = ("planetlab",)
LatencyChoice: TypeAlias = Annotated[str, msgspec.Meta(extra={"names": LATENCIES})]
RelayObserver: TypeAlias = Literal["server", "proxy", "wires", "server and wires"]


class RelayAttacks(RunParams, frozen=True, kw_only=True, tag="relay.attacks"):
    """A relay over epochs, and what its server, its proxy and an observer of its clients' wires learn."""

    STEP_UNIT: ClassVar[str] = "epochs"

    relay: Literal["paper", "hardened"]
    """The profile."""
    topics: int
    """Number of topics that users read."""
    steps: tuple[float, ...]
    """Numbers of epochs after which the run is measured."""
    graph: Literal["", "deezer"] = ""
    """Empty: users read topics at random, the most popular with probability `ratio`. "deezer": interests are read from
    the data folder."""
    subscriptions: str = ""
    """"file:PATH": interests of your own, a user and a topic in a line; `graph` is empty then."""
    nodes: int = 500
    """Number of users."""
    ratio: float = 0.1
    """The share of users that read the most popular topic."""
    churn: float = 0.0
    """The share of users that are away in an epoch."""
    batch: float = 0.0
    """Mean number of requests in a batch of the proxy; 0: the proxy forwards each request at once."""
    constant: bool = False
    """Whether clients and proxy exchange records at a constant rate; on the machines only."""
    queries: int = 0
    """Number of topics that the server, being a user too, can ask about in an epoch."""
    observers: tuple[RelayObserver, ...] = ("server", "proxy", "wires", "server and wires")
    """The adversaries."""
    attacks: tuple[str, ...] = ()
    """Names of attackers beside those that a run asks in any case: attackers of your own, mostly."""

    def __post_init__(self) -> None:
        self.check_shares("ratio", "churn")
        self.check_not_negative("batch", "queries")
        self.check_at_least(1, "topics")
        if self.subscriptions and (self.graph or not file_path(self.subscriptions)):
            raise ConfigError('subscriptions are "file:PATH", and stand alone: without graph')
        check_nodes(self.nodes)
        check_steps(self.steps, required=True)

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps

    def data_sources(self, engine: str) -> list[str]:
        return ["deezer"] if self.graph else []

    def named_attackers(self) -> tuple[str, ...]:
        return self.attacks

    def user_files(self) -> list[UserFile]:
        path = file_path(self.subscriptions)
        return [UserFile("subscriptions", path)] if path else []


class RelayDelays(RunParams, frozen=True, kw_only=True, tag="relay.delays"):
    """How long clients of a relay wait."""

    STEP_UNIT: ClassVar[str] = "clients"

    relay: Literal["paper", "hardened"]
    """The profile."""
    timed: Literal["subscribing", "publishing", "crowd"]
    """The event that clients wait for (`runs.relay.delays`)."""
    steps: tuple[float, ...]
    """Numbers of clients."""
    nodes: int = 500
    """Number of hosts for clients."""
    latencies: LatencyChoice = "planetlab"
    """Round trips between hosts: those of PlanetLab, from the data folder, or "file:PATH", of your own. Live runs
    have those of the computer."""
    serial: bool = False
    """Whether a proxy waits for the server's answer to a request before it handles the next one."""

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        check_steps(self.steps, required=True)
        self.check_choice("latencies", LATENCIES, file="round trips")

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps

    def data_sources(self, engine: str) -> list[str]:
        # On real sockets, frames take the time that they take.
        return [] if engine == "live" or file_path(self.latencies) else [self.latencies]

    def user_files(self) -> list[UserFile]:
        path = file_path(self.latencies)
        return [UserFile("latencies", path)] if path else []

    def check_hosts(self, readers: int) -> None:
        if max(*self.steps, readers) > self.nodes:
            raise ConfigError(f"there must be as many nodes as a step says, and {readers} at least, not {self.nodes}")


class RelayTiming(RunParams, frozen=True, kw_only=True, tag="relay.timing"):
    """Whether a relay's server links the leases of a member by the times of what arrives under them."""

    STEP_UNIT: ClassVar[str] = "hours"

    relay: Literal["answers", "drawn", "held"]
    """How members ask for deliveries: a fixed time after the last answer; at random times; or at random times, and the
    proxy holds leases and deliveries, which is the product's default."""
    steps: tuple[float, ...]
    """Hours of the run; one number."""
    nodes: int = 40
    """Number of members."""
    topics: int = 8
    subscriptions: int = 3
    """Most subscriptions of a member; each has one at least."""
    publications: float = 60.0
    """Publications an hour."""
    absences: float = 4.0
    """Mean number of times a day that a member goes away and comes back."""
    away_minutes: float = 30.0
    """Mean length of an absence; each lasts between a third and five thirds of it."""
    ahead: int = 1
    """Epochs for which a proxy has leases beyond the current one."""
    wander_ms: float = 0.0
    """Links become up to this much slower and quicker again within the hour."""
    spread_ms: float = 90.0
    """Latencies of links differ by up to this much; 0 is a null control."""

    def __post_init__(self) -> None:
        self.check_at_least(1, "topics", "subscriptions", "ahead")
        self.check_not_negative("publications", "absences", "away_minutes", "wander_ms", "spread_ms")
        check_nodes(self.nodes)
        check_steps(self.steps, required=True)
        if len(self.steps) > 1:
            raise ConfigError("a run has one number of hours as its step")

    def observed_steps(self) -> tuple[float, ...]:
        return self.steps
