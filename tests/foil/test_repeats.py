"""Requests for repeats: what readers may have missed, and what publishers still owe them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.authority.record import TopicRecord
from veilcast.errors import ForgedError, RemoteError
from veilcast.foil.repeats import Repeats
from veilcast.foil.requests import (
    ABSENCES_MAX,
    SIZE,
    Absence,
    Absences,
    check_here,
    open_again,
    seal_again,
    seal_here,
)
from veilcast.machine import Entropy
from veilcast.sim.mesh_keys import keyring_of
from veilcast.topics import Schema

RECORDS = (TopicRecord("a", Schema()), TopicRecord("b", Schema()))
RING = keyring_of(RECORDS, 3_600_000_000, (("a", "subscriber"), ("b", "subscriber")), 1)
KEYS = RING.at(RING.grants[0].first)


def absence(name: int) -> Absence:
    return Absence(name.to_bytes(8, "big"), 1, 2)


@given(st.integers(0, ABSENCES_MAX), st.randoms(use_true_random=False))
def test_a_request_comes_back_as_it_was_and_has_one_size(count: int, rng: object) -> None:
    entropy: Entropy = rng.randbytes  # type: ignore[attr-defined]
    absences = [Absence(entropy(8), (1 << 61) + number, (1 << 62) - number) for number in range(count)]
    sealed = seal_again(KEYS.topic("a"), absences, entropy)
    assert len(sealed) == SIZE
    opened = open_again(KEYS.topic("a"), sealed)
    assert [(each.since_us, each.until_us) for each in opened] == [(each.since_us, each.until_us) for each in absences]


def test_here_and_again_are_of_one_size_and_neither_passes_for_the_other(entropy: Entropy) -> None:
    keys = KEYS.topic("a")
    here, again = seal_here(keys, entropy), seal_again(keys, [], entropy)
    assert len(here) == len(again) == SIZE
    check_here(keys, here)
    for wrong in (again, b"", bytes(SIZE), here[:-1]):
        with pytest.raises(RemoteError):
            check_here(keys, wrong)
    with pytest.raises(ForgedError):
        open_again(keys, here)
    with pytest.raises(ForgedError):
        open_again(KEYS.topic("b"), again)


def test_an_absence_has_another_name_in_each_topic(entropy: Entropy) -> None:
    names = [open_again(KEYS.topic(t), seal_again(KEYS.topic(t), [absence(1)], entropy))[0].name for t in ("a", "b")]
    assert names[0] != names[1]


def test_absences_are_from_the_last_good_moment_until_back_and_end_with_what_is_kept(entropy: Entropy) -> None:
    absences = Absences(5, entropy)
    absences.back(10)
    absences.away(30)
    absences.away(40)
    absences.back(50)
    assert [(each.since_us, each.until_us) for each in absences.standing(0)] == [(5, 10), (30, 50)]
    assert [(each.since_us, each.until_us) for each in absences.standing(20)] == [(30, 50)]


def test_many_absences_are_few_and_cover_the_same_time(entropy: Entropy) -> None:
    absences = Absences(0, entropy)
    for number in range(100):
        absences.away(10 * number)
        absences.back(10 * number + 5)
    known = absences.standing(0)
    assert len(known) == len(absences) == ABSENCES_MAX
    assert min(each.since_us for each in known) == 0
    assert max(each.until_us for each in known) == 995


def test_an_absence_is_answered_once_unless_the_broker_was_lost_before_it_could_bring_it_on() -> None:
    repeats = Repeats(10, settle_us=100)
    repeats.ask("a", [absence(1)])
    asked = repeats.begin()
    repeats.sends(asked, ["x", "y"])
    repeats.through("x", 5, 10)
    repeats.lost(10)
    repeats.ask("a", [absence(1)])
    assert repeats.asked, "one of its items was not through"
    repeats.sends(repeats.begin(), ["x"])
    repeats.through("x", 25, 30)
    repeats.lost(129)
    repeats.ask("a", [absence(1)])
    assert repeats.asked, "the broker may have died with it"
    repeats.sends(repeats.begin(), ["x"])
    repeats.through("x", 205, 210)
    repeats.lost(310)
    repeats.ask("a", [absence(1)])
    assert not repeats.asked


def test_answered_absences_are_bounded_and_the_oldest_is_forgotten() -> None:
    repeats = Repeats(3, settle_us=0)
    for number in range(6):
        repeats.ask("a", [absence(number)])
        repeats.sends(repeats.begin(), [])
    assert len(repeats) == 3
    assert repeats._rounds == [], "a publisher that has nothing can be asked for ever"
    repeats.ask("a", [absence(number) for number in range(20)])
    assert len(repeats) <= 6
    assert repeats.asked
