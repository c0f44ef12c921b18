"""The bound of a filter, proven by counting every outcome where that can be done; test_bloom_index measures it."""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.topics.bloom import MAX_COUNT, MAX_HASHES, MAX_WIDTH, Geometry, false_hit


def exact_chance(hashes: int, width: int, elements: int, asked: int) -> Fraction:
    """Over all ways to place elements and queries: how often some query finds all its positions taken."""
    one_element = list(itertools.product(range(width), repeat=hashes))
    wrong = total = 0
    for held in itertools.product(one_element, repeat=elements):
        taken = [{element[slice_] for element in held} for slice_ in range(hashes)]
        for queries in itertools.product(one_element, repeat=asked):
            total += 1
            wrong += any(all(at in slice_ for at, slice_ in zip(q, taken, strict=True)) for q in queries)
    return Fraction(wrong, total)


@pytest.mark.parametrize(("hashes", "width", "elements"), [(1, 2, 3), (1, 5, 2), (2, 2, 2), (2, 3, 2), (3, 2, 2)])
def test_the_formula_for_one_query_is_exact(hashes: int, width: int, elements: int) -> None:
    formula = (1 - (1 - Fraction(1, width)) ** elements) ** hashes
    assert exact_chance(hashes, width, elements, asked=1) == formula
    assert false_hit(hashes, width, elements) == pytest.approx(float(formula))


@pytest.mark.parametrize(
    ("hashes", "width", "elements", "asked"), [(1, 5, 2, 2), (2, 3, 1, 2), (2, 2, 1, 3), (1, 4, 2, 3)]
)
def test_several_queries_stay_within_their_number_times_one(hashes: int, width: int, elements: int, asked: int) -> None:
    geometry = Geometry(hashes=hashes, width=width, elements=elements, queries=asked)
    assert float(exact_chance(hashes, width, elements, asked)) <= geometry.bound


def test_uneven_positions_are_within_the_bound_too() -> None:
    """Scaling b random bits to a width favours some positions; the likeliest of them bounds them all."""
    draws, width, elements = 2**4, 3, 2
    share = [Fraction(sum(draw * width // draws == at for draw in range(draws)), draws) for at in range(width)]
    exact = sum(p * (1 - (1 - p) ** elements) for p in share)
    assert exact <= 1 - (1 - max(share)) ** elements
    assert max(share) == Fraction(math.ceil(draws / width), draws)


@given(st.integers(1, 300), st.integers(1, 2000), st.floats(1e-9, 0.5))
def test_a_shape_made_for_a_bound_keeps_it(elements: int, queries: int, bound: float) -> None:
    geometry = Geometry.sized(elements=elements, queries=queries, bound=bound)
    assert geometry.bound <= bound
    # Nor is it wasteful: a slice one position narrower would break the promise.
    assert geometry.width == 2 or queries * false_hit(geometry.hashes, geometry.width - 1, elements) > bound


def test_the_shape_is_within_a_quarter_of_the_smallest_filter() -> None:
    geometry = Geometry.sized(elements=30, queries=17, bound=1e-3)
    smallest = 30 * math.log2(17 / 1e-3) / math.log(2)  # the textbook optimum
    assert (geometry.hashes, geometry.width) == (7, 106)
    assert geometry.rows <= 1.25 * smallest


def test_positions_are_keyed_blake2b_one_in_each_slice() -> None:
    geometry = Geometry(hashes=3, width=100, elements=1, queries=1)
    digest = hashlib.blake2b(b"element", key=b"key", person=b"veilcast bloom").digest()
    drawn = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4, 8)]
    expected = [i * 100 + draw * 100 // 2**32 for i, draw in enumerate(drawn)]
    assert geometry.positions([b"element"], b"key").tolist() == [expected]
    assert geometry.positions([b"element"], b"other").tolist() != [expected]
    assert geometry.positions([], b"key").shape == (0, 3)


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, MAX_HASHES), st.integers(2, MAX_WIDTH))
def test_every_position_lies_in_its_slice(elements: list[bytes], hashes: int, width: int) -> None:
    rows = Geometry(hashes=hashes, width=width, elements=1, queries=1).positions(elements, b"key")
    assert rows.shape == (len(elements), hashes)
    assert all(row // width == i for placed in rows.tolist() for i, row in enumerate(placed))


@pytest.mark.parametrize(
    "shape",
    [
        (0, 8, 1, 1),
        (MAX_HASHES + 1, 8, 1, 1),
        (1, 1, 1, 1),
        (1, MAX_WIDTH + 1, 1, 1),
        (1, 8, 0, 1),
        (1, 8, 1, 0),
        (1, 8, MAX_COUNT + 1, 1),
        (1, 8, 1, MAX_COUNT + 1),
    ],
)
def test_an_impossible_shape_is_refused(shape: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigError):
        Geometry(*shape)


@pytest.mark.parametrize(
    ("elements", "queries", "bound"),
    [
        (0, 1, 0.1),
        (1, 0, 0.1),
        (1, 1, 0.0),
        (1, 1, 1.0),
        (1, 1, math.nan),
        (10**9, 1, 0.1),
        (10**400, 1, 0.1),
        (1, 10**400, 0.1),
    ],
)
def test_an_impossible_wish_is_refused(elements: int, queries: int, bound: float) -> None:
    with pytest.raises(ConfigError):
        Geometry.sized(elements=elements, queries=queries, bound=bound)
