"""A simulated network of hardened mesh nodes, each a separate member; and a single such node with scripted
neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from support.mesh_network import MeshNetwork, SingleNode, publication
from veilcast.authority.keyring import EpochKeys, Keyring, TopicKeys
from veilcast.core.publication import NumberedPublication, make_certified_notify
from veilcast.crypto import vrf
from veilcast.machine import Address, Delivered, Event, Frame
from veilcast.mesh.advertisements import make_call
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.mesh.roots import make_root_advert
from veilcast.sim.checkers import Checker
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_hardened_keyring
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC
from veilcast.sim.world import World
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Call, Notify, StemReceipt

EPOCH_US = 120_000_000
PERIOD_US = 1_000_000
FIRST = START_US // EPOCH_US
"""The epoch that every world begins with, on its edge."""
RULES = HardeningConfig(
    window_periods=8,
    lead_periods=24,
    grace_periods=8,
    call_periods=20,
    bit_periods=1,
    patience_periods=6,
    uptime_periods=1,
)
HARDENED_CONFIG = MeshConfig(profile="hardened", neighbours_max=20, address_bytes_max=8, hardening=RULES)


def with_rules(**changed: object) -> MeshConfig:
    return msgspec.structs.replace(HARDENED_CONFIG, hardening=msgspec.structs.replace(RULES, **changed))


def ring(role: str = "forwarder", number: int = 0, cover: float = 0) -> Keyring:
    return make_hardened_keyring(TOPIC, cover, EPOCH_US, role, number)


def member(number: int, cover: float = 0) -> EpochKeys:
    return ring("forwarder", number, cover).keys_at(FIRST)


def topic_keys(later: int = 0, role: str = "publisher", number: int = 0, cover: float = 0) -> TopicKeys:
    """A publisher's keys, `later` epochs after the first."""
    return ring(role, number, cover).keys_at(FIRST + later).topic(TOPIC)


def token(later: int = 0) -> bytes:
    return topic_keys(later).token


def lineage() -> bytes:
    return topic_keys().record.lineage


def call(later: int = 0, cover: float = 0) -> Call:
    return make_call(topic_keys(later, cover=cover))


def root_advert(number: int = 50, later: int = 0, cover: float = 0, seed: int = 1, at_us: int = START_US) -> Advert:
    """The advertisement of this member as the root, with a fresh chain."""
    expires_us = at_us + 2 * EPOCH_US
    return make_root_advert(
        call(later, cover),
        member(number, cover),
        HARDENED_CONFIG.d_max,
        expires_us,
        Random(f"{number} {seed}").randbytes,
    )


def acknowledgement_by(root: int, name: bytes) -> StemReceipt:
    """This member's acknowledgement as the root."""
    return StemReceipt(name, vrf.prove_lot(member(root).lot, lineage(), b"taken " + name, Random(1).randbytes))


def lot_rank(keys: EpochKeys) -> int:
    return vrf.rank_lot(vrf.draw_lot(keys.lot, lineage()), keys.membership.leaf.signature)


def certified_notify(body: bytes, number: int = 1, later: int = 0, seed: int = 5) -> Notify:
    content = NumberedPublication(b"stream 1", number, publication(body))
    return make_certified_notify(topic_keys(later), content, Random(seed).randbytes)


class SingleHardenedNode(SingleNode):
    """`number` is the number of the member; `cover` is kappa of the topic."""

    def __init__(
        self,
        role: str = "forwarder",
        neighbours: str = "a b c",
        config: MeshConfig = HARDENED_CONFIG,
        *,
        number: int = 0,
        cover: float = 0,
        seed: int = 3,
        keyring: Keyring | None = None,
        records: dict[int, bytes] | None = None,
    ) -> None:
        super().__init__(role, neighbours, config, keyring or ring(role, number, cover), seed, records)

    def run(self, periods: float) -> list[tuple[int, str, Message]]:
        """Let time pass, with heartbeats in both directions. Returns the time, receiver and message of all that the
        node sends."""
        return self.run_until(self.now + int(periods * PERIOD_US))

    def run_until(self, end_us: int) -> list[tuple[int, str, Message]]:
        said: list[tuple[int, str, Message]] = self.sort(self.frames())
        while (self.node.next_timer() or 0) <= end_us:
            said += self.sort(self.tick())
            for name in self.names:
                self.hear(name)
        self.now = end_us
        return said

    def sort(self, frames: Sequence[Frame]) -> list[tuple[int, str, Message]]:
        said: list[tuple[int, str, Message]] = []
        for frame in frames:
            riders: Sequence[bytes] = (frame.data,)
            if frame.data[:1] == b"\0":
                riders = read_heartbeat(frame.data, self.config.heartbeat_bytes).riders
            said += [(self.now, frame.destination, decode(rider)) for rider in riders]
        return said

    def send(self, name: str, message: Message) -> list[tuple[int, str, Message]]:
        """Deliver a separate frame from a neighbour. Returns what the node sends at once."""
        self.feed(name, encode(message))
        return self.sort(self.frames())

    def delivered(self) -> list[bytes]:
        return [event.note.publication.body for event in self.events() if isinstance(event, Delivered)]


def only(said: Sequence[tuple[int, str, Message]], kind: type[Message]) -> list[tuple[int, str, Message]]:
    return [(at_us, name, message) for at_us, name, message in said if isinstance(message, kind)]


class HardenedMeshNetwork(MeshNetwork):
    """A `MeshNetwork` whose members are numbered in the order of their first edge."""

    def __init__(
        self,
        edges: str,
        *,
        seed: int = 1,
        config: MeshConfig = HARDENED_CONFIG,
        links: LinkDelays | None = None,
        checkers: Sequence[Checker] = (),
        cover: float = 0,
    ) -> None:
        self.cover = cover
        self.events: list[tuple[str, Event]] = []
        super().__init__(edges, seed=seed, config=config, links=links, checkers=checkers)

    def keyring(self, name: str, role: str) -> Keyring:
        return ring(role, list(self.neighbours).index(name), self.cover)

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if not isinstance(event, Delivered):
            self.events.append((address, event))
        super().on_event(world, address, event)

    def token(self) -> bytes:
        return token(self.world.now // EPOCH_US - FIRST)

    def roots(self, later: int | None = None) -> list[str]:
        """The nodes that advertise the topic now, or `later` epochs after the first."""
        wanted = self.token() if later is None else token(later)
        alive = [name for name in self.neighbours if self.world.machine(Address(name)) is not None]
        return [name for name in alive if self.node(name).overlay.originates(wanted)]

    def best_candidate(self, *without: str) -> str:
        """The node with the best lot."""
        names = [name for name in self.neighbours if name not in without]
        roles = {"p": "publisher", "s": "subscriber"}
        return min(names, key=lambda name: lot_rank(self.keyring(name, roles.get(name[0], "forwarder")).keys_at(FIRST)))

    def run_until(self, later: float) -> HardenedMeshNetwork:
        """Run until `later` epochs after the first."""
        self.world.run(START_US + int(later * EPOCH_US) - self.world.now)
        return self
