"""Covers are exact, minimal, canonical and short: exhaustively for few bits, by sampling for many."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.topics.dyadic import DyadicNode, cover_range, largest_cover, prefixes_of

SMALL = [(bits, low, high) for bits in range(1, 7) for low in range(1 << bits) for high in range(low, 1 << bits)]


def values_of(node: DyadicNode, bits: int) -> range:
    level, prefix = node
    return range(prefix << (bits - level), (prefix + 1) << (bits - level))


def test_every_small_cover_holds_exactly_its_range_in_ascending_order() -> None:
    for bits, low, high in SMALL:
        held = [value for node in cover_range(low, high, bits) for value in values_of(node, bits)]
        assert held == list(range(low, high + 1))


def test_every_value_has_one_prefix_in_the_covers_over_it_and_none_in_the_others() -> None:
    for bits, low, high in SMALL:
        nodes = cover_range(low, high, bits)
        for value in range(1 << bits):
            assert sum(prefix in nodes for prefix in prefixes_of(value, bits)) == (low <= value <= high)


@cache
def fewest(low: int, high: int, bits: int) -> int:
    """The least number of nodes that make up a range, by trying every way to begin."""
    if low > high:
        return 0
    first_nodes = [n for n in prefixes_of(low, bits) if values_of(n, bits)[0] == low and values_of(n, bits)[-1] <= high]
    return 1 + min(fewest(values_of(n, bits)[-1] + 1, high, bits) for n in first_nodes)


def test_no_small_range_can_be_covered_with_fewer_nodes() -> None:
    for bits, low, high in SMALL:
        assert len(cover_range(low, high, bits)) == fewest(low, high, bits)


@pytest.mark.parametrize("bits", range(1, 7))
def test_the_worst_cover_is_as_long_as_stated(bits: int) -> None:
    assert max(len(cover_range(low, high, b)) for b, low, high in SMALL if b == bits) == largest_cover(bits)


@pytest.mark.parametrize(("bits", "worst"), [(1, 1), (2, 2), (3, 4), (16, 30), (32, 62), (52, 102)])
def test_the_bound_is_two_bits_less_two_and_one_for_a_single_bit(bits: int, worst: int) -> None:
    assert largest_cover(bits) == worst
    assert len(cover_range(1 if bits > 1 else 0, max(1, (1 << bits) - 2), bits)) == worst


@pytest.mark.parametrize("bits", [1, 2, 16, 52])
def test_the_whole_domain_is_the_root_alone(bits: int) -> None:
    assert cover_range(0, (1 << bits) - 1, bits) == [(0, 0)]


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, int]:
    bits = draw(st.integers(1, 52))
    ends = st.integers(0, (1 << bits) - 1)
    low, high = sorted((draw(ends), draw(ends)))
    return low, high, bits


@given(ranges(), st.data())
def test_large_covers_are_exact_short_and_canonical(case: tuple[int, int, int], data: st.DataObject) -> None:
    low, high, bits = case
    nodes = cover_range(low, high, bits)
    assert len(nodes) <= largest_cover(bits)
    # Ascending, without gap or overlap, from low to high: exact. No two siblings: nothing could be merged.
    edges = [low]
    for node in nodes:
        held = values_of(node, bits)
        assert held.start == edges[-1]
        edges.append(held.stop)
    assert edges[-1] == high + 1
    assert all((level, prefix ^ 1) not in nodes for level, prefix in nodes if level)

    value = data.draw(st.one_of(st.sampled_from([low, high]), st.integers(0, (1 << bits) - 1)))
    assert sum(prefix in nodes for prefix in prefixes_of(value, bits)) == (low <= value <= high)


@pytest.mark.parametrize("bits", [1, 2, 16, 52])
def test_a_value_has_one_prefix_a_level_from_the_root_to_itself(bits: int) -> None:
    value = (1 << bits) * 2 // 3
    nodes = prefixes_of(value, bits)
    assert [level for level, _ in nodes] == list(range(bits + 1))
    assert nodes[0] == (0, 0)
    assert nodes[-1] == (bits, value)
    assert all(value in values_of(node, bits) for node in nodes)
