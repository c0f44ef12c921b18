"""The rules of every index: in any order of calls it agrees with a list that is searched one by one.

The tests of an index derive a machine from `IndexMachine` that makes the index.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, consumes, invariant, multiple, rule

from veilcast.errors import LocalError
from veilcast.topics import Cover, coarse_match
from veilcast.topics.column_allocator import SubscriptionIndex


def element(number: int) -> bytes:
    """16 bytes, so that it may pass for a tag."""
    return b"element %08d" % number


small_covers = st.lists(
    st.lists(st.integers(0, 8).map(element), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=1,
    max_size=3,
)


class IndexMachine(RuleBasedStateMachine):
    subscriptions = Bundle("subscriptions")

    def __init__(self) -> None:
        super().__init__()
        self.index = self.make()
        self.model: dict[int, tuple[int, list[Cover]]] = {}
        self.now = 0

    def make(self) -> SubscriptionIndex:
        """An index of 150 columns."""
        raise NotImplementedError

    @rule(target=subscriptions, batch=st.lists(small_covers, min_size=1, max_size=30), lasts=st.integers(1, 5))
    def insert(self, batch: list[list[Cover]], lasts: int) -> MultipleResults[int]:
        expiry = self.now + lasts
        if self.index.columns + sum(map(len, batch)) > self.index.capacity:
            with pytest.raises(LocalError, match="full"):
                self.index.insert_many(batch, expiry)
            return multiple()
        numbers = self.index.insert_many(batch, expiry).tolist()
        assert not any(number in self.model for number in numbers)
        self.model.update({n: (expiry, covers) for n, covers in zip(numbers, batch, strict=True)})
        return multiple(*numbers)

    @rule(number=consumes(subscriptions))
    def remove(self, number: int) -> None:
        if number in self.model:
            self.index.remove(number)
            del self.model[number]
        else:
            with pytest.raises(LocalError, match="no subscription"):
                self.index.remove(number)

    @rule(passes=st.integers(0, 6))
    def expire(self, passes: int) -> None:
        self.now += passes
        expired = sorted(number for number, (expiry, _) in self.model.items() if expiry <= self.now)
        assert self.index.expire(self.now).tolist() == expired
        for number in expired:
            del self.model[number]

    @rule(asked=st.lists(st.lists(st.integers(0, 9).map(element), max_size=6), max_size=4))
    def match(self, asked: list[list[bytes]]) -> None:
        expected = [
            sorted(number for number, (_, covers) in self.model.items() if coarse_match(covers, one)) for one in asked
        ]
        assert [self.index.match(one).tolist() for one in asked] == expected

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.index) == len(self.model)
        assert self.index.columns == sum(len(covers) for _, covers in self.model.values())
        soonest = self.index.next_expiry()
        assert (soonest is None) == (not self.model)
        assert soonest is None or soonest <= min(expiry for expiry, _ in self.model.values())


def fill(index: SubscriptionIndex) -> None:
    """One with room for 70 columns: it says when it is full, changes nothing then, and takes more after expiry."""
    index.insert_many([[(element(n),)] for n in range(69)], expiry=5)
    with pytest.raises(LocalError, match="at most 70 columns"):
        index.insert([(element(1),), (element(2),)], expiry=9)
    assert index.match([element(1)]).tolist() == [1]
    assert (len(index), index.columns) == (69, 69)
    assert len(index.expire(5)) == 69
    assert len(index.insert_many([[(element(n),)] for n in range(70)], expiry=9)) == 70
    assert [index.match([element(n)]).size for n in range(70)] == [1] * 70
