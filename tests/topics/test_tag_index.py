"""The tag index is exact in any order of calls, swept in time, and full at its capacity."""

from __future__ import annotations

import random
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from support.index_model import IndexMachine, element, fill
from support.matching_law import MatchingCase, matching_cases
from veilcast.crypto.derive import digest
from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Publication
from veilcast.topics import Box, Cover, Integers, Schema, coarse_match, covers, queries, tag_index
from veilcast.topics.column_allocator import IndexColumns
from veilcast.topics.tag_index import TAG, TagIndex


def tag(item: bytes) -> bytes:
    return digest(item, purpose=b"test", size=TAG)


def tagged(wanted: tuple[Cover, ...]) -> list[Cover]:
    return [tuple(map(tag, cover)) for cover in wanted]


@given(matching_cases())
@settings(max_examples=40)
def test_the_tag_index_passes_exactly_the_coarse_matches(case: MatchingCase) -> None:
    """And that one is pinned to P2's definition by the tests of `topics`."""
    index = TagIndex(capacity=1000)
    wanted = [tagged(covers(interest, case.schema)) for interest in case.interests]
    numbers = index.insert_many(wanted, expiry=1).tolist()
    for publication in case.publications:
        asked = list(map(tag, queries(publication, case.schema)))
        expected = sorted(n for n, each in zip(numbers, wanted, strict=True) if coarse_match(each, asked))
        assert index.match(asked).tolist() == expected


class TagMachine(IndexMachine):
    def make(self) -> TagIndex:
        return TagIndex(capacity=150)


TestTagMachine = TagMachine.TestCase
TestTagMachine.settings = settings(max_examples=20)


class SweptMachine(TagMachine):
    """One that sweeps whenever anything is stale, and marks rather than sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(tag_index, "_UNSWEPT", 0), patch.object(tag_index, "_FEW", 1 << 40)]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()


TestSweptMachine = SweptMachine.TestCase
TestSweptMachine.settings = settings(max_examples=20)


@pytest.mark.parametrize("forgotten", ["are_taken", "keep_columns"])
def test_the_model_catches_columns_that_outlive_their_subscription(forgotten: str) -> None:
    """Planted: stale columns count as taken, or a sweep leaves them in the runs."""
    owner = IndexColumns if forgotten == "are_taken" else tag_index._Run
    machine = TagMachine()
    machine.insert([[(element(1),), (element(2),)], [(element(3),)]], 1)
    machine.insert([[(element(4),)]], 9)
    with patch.object(owner, forgotten, lambda self, given: given >= 0 if forgotten == "are_taken" else self):
        machine.expire(2)
        if forgotten == "keep_columns":
            machine.insert([[(element(5 + n),)] for n in range(149)], 9)
        with pytest.raises(AssertionError):
            machine.match([[element(1), element(2), element(3)]])


def test_tags_with_zeros_in_them_are_as_good_as_others() -> None:
    """The library's strings end at a zero; a tag does not."""
    every = [bytes(some) + bytes(13) for some in product((0, 1, 255), repeat=3)]
    every += [bytes(13) + bytes(some) for some in product((0, 1, 255), repeat=3) if any(some)]
    rng = random.Random(1)
    rng.shuffle(every)
    index = TagIndex(capacity=100)
    numbers = {each: index.insert([(each,)], expiry=1) for each in every}
    assert len(index) == len(set(every))
    for each, number in numbers.items():
        assert index.match([each]).tolist() == [number]


def test_there_are_few_runs_however_many_are_inserted_one_by_one() -> None:
    index = TagIndex(capacity=2000)
    for number in range(2000):
        index.insert([(element(number % 300), element(1000 + number))], expiry=1)
    assert len(index._runs) <= 12
    assert [index.match([element(1000 + number)]).tolist() for number in (0, 999, 1999)] == [[0], [999], [1999]]
    assert index.match([element(7)]).tolist() == list(range(7, 2000, 300))


def test_an_index_that_is_asked_often_has_one_run_and_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    index = TagIndex(capacity=1000)
    for number in range(333):
        index.insert([(tag(b"%d" % (number % 7)),)], expiry=1)
    runs = len(index._runs)
    assert runs > 1
    for merged_max, left in ((0, runs), (1000, 1)):
        monkeypatch.setattr(tag_index, "_MERGED_MAX", merged_max)
        for _ in range(50):
            assert index.match([tag(b"3")]).tolist() == list(range(3, 333, 7))
        assert len(index._runs) == left


def test_a_tag_that_all_share_is_kept_once() -> None:
    alone, shared = TagIndex(capacity=5000), TagIndex(capacity=5000)
    alone.insert_many([[(element(number),)] for number in range(5000)], expiry=1)
    shared.insert_many([[(element(0),)] for number in range(5000)], expiry=1)
    assert alone.nbytes - shared.nbytes == 4999 * (TAG + 8)


def test_a_full_index_says_so_changes_nothing_and_takes_more_after_expiry() -> None:
    fill(TagIndex(capacity=70))


def test_memory_stays_bounded_while_subscriptions_come_and_go() -> None:
    index = TagIndex(capacity=10_000)
    held = []
    for now in range(1, 60):
        index.insert_many([[(element(n), element(now))] for n in range(100)], expiry=now)
        assert len(index.expire(now)) == 100
        assert not any(index.match([element(n)]).size for n in range(100))
        held.append(index.nbytes)
    assert max(held[30:]) <= max(held[:30])
    assert len(index._stale) <= tag_index._UNSWEPT


@pytest.mark.parametrize("illegal", [[], [()], [(b"short",)], [("sixteen letters.",)], [(bytes(17),)]])
def test_a_value_that_is_no_tag_is_refused_and_takes_no_column(illegal: list[Cover]) -> None:
    index = TagIndex(capacity=2)
    with pytest.raises(LocalError):
        index.insert(illegal, expiry=1)
    with pytest.raises(LocalError):
        index.insert_many([[(element(1),)], illegal], expiry=1)
    assert (len(index), index.columns) == (0, 0)


@pytest.mark.parametrize("capacity", [0, 2**31])
def test_an_index_without_room_or_with_more_than_numbers_is_refused(capacity: int) -> None:
    with pytest.raises(ConfigError):
        TagIndex(capacity=capacity)


def test_an_empty_index_and_an_empty_publication_match_nothing() -> None:
    index = TagIndex(capacity=10)
    assert index.match([element(1)]).tolist() == []
    assert index.insert_many([], expiry=1).tolist() == []
    assert index.expire(5).tolist() == []
    index.insert([(element(1),)], expiry=7)
    assert index.match([]).tolist() == []
    assert index.next_expiry() == 7


def test_subscriptions_of_one_subscriber_do_not_mix() -> None:
    plane = Schema((Integers("a", 0, 255, 8), Integers("b", 0, 255, 8)))
    index = TagIndex(capacity=4)
    boxes = [Box({"a": (0, 9), "b": (0, 9)}), Box({"a": (100, 109), "b": (100, 109)})]
    index.insert_many([tagged(covers(box, plane)) for box in boxes], expiry=1)
    mixed = Publication((("a", 5), ("b", 105)))
    assert index.match(list(map(tag, queries(mixed, plane)))).tolist() == []
