"""What a client keeps of its elements: what it would compute again, never under another key, and never without end."""

from __future__ import annotations

import random
from collections.abc import Sequence

from veilcast.crypto.group import Point, Scalar, multiply_each
from veilcast.relay import subject_tags
from veilcast.relay.subject_tags import BlindingCache, blind_many


class Counting:
    """A `Multiply` that says how much it was given to do."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
        self.asked.append(len(pairs))
        return multiply_each(pairs)


def test_an_element_is_hidden_once_and_as_it_would_be_each_time() -> None:
    multiply, key = Counting(), Scalar.draw(random.Random(1).randbytes)
    hiding = BlindingCache(multiply)
    for elements in ([b"a", b"b", b"a"], [b"b", b"c"], [b"c", b"a"]):
        assert hiding.blind(key, elements) == blind_many(elements, key)
    assert multiply.asked == [2, 1, 0]


def test_what_was_hidden_under_one_key_is_not_given_out_under_another() -> None:
    entropy = random.Random(2).randbytes
    first, second = Scalar.draw(entropy), Scalar.draw(entropy)
    hiding = BlindingCache(multiply_each)
    for key in (first, second, first):
        assert hiding.blind(key, [b"a"]) == blind_many([b"a"], key)


def test_no_more_is_kept_than_the_bound() -> None:
    key = Scalar.draw(random.Random(3).randbytes)
    mine = BlindingCache(multiply_each)
    elements = [number.to_bytes(4, "big") for number in range(subject_tags.BLINDED_MAX + 8)]
    assert mine.blind(key, elements) == blind_many(elements, key)
    assert len(mine) == subject_tags.BLINDED_MAX
    assert mine.blind(key, elements[:4]) == blind_many(elements[:4], key)
    assert len(mine) == subject_tags.BLINDED_MAX
