from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import pytest

from veilcast.lab.measure import verdicts
from veilcast.lab.measure.stated_numbers import (
    EarlierNumber,
    OwnCheck,
    PublishedNumber,
    StatedNumber,
    find_number_problems,
)
from veilcast.lab.measure.verdicts import CurvePoint, NoPointError
from veilcast.lab.tables import VerdictRow


def point(x: float, value: float, half: float = 0.01) -> CurvePoint:
    return CurvePoint(x, value, value - half, value + half)


CURVES = {
    "falls": [point(0, 1.0), point(1, 0.7), point(2, 0.4)],
    "plateau": [point(0, 0.9), point(1, 0.51), point(2, 0.5), point(3, 0.505), point(4, 0.8)],
    "rises": [point(0, 0.0), point(1, 0.4), point(2, 0.49), point(3, 0.47), point(4, 0.5)],
    "limit": [point(x, 0.5) for x in range(5)],
}


def published(**given: Any) -> PublishedNumber:
    bound = given.get("compare") in ("at most", "at least")
    plain: dict[str, Any] = {"what": "it", "figure": "f", "curve": "falls", "value": 0.7, "x": 1, "place": "P0 5"}
    return PublishedNumber(**plain | ({} if bound else {"within": 0.02}) | given)


def judge(published: StatedNumber, curves: Mapping[str, Sequence[CurvePoint]]) -> VerdictRow:
    return verdicts.judge_number("two", published, curves)


def test_a_number_inside_the_interval_fits() -> None:
    verdict = judge(published(value=0.705), CURVES)
    assert (verdict.verdict, verdict.reproduced) == ("fits", 0.7)
    assert verdict.difference == pytest.approx(-0.005)


def test_a_number_outside_the_interval_is_near_within_the_margin_and_not_reproduced_beyond() -> None:
    assert judge(published(value=0.715), CURVES).verdict == "near"
    assert judge(published(value=0.725), CURVES).verdict == "not reproduced"


def test_an_interval_wider_than_the_margin_fits_partly_at_best() -> None:
    assert judge(published(within=0.009), CURVES).verdict == "partly"
    assert judge(published(value=0.715, within=0.009), CURVES).verdict == "partly"
    assert judge(published(value=0.725, within=0.009), CURVES).verdict == "not reproduced"
    assert judge(published(within=0.011), CURVES).verdict == "fits"


def test_a_published_number_is_known_to_its_last_digit_and_no_better() -> None:
    assert judge(published(value=0.714), CURVES).verdict == "near"
    assert judge(published(value=0.714, rounding=0.005), CURVES).verdict == "fits"


def test_a_verdict_says_which_kind_of_number_it_is_about_and_where_that_number_is_from() -> None:
    plain: dict[str, Any] = {"what": "it", "figure": "f", "curve": "falls", "value": 0.7, "within": 0.02, "x": 1}
    numbers = (
        PublishedNumber(**plain, place="P1 3", words="about .7"),
        EarlierNumber(**plain, run="a prototype"),
        OwnCheck(**plain, because="a formula"),
    )
    assert [(row.kind, row.origin) for row in (judge(number, CURVES) for number in numbers)] == [
        ("published", 'P1 3: "about .7"'),
        ("earlier", "a prototype"),
        ("check", "a formula"),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"compare": "at most", "within": 0.1, "words": "less"}, "a bound has no margin"),
        ({"compare": "at most", "within": 0.0}, "a bound that a paper states is quoted"),
        ({"place": "Fig. 12"}, "names no paper"),
        ({"x": None}, "x is for value or change or ratio or gap, and needed there"),
        ({"since": 1}, "since is for change"),
        ({"among": 0}, "among is at least 1"),
    ],
)
def test_a_stated_number_that_contradicts_itself_is_a_problem(changes: dict[str, Any], problem: str) -> None:
    (found,) = find_number_problems(published(**changes))
    assert problem in found
    assert not list(find_number_problems(published()))


def test_the_machines_may_have_an_expectation_of_their_own() -> None:
    number = published(value=0.715, expect="near", why="a tie", machines="not reproduced", machines_why="slow locks")
    rows = [verdicts.judge_number("two", number, CURVES, engine) for engine in ("kernel", "machines")]
    assert [(row.engine, row.expected, row.why) for row in rows] == [
        ("kernel", "near", "a tie"),
        ("machines", "not reproduced", "slow locks"),
    ]
    same = published(value=0.715, expect="near", why="a tie")
    assert verdicts.judge_number("two", same, CURVES, "machines").expected == "near"


def test_a_bound_has_one_side_and_fits_if_all_of_the_interval_keeps_it() -> None:
    assert judge(published(value=0.9, compare="at most", within=0), CURVES).verdict == "fits"
    assert judge(published(value=0.9, compare="at least", within=0), CURVES).verdict == "not reproduced"
    for value in (0.695, 0.705):  # The interval is from 0.69 to 0.71.
        assert judge(published(value=value, compare="at least", within=0), CURVES).verdict == "partly"
        assert judge(published(value=value, compare="at most", within=0), CURVES).verdict == "partly"
    assert judge(published(value=0.685, compare="at least", within=0), CURVES).verdict == "fits"
    assert judge(published(value=0.9, compare="at most", within=0), CURVES).statistic == "value, at most"


def test_not_told_from_needs_the_target_inside_a_narrow_interval() -> None:
    chance = {"compare": "not told from", "within": 0.02}
    assert judge(published(value=0.695, **chance), CURVES).verdict == "fits"
    assert judge(published(value=0.715, **chance), CURVES).verdict == "not reproduced"
    assert judge(published(value=0.695, **chance | {"within": 0.009}), CURVES).verdict == "partly"


def test_change_and_gap_are_differences_with_an_interval_of_their_own() -> None:
    change = judge(published(statistic="change", since=0, x=2, value=-0.6), CURVES)
    assert change.reproduced == pytest.approx(-0.6)
    assert [change.low, change.high] == pytest.approx([-0.6 - 0.02**0.5 / 10, -0.6 + 0.02**0.5 / 10])
    gap = judge(published(statistic="gap", beside="limit", x=2, value=-0.1), CURVES)
    assert gap.reproduced == pytest.approx(-0.1)


def test_a_ratio_is_how_many_times_as_large_with_an_interval_of_its_own() -> None:
    doubled = judge(published(statistic="ratio", since=2, x=0, value=2, compare="at least"), CURVES)
    assert doubled.reproduced == pytest.approx(2.5)
    half = (0.01**2 + (2.5 * 0.01) ** 2) ** 0.5 / 0.4
    assert [doubled.low, doubled.high, doubled.verdict] == [
        pytest.approx(2.5 - half),
        pytest.approx(2.5 + half),
        "fits",
    ]
    halved = judge(published(statistic="ratio", since=0, x=2, value=2, compare="at least"), CURVES)
    assert halved.reproduced == pytest.approx(0.4)
    assert halved.verdict == "not reproduced"
    from_nothing = judge(published(curve="rises", statistic="ratio", since=0, x=1, value=2), CURVES)
    assert (from_nothing.reproduced, from_nothing.verdict) == (inf, "partly")


def test_the_slope_is_that_of_the_least_squares_line() -> None:
    assert judge(published(statistic="slope", x=None, value=-0.3), CURVES).reproduced == pytest.approx(-0.3)


def test_a_minimum_on_a_plateau_is_known_as_far_as_the_plateau_reaches() -> None:
    verdict = judge(published(curve="plateau", statistic="argmin", x=None, value=3, within=0), CURVES)
    assert (verdict.reproduced, verdict.low, verdict.high, verdict.verdict) == (2, 1, 3, "partly")
    by_luck = judge(published(curve="plateau", statistic="argmin", x=None, value=2, within=0.5), CURVES)
    assert by_luck.verdict == "partly"
    assert judge(published(curve="plateau", statistic="argmin", x=None, value=2, within=1), CURVES).verdict == "fits"


def test_a_curve_settles_where_it_is_near_for_good() -> None:
    settles = {"statistic": "settles", "beside": "limit", "x": None, "curve": "rises", "value": 3, "within": 1}
    assert judge(published(margin=0.02, **settles), CURVES).reproduced == 4  # At 2 it was near, and left again.
    assert judge(published(margin=0.03, **settles), CURVES).reproduced == 2
    assert judge(published(margin=0.11, **settles), CURVES).low == 1
    assert judge(published(margin=0.001, **settles | {"curve": "falls"}), CURVES).reproduced == inf


def test_the_last_value_is_the_last() -> None:
    assert judge(published(curve="rises", statistic="last", x=None, value=0.5), CURVES).reproduced == 0.5


def test_a_missing_point_of_a_curve_is_an_error() -> None:
    with pytest.raises(NoPointError, match="no point at 7"):
        judge(published(x=7), CURVES)
    with pytest.raises(NoPointError, match="no point at"):
        judge(published(statistic="settles", beside="limit", x=None, margin=0.02), CURVES | {"limit": []})


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({}, (-inf, inf)),
        ({"compare": "at most", "value": 0.9}, (-inf, inf)),
        ({"compare": "at least", "value": 0.1}, (-inf, inf)),
        ({"statistic": "change", "since": 0, "x": 2, "value": -0.6}, (-inf, inf)),
        ({"statistic": "ratio", "since": 0, "x": 2, "value": 0.4}, (-inf, inf)),
        ({"statistic": "slope", "x": None, "value": -0.3}, (-inf, inf)),
        ({"statistic": "argmin", "x": None, "value": 2}, (0, 2)),
        ({"statistic": "settles", "beside": "falls", "x": None, "value": 0}, (0, inf)),
        ({"statistic": "last", "x": None, "value": 0.4}, (-inf, inf)),
    ],
)
def test_one_seed_gives_no_interval_and_fits_partly_at_best(
    given: dict[str, Any], interval: tuple[float, float]
) -> None:
    lone = {label: [point._replace(low=-inf, high=inf) for point in curve] for label, curve in CURVES.items()}
    verdict = judge(published(**given), lone)
    assert (verdict.low, verdict.high, verdict.verdict) == (*interval, "partly")
    assert verdict.reproduced == judge(published(**given), CURVES).reproduced
