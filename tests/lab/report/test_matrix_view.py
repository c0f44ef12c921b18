"""A matrix has a view for every choice, and its levels say how far from chance an attacker got."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import matrix_results
from veilcast.lab.experiment.definition import AttackMatrix
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.report.matrix_view import LEVELS, DefenceRow, MatrixEntry, MatrixView, make_matrix_view

INSIDE, _, PUBLISHERS = matrix_results.make_experiment().matrices


def made(matrix: AttackMatrix, scores: ScoreTable | None = None) -> MatrixView:
    return make_matrix_view(
        matrix_results.make_experiment(), matrix, scores or ScoreTable(matrix_results.make_scores())
    )


def plain(**given: Any) -> MatrixView:
    return MatrixView(AttackMatrix("m", "M", ("a", "b"), **given), "epochs", (), ())


def test_there_is_a_view_for_every_choice_with_a_row_for_every_defence() -> None:
    found = made(INSIDE)
    assert [(choice.name, choice.values, choice.first) for choice in found.choices] == [
        ("degree", (4, 8, 16), 8),
        ("insiders", (0.01, 0.05, 0.1), 0.1),
        ("step", (1, 5, 20, 50), 50),
    ]
    assert len(found.views) == 3 * 3 * 4
    for view in found.views:
        assert [row.defence for row in view.rows] == ["BL", "PF fresh", "PF sticky", "SG", "PFSG", "H"]
    last = found.views[-1]
    assert last.at == {"degree": 16, "insiders": 0.1, "step": 50}
    assert [entry.value if entry else None for entry in last.rows[-1].reached] == [
        pytest.approx(0.55),
        pytest.approx(0.54),
        pytest.approx(0.53),
        None,
    ]
    assert [entry.value for entry in last.rows[-1].costs if entry] == [373, 9.9, 2e4]


def test_what_was_not_swept_is_not_offered() -> None:
    few = ScoreTable(
        row for row in matrix_results.make_scores() if "degree=8" in row.cell and "insiders=0.1" in row.cell
    )
    found = made(INSIDE, few)
    assert [choice.name for choice in found.choices] == ["step"]
    assert {view.at["degree"] for view in found.views} == {8}
    assert made(INSIDE, ScoreTable([])).views == ()


def test_a_metric_may_be_taken_over_another() -> None:
    (reached, *_) = made(PUBLISHERS).views[-1].rows[-1].reached
    assert reached is not None
    assert reached.value == pytest.approx(0.12 * 450)
    assert reached.high - reached.low == pytest.approx(0.01 * 450)


def test_a_cost_that_is_counted_once_stands_at_every_step_after() -> None:
    once = [row for row in matrix_results.make_scores() if row.metric != "hops" or row.step == 5]
    hops = {view.at["step"]: view.rows[0].costs[1] for view in made(INSIDE, ScoreTable(once)).views}
    assert hops[1] is None
    assert hops[5] == hops[20] == hops[50] is not None


def test_what_may_be_chance_is_chance_and_what_has_no_interval_is_taken_as_it_is() -> None:
    assert plain().level(MatrixEntry(0.6, 0.49, 0.71)) == 0
    assert plain().level(MatrixEntry(0.6, 0.59, 0.61)) == 2
    assert plain().level(MatrixEntry(0.6, -inf, inf)) == 2


@given(st.floats(0, 1), st.floats(0, 1))
def test_who_got_further_is_never_on_a_lower_level(one: float, other: float) -> None:
    low, high = sorted([one, other])
    rising, falling = plain(), plain(chance=0.5, certain=0.0)
    assert rising.level(_certain(low)) <= rising.level(_certain(high)) <= len(LEVELS)
    assert falling.level(_certain(low)) >= falling.level(_certain(high))


def test_the_edges_are_the_values_up_to_which_the_levels_go() -> None:
    found = plain()
    assert found.edges() == pytest.approx([0.52, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert [found.level(_certain(edge)) for edge in found.edges()] == list(range(len(LEVELS) + 1))


def test_the_strongest_is_who_got_furthest_from_chance() -> None:
    row = DefenceRow("H", (_certain(0.4), _certain(0.7)), ())
    assert plain().strongest(row) == ("b", _certain(0.7))
    assert plain(chance=0.5, certain=0.0).strongest(row) == ("a", _certain(0.4))
    assert plain().strongest(DefenceRow("H", (None, None), ())) is None


def _certain(value: float) -> MatrixEntry:
    return MatrixEntry(value, value, value)
