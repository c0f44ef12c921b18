"""The base of populations whose members subscribe through hosts: relay, tree, foil and brokers.

A population is one frozen value, read from the `[population]` table of a scenario. `populate` puts its machines into a
world and schedules their publications. `facts` reports what the run led to.

All machines are the real ones, with the real cryptography. A member subscribes whenever its machine starts, and its
client acknowledges every delivery at once. Keys come from one authority for each process (`keyrings`).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.workload import SubscriberWorkload, TopicVocabulary
from veilcast.sim.world import World
from veilcast.topics import Conjunction


class SubscriberPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """`notes` are published by the publishers in turn, one every `every_us` from `first_us` on."""

    mode: ClassVar[str]
    """Prefix of the topics' names."""
    known_checks: ClassVar[tuple[str, ...]]
    positive: ClassVar[tuple[str, ...]] = ()
    """Fields of a subclass that must be at least 1."""
    not_negative: ClassVar[tuple[str, ...]] = ()
    """Fields of a subclass that must be at least 0."""

    publishers: int = 2
    topics: int = 2
    interests: int = 2
    """Most subscriptions of one subscriber."""
    bits: int = 4
    """Bits of the number that each topic has. If it is 0, which not every mode allows, a topic has its name alone."""
    notes: int = 20
    first_us: int = 10_000_000
    every_us: int = 1_000_000
    owed_us: int = 0
    """Notes published from this time on must reach every subscriber whose interest they match."""
    checks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("publishers", "topics", "interests", "every_us", *self.positive):
            if getattr(self, name) < 1:
                raise ConfigError(f"population.{name} must be at least 1")
        for name in ("bits", "notes", "first_us", "owed_us", *self.not_negative):
            if getattr(self, name) < 0:
                raise ConfigError(f"population.{name} must not be negative")
        for check in self.checks:
            if check not in self.known_checks:
                raise ConfigError(f"population.checks: no check {check!r}, only {', '.join(self.known_checks)}")

    def publisher_names(self) -> tuple[Address, ...]:
        raise NotImplementedError

    def subscriber_names(self) -> tuple[Address, ...]:
        raise NotImplementedError

    def draw_subscriptions(self, seed: int) -> dict[Address, tuple[Conjunction, ...]]:
        """The different subscriptions of each subscriber under this seed."""
        return self._vocabulary.draw_subscriptions(seed, self.subscriber_names(), self.interests)

    @property
    def _profile(self) -> Profile:
        raise NotImplementedError

    @property
    def _vocabulary(self) -> TopicVocabulary:
        return TopicVocabulary(tuple(f"{self.mode}/{number}" for number in range(self.topics)), self.bits)

    def _make_workload(self, world: World, duration_us: int) -> SubscriberWorkload:
        return SubscriberWorkload(world, self.draw_subscriptions(world.seed), duration_us)

    def _schedule_publications(self, workload: SubscriberWorkload) -> None:
        workload.schedule_publications(
            self.publisher_names(),
            self._vocabulary,
            self.notes,
            lambda number: self.first_us + number * self.every_us,
            self.owed_us,
        )

    def _epoch_length(self, epoch_us: int) -> int:
        """Length of the authority's epochs, in microseconds: the papers' profile has no short ones."""
        return epoch_us if self._profile == "hardened" else HOUR_US

    def _keyring(self, number: int, epoch_us: int) -> Keyring:
        """The keyring of the member with this number; members below `publishers` publish."""
        return self._keyring_for_role(number, "publisher" if number < self.publishers else "subscriber", epoch_us)

    def _keyring_for_role(self, number: int, role: str, epoch_us: int, tls_role: TlsRole | None = None) -> Keyring:
        """A keyring with a grant of this role for every topic; with no grant, if the role is empty."""
        vocabulary = self._vocabulary
        grants = tuple((topic, role) for topic in vocabulary.topics) if role else ()
        records = vocabulary.topic_records(self._profile)
        return make_keyring(records, self._epoch_length(epoch_us), grants, number, tls_role)
