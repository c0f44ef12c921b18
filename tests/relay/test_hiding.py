"""What a client keeps of its elements: what it would compute again, never under another key, and never without end."""

from __future__ import annotations

import random
from collections.abc import Sequence

from veilcast.crypto.bulk import one_by_one
from veilcast.crypto.group import Point, Scalar
from veilcast.relay import hiding
from veilcast.relay.hiding import Hiding
from veilcast.relay.subjects import hidden_many


class Counting:
    """A `Multiply` that says how much it was given to do."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
        self.asked.append(len(pairs))
        return one_by_one(pairs)


def test_an_element_is_hidden_once_and_as_it_would_be_each_time() -> None:
    multiply, key = Counting(), Scalar.draw(random.Random(1).randbytes)
    hiding = Hiding(multiply)
    for elements in ([b"a", b"b", b"a"], [b"b", b"c"], [b"c", b"a"]):
        assert hiding.under(key, elements) == hidden_many(elements, key)
    assert multiply.asked == [2, 1, 0]


def test_what_was_hidden_under_one_key_is_not_given_out_under_another() -> None:
    entropy = random.Random(2).randbytes
    first, second = Scalar.draw(entropy), Scalar.draw(entropy)
    hiding = Hiding(one_by_one)
    for key in (first, second, first):
        assert hiding.under(key, [b"a"]) == hidden_many([b"a"], key)


def test_no_more_is_kept_than_the_bound() -> None:
    key = Scalar.draw(random.Random(3).randbytes)
    mine = Hiding(one_by_one)
    elements = [number.to_bytes(4, "big") for number in range(hiding.HIDDEN_MAX + 8)]
    assert mine.under(key, elements) == hidden_many(elements, key)
    assert len(mine) == hiding.HIDDEN_MAX
    assert mine.under(key, elements[:4]) == hidden_many(elements[:4], key)
    assert len(mine) == hiding.HIDDEN_MAX
