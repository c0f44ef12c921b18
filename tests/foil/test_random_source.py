"""Secret randomness follows the laws of `numpy`'s generators, and depends only on the bytes it is given."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import erf, sqrt

import numpy as np
import pytest

from support.foil_generators import unevenness
from veilcast.foil.random_source import RandomSource, SecretRandom, draw_integers

SOURCES: list[Callable[[], RandomSource]] = [
    lambda: SecretRandom(random.Random(1).randbytes),
    lambda: np.random.default_rng(1),
]


@pytest.mark.parametrize("source", SOURCES, ids=["secret", "numpy"])
def test_uniform_and_normal_numbers_follow_their_law(source: Callable[[], RandomSource]) -> None:
    rng = source()
    uniform = rng.random((200, 200))
    assert ((uniform >= 0) & (uniform < 1)).all()
    assert unevenness((uniform * 20).astype(np.int64), 20) < 4.5
    normal = rng.standard_normal((200, 200))
    shares = 0.5 * (1 + np.vectorize(erf)(normal / sqrt(2)))
    assert unevenness((shares * 20).astype(np.int64), 20) < 4.5
    assert abs(np.corrcoef(normal[:, 1:].ravel(), normal[:, :-1].ravel())[0, 1]) < 0.025


def test_a_drawn_integer_can_be_any_of_n() -> None:
    assert unevenness(draw_integers(SecretRandom(random.Random(2).randbytes), 7, (30_000,)), 7) < 4.5


def test_extreme_random_words_give_finite_numbers_below_one() -> None:
    for byte in (b"\x00", b"\xff"):
        rng = SecretRandom(lambda size, byte=byte: byte * size)  # type: ignore[misc]
        assert 0 <= rng.random((1,))[0] < 1
        assert np.isfinite(rng.standard_normal((1,)))[0]
        assert draw_integers(rng, 1024, (1,))[0] in (0, 1023)


def test_equal_bytes_give_equal_numbers() -> None:
    first, second = (SecretRandom(random.Random(3).randbytes).standard_normal((5, 2)) for _ in range(2))
    assert np.array_equal(first, second)
