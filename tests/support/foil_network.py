"""Members and a broker without a simulator: frames arrive at once, and all packets to the broker are recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.event import CandidateHead, split_candidate
from veilcast.foil.member import FoilMember
from veilcast.machine import Address, Connect, Delivered, Disconnect, Note, Publication, Record, Settled
from veilcast.sim.engine import START_US
from veilcast.sim.foil.mqtt_broker import MqttBroker, MqttBrokerConfig
from veilcast.sim.keyrings import make_keyring
from veilcast.topics import Label, Reals, Schema, Strings
from veilcast.wire import mqtt
from veilcast.wire.mqtt import Packet, PubackPacket, PublishPacket, Version

SECOND = 1_000_000
EPOCH_US = 3_600 * SECOND
TOPIC = "prices/acme"
SCHEMA = Schema((Reals("price", 0, 1024, 10), Strings("kind")))
BROKER = Address("broker")
WORDS = {"kind": AttributeConfig(values=("bid", "ask", "trade", "other"))}
CONFIG = FoilConfig(k_p=3, attributes=WORDS)


@cache
def foil_keyring(role: str, number: int, profile: Profile = "hardened") -> Keyring:
    return make_keyring((TopicRecord(TOPIC, SCHEMA, profile=profile),), EPOCH_US, ((TOPIC, role),), number)


def price_publication(value: float, kind: str = "trade", body: bytes = b"planted body") -> Publication:
    return Publication((Label(TOPIC).pair, ("price", value), ("kind", kind)), body)


@dataclass
class MemberHost:
    """A member with its disk, its notifications and its events."""

    role: str
    number: int
    config: FoilConfig
    member: FoilMember
    disk: dict[int, bytes] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    lives: int = 0


class FoilNetwork:
    """`sent` lists all packets to the broker: member, peer, packet."""

    def __init__(self, config: FoilConfig = CONFIG, broker: MqttBrokerConfig | None = None, seed: int = 1) -> None:
        self.config, self.now, self.seed = config, START_US, seed
        self.broker_config = broker or MqttBrokerConfig()
        self.broker: MqttBroker | None = MqttBroker(self.broker_config, random.Random(seed), self.now)
        self.places: dict[str, MemberHost] = {}
        self.sent: list[tuple[str, Address, Packet]] = []
        self.acknowledges = True
        self.away: list[str] = []
        """Members whose streams are down."""
        self.withheld: list[str] = []
        """Members to which the broker delivers nothing, although it grants their filters."""
        self.dropped: Callable[[str, PublishPacket], bool] = lambda name, packet: False
        """True for packets that the broker silently does not deliver to a member."""

    def add(self, name: str, role: str, config: FoilConfig | None = None) -> FoilMember:
        config = config or self.config
        number = len(self.places) + 1
        self.places[name] = MemberHost(role, number, config, self._born(name, role, number, config, {}, 0))
        return self.places[name].member

    def restart(self, name: str) -> FoilMember:
        """Kill a member, and start it again with its disk."""
        place = self.places[name]
        self._drop(name)
        place.lives += 1
        place.member = self._born(name, place.role, place.number, place.config, dict(place.disk), place.lives)
        return place.member

    def kill_broker(self) -> None:
        """Kill the broker, which loses all its state."""
        self.broker = None
        for name, place in self.places.items():
            for span in place.member._periods:
                place.member.peer_lost(span.session.peer, self.now)
            self.settle(name)

    def start_broker(self) -> None:
        self.broker = MqttBroker(self.broker_config, random.Random(self.seed), self.now)

    def leave(self, *names: str) -> None:
        """These members lose their streams, and cannot open new ones."""
        for name in names:
            self._drop(name)
            self.away.append(name)
            for span in self.places[name].member._periods:
                self.places[name].member.peer_lost(span.session.peer, self.now)

    def run(self, seconds: float) -> None:
        """Let time pass, with all timers in order."""
        end = self.now + int(seconds * SECOND)
        self.settle()
        while True:
            due = [when for machine in self._machines() if (when := machine.next_timer()) is not None]
            if not due or min(due) > end:
                break
            self.now = max(self.now, min(due))
            for machine in self._machines():
                if (when := machine.next_timer()) is not None and when <= self.now:
                    machine.handle_timer(self.now)
            self.settle()
        self.now = end
        self.settle()

    def settle(self, *names: str) -> None:
        """Deliver frames and events until none is left."""
        busy = True
        while busy:
            busy = False
            for name in names or tuple(self.places):
                busy |= self._step(name)
            busy |= self._step_broker()

    def seen(self, name: str | None = None) -> Iterator[tuple[str, CandidateHead, bytes]]:
        """The candidates that the broker received: topic, head, body."""
        for who, _, packet in self.sent:
            if isinstance(packet, PublishPacket) and (name is None or who == name) and "/on/" in packet.topic:
                yield packet.topic, *split_candidate(packet.payload)

    def _machines(self) -> list[Any]:
        return [*(place.member for place in self.places.values()), *([self.broker] if self.broker else [])]

    def _born(
        self, name: str, role: str, number: int, config: FoilConfig, disk: dict[int, bytes], life: int
    ) -> FoilMember:
        rng = random.Random(f"{self.seed} {name} {life}")
        keys = foil_keyring(role, number, config.profile)
        return FoilMember(config, keys, BROKER, rng, random.Random(rng.random()).randbytes, self.now, disk)

    def _step(self, name: str) -> bool:
        place = self.places[name]
        member, busy = place.member, False
        frames = member.frames_to_send(self.now, 1 << 20)
        for frame in frames:
            busy = True
            self.sent.append((name, frame.destination, mqtt.decode(frame.data, Version(place.config.version))))
            if self.broker is not None:
                self.broker.receive(frame.data, Address(f"{name} {frame.destination}"), self.now)
        while (event := member.next_event()) is not None:
            busy = True
            place.events.append(event)
            match event:
                case Connect(peer) if self.broker is not None and name not in self.away:
                    self.broker.peer_up(Address(f"{name} {peer}"), self.now)
                    member.peer_up(peer, self.now)
                case Connect(peer):
                    member.peer_lost(peer, self.now)
                case Disconnect(peer) if self.broker is not None:
                    self.broker.peer_lost(Address(f"{name} {peer}"), self.now)
                case Record(record, data):
                    place.disk[record] = data
                    member.stored(record, self.now)
                case Settled(record):
                    place.disk.pop(record, None)
                case Delivered(_, note):
                    place.notes.append(note)
                    if self.acknowledges:
                        member.acknowledge(note.id, self.now)
        return busy

    def _step_broker(self) -> bool:
        if self.broker is None:
            return False
        frames = self.broker.frames_to_send(self.now, 1 << 20)
        for frame in frames:
            name, _, peer = frame.destination.partition(" ")
            version = Version(self.places[name].config.version)
            packet = mqtt.decode(frame.data, version)
            if isinstance(packet, PublishPacket) and self.dropped(name, packet):
                self.broker.receive(mqtt.encode(PubackPacket(packet.number), version), frame.destination, self.now)
            elif name not in self.withheld:
                self.places[name].member.receive(frame.data, Address(peer), self.now)
        while (event := self.broker.next_event()) is not None:
            if isinstance(event, Disconnect):
                name, _, peer = event.peer.partition(" ")
                self.places[name].member.peer_lost(Address(peer), self.now)
        return bool(frames)

    def _drop(self, name: str) -> None:
        if self.broker is not None:
            for span in self.places[name].member._periods:
                self.broker.peer_lost(Address(f"{name} {span.session.peer}"), self.now)


def bodies_of(notes: Sequence[Note]) -> list[bytes]:
    return [note.publication.body for note in notes]
