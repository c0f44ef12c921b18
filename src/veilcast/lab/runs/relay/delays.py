"""How long a relay's clients wait (P2, Figs. 3 to 5): its machines in the simulator, with PlanetLab's latencies.

One server and two proxies, one for publishers and one for subscribers, among as many hosts as P2 had. Work takes time
(`sim.busy`): the cost of each kind of message for proxy and server was measured on the machines themselves. Clients
join before anything is timed.

- *subscribing* (Fig. 3): a number of clients ask for the topic at once; the time until the last subscription is active;
- *publishing* (Fig. 4): one of a number of subscribers publishes; the time until it has its own notification, and until
  all have it;
- *crowd* (Fig. 5): a number of clients publish at once to fifty subscribers; the time until one of them has its own
  notification.

P2's proxies handled one request after the other, and waited for the server in between: `serial` makes them do so. That
makes P2's times grow with the number of subscribers. Without it a request costs only its own work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.lab.data import load_round_trips
from veilcast.lab.experiment.params import Measure, file_path
from veilcast.lab.experiment.relay_params import RelayDelays
from veilcast.lab.runs.planetlab import PlanetLabLinks, place_on_planetlab
from veilcast.lab.runs.relay.loopback_relay import LoopbackRelay
from veilcast.machine import Address, Delivered, Event, Publication, Waiting
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RateAllowance, RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.server import RelayServer
from veilcast.sim.busy_machine import BusyMachine, FrameCost
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.sim.relay.population import SERVER, proxy_mask, server_keys
from veilcast.sim.workload import AcknowledgingClients
from veilcast.sim.world import World
from veilcast.topics import Label
from veilcast.wire.base import Message
from veilcast.wire.relay import TYPE_BYTES as KINDS
from veilcast.wire.relay import Blind, Blinded, EnrolClient, Lease, Receipt, RelayDelivery, RequestReply, Resume, Submit


def run(params: RelayDelays, seed: int, data: Path | None = None) -> list[Measure]:
    params.check_hosts(READER_COUNT)
    names = [SERVER, UP, DOWN, *(Address(f"c{number}") for number in range(params.nodes))]
    links = place_on_planetlab(names, load_round_trips(data, file_path(params.latencies)), seed)
    found = []
    for step in params.steps:
        relay_under_test = SimulatedRelay(params, seed, links)
        times = _TASKS[params.timed](relay_under_test, int(step))
        found += [Measure("", metric, step, value) for metric, value in times.items()]
    return found


def run_on_sockets(params: RelayDelays, seed: int, data: Path | None = None) -> list[Measure]:
    """The same on the loopback interface, where only work takes time (`loopback_relay`)."""
    if params.serial:
        raise ConfigError("on real sockets proxies do not wait for the server between requests: serial is for machines")
    found = []
    for step in params.steps:
        with LoopbackRelay(_profile(params), TOPIC, seed) as desk:
            times = _TASKS[params.timed](desk, int(step))
        found += [Measure("", metric, step, value) for metric, value in times.items()]
    return found


class TimedRelay(Protocol):
    """The interface of a relay that is timed."""

    def join(self, count: int) -> list[Address]:
        """Add `count` clients that have met proxies and server."""

    def subscribe(self, clients: Sequence[Address]) -> float:
        """Subscribe all clients at once. Returns seconds until the last subscription is active."""

    def publish(self, publishers: Sequence[Address], readers: Sequence[Address]) -> list[float]:
        """Publish all at once. Returns seconds until each reader has the first publisher's notification."""


class RelayWork(NamedTuple):
    """Cost of messages, in microseconds of one core."""

    coming: dict[type[Message], int]
    copy: int
    """Cost of each delivery that is sent."""


class SimulatedRelay:
    """A simulated relay that records when its clients' subscriptions and notifications arrive."""

    def __init__(self, params: RelayDelays, seed: int, links: PlanetLabLinks) -> None:
        self._profile = _profile(params)
        self._serial, self._links = params.serial, links
        self.world = World(seed=seed, links=links, on_event=self._hear)
        self.world.watch(AcknowledgingClients())
        self._stands: dict[Address, int] = {}
        """When the subscription of each client became active."""
        self._got: dict[tuple[Address, bytes], int] = {}
        """When a client received a notification, by its body."""
        self.world.add(SERVER, self._server)
        for proxy in (UP, DOWN):
            self.world.add(proxy, self._proxy)
        self.world.run(_SETTLING_US)

    def join(self, count: int) -> list[Address]:
        names = [Address(f"c{number}") for number in range(count)]
        for number, name in enumerate(names):
            self.world.add(name, self._client(number))
        self.world.run(_SETTLING_US)
        return names

    def subscribe(self, clients: Sequence[Address]) -> float:
        since = self.world.now
        for client in clients:
            self.world.call(client, lambda machine, now: machine.subscribe(Label(TOPIC), now))
        self._until(lambda: all(client in self._stands for client in clients))
        return (max(self._stands[client] for client in clients) - since) / 1e6

    def publish(self, publishers: Sequence[Address], readers: Sequence[Address]) -> list[float]:
        since = self.world.now
        for client in publishers:
            self.world.call(client, _publish(client.encode()))
        wanted = [(reader, publishers[0].encode()) for reader in readers]
        self._until(lambda: all(each in self._got for each in wanted))
        return [(self._got[each] - since) / 1e6 for each in wanted]

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(_PATIENCE_S * 1_000_000 // _LOOK_US):
            self.world.run(_LOOK_US)
            if done():
                return
        raise ConfigError(f"the relay did not answer all of its clients within {_PATIENCE_S} seconds")

    def _hear(self, address: Address, event: Event, now: int) -> None:
        match event:
            case Waiting(_, until_us) if until_us is not None:
                self._stands.setdefault(address, now)
            case Delivered(_, note):
                self._got.setdefault((address, note.publication.body), now)

    def _server(self, birth: Birth) -> BusyMachine:
        config = RelayServerConfig(self._profile)
        server = RelayServer(config, server_keys(), birth.rng, birth.entropy, birth.now, birth.stored)
        return BusyMachine(server, *_costs(_SERVER[self._profile]))

    def _proxy(self, birth: Birth) -> BusyMachine:
        # A client of the crowd must not be delayed by limits that another has used up, so limits are out of reach.
        free = RateAllowance(1, 1_000_000)
        patient_us = _PATIENCE_S * 1_000_000
        config = RelayProxyConfig(self._profile, publications=free, requests=free, volume=free, request_us=patient_us)
        if self._profile == "paper":
            config = msgspec.structs.replace(config, batch_us=0)
        mask = proxy_mask() if self._profile == "hardened" else None
        public = server_keys().public()
        proxy = RelayProxy(config, public, [SERVER], mask, birth.rng, birth.entropy, birth.now, birth.stored)
        waits_us = 2 * self._links.latency_between(birth.address, SERVER, 0) if self._serial else 0
        return BusyMachine(proxy, *_costs(_PROXY[self._profile], waits_us))

    def _client(self, number: int) -> Callable[[Birth], RelayClient]:
        # Nothing is lost here, and a client that retries before its turn would only make the queue longer.
        config = RelayClientConfig(self._profile, retry_us=_PATIENCE_S * 1_000_000)
        if self._profile == "paper":
            config = msgspec.structs.replace(config, spread_us=0)
        keyring = make_keyring(
            make_topic_records((TOPIC,), 0.0, self._profile), HOUR_US, ((TOPIC, "publisher"),), number
        )

        def start(birth: Birth) -> RelayClient:
            public, ways = server_keys().public(), [UP, DOWN]
            return RelayClient(config, keyring, public, ways, birth.rng, birth.entropy, birth.now, birth.stored)

        return start


def _profile(params: RelayDelays) -> Profile:
    return "paper" if params.relay == "paper" else "hardened"


def _subscribing(relay_under_test: TimedRelay, count: int) -> dict[str, float]:
    return {"subscribed_s": relay_under_test.subscribe(relay_under_test.join(count))}


def _publishing(relay_under_test: TimedRelay, count: int) -> dict[str, float]:
    readers = relay_under_test.join(count)
    relay_under_test.subscribe(readers)
    times = relay_under_test.publish(readers[:1], readers)
    return {"own_s": times[0], "last_s": max(times)}


def _crowd(relay_under_test: TimedRelay, count: int) -> dict[str, float]:
    clients = relay_under_test.join(max(count, READER_COUNT))
    relay_under_test.subscribe(clients[:READER_COUNT])
    return {"own_s": relay_under_test.publish(clients[:count], clients[:1])[0]}


def _publish(body: bytes) -> Callable[[Any, int], int]:
    def publish(machine: Any, now: int) -> int:
        record: int = machine.publish(Publication((Label(TOPIC).pair,), body), now)
        return record

    return publish


def _costs(work: RelayWork, waits_us: int = 0) -> tuple[FrameCost, FrameCost]:
    """Costs of received and of sent frames. `waits_us` is added for each request that the server must answer."""
    coming = {kind: work.coming.get(KINDS[kind], 0) + (waits_us if KINDS[kind] in _ASKED else 0) for kind in KINDS}
    return (
        lambda data: _SOCKET_US + coming[data[0]],
        lambda data: _SOCKET_US + work.copy * (KINDS[data[0]] is RelayDelivery),
    )


UP: Final = Address("up")
DOWN: Final = Address("down")
TOPIC: Final = "delays"
READER_COUNT: Final = 50
"""Subscribers of Fig. 5."""
_TASKS: Final[Mapping[str, Callable[[TimedRelay, int], dict[str, float]]]] = {
    "subscribing": _subscribing,
    "publishing": _publishing,
    "crowd": _crowd,
}
_ASKED: Final = (Lease, Submit)
_SOCKET_US: Final = 30
"""Cost of each record on a TLS stream, received or sent."""
_SERVER: Final = {
    "paper": RelayWork({Blind: 200, Lease: 320, Resume: 70, Submit: 500, Receipt: 10}, 1),
    "hardened": RelayWork({Blind: 150, Lease: 470, Resume: 15, Submit: 400, Receipt: 10}, 5),
}
_PROXY: Final = {
    "paper": RelayWork(
        {EnrolClient: 25, Blinded: 40, Lease: 130, Resume: 20, Submit: 220, RequestReply: 12, Receipt: 11}, 190
    ),
    "hardened": RelayWork(
        {EnrolClient: 15, Blinded: 110, Lease: 200, Resume: 15, Submit: 200, RequestReply: 8, Receipt: 10}, 25
    ),
}
_SETTLING_US: Final = 30_000_000
_LOOK_US: Final = 100_000
_PATIENCE_S: Final = 600
