"""A table says in words what it shows, and flags what nobody expected."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from veilcast.lab.measure.verdicts import CurvePoint
from veilcast.lab.report import verdict_table
from veilcast.lab.report.figure_data import FigureData, PlotLine
from veilcast.lab.tables import VerdictRow

ROW = VerdictRow(
    experiment="mesh-fig08",
    engine="kernel",
    kind="published",
    what="BL, degree 2",
    origin="P0 5, Fig. 8",
    figure="accuracy",
    curve="BL",
    x=2.0,
    statistic="value",
    stated=0.927,
    reproduced=0.9382,
    low=0.9353,
    high=0.9411,
    within=0.015,
    difference=0.0112,
    verdict="near",
    expected="near",
    why="",
)


def said(**changes: Any) -> str:
    tree = ElementTree.fromstring(
        f"<div>{verdict_table.render_verdicts([msgspec.structs.replace(ROW, **changes)])}</div>"
    )
    body = tree.find("table/tbody")
    assert body is not None
    return " ".join(" ".join(body.itertext()).split())


def test_a_row_has_both_numbers_the_interval_the_difference_and_the_verdict() -> None:
    assert said() == "BL, degree 2 P0 5, Fig. 8 near within 0.015 0.927 0.938 [0.935, 0.941] +0.011 near"
    assert said(within=0.0).startswith("BL, degree 2 P0 5, Fig. 8 0.927")


def test_published_earlier_and_own_numbers_stand_in_tables_of_their_own() -> None:
    rows = [msgspec.structs.replace(ROW, kind=kind) for kind in ("check", "published", "earlier", "published")]
    page = verdict_table.render_verdicts(rows)
    titles = ["Published and reproduced", "Earlier runs and this one", "Checks of our own"]
    assert [page.index(title) for title in titles] == sorted(page.index(title) for title in titles)
    assert page.count("<table") == 3
    assert "Published" not in verdict_table.render_verdicts(rows[:1])


@pytest.mark.parametrize("verdict", ["fits", "near", "partly", "not reproduced"])
def test_a_verdict_is_a_word_and_a_shape_of_its_own(verdict: str) -> None:
    shapes = {
        word: verdict_table.render_verdicts([msgspec.structs.replace(ROW, verdict=word)])
        .split("<svg")[1]
        .split("</svg")[0]
        for word in ("fits", "near", "partly", "not reproduced")
    }
    drawn = {word: shape.split(">", 1)[1] for word, shape in shapes.items()}
    assert len(set(drawn.values())) == 4
    assert said(verdict=verdict, expected=verdict).endswith(verdict)


def test_a_row_says_why_unless_it_fits_and_what_was_expected_if_it_was_otherwise() -> None:
    assert "odd graphs" in said(verdict="not reproduced", expected="not reproduced", why="odd graphs")
    assert "odd graphs" not in said(verdict="fits", why="odd graphs")
    assert said(verdict="fits", expected="partly").endswith("fits expected: partly")


def test_what_never_comes_about_is_said_to_be_never() -> None:
    row = {"statistic": "settles", "stated": 587.0, "reproduced": math.inf, "difference": math.inf}
    assert "587 never" in said(**row, low=640.0, high=math.inf, verdict="not reproduced")


def test_a_bound_is_not_shown_as_a_value() -> None:
    row = {"stated": 0.0, "reproduced": 0.11, "difference": 0.11, "low": 0.08, "high": 0.14}
    assert said(**row, statistic="gap, at most", within=0.0).startswith(
        "BL, degree 2 P0 5, Fig. 8 a distance of two curves at most 0 0.110 [0.080, 0.140] +0.110"
    )


def test_what_a_bound_asks_for_is_said_under_the_table() -> None:
    bound = msgspec.structs.replace(ROW, statistic="value, at most")
    chance = msgspec.structs.replace(ROW, statistic="value, not told from", stated=0.5)
    assert "fits if the whole interval" not in verdict_table.render_verdicts([ROW])
    assert verdict_table.render_verdicts([bound, bound]).count("fits if the whole interval") == 1
    assert "hold for all of them together" in verdict_table.render_verdicts([chance])
    assert "known to 0.015 not told from 0.5" in said(statistic=chance.statistic, stated=0.5)


def test_the_numbers_of_a_figure_stand_under_their_curves() -> None:
    lines = (
        PlotLine("BL", "line", (CurvePoint(4.0, 0.9, 0.88, 0.92), CurvePoint(2.0, 0.8, 0.8, 0.8))),
        PlotLine("PF", "line", (CurvePoint(4.0, 0.7, 0.68, 0.72),)),
    )
    tree = ElementTree.fromstring(verdict_table.render_numbers(FigureData("t", "degree", "accuracy", lines)))
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    assert rows == [["degree", "BL", "PF"], ["2", "0.8", "\u2013"], ["4", "0.9[0.880, 0.920]", "0.7[0.680, 0.720]"]]
