from __future__ import annotations

import pytest
from scipy.special import stdtrit

from veilcast.lab.experiment import definition, verdicts
from veilcast.lab.measure.verdicts import CurvePoint

TOML = b"""
title = "Two mus"
claim = "covers help"
reading = "none"
minutes = 0.1

[axes]
mu = [0.7, 0.3]
ratio = [0.1, 0.2]

[[series]]
name = "SG"
params = { cover = "one", game = "events", look = "swaps", steps = [5, 10] }

[[figures]]
name = "over-mu"
title = "over mu"
x = "mu"
x_label = "mu"
y_label = "accuracy"
curves = [
    { label = "last", series = "SG", attack = "leaf", metric = "auc", at = { ratio = 0.1 } },
    { label = "first", series = "SG", attack = "leaf", metric = "auc", at = { ratio = 0.1, step = 5 } },
]

[[figures]]
name = "over-steps"
title = "over steps"
x = "step"
x_label = "games"
y_label = "accuracy"
curves = [{ label = "mu = 0.7", series = "SG", attack = "leaf", metric = "auc", at = { mu = 0.7, ratio = 0.2 } }]

[[published]]
what = "it"
place = "P0 5"
value = 0.71
within = 0.02
figure = "over-mu"
curve = "last"
x = 0.7

[[earlier]]
what = "of a curve that was not run"
run = "a prototype"
value = 0.1
within = 0.02
figure = "over-steps"
curve = "mu = 0.7"
x = 10
"""


def scores(ratio: float) -> verdicts.ScoreTable:
    rows = [
        {
            "experiment": "x",
            "cell": f"SG mu={mu} ratio={ratio}",
            "attack": "leaf",
            "metric": "auc",
            "step": step,
            "value": mu - step / 1000,
            "low": mu - 0.01,
            "high": mu + 0.01,
            "seeds": 20,
        }
        for mu in (0.3, 0.7)
        for step in (10.0, 5.0)
    ]
    return verdicts.ScoreTable(rows)


def test_over_an_axis_a_curve_takes_the_last_step_or_the_one_that_is_named() -> None:
    tried = definition.parse_experiment(TOML, "x")
    figure = tried.figures[0]
    last, first = (verdicts.curve_points(tried, figure, curve, scores(0.1)) for curve in figure.curves)
    assert last == [CurvePoint(0.3, 0.29, 0.29, 0.31), CurvePoint(0.7, 0.69, 0.69, 0.71)]
    assert [point.value for point in first] == [pytest.approx(0.295), pytest.approx(0.695)]


def test_over_steps_it_takes_one_cell_in_order() -> None:
    tried = definition.parse_experiment(TOML, "x")
    points = verdicts.curve_points(tried, tried.figures[1], tried.figures[1].curves[0], scores(0.2))
    assert [point.x for point in points] == [5, 10]


def test_verdicts_are_of_what_was_run() -> None:
    found = verdicts.judge_numbers("two", definition.parse_experiment(TOML, "x"), scores(0.1))
    assert [(verdict.what, verdict.verdict) for verdict in found] == [("it", "fits")]


def test_intervals_hold_for_as_many_numbers_as_are_looked_at() -> None:
    tried = definition.parse_experiment(TOML, "x")
    alone, together = (
        verdicts.curve_points(tried, tried.figures[0], tried.figures[0].curves[0], scores(0.1), among)[1]
        for among in (1, 18)
    )
    assert together.value == alone.value
    wider = (together.high - together.value) / (alone.high - alone.value)
    assert wider == pytest.approx(stdtrit(19, 1 - 0.025 / 18) / stdtrit(19, 0.975))
    assert together.value - together.low == pytest.approx(together.high - together.value)
    chance = TOML.replace(b"value = 0.71", b'value = 0.731\ncompare = "not told from"\nwithin = 0.1', 1)
    chance = chance.replace(b"within = 0.02\n", b"", 1)
    assert (
        verdicts.judge_numbers("two", definition.parse_experiment(chance, "x"), scores(0.1))[0].verdict
        == "not reproduced"
    )
    among = chance.replace(b"within = 0.1", b"within = 0.1\namong = 1000", 1)
    assert verdicts.judge_numbers("two", definition.parse_experiment(among, "x"), scores(0.1))[0].verdict == "fits"


def test_of_a_part_of_the_cells_nothing_is_said_of_a_curve_as_a_whole() -> None:
    slope = TOML.replace(b'curve = "last"\nx = 0.7', b'curve = "last"\nstatistic = "slope"')
    assert len(verdicts.judge_numbers("two", definition.parse_experiment(slope, "x"), scores(0.1))) == 1
    more = slope.replace(b"mu = [0.7, 0.3]", b"mu = [0.7, 0.3, 0.5]")
    assert verdicts.judge_numbers("two", definition.parse_experiment(more, "x"), scores(0.1)) == []
