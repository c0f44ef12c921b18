"""The page of a set of results, as one HTML file. It only lays out: the sweep computed every number, and its tables
have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.manifest import SweepManifest
from veilcast.lab.report import charts, matrix_table, output_files, results, style, verdict_table
from veilcast.lab.report.figure_data import FigureData, make_figure_data
from veilcast.lab.report.html_document import html_document
from veilcast.lab.report.markup import Markup, join, slug, tag
from veilcast.lab.report.matrix_view import MatrixView, make_matrix_view
from veilcast.lab.report.number_format import format_duration
from veilcast.lab.report.overview import render_overview
from veilcast.lab.report.results import StoredResult
from veilcast.lab.report.summary import explain_doubt, render_contents, render_summary
from veilcast.lab.storage.location import LocalDirectory, Location


def write_report(locations: Sequence[Location], out: Path | None = None) -> Path:
    """Write the page of the results in these locations, with its figures beside it. Returns its path."""
    location = locations[0]
    if out is None:
        if not isinstance(location, LocalDirectory):
            raise ConfigError(f"{location.place}: a page is written to this machine; --out FILE says where")
        out = location.root / "report.html"
    read = [result for each in locations for result in results.read_results(each)]
    publish_results(results.combine_engines(read), out)
    return out


def publish_results(found: Sequence[StoredResult], path: Path) -> None:
    pictures = [(slug(result.name, name), picture) for result in found for name, picture in _plots(result)]
    sheets = [(slug(result.name, one.matrix.name), one) for result in found for one in _sheets(result)]
    names = [*(name for name, _ in pictures), *(name for name, _ in sheets)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two figures would be written to {FIGURES_DIRECTORY}/{name}.csv; rename one in its experiment"
            )
    for name, picture in pictures:
        output_files.write_figure(path.parent / FIGURES_DIRECTORY, name, picture)
    for name, one in sheets:
        output_files.write_matrix(path.parent / FIGURES_DIRECTORY, name, one)
    output_files.write_page(path, render_page(found))


def render_page(found: Sequence[StoredResult]) -> str:
    decisions: dict[str, list[Markup]] = {result.name: [] for result in found}
    rules = ""
    for number, (experiment, one) in enumerate((result.name, one) for result in found for one in _sheets(result)):
        name, numbers = f"matrix-{number}", f"{FIGURES_DIRECTORY}/{slug(experiment, one.matrix.name)}.csv"
        decisions[experiment].append(matrix_table.render_matrix(one, name, numbers))
        rules += matrix_table.view_rules(one, name)
    return html_document(
        _TITLE,
        render_summary([each for result in found for each in (result, *result.beside)]),
        render_overview(found),
        render_contents(found),
        *(_experiment(result, decisions[result.name]) for result in found),
        styles=style.MATRIX + rules,
        scripts=(charts.chart_library(), _SCRIPT) if any(True for result in found for _ in _plots(result)) else (),
    )


def _plots(result: StoredResult) -> Iterator[tuple[str, FigureData]]:
    others = {other.manifest.engine: other.scores for other in result.beside}
    for drawn in result.experiment.figures:
        yield drawn.name, make_figure_data(result.experiment, drawn, result.scores, others)


def _sheets(result: StoredResult) -> list[MatrixView]:
    return [make_matrix_view(result.experiment, matrix, result.scores) for matrix in result.experiment.matrices]


def _experiment(result: StoredResult, decisions: Sequence[Markup]) -> Markup:
    experiment = result.experiment
    return tag(
        "article",
        tag("p", tag("code", result.name), tag("span", experiment.source), class_="id"),
        tag("h2", experiment.title),
        tag("p", experiment.claim, class_="claim"),
        tag("p", tag("b", "Not counted: "), explain_doubt(result), ".", class_="notice") if result.doubt else "",
        *decisions,
        *(_figure(slug(result.name, name), picture, result.seeds) for name, picture in _plots(result)),
        verdict_table.render_verdicts(result.verdicts),
        *(
            join(tag("h3", _BY_ENGINE[other.manifest.engine]), verdict_table.render_verdicts(other.verdicts))
            for other in result.beside
        ),
        tag("h3", "The reading"),
        tag("p", experiment.reading),
        tag("h3", "How it was made"),
        *(_facts(each) for each in (result, *result.beside)),
        tag("a", "To the top", href="#top", class_="top"),
        class_="experiment",
        id=slug(result.name),
    )


def _figure(name: str, picture: FigureData, seeds: int) -> Markup:
    if not any(line.points for line in picture.lines):
        return tag("figure", tag("figcaption", picture.title), tag("p", "No values yet.", class_="small"))
    told = "Mean over seeds, with its 95 % interval." if seeds > 1 else "One seed: no interval."
    links = [tag("a", kind.upper(), href=f"{FIGURES_DIRECTORY}/{name}.{kind}") for kind in ("svg", "json", "csv")]
    return tag(
        "figure",
        tag("figcaption", picture.title),
        tag(
            "div",
            tag("div", charts.draw_still(picture, _WIDE), class_="wide"),
            tag("div", charts.draw_still(picture, _NARROW), class_="narrow"),
            class_="chart",
        ),
        tag("script", Markup(charts.write_specification(picture, css=True)), type="application/json"),
        tag(
            "div",
            tag("span", told),
            tag("span", "As files: ", links[0], ", ", links[1], ", ", links[2]),
            class_="under small",
        ),
        tag("details", tag("summary", "The numbers"), verdict_table.render_numbers(picture)),
    )


def _facts(result: StoredResult) -> Markup:
    experiment, manifest = result.experiment, result.manifest
    few = f" (the experiment asks for {result.asked_seeds})" if result.seeds < result.asked_seeds else ""
    facts = {
        "Parameters": _pairs(experiment.base) or "the defaults",
        **{f"Axis {axis}": ", ".join(map(_plain, values)) for axis, values in experiment.axes.items()},
        **{f"Series {series.name}": _pairs(series.params) or "as above" for series in experiment.series if series.name},
        "Seeds": f"{result.seeds}{few}",
        "Engine": manifest.engine,
        "Data": manifest.data or "",
        "Wall time": f"{format_duration(manifest.wall_s)} on {' and on '.join(_places(manifest))}",
        "Code": _code(manifest),
        "Versions": ", ".join(f"{name} {version}" for name, version in manifest.means.versions.items()),
    }
    listed = [join(tag("dt", name), tag("dd", said)) for name, said in facts.items() if said]
    return join(tag("dl", *listed), tag("pre", tag("code", manifest.command)))


def _places(manifest: SweepManifest) -> list[str]:
    """The environments of the portions, each once."""
    means = [stored.means for stored in manifest.stored] or [manifest.means]
    return list(dict.fromkeys(f"{one.master}, {one.cores} cores" for one in means))


def _code(manifest: SweepManifest) -> str:
    commit = f"commit {manifest.commit[:12]}{' with changes' if manifest.changed else ''}, " if manifest.commit else ""
    return f"{commit}source {manifest.fingerprint}"


def _pairs(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {_plain(value)}" for name, value in given.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


FIGURES_DIRECTORY: Final = "figures"
"""The directory of figure files beside the page."""

_WIDE: Final = 640
_NARROW: Final = 250
"""Widths of the drawn area of still charts, in pixels: on a screen and on a phone."""
_SCRIPT: Final = """
for (const chart of document.querySelectorAll(".chart")) {
  const still = chart.innerHTML, description = JSON.parse(chart.nextElementSibling.textContent);
  vegaEmbed(chart, description, {actions: false, renderer: "svg", logLevel: 1, tooltip: {theme: "custom"}})
    .catch(error => { chart.innerHTML = still; console.error(error); });
}
"""
"""Makes still charts interactive; if that fails, the still ones come back."""
_BY_ENGINE: Final = {"kernel": "By the models", "machines": "By the machines", "live": "On real sockets"}
_TITLE: Final = "Veilcast lab report"
