"""Repeat requests: what subscribers may have missed, and what publishers still owe them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.authority.topic_record import TopicRecord
from veilcast.errors import ForgedError, RemoteError
from veilcast.foil.repeats import (
    ABSENCES_MAX,
    REQUEST_BYTES,
    Absence,
    RepeatRounds,
    SessionAbsences,
    check_presence,
    open_repeat_request,
    seal_presence,
    seal_repeat_request,
)
from veilcast.machine import Entropy
from veilcast.sim.keyrings import make_keyring
from veilcast.topics import Schema

RECORDS = (TopicRecord("a", Schema()), TopicRecord("b", Schema()))
RING = make_keyring(RECORDS, 3_600_000_000, (("a", "subscriber"), ("b", "subscriber")), 1)
KEYS = RING.keys_at(RING.grants[0].first)


def absence(name: int) -> Absence:
    return Absence(name.to_bytes(8, "big"), 1, 2)


@given(st.integers(0, ABSENCES_MAX), st.randoms(use_true_random=False))
def test_a_repeat_request_round_trips_and_has_one_size(count: int, rng: object) -> None:
    entropy: Entropy = rng.randbytes  # type: ignore[attr-defined]
    absences = [Absence(entropy(8), (1 << 61) + number, (1 << 62) - number) for number in range(count)]
    sealed = seal_repeat_request(KEYS.topic("a"), absences, entropy)
    assert len(sealed) == REQUEST_BYTES
    opened = open_repeat_request(KEYS.topic("a"), sealed)
    assert [(each.since_us, each.until_us) for each in opened] == [(each.since_us, each.until_us) for each in absences]


def test_announcements_and_requests_have_one_size_and_cannot_be_exchanged(entropy: Entropy) -> None:
    keys = KEYS.topic("a")
    here, again = seal_presence(keys, entropy), seal_repeat_request(keys, [], entropy)
    assert len(here) == len(again) == REQUEST_BYTES
    check_presence(keys, here)
    for wrong in (again, b"", bytes(REQUEST_BYTES), here[:-1]):
        with pytest.raises(RemoteError):
            check_presence(keys, wrong)
    with pytest.raises(ForgedError):
        open_repeat_request(keys, here)
    with pytest.raises(ForgedError):
        open_repeat_request(KEYS.topic("b"), again)


def test_an_absence_has_a_different_name_in_each_topic(entropy: Entropy) -> None:
    names = [
        open_repeat_request(KEYS.topic(t), seal_repeat_request(KEYS.topic(t), [absence(1)], entropy))[0].name
        for t in ("a", "b")
    ]
    assert names[0] != names[1]


def test_absences_last_from_the_last_confirmed_moment_until_the_return(entropy: Entropy) -> None:
    absences = SessionAbsences(5, entropy)
    absences.mark_back(10)
    absences.mark_away(30)
    absences.mark_away(40)
    absences.mark_back(50)
    assert [(each.since_us, each.until_us) for each in absences.current(0)] == [(5, 10), (30, 50)]
    assert [(each.since_us, each.until_us) for each in absences.current(20)] == [(30, 50)]


def test_many_absences_are_merged_and_cover_the_same_time(entropy: Entropy) -> None:
    absences = SessionAbsences(0, entropy)
    for number in range(100):
        absences.mark_away(10 * number)
        absences.mark_back(10 * number + 5)
    known = absences.current(0)
    assert len(known) == len(absences) == ABSENCES_MAX
    assert min(each.since_us for each in known) == 0
    assert max(each.until_us for each in known) == 995


def test_an_absence_is_answered_once_unless_the_broker_was_lost_before_delivery() -> None:
    repeats = RepeatRounds(10, settle_us=100)
    repeats.ask("a", [absence(1)])
    asked = repeats.take_requests()
    repeats.begin_round(asked, ["x", "y"])
    repeats.acknowledged("x", 5, 10)
    repeats.lost(10)
    repeats.ask("a", [absence(1)])
    assert repeats.has_requests, "one of its items was not through"
    repeats.begin_round(repeats.take_requests(), ["x"])
    repeats.acknowledged("x", 25, 30)
    repeats.lost(129)
    repeats.ask("a", [absence(1)])
    assert repeats.has_requests, "the broker may have died with it"
    repeats.begin_round(repeats.take_requests(), ["x"])
    repeats.acknowledged("x", 205, 210)
    repeats.lost(310)
    repeats.ask("a", [absence(1)])
    assert not repeats.has_requests


def test_requests_without_a_round_are_forgotten_with_the_session() -> None:
    """The subscriber reports them again when both are back; an answer before that would pass it by."""
    repeats = RepeatRounds(10, settle_us=100)
    repeats.ask("a", [absence(1)])
    repeats.lost(10)
    assert not repeats.has_requests
    repeats.ask("a", [absence(1)])
    assert repeats.has_requests


def test_answered_absences_are_bounded_and_the_oldest_is_forgotten() -> None:
    repeats = RepeatRounds(3, settle_us=0)
    for number in range(6):
        repeats.ask("a", [absence(number)])
        repeats.begin_round(repeats.take_requests(), [])
    assert len(repeats) == 3
    assert repeats._rounds == [], "a publisher that has nothing can be asked for ever"
    repeats.ask("a", [absence(number) for number in range(20)])
    assert len(repeats) <= 6
    assert repeats.has_requests
