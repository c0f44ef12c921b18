"""Overlays of brokers: trees of the fan-out that is asked for, whose tables say what walking says."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.models.broker_tree import BrokerTree, Family, grow_tree


@st.composite
def trees(draw: st.DrawFn) -> BrokerTree:
    size = draw(st.integers(1, 30))
    parents = [0] + [draw(st.integers(0, broker - 1)) for broker in range(1, size)]
    return BrokerTree(np.array(parents, np.int16))


def path(overlay: BrokerTree, u: int, v: int) -> list[int]:
    """By definition: up from both ends until they meet."""
    up, down = [u], [v]
    while up[-1] != down[-1]:
        side = up if up[-1] > down[-1] else down
        side.append(int(overlay.parents[side[-1]]))
    return up + down[-2::-1]


@given(trees())
def test_tables_say_what_walking_says(overlay: BrokerTree) -> None:
    for u in range(overlay.brokers):
        for v in range(overlay.brokers):
            walked = path(overlay, u, v)
            assert overlay.edges[u, v] == len(walked) - 1
            assert overlay.meeting_brokers[u, v] == min(walked)


@pytest.mark.parametrize("family", ["geometric", "uniform"])
@pytest.mark.parametrize("fanout", [2, 5])
def test_inner_brokers_have_as_many_children_as_the_fan_out_on_the_average(family: Family, fanout: int) -> None:
    children = np.concatenate([np.bincount(grow_tree(400, fanout, family, 1, n).parents[1:]) for n in range(200)])
    inner = children[children > 0]
    # The last broker of a tree may be cut short.
    assert inner.mean() == pytest.approx(fanout, rel=0.04)
    if family == "uniform":
        assert inner.max() == 2 * fanout - 1
    else:
        assert np.mean(inner == 1) == pytest.approx(1 / fanout, abs=0.03)


def test_the_complete_tree_is_full_level_by_level() -> None:
    overlay = grow_tree(400, 5, "complete", 0)
    assert np.bincount(overlay.depth).tolist() == [1, 5, 25, 125, 244]
    assert grow_tree(7, 2, "complete", 0).edges[3, 6] == 4


def test_an_overlay_is_of_its_seed_and_number_and_a_fan_out_of_one_is_a_line() -> None:
    assert np.array_equal(grow_tree(50, 2, "geometric", 1, 2).parents, grow_tree(50, 2, "geometric", 1, 2).parents)
    assert not np.array_equal(grow_tree(50, 2, "geometric", 1, 2).parents, grow_tree(50, 2, "geometric", 1, 3).parents)
    for family in get_args(Family):
        assert grow_tree(9, 1, family, 0).edges.max() == 8


@pytest.mark.parametrize(
    "parents", [[], [1, 0], [0, 2, 0], [0, 1], [0, 0, -1]], ids=["none", "no root", "later", "itself", "nobody"]
)
def test_what_is_no_tree_in_order_of_growth_is_refused(parents: list[int]) -> None:
    with pytest.raises(ConfigError):
        BrokerTree(np.array(parents, np.int16))


def test_sizes_and_fan_outs_that_make_no_sense_are_refused() -> None:
    for brokers, fanout, family in ((0, 2, "geometric"), (10_001, 2, "complete"), (9, 0.5, "geometric")):
        with pytest.raises(ConfigError):
            grow_tree(brokers, fanout, family, 0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="whole number"):
        grow_tree(9, 2.5, "uniform", 0)
