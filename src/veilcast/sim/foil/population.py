"""The population of the mode "foil": one broker that nobody trusts, and members who publish and subscribe through it.

All machines are the real ones, with the real cryptography, and they speak MQTT. A member's sessions are streams of
their own, as through an anonymous network (`hidden`): the broker sees that somebody calls, and not who. An owner
subscribes whenever its member starts, and acknowledges at once what is delivered.

A publication is owed as soon as it is on its publisher's disk, to everybody whose interest it matches, whatever the
broker loses: as long as nobody is away for longer than events are kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.errors import ConfigError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.foil.stream_gaps import EVENTS_MAX, STREAMS_MAX
from veilcast.foil.subscriber_store import IDS_PER_RECORD
from veilcast.machine import Address
from veilcast.sim.checkers import PublicationLog, make_subscriber_checker
from veilcast.sim.foil.checkers import CandidatesAlike
from veilcast.sim.foil.mqtt_broker import MqttBroker, MqttBrokerConfig
from veilcast.sim.host import Birth
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.mesh.owners import AcknowledgingClients
from veilcast.sim.workload import LogsStoredPublications, TopicVocabulary, schedule_publications
from veilcast.sim.world import World
from veilcast.topics import Conjunction, Equal


class FoilPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="foil"):
    """One broker; `notes` are published, one every `every_us` from `first_us` on, by the publishers in turn."""

    members: int = 5
    publishers: int = 2
    """How many of the members publish; all subscribe."""
    topics: int = 2
    interests: int = 2
    """Of each member."""
    bits: int = 4
    """Of the number that topics have: it counts to 2^bits."""
    notes: int = 20
    first_us: int = 10_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes that are published from this time on must reach everybody who wants them."""
    foil: FoilConfig = FoilConfig(
        k_p=3, k_s=1, retry_us=3_000_000, connect_us=500_000, ahead_us=5_000_000, keep_us=120_000_000
    )
    broker: MqttBrokerConfig = MqttBrokerConfig()
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "alike", "bounds")

    def __post_init__(self) -> None:
        for name in ("members", "publishers", "topics", "interests", "bits", "every_us"):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("notes", "first_us", "owed_us"):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        if self.publishers > self.members:
            raise ConfigError("population.publishers must not be more than its members")
        for check in self.checks:
            if check not in _CHECKS:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(_CHECKS)}")

    def addresses(self) -> tuple[Address, ...]:
        return (BROKER, *self.member_names())

    def member_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"m{number}") for number in range(self.members))

    def draw_subscriptions(self, seed: int) -> dict[Address, tuple[Conjunction, ...]]:
        """What each member wants under this seed, each of it once."""
        return self._vocabulary.draw_subscriptions(seed, self.member_names(), self.interests)

    def populate(self, world: World, duration_us: int) -> None:
        wishes, diary = self.draw_subscriptions(world.seed), PublicationLog()
        others = {"alike": lambda: CandidatesAlike(self.foil.k_p + 1, self.foil.version)}
        for check in self.checks:
            world.watch(make_subscriber_checker(check, diary, wishes, self._bounds, others))
        world.watch(AcknowledgingClients())
        world.add(BROKER, lambda birth: MqttBroker(self.broker, birth.rng, birth.now, birth.stored))
        for number, member in enumerate(self.member_names()):
            world.add(member, self._owner(self._keyring(number, world.epoch_us), wishes[member], diary))
            for interest in wishes[member]:
                topic = next(each.text for each in interest.constraints if isinstance(each, Equal))
                world.label(topic, member, "subscriber", world.start, world.start + duration_us)
        schedule_publications(
            world,
            self.member_names()[: self.publishers],
            self._vocabulary,
            self.notes,
            lambda number: self.first_us + number * self.every_us,
            self.owed_us,
            diary,
        )

    def facts(self, world: World) -> dict[str, int]:
        """What came of it: what the broker brought on, and what members threw away of it."""
        broker: MqttBroker | None = world.machine(BROKER)
        members = [member for name in self.member_names() if (member := world.machine(name)) is not None]
        return {
            "matched": 0 if broker is None else broker.matched,
            "fakes": sum(member.counts().get("fake", 0) for member in members),
            "doubles": sum(member.counts().get("double", 0) for member in members),
            "excess": sum(member.excess for member in members),
            "refused": sum(sum(member.refused.values()) for member in members),
        }

    @property
    def _vocabulary(self) -> TopicVocabulary:
        return TopicVocabulary(tuple(f"foil/{number}" for number in range(self.topics)), self.bits)

    def _keyring(self, number: int, epoch_us: int) -> Keyring:
        role = "publisher" if number < self.publishers else "subscriber"
        length_us = epoch_us if self.foil.profile == "hardened" else HOUR_US
        words = self._vocabulary
        declared = words.topic_records(self.foil.profile)
        return make_keyring(declared, length_us, tuple((each, role) for each in words.topics), number)

    def _owner(self, keyring: Keyring, wishes: tuple[Conjunction, ...], diary: PublicationLog) -> Any:
        words = {"kind": AttributeConfig(values=("red", "green", "blue"))}
        config = msgspec.structs.replace(self.foil, attributes={**words, **self.foil.attributes})

        def start(birth: Birth) -> FoilMember:
            member = _LoggedFoilMember(config, keyring, BROKER, birth.rng, birth.entropy, birth.now, birth.stored)
            member.diary = diary
            for interest in wishes:
                member.subscribe(interest, birth.now)
            return member

        return start

    def _bounds(self, machine: FoilMember | MqttBroker) -> dict[str, int]:
        if isinstance(machine, MqttBroker):
            return {"sessions": 1 << 30, "queue": self.broker.queue_max}
        foil = self.foil
        return {
            "sessions": 5,
            "unacknowledged": foil.window + foil.k_p + 1 + 4 * self.topics,
            "pending": foil.records_max,
            "kept": foil.kept_max + foil.records_max,
            "sending": foil.kept_max + foil.records_max,
            "requests": 2 * 5 * foil.requests_max,
            "chains": foil.seeds_max,
            "held": foil.held_max,
            "subscriptions": foil.subscriptions_max,
            "filters": foil.filters_max + 3 * self.topics,
            "arrived": 1_024,
            "inbox": foil.unread_max,
            "seen": foil.seen_max,
            "remembered": foil.seen_max + 2 * IDS_PER_RECORD,
            "absences": 32,
            "gaps": STREAMS_MAX * (EVENTS_MAX + 1),
        }


class _LoggedFoilMember(LogsStoredPublications, FoilMember):
    """A member that writes down what it has promised to send."""


BROKER: Final = Address("broker")
_CHECKS: Final = ("once", "intact", "matching", "complete", "alike", "bounds")
