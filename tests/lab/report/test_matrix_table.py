"""The matrix on the page: every number in its cell, one view at a time without a script, and all of them as a file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import matrix_results
from support.headless_browser import PROGRAM, Browser, url_of
from veilcast.lab.experiment.definition import parse_experiment
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.report import matrix_table, results_page
from veilcast.lab.report.matrix_view import make_matrix_view

SHOWN = (
    "[...document.querySelectorAll('#matrix-0 .view')].filter(view => view.getBoundingClientRect().height)"
    ".map(view => view.querySelector('caption').textContent)"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    results_page.publish_results([matrix_results.make_result()], path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


browsing = pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine (Debian: apt install chromium)")


def test_every_cell_has_its_number_its_shade_and_its_interval(written: Path) -> None:
    text = written.read_text()
    assert 'class="shade h1" title="H, group testing: 0.550 [0.545, 0.555]">0.550</td>' in text
    assert 'class="shade h6" title="SG, handed: 0.990 [0.985, 0.995]">0.990</td>' in text
    assert 'title="BL, handed: no value"' in text
    assert "<b>0.500</b><span>chance</span>" in text
    assert "3.7 \u00d7" in text


def test_all_numbers_are_in_a_file(written: Path) -> None:
    with (written.parent / "figures" / "mesh-attacks-inside.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["degree", "insiders", "step"]
    assert len(rows) == 36 * (6 * 3 + 2 + 6 * 3)
    (found,) = [
        row for row in rows if (row["degree"], row["insiders"], row["step"]) == ("8", "0.1", "50.0")
        and (row["defence"], row["attack"]) == ("H", "linear")
    ]  # fmt: skip
    assert float(found["value"]) == pytest.approx(0.54)
    assert {row["metric"] for row in rows if not row["attack"]} == {"messages", "hops", "bytes"}


def test_a_matrix_without_scores_says_so() -> None:
    experiment = matrix_results.make_experiment()
    empty = make_matrix_view(experiment, experiment.matrices[0], ScoreTable([]))
    assert "No values yet." in matrix_table.render_matrix(empty, "m", "m.csv")
    assert matrix_table.view_rules(empty, "m") == ""


def test_names_of_others_are_escaped() -> None:
    hostile = matrix_results.TOML.replace(b'name = "BL"', b'name = "<script>"').replace(
        b"Readers, sought", b"<b>Readers"
    )
    experiment = parse_experiment(hostile, "hostile")
    rows = [row._replace(cell=row.cell.replace("BL ", "<script> ")) for row in matrix_results.make_scores()]
    shown = matrix_table.render_matrix(
        make_matrix_view(experiment, experiment.matrices[0], ScoreTable(rows)), "m", "m.csv"
    )
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<b>Readers" not in shown


@browsing
def test_one_view_shows_and_another_when_it_is_chosen(browser: Browser, written: Path) -> None:
    browser.show(1280)
    browser.open(url_of(written))
    assert browser.evaluate(SHOWN) == ["degree 8, insiders 0.1, epochs 50"]
    for control, expected in (
        ("matrix-0-degree-2", "degree 16, insiders 0.1, epochs 50"),
        ("matrix-0-insiders-0", "degree 16, insiders 0.01, epochs 50"),
        ("matrix-0-step-1", "degree 16, insiders 0.01, epochs 5"),
    ):
        browser.evaluate(f"document.getElementById('{control}').click()")
        assert browser.evaluate(SHOWN) == [expected]
    assert browser.complaints == []


@browsing
@pytest.mark.parametrize("width", [360, 800, 1440])
def test_nothing_but_the_table_itself_is_wider_than_the_screen(browser: Browser, written: Path, width: int) -> None:
    browser.show(width)
    browser.open(url_of(written))
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    wide = browser.evaluate(
        "[...document.querySelectorAll('.decision *')].filter(each => !each.closest('table'))"
        f".filter(each => each.getBoundingClientRect().right > {width} + .5).map(each => each.outerHTML.slice(0, 80))"
    )
    assert wide == []


@browsing
def test_print_has_the_view_that_is_chosen_and_no_buttons(browser: Browser, written: Path) -> None:
    browser.show(1000, medium="print")
    browser.open(url_of(written))
    assert browser.evaluate(SHOWN) == ["degree 8, insiders 0.1, epochs 50"]
    assert browser.evaluate("getComputedStyle(document.querySelector('.choices')).display") == "none"
    heights = (
        "[...document.querySelectorAll('#matrix-0 caption')].map(each => each.offsetHeight).filter(each => each > 10)"
    )
    assert len(browser.evaluate(heights)) == 1


def test_every_rule_of_the_style_is_about_an_id_that_is_there(written: Path) -> None:
    text = written.read_text()
    named = set(re.findall(r":has\(#([\w-]+):not", text))
    assert len(named) == 3 * (3 + 3 + 4)
    assert named == set(re.findall(r'<input type="radio"[^>]* id="([\w-]+)"', text))
