"""What readers of a simulated network want, and what is published there; and who has promised to send what.

Topics have a number and a word beside their name, and interests ask for some of them, so that labels, ranges and
conjunctions are all in play. The relay and the tree draw the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.machine import Address, Publication
from veilcast.sim.checkers import PublicationLog
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.topics import All, Conjunction, Equal, Integers, Label, Range, Schema, Strings


@dataclass(frozen=True)
class TopicVocabulary:
    """The topics there are; the number that each has counts to 2^bits. With no bits they have nothing but a name."""

    topics: tuple[str, ...]
    bits: int

    def draw_subscriptions(
        self, seed: int, readers: Iterable[Address], interests: int
    ) -> dict[Address, tuple[Conjunction, ...]]:
        """What each of them wants under this seed, so many things at most, each of it once."""
        wishes = {}
        for reader in readers:
            rng = derive_rng(seed, "wishes", reader)
            drawn = [self._interest(rng) for _ in range(interests)]
            wishes[reader] = tuple({str(one): one for one in drawn}.values())
        return wishes

    def draw_publication(self, rng: Random, number: int) -> Publication:
        label, body = Label(rng.choice(self.topics)), b"note %d" % number
        if not self.bits:
            return Publication((label.pair,), body)
        level = rng.randrange(1 << self.bits)
        return Publication((label.pair, ("level", level), ("kind", rng.choice(_WORDS))), body)

    def topic_records(self, profile: Profile) -> tuple[TopicRecord, ...]:
        return _declared(self.topics, self.bits, profile)

    def _interest(self, rng: Random) -> Conjunction:
        label, top = Label(rng.choice(self.topics)), (1 << self.bits) - 1
        if not self.bits:
            return label
        low, high = sorted((rng.randint(0, top), rng.randint(0, top)))
        kinds: list[Conjunction] = [
            label,
            All(label, Range("level", low, high)),
            All(label, Range("level", low, high), Equal("kind", rng.choice(_WORDS))),
        ]
        return rng.choice(kinds)


class LogsStoredPublications:
    """Beside a member's machine: it writes down what the member has promised to send, once that is on its disk."""

    diary: PublicationLog

    def __init__(self, *arguments: Any) -> None:
        self.promised: dict[int, bytes] = {}
        super().__init__(*arguments)

    def stored(self, record: int, now: int) -> None:
        if (body := self.promised.pop(record, None)) is not None:
            self.diary.owed[body] = None
        super().stored(record, now)  # type: ignore[misc]


def schedule_publications(
    world: World,
    publishers: tuple[Address, ...],
    vocabulary: TopicVocabulary,
    notes: int,
    when: Callable[[int], int],
    owed_us: int,
    diary: PublicationLog,
) -> None:
    """Have the publishers publish in turn; what is published from `owed_us` on is promised."""
    rng = derive_rng(world.seed, "notes")
    for number in range(notes):
        publication = vocabulary.draw_publication(rng, number)
        _plan_note(world, publishers[number % len(publishers)], publication, when(number), owed_us, diary)


def _plan_note(
    world: World, publisher: Address, publication: Publication, at_us: int, owed_us: int, diary: PublicationLog
) -> None:
    def publish(machine: Any, now: int) -> None:
        diary.sent[publication.body] = publication
        record = machine.publish(publication, now)
        if at_us >= owed_us:
            machine.promised[record] = publication.body

    world.after(at_us, lambda: world.call(publisher, publish))


@cache
def _declared(topics: tuple[str, ...], bits: int, profile: Profile) -> tuple[TopicRecord, ...]:
    schema = Schema((Integers("level", 0, (1 << bits) - 1, bits), Strings("kind"))) if bits else Schema()
    return tuple(TopicRecord(topic, schema, profile=profile) for topic in topics)


_WORDS: Final = ("red", "green", "blue")
