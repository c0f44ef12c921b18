"""Guards that know how a chain is made: certain where it ends with the subscriber, and not where it goes on."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.attack.insider import tree_nodes
from veilcast.lab.attack.insider.tree_nodes import SeenPaths, TreeObservations
from veilcast.lab.models.tree_entries import TreeEntries

HONEST = np.arange(10) < 8
"""8 and 9 are of the coalition."""


def told(*rows: tuple[int, int, int]) -> TreeEntries:
    """Refresh, place, and who is named as the next."""
    refresh, behind, parent = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    rest = np.zeros_like(refresh)
    return TreeEntries(refresh, rest + 9, parent, rest, rest, rest, behind, rest)


def test_a_coalition_outside_the_chain_suspects_all_nodes_except_its_near_end() -> None:
    found = tree_nodes.score_guards(told((0, 0, 3)), HONEST, [4], 0.0)
    assert found[3] == 0
    assert found[:3] == pytest.approx(1 / 7)
    assert not found[8:].any()
    assert tree_nodes.score_guards(told((0, -1, 3)), HONEST, [4], 0.0)[:8] == pytest.approx(1 / 8)


def test_the_last_guard_knows_the_subscriber_and_the_one_before_it_does_not() -> None:
    assert tree_nodes.score_guards(told((0, 3, 5)), HONEST, [4], 0.0)[5] == 1
    before = tree_nodes.score_guards(told((0, 2, 5)), HONEST, [4], 0.0)
    assert before[5] == 0
    assert before[0] == pytest.approx(1 / 7)


def test_with_a_tail_a_guard_knows_one_of_as_many_as_there_are_places() -> None:
    found = tree_nodes.score_guards(told((0, 3, 5)), HONEST, range(2, 8), 0.0)
    assert found[5] == pytest.approx(1 / 5)  # Six places, of which the guard itself has one.
    two = tree_nodes.score_guards(told((0, 3, 5), (0, 5, 6)), HONEST, range(2, 8), 0.0)
    assert two[5] == two[6] == pytest.approx(1 / 4)


def test_a_node_that_changes_was_a_guard_and_one_that_stays_is_more_suspect() -> None:
    changed = tree_nodes.score_guards(told((0, 3, 5), (1, 3, 6)), HONEST, range(2, 8), 0.01)
    assert not changed[[5, 6]].any()
    once, long = (
        tree_nodes.score_guards(told((0, 3, 5), (gap, 3, 5)), HONEST, range(2, 8), 0.01)[5] for gap in (1, 300)
    )
    assert 1 / 5 < once < 0.25 < 0.5 < long < 1


def test_probabilities_sum_to_one() -> None:
    for rows in (((0, 3, 5),), ((0, 1, 2), (4, 3, 5)), ((0, 0, 1), (1, 0, 1), (2, 5, 9))):
        for allowed in ([4], range(2, 8)):
            assert tree_nodes.score_guards(told(*rows), HONEST, allowed, 0.02).sum() == pytest.approx(1)


def test_the_longest_row_of_insiders_from_an_origin_on_names_the_node_after_it() -> None:
    steps = [
        (0, 8, 9, True),  # Origin 8, then 9, then the honest node 1.
        (0, 9, 1, False),
        (0, 8, 3, False),  # An insider further on, which no insider handed the publication to.
        (1, 9, 1, True),
        (2, 9, 2, False),  # The origin of this publication is honest.
    ]
    paths = SeenPaths(*(np.array(column) for column in zip(*steps, strict=True)))
    seen = TreeObservations(told((0, -1, 3)), HONEST.size, HONEST, paths=paths)
    assert tree_nodes.score_paths(seen).tolist() == [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]
