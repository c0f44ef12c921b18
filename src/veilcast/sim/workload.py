"""The workload of simulated subscribers: their topics, subscriptions and publications, and what must arrive.

A topic has a number and a word beside its name. Subscriptions ask for some of these values, so that labels, ranges and
conjunctions are all used. Relay, tree, foil and brokers draw their workload here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final, TypeVar

from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.machine import Address, Delivered, Event, Publication
from veilcast.sim.checkers import Checker, PublicationLog, SubscriptionTable, make_subscriber_checker
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import All, Conjunction, Equal, Integers, Label, Range, Schema, Strings

_Member = TypeVar("_Member", bound=Any)


@dataclass(frozen=True)
class TopicVocabulary:
    """The topics of a population. Each has a number below 2^bits and a word; with 0 bits it has its name alone."""

    topics: tuple[str, ...]
    bits: int

    def draw_subscriptions(
        self, seed: int, subscribers: Iterable[Address], interests: int
    ) -> dict[Address, tuple[Conjunction, ...]]:
        """Draw at most `interests` different subscriptions for each subscriber."""
        subscriptions = {}
        for subscriber in subscribers:
            rng = derive_rng(seed, "wishes", subscriber)
            drawn = [self._draw_interest(rng) for _ in range(interests)]
            subscriptions[subscriber] = tuple({str(each): each for each in drawn}.values())
        return subscriptions

    def draw_publication(self, rng: Random, number: int) -> Publication:
        label, body = Label(rng.choice(self.topics)), b"note %d" % number
        if not self.bits:
            return Publication((label.pair,), body)
        level = rng.randrange(1 << self.bits)
        return Publication((label.pair, ("level", level), ("kind", rng.choice(WORDS))), body)

    def topic_records(self, profile: Profile) -> tuple[TopicRecord, ...]:
        return _make_topic_records(self.topics, self.bits, profile)

    def _draw_interest(self, rng: Random) -> Conjunction:
        label, top = Label(rng.choice(self.topics)), (1 << self.bits) - 1
        if not self.bits:
            return label
        low, high = sorted((rng.randint(0, top), rng.randint(0, top)))
        kinds: list[Conjunction] = [
            label,
            All(label, Range("level", low, high)),
            All(label, Range("level", low, high), Equal("kind", rng.choice(WORDS))),
        ]
        return rng.choice(kinds)


class SubscriberWorkload:
    """The subscriptions of one run, its publications, and the log of those that must arrive."""

    def __init__(self, world: World, subscriptions: SubscriptionTable, duration_us: int) -> None:
        self._world, self.subscriptions, self._duration_us = world, subscriptions, duration_us
        self.log = PublicationLog()

    def watch(
        self,
        checks: Iterable[str],
        bounds: Callable[[Any], Mapping[str, int]],
        special: Mapping[str, Callable[[], Checker]],
    ) -> None:
        """Add the checkers of these names; call it before the first machine is added.

        `bounds` gives the largest size of each table of a machine. `special` makes the checkers of one mode.
        """
        for check in checks:
            self._world.watch(make_subscriber_checker(check, self.log, self.subscriptions, bounds, special))
        self._world.watch(AcknowledgingClients())

    def subscriptions_of(self, address: Address) -> tuple[Conjunction, ...]:
        return self.subscriptions.get(address, ())

    def add_member(self, address: Address, factory: MachineFactory) -> None:
        """Start a member, and record the truth about its subscriptions."""
        world = self._world
        world.add(address, factory)
        for interest in self.subscriptions_of(address):
            topic = next(each.text for each in interest.constraints if isinstance(each, Equal))
            world.label(topic, address, "subscriber", world.start, world.start + self._duration_us)

    def subscribe(self, member: _Member, birth: Birth) -> _Member:
        """Log what this new incarnation stores, and subscribe for it."""
        member.publication_log = self.log
        for interest in self.subscriptions_of(birth.address):
            member.subscribe(interest, birth.now)
        return member

    def schedule_publications(
        self,
        publishers: tuple[Address, ...],
        vocabulary: TopicVocabulary,
        notes: int,
        when: Callable[[int], int],
        owed_us: int,
    ) -> None:
        """Let the publishers publish in turn, at the times that `when` gives.

        A publication made at `owed_us` or later must arrive once it is on its publisher's disk.
        """
        rng = derive_rng(self._world.seed, "notes")
        for number in range(notes):
            publication = vocabulary.draw_publication(rng, number)
            self._schedule(publishers[number % len(publishers)], publication, when(number), owed_us)

    def _schedule(self, publisher: Address, publication: Publication, at_us: int, owed_us: int) -> None:
        def publish(machine: Any, now: int) -> None:
            self.log.sent[publication.body] = publication
            record = machine.publish(publication, now)
            if at_us >= owed_us:
                machine.unstored[record] = publication.body

        self._world.after(at_us, lambda: self._world.call(publisher, publish))


class LogsStoredPublications:
    """Mixin for a member's machine: logs each publication as owed once its record is on the disk."""

    publication_log: PublicationLog

    def __init__(self, *arguments: Any) -> None:
        self.unstored: dict[int, bytes] = {}
        super().__init__(*arguments)

    def stored(self, record: int, now: int) -> None:
        if (body := self.unstored.pop(record, None)) is not None:
            self.publication_log.owed[body] = None
        super().stored(record, now)  # type: ignore[misc]


class AcknowledgingClients(Checker):
    """Checks nothing: acknowledges every delivery at once, for the clients of all nodes."""

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered):
            note = event.note.id
            world.call(address, lambda machine, now: unwrap(machine).acknowledge(note, now))


@cache
def _make_topic_records(topics: tuple[str, ...], bits: int, profile: Profile) -> tuple[TopicRecord, ...]:
    schema = Schema((Integers("level", 0, (1 << bits) - 1, bits), Strings("kind"))) if bits else Schema()
    return tuple(TopicRecord(topic, schema, profile=profile) for topic in topics)


WORDS: Final = ("red", "green", "blue")
"""Values of the attribute `kind`."""
