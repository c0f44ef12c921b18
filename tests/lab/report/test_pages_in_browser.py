"""The page in a real browser: it loads by itself, fits a phone, turns dark, and prints."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import sample_results
from support.headless_browser import PROGRAM, Browser, url_of
from veilcast.lab.report import results_page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine (Debian: apt install chromium)")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    results_page.publish_results(sample_results.make_results(), path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.mark.parametrize("name", ["report.html", "figures/mesh-degrees-accuracy.svg"])
def test_it_loads_without_any_other_request_and_without_a_complaint(browser: Browser, written: Path, name: str) -> None:
    browser.show(1280)
    browser.open(url_of(written.parent / name))
    assert browser.requests == [url_of(written.parent / name)]
    assert browser.complaints == []


def test_the_browser_would_notice_a_request_and_a_complaint(browser: Browser, tmp_path: Path) -> None:
    planted = tmp_path / "planted.html"
    planted.write_text("<img src='gone.png'><script>console.error('x'); nothing()</script>")
    browser.open(url_of(planted))
    assert url_of(tmp_path / "gone.png") in browser.requests
    assert len(browser.complaints) >= 2


def test_what_a_hostile_page_would_fetch_its_policy_forbids(browser: Browser, written: Path, tmp_path: Path) -> None:
    """A second line of defence, were anything ever not escaped."""
    planted = tmp_path / "planted.html"
    broken = "<script>document.title = 'run'</script><img src='gone.png'></main>"
    planted.write_text(written.read_text().replace("</main>", broken))
    browser.open(url_of(planted))
    assert browser.evaluate("document.title") == "Veilcast lab report"
    assert sum("Content Security Policy" in complaint for complaint in browser.complaints) == 2


@pytest.mark.parametrize("width", [360, 800, 1440])
def test_every_figure_is_interactive_at_every_width_and_nothing_overflows(
    browser: Browser, written: Path, width: int
) -> None:
    browser.show(width)
    browser.open(url_of(written))
    browser.wait_for("document.querySelectorAll('.chart svg.marks').length === 4")
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    sizes = browser.evaluate(
        "[...document.querySelectorAll('.chart svg.marks')].map(each => each.getBoundingClientRect())"
        ".map(each => [each.width, each.height])"
    )
    assert all(across > 250 and down > 200 for across, down in sizes)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    wide = browser.evaluate(
        "[...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, svg, thead'))"
        f".filter(each => each.getBoundingClientRect().right > {width} + .5).map(each => each.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert browser.complaints == []


@pytest.mark.parametrize(("width", "shown"), [(360, "narrow"), (1440, "wide")])
def test_without_scripts_one_still_drawing_of_every_figure_shows(
    browser: Browser, written: Path, tmp_path: Path, width: int, shown: str
) -> None:
    still = tmp_path / "still.html"
    still.write_text(re.sub(r"<script>.*?</script>", "", written.read_text(), flags=re.DOTALL))
    browser.show(width)
    browser.open(url_of(still))
    sizes = browser.evaluate(
        "[...document.querySelectorAll('svg.plot')].map(plot => [plot.parentNode.className,"
        " plot.getBoundingClientRect().width, plot.getBoundingClientRect().height])"
    )
    assert len(sizes) == 8
    for name, across, down in sizes:
        assert (across > 200 and down > 200) == (name == shown)
    assert browser.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [360, 1440])
def test_the_letters_of_a_figure_are_inside_it(browser: Browser, written: Path, width: int) -> None:
    browser.show(width)
    browser.open(url_of(written))
    browser.wait_for("document.querySelectorAll('.chart svg.marks').length === 4")
    outside = browser.evaluate(
        "[...document.querySelectorAll('svg.marks text')].filter(text => text.getBoundingClientRect().width)"
        ".filter(text => { const [a, b] = [text, text.ownerSVGElement].map(each => each.getBoundingClientRect());"
        " return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1 })"
        ".map(text => text.textContent)"
    )
    assert outside == []


def test_a_click_on_the_legend_shows_one_curve_alone(browser: Browser, written: Path) -> None:
    browser.show(1000)
    browser.open(url_of(written))
    browser.wait_for("document.querySelectorAll('.chart svg.marks').length === 4")
    faint = "document.querySelector('.chart').querySelectorAll('.mark-symbol.role-mark path[opacity=\"0.12\"]').length"
    assert browser.evaluate(faint) == 0
    browser.evaluate(
        "document.querySelector('.chart .role-legend-symbol path').dispatchEvent("
        "new MouseEvent('click', {bubbles: true}))"
    )
    browser.wait_for(f"{faint} > 0")


def test_dark_is_dark_and_paper_is_always_light(browser: Browser, written: Path) -> None:
    first = "document.querySelector('.chart .mark-symbol.role-mark path')"
    colours = f"[document.body, {first}].map(getComputedStyle).map((each, k) => k ? each.fill : each.backgroundColor)"
    seen = {}
    for scheme, medium in (("light", ""), ("dark", ""), ("dark", "print")):
        browser.show(1000, scheme=scheme, medium=medium)
        browser.open(url_of(written))
        browser.wait_for("document.querySelector('.chart svg.marks') !== null")
        seen[scheme, medium] = browser.evaluate(colours)
    assert seen["light", ""] == ["rgb(255, 255, 255)", "rgb(0, 114, 198)"]
    assert seen["dark", ""] == ["rgb(20, 23, 28)", "rgb(127, 168, 255)"]
    assert seen["dark", "print"] == seen["light", ""]


def test_it_prints_every_experiment_from_a_page_of_its_own(browser: Browser, written: Path) -> None:
    browser.show(1000)
    browser.open(url_of(written))
    printed = base64.b64decode(browser.command("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    assert 5 <= printed.count(b"/Type /Page\n") <= 12
