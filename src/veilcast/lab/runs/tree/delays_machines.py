"""How long subscribers of trees wait (P2, Figs. 3 to 5), on the machines of all nodes, in the simulator.

1. The same events as in the model (`delays_model`), at the same distances: a record between two nodes takes the time of
   a circuit through relays. Routing is by trees.
2. Work takes time (`sim.busy_machine`), at the costs that the model has. Wrapping an instruction is not charged: it
   takes some 110 microseconds for each node, on the subscriber alone.
3. What the model leaves out happens here: a stream must be opened before its first record, records are confirmed,
   hardened nodes probe their trees, and a directory lists the nodes.
4. A subscription is active when the last node has its instruction: when no table has grown for `_QUIET_US`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from veilcast.authority.epoch import HOUR_US
from veilcast.errors import ConfigError
from veilcast.lab.data import load_round_trips
from veilcast.lab.experiment.params import Measure, file_path
from veilcast.lab.experiment.tree_params import TreeDelays
from veilcast.lab.models.rng import stream
from veilcast.lab.models.tree_delays import CircuitNetwork, circuit_time_us
from veilcast.lab.runs.planetlab import place_on_planetlab
from veilcast.lab.runs.relay.delays import READER_COUNT
from veilcast.lab.runs.tree.delays_model import TREE_WORK
from veilcast.machine import Address, Delivered, Event, Publication
from veilcast.sim.busy_machine import BusyMachine
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring, make_topic_records
from veilcast.sim.links import LinkDelays
from veilcast.sim.workload import AcknowledgingClients
from veilcast.sim.world import ANONYMOUS_NETWORK, World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label
from veilcast.tree.config import DirectoryConfig, TreeConfig
from veilcast.tree.directory import Directory
from veilcast.tree.node import TreeNode
from veilcast.wire.tree import TYPE_BYTES, ForwardPublication, Install, Offer


def run(params: TreeDelays, seed: int, data: Path | None) -> list[Measure]:
    found = []
    for step in params.steps:
        times = _time(SimulatedTrees(params, seed, data), params.timed, int(step))
        found += [Measure("", metric, step, value) for metric, value in times.items()]
    return found


class CircuitLinks(LinkDelays, frozen=True, kw_only=True):
    """Links through relays, between hosts that have a place each."""

    places: dict[Address, int]
    net: CircuitNetwork

    def latency_between(self, u: Address, v: Address, seed: int) -> int:
        if v == ANONYMOUS_NETWORK:
            return 0  # A stream that was given up before it was open.
        # A node calls the name PURPOSE@ADDRESS (`core.stream_purpose`).
        one, other = (self.places[Address(each.rpartition("@")[2])] for each in (u, v))
        return circuit_time_us(self.net, one, other)


class SimulatedTrees:
    """Nodes and a directory; all nodes know one another when this is made."""

    def __init__(self, params: TreeDelays, seed: int, data: Path | None) -> None:
        self._params = params
        self.names = [Address(f"n{number}") for number in range(params.nodes)]
        hosts = place_on_planetlab([*self.names, DIRECTORY], load_round_trips(data, file_path(params.latencies)), seed)
        net = CircuitNetwork(np.array(hosts.one_way_us, np.int64), params.circuit, stream(seed, "circuits")[0])
        self.world = World(seed=seed, links=CircuitLinks(places=hosts.places, net=net), on_event=self._hear)
        self.world.watch(AcknowledgingClients())
        self._got: dict[tuple[Address, bytes], int] = {}
        """When a node received a notification, by its body."""
        records = make_topic_records((TOPIC,), 0.0, params.tree)
        directory = make_keyring(records, HOUR_US, (), params.nodes, "directory")
        self.world.add(DIRECTORY, lambda birth: Directory(_DIRECTORY, directory, birth.rng, birth.now, birth.stored))
        for number, name in enumerate(self.names):
            self.world.add(name, self._node_factory(number))
        self.world.run(_SETTLING_US)

    def subscribe(self, readers: Sequence[Address]) -> float:
        """Subscribe all at once. Returns seconds until the last node has its last instruction."""
        since = last = self.world.now
        held = self._instructions()
        for reader in readers:
            self._call(reader, lambda node, now: node.subscribe(Label(TOPIC), now))
        while self.world.now < last + _QUIET_US:
            self.world.run(_LOOK_US)
            if (now_held := self._instructions()) != held:
                held, last = now_held, self.world.now
        if last == since:
            raise ConfigError("no node has been given an instruction")
        return (last - since) / 1e6

    def publish(self, publishers: Sequence[Address], readers: Sequence[Address]) -> list[float]:
        """Publish all at once. Returns seconds until each reader has the first publisher's notification."""
        since = self.world.now
        for publisher in publishers:
            self._call(publisher, _publish(publisher.encode()))
        wanted = [(reader, publishers[0].encode()) for reader in readers]
        while not all(each in self._got for each in wanted):
            self.world.run(_LOOK_US)
            if self.world.now > since + _PATIENCE_US:
                raise ConfigError(f"a reader had no notification after {_PATIENCE_US // 1_000_000} seconds")
        return [(self._got[each] - since) / 1e6 for each in wanted]

    def _instructions(self) -> int:
        return sum(unwrap(self.world.machine(name)).sizes()["entries"] for name in self.names)

    def _call(self, name: Address, act: Callable[[Any, int], object]) -> None:
        self.world.call(name, lambda machine, now: act(unwrap(machine), now))

    def _hear(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            self._got.setdefault((address, event.note.publication.body), now)

    def _node_factory(self, number: int) -> Callable[[Birth], BusyMachine]:
        profile, work = self._params.tree, TREE_WORK[self._params.tree]
        config = TreeConfig(
            profile=profile, routing="trees", depth=self._params.depth, chain=self._params.chain, **_OPEN_HANDED
        )
        if profile == "paper":  # It sends instructions at once.
            config = msgspec.structs.replace(config, spread_us=0)
        records = make_topic_records((TOPIC,), 0.0, profile)
        keyring = make_keyring(records, HOUR_US, ((TOPIC, "publisher"),), number, "member")
        coming = {Install: work.unwrap, Offer: work.match, ForwardPublication: work.take}

        def start(birth: Birth) -> BusyMachine:
            node = TreeNode(
                config, keyring, (DIRECTORY,), birth.address, birth.rng, birth.entropy, birth.now, birth.stored
            )
            return BusyMachine(node, lambda data: coming.get(TYPE_BYTES[data[0]], 0), lambda data: work.hand)

        return start


def _time(trees: SimulatedTrees, timed: str, count: int) -> dict[str, float]:
    if timed == "subscribing":
        return {"subscribed_s": trees.subscribe(trees.names[:count])}
    readers = trees.names[: READER_COUNT if timed == "crowd" else count]
    trees.subscribe(readers)
    if timed == "crowd":
        return {"own_s": trees.publish(trees.names[:count], readers[:1])[0]}
    times = trees.publish(readers[:1], readers)
    return {"own_s": times[0], "last_s": max(times)}


def _publish(body: bytes) -> Callable[[Any, int], int]:
    def publish(node: Any, now: int) -> int:
        record: int = node.publish(Publication((Label(TOPIC).pair,), body), now)
        return record

    return publish


DIRECTORY: Final = Address("directory")
TOPIC: Final = "delays"
_DIRECTORY: Final = DirectoryConfig(lease_us=3_600_000_000, enrols_every_us=1, publish_us=1_000_000)
_OPEN_HANDED: Final[dict[str, Any]] = {
    "fetch_us": 30_000_000,
    "messages_burst": 1 << 20,
    "installs_burst": 1 << 20,
    "copies_burst": 1 << 20,
    "streams_max": 1 << 16,
}
"""Limits are out of reach, since nobody floods here."""
_SETTLING_US: Final = 120_000_000
_LOOK_US: Final = 10_000
_QUIET_US: Final = 30_000_000
_PATIENCE_US: Final = 600_000_000
