"""Agreement of replicas on whose dealings they go on with: every behaviour of a Byzantine minority, on the code."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import product

import pytest

from support.symbolic.agreement_search import FloodModel
from veilcast.brokers.keys import agreement
from veilcast.brokers.keys.agreement import AttendanceRoll, DealingRef, EndorsedStatement, SignedBroadcast
from veilcast.brokers.keys.scheme import majority, max_faulty
from veilcast.crypto import sign


@pytest.fixture(autouse=True)
def _signatures_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same signatures come in thousands of runs."""
    monkeypatch.setattr(agreement, "verify", lru_cache(maxsize=None)(sign.verify))


@pytest.mark.parametrize("own", [(b"a", b"a"), (b"a", b"b")], ids=["alike", "different"])
def test_one_liar_of_three_never_divides_the_others(own: tuple[bytes, ...]) -> None:
    """Brokers that lie, cannot: "put a key together, over any number of hops, or keep it from whom it is for"."""
    assert FloodModel(3, 1).disagreement(own) is None


@pytest.mark.all_only
def test_two_liars_of_five_never_divide_the_others() -> None:
    assert FloodModel(5, 2).disagreement((b"a", b"a", b"b")) is None


# --- planted flaws ------------------------------------------------------------------------------------------


class TooFewRounds(SignedBroadcast):
    """Ends after f rounds, not f + 1."""

    @property
    def rounds(self) -> int:
        return self._own_id.scheme.max_faulty


class TooFewSignatures(SignedBroadcast):
    """Takes up in round i what has i - 1 signatures."""

    def accept(self, vouched: EndorsedStatement, round_number: int) -> None:
        super().accept(vouched, max(1, round_number - 1))


@pytest.mark.parametrize("flood", [TooFewRounds, TooFewSignatures])
def test_each_planted_flaw_of_the_flood_is_found(flood: type[SignedBroadcast]) -> None:
    assert FloodModel(3, 1, flood=flood).disagreement((b"a", b"a")) is not None


def test_a_majority_of_liars_is_found() -> None:
    """The control: a node of four bears one liar, and two divide the others."""
    assert FloodModel(4, 2).disagreement((b"a", b"a")) is not None


# --- which dealings stand -----------------------------------------------------------------------------------


def most_that_stand(size: int, threshold: int) -> int:
    """Of one holder that deals twice: how many of its dealings can have so many replicas, over all that are said."""
    dealings = (None, DealingRef(b"a" * 32, b"o" * 32), DealingRef(b"b" * 32, b"o" * 32))
    return max(
        sum(count >= threshold for dealt, count in Counter(said).items() if dealt is not None)
        for said in product(dealings, repeat=size)
    )


@pytest.mark.parametrize("size", [3, 5, 7])
def test_no_holder_has_two_dealings_that_stand_and_with_f_for_a_threshold_it_has(size: int) -> None:
    """The threshold is f + 1 of 2f + 1. Planted: f."""
    assert most_that_stand(size, majority(size)) == 1
    assert most_that_stand(size, max_faulty(size)) == 2


def test_the_code_counts_with_that_threshold() -> None:
    dealt, other = DealingRef(b"a" * 32, b"o" * 32), DealingRef(b"b" * 32, b"o" * 32)
    for said in product((None, dealt, other), repeat=3):
        rolls = {index: AttendanceRoll({} if each is None else {1: each}) for index, each in enumerate(said, 1)}
        expected = [(1, each) for each in (dealt, other) if said.count(each) >= majority(3)]
        assert list(agreement.majority_dealings(rolls, 3).items()) == expected
