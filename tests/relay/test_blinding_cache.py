"""The blinding cache returns what a fresh computation would, never mixes keys, and is bounded."""

from __future__ import annotations

import random
from collections.abc import Sequence

from veilcast.crypto.group import Point, Scalar, multiply_each
from veilcast.relay import subject_tags
from veilcast.relay.subject_tags import BlindingCache, blind_many


class Counting:
    """A `Multiply` that counts its work."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
        self.asked.append(len(pairs))
        return multiply_each(pairs)


def test_a_cached_element_equals_a_freshly_blinded_one() -> None:
    multiply, key = Counting(), Scalar.draw(random.Random(1).randbytes)
    hiding = BlindingCache(multiply)
    for elements in ([b"a", b"b", b"a"], [b"b", b"c"], [b"c", b"a"]):
        assert hiding.blind(key, elements) == blind_many(elements, key)
    assert multiply.asked == [2, 1, 0]


def test_points_cached_under_one_key_are_not_used_under_another() -> None:
    entropy = random.Random(2).randbytes
    first, second = Scalar.draw(entropy), Scalar.draw(entropy)
    hiding = BlindingCache(multiply_each)
    for key in (first, second, first):
        assert hiding.blind(key, [b"a"]) == blind_many([b"a"], key)


def test_the_blinding_cache_is_bounded() -> None:
    key = Scalar.draw(random.Random(3).randbytes)
    mine = BlindingCache(multiply_each)
    elements = [number.to_bytes(4, "big") for number in range(subject_tags.BLINDED_MAX + 8)]
    assert mine.blind(key, elements) == blind_many(elements, key)
    assert len(mine) == subject_tags.BLINDED_MAX
    assert mine.blind(key, elements[:4]) == blind_many(elements[:4], key)
    assert len(mine) == subject_tags.BLINDED_MAX
