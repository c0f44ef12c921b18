"""The population of the mode "foil": one untrusted MQTT broker, and members that publish and subscribe through it.

A member's sessions are separate streams through an anonymous network (`AnonymousLinkEngine`): the broker sees that a
client connects, and not which member it is.

A publication must arrive once it is on its publisher's disk, at every member whose interest it matches, whatever the
broker loses. Assumption: no member is away for longer than events are kept.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.foil.stream_gaps import EVENTS_MAX, STREAMS_MAX
from veilcast.foil.subscriber_store import IDS_PER_RECORD
from veilcast.machine import Address
from veilcast.sim.foil.checkers import CandidatesAlike
from veilcast.sim.foil.mqtt_broker import MqttBroker, MqttBrokerConfig
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.population import SubscriberPopulation
from veilcast.sim.workload import WORDS, LogsStoredPublications, SubscriberWorkload
from veilcast.sim.world import World


class FoilPopulation(SubscriberPopulation, frozen=True, tag="foil"):
    """One broker. All members subscribe, and the first `publishers` of them publish."""

    mode: ClassVar[str] = "foil"
    known_checks: ClassVar[tuple[str, ...]] = ("once", "intact", "matching", "complete", "alike", "bounds")
    positive: ClassVar[tuple[str, ...]] = ("members", "bits")

    members: int = 5
    foil: FoilConfig = FoilConfig(
        k_p=3, k_s=1, retry_us=3_000_000, connect_us=500_000, ahead_us=5_000_000, keep_us=120_000_000
    )
    broker: MqttBrokerConfig = MqttBrokerConfig()
    checks: tuple[str, ...] = ("once", "intact", "matching", "complete", "alike", "bounds")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.publishers > self.members:
            raise ConfigError("population.publishers must not be more than its members")

    def addresses(self) -> tuple[Address, ...]:
        return (BROKER, *self.member_names())

    def member_names(self) -> tuple[Address, ...]:
        return tuple(Address(f"m{number}") for number in range(self.members))

    def publisher_names(self) -> tuple[Address, ...]:
        return self.member_names()[: self.publishers]

    def subscriber_names(self) -> tuple[Address, ...]:
        return self.member_names()

    def populate(self, world: World, duration_us: int) -> None:
        workload = self._make_workload(world, duration_us)
        special = {"alike": lambda: CandidatesAlike(self.foil.k_p + 1, self.foil.version)}
        workload.watch(self.checks, self._bounds, special)
        world.add(BROKER, lambda birth: MqttBroker(self.broker, birth.rng, birth.now, birth.stored))
        for number, member in enumerate(self.member_names()):
            workload.add_member(member, self._member_factory(number, world.epoch_us, workload))
        self._schedule_publications(workload)

    def facts(self, world: World) -> dict[str, int]:
        """Messages that the broker forwarded, and those that members discarded, by reason."""
        broker: MqttBroker | None = world.machine(BROKER)
        members = [member for name in self.member_names() if (member := world.machine(name)) is not None]
        return {
            "matched": 0 if broker is None else broker.matched,
            "fakes": sum(member.counts().get("fake", 0) for member in members),
            "doubles": sum(member.counts().get("double", 0) for member in members),
            "excess": sum(member.excess for member in members),
            "refused": sum(sum(member.refused.values()) for member in members),
        }

    def _member_factory(self, number: int, epoch_us: int, workload: SubscriberWorkload) -> MachineFactory:
        keyring, attributes = self._keyring(number, epoch_us), {"kind": AttributeConfig(values=WORDS)}
        config = msgspec.structs.replace(self.foil, attributes={**attributes, **self.foil.attributes})

        def start(birth: Birth) -> FoilMember:
            member = _LoggedFoilMember(config, keyring, BROKER, birth.rng, birth.entropy, birth.now, birth.stored)
            return workload.subscribe(member, birth)

        return start

    @property
    def _profile(self) -> Profile:
        return self.foil.profile

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
    pass


BROKER: Final = Address("broker")
