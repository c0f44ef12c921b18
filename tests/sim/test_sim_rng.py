"""Random streams belong to names, and give the same numbers for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.sim.rng import SeededEntropy, check_seed, derive_bytes, derive_rng, draw_quantile, happens

WORDS = st.integers(0, 2**64 - 1)
POINTS = st.lists(st.integers(0, 10**9), min_size=1, max_size=8).map(sorted).map(tuple)


def test_names_do_not_run_together() -> None:
    assert derive_bytes(1, "ab", "c") != derive_bytes(1, "a", "bc")
    assert derive_bytes(1, "ab") != derive_bytes(2, "ab")


def test_the_numbers_never_change() -> None:
    assert derive_bytes(17, "link", "n0", "n1").hex()[:16] == "9dccaa44e7b48c6e"
    assert derive_rng(17, "rng", "n0", "0").getrandbits(32) == 364770099


def test_entropy_gives_the_same_bytes_however_large_the_reads_of_whole_blocks() -> None:
    whole, parts = SeededEntropy(b"k" * 32), SeededEntropy(b"k" * 32)
    assert whole(256) == b"".join(parts(64) for _ in range(4))
    assert len(whole(7)) == 7


@given(POINTS, WORDS)
def test_a_quantile_lies_within_its_points(points: tuple[int, ...], word: int) -> None:
    assert points[0] <= draw_quantile(points, word) <= points[-1]


@given(POINTS, WORDS, WORDS)
def test_quantiles_rise(points: tuple[int, ...], a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert draw_quantile(points, low) <= draw_quantile(points, high)


@given(WORDS)
def test_the_certain_happens_and_the_impossible_does_not(word: int) -> None:
    assert happens(1_000_000, word)
    assert not happens(0, word)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits(seed: int) -> None:
    with pytest.raises(ConfigError, match="seed"):
        check_seed(seed)
