"""Loop labels: no node forwards a message twice, and the rate of mistaken losses is the computed one."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError, MalformedError
from veilcast.tree.paper_router import LABEL_BITS_MAX, LabelHeader, LoopLabels


def some(headers: LabelHeader, count: int, seed: int = 1, every_us: int = 1000) -> list[LoopLabels]:
    rng = Random(seed)
    return [LoopLabels(headers, every_us=every_us, rng=rng, now=0) for _ in range(count)]


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_node_recognises_its_label_after_any_later_labels(seed: int, others: int) -> None:
    headers = LabelHeader()
    first, *rest = some(headers, 1 + others, seed)
    header = first.mark(headers.empty(), 0)
    assert header is not None
    for node in rest:
        header = node.mark(header, 0) or header
    assert first.mark(header, 999) is None
    assert len(header) == 16


def test_a_label_changes_at_intervals_and_the_previous_one_still_counts() -> None:
    headers = LabelHeader(256)
    (node,) = some(headers, 1)
    marked = [node.mark(headers.empty(), now) for now in (0, 999, 1000, 2000)]
    assert marked[0] == marked[1] != marked[2] != marked[3]
    assert marked[2] is not None
    assert marked[0] is not None
    assert node.mark(marked[2], 2001) is None
    assert node.mark(marked[0], 2001) is not None, "two intervals later it is forgotten"
    long_after = node.mark(headers.empty(), 90_000)
    assert long_after is not None
    assert node.mark(marked[2], 90_000) is not None


@pytest.mark.parametrize(("bits", "least", "most"), [(128, 0.0075, 0.009), (256, 0.00055, 0.0007)])
def test_the_stated_loss_on_a_path_of_ten_is_right(bits: int, least: float, most: float) -> None:
    assert least < LabelHeader(bits).loss_probability(10) <= most
    usual = sum((1 - (1 - 1 / bits) ** (4 * passed)) ** 4 for passed in range(10))
    assert LabelHeader(bits).loss_probability(10) <= usual


def test_the_computed_loss_matches_a_simulation() -> None:
    """A header so small that 2,000 paths show the loss: 32 bits, 6 nodes."""
    headers, rng = LabelHeader(32), Random(3)
    lost = 0
    for _ in range(2000):
        header: bytes | None = headers.empty()
        for node in [LoopLabels(headers, every_us=1, rng=rng, now=0) for _ in range(6)]:
            header = node.mark(header, 0) if header is not None else None
        lost += header is None
    expected = headers.loss_probability(6)
    assert 0.05 < expected < 0.2
    assert abs(lost / 2000 - expected) < 4 * (expected / 2000) ** 0.5


@given(st.integers(1, 8).map(lambda size: 8 * size), st.integers(1, 4))
def test_the_loss_is_zero_for_one_node_and_grows_with_the_path(bits: int, hashes: int) -> None:
    headers = LabelHeader(bits, hashes)
    chances = [headers.loss_probability(path) for path in range(6)]
    assert chances[0] == 0
    assert abs(chances[1]) < 1e-12
    assert all(one <= two + 1e-12 for one, two in pairwise(chances))


def test_headers_of_another_size_are_refused() -> None:
    headers = LabelHeader()
    (node,) = some(headers, 1)
    for header in (b"", bytes(15), bytes(17)):
        with pytest.raises(MalformedError):
            node.mark(header, 0)
    for bits, hashes in ((7, 4), (12, 4), (LABEL_BITS_MAX + 8, 4), (128, 0), (8, 8)):
        with pytest.raises(ConfigError):
            LabelHeader(bits, hashes)
    with pytest.raises(ConfigError):
        LoopLabels(headers, every_us=0, rng=Random(1), now=0)
