"""The page of a set of results: one HTML file. The report only lays out: every number on it was computed by the sweep
and stands in its tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.report import decision, figure, files, results, style, table
from veilcast.lab.report.digits import duration
from veilcast.lab.report.document import document
from veilcast.lab.report.markup import Markup, join, slug, tag
from veilcast.lab.report.plot import Plot, plot
from veilcast.lab.report.results import Result
from veilcast.lab.report.sheet import Sheet, sheet
from veilcast.lab.report.summary import contents, explained, summary
from veilcast.lab.sweep.manifest import Manifest


def write(directory: Path, out: Path | None = None) -> Path:
    """Write the page of the results in a directory, with its figures beside it; say where it is."""
    path = out or directory / "report.html"
    publish(results.read(directory), path)
    return path


def publish(found: Sequence[Result], path: Path) -> None:
    pictures = [(slug(result.name, name), picture) for result in found for name, picture in _plots(result)]
    sheets = [(slug(result.name, one.matrix.name), one) for result in found for one in _sheets(result)]
    names = [*(name for name, _ in pictures), *(name for name, _ in sheets)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two figures would be written to {FIGURES}/{name}.csv; rename one in its experiment")
    for name, picture in pictures:
        files.write_figure(path.parent / FIGURES, name, picture)
    for name, one in sheets:
        files.write_sheet(path.parent / FIGURES, name, one)
    files.write_page(path, page(found))


def page(found: Sequence[Result]) -> str:
    decisions: dict[str, list[Markup]] = {result.name: [] for result in found}
    rules = ""
    for number, (experiment, one) in enumerate((result.name, one) for result in found for one in _sheets(result)):
        name, numbers = f"matrix-{number}", f"{FIGURES}/{slug(experiment, one.matrix.name)}.csv"
        decisions[experiment].append(decision.decision(one, name, numbers))
        rules += decision.rules(one, name)
    return document(
        _TITLE,
        summary(found),
        contents(found),
        *(_experiment(result, decisions[result.name]) for result in found),
        styles=style.MATRIX + rules,
    )


def _plots(result: Result) -> Iterator[tuple[str, Plot]]:
    for drawn in result.experiment.figures:
        yield drawn.name, plot(result.experiment, drawn, result.scores)


def _sheets(result: Result) -> list[Sheet]:
    return [sheet(result.experiment, matrix, result.scores) for matrix in result.experiment.matrices]


def _experiment(result: Result, decisions: Sequence[Markup]) -> Markup:
    experiment = result.experiment
    compared = Markup()
    if result.verdicts:
        compared = join(tag("h3", "Published and reproduced"), table.verdicts(result.verdicts))
    return tag(
        "article",
        tag("p", tag("code", result.name), tag("span", experiment.source), class_="id"),
        tag("h2", experiment.title),
        tag("p", experiment.claim, class_="claim"),
        tag("p", tag("b", "Not counted: "), explained(result), ".", class_="notice") if result.doubt else "",
        *decisions,
        *(_figure(slug(result.name, name), picture, result.seeds) for name, picture in _plots(result)),
        compared,
        tag("h3", "The reading"),
        tag("p", experiment.reading),
        tag("h3", "How it was made"),
        _facts(result),
        tag("a", "To the top", href="#top", class_="top"),
        class_="experiment",
        id=slug(result.name),
    )


def _figure(name: str, picture: Plot, seeds: int) -> Markup:
    if not any(line.points for line in picture.lines):
        return tag("figure", tag("figcaption", picture.title), tag("p", "No values yet.", class_="small"))
    told = "Mean over seeds, with its 95 % interval." if seeds > 1 else "One seed: no interval."
    links = [tag("a", kind.upper(), href=f"{FIGURES}/{name}.{kind}") for kind in ("svg", "csv")]
    return tag(
        "figure",
        tag("figcaption", picture.title),
        tag("div", figure.embedded(picture, figure.WIDE, f"{name}-wide"), class_="wide"),
        tag("div", figure.embedded(picture, figure.NARROW, f"{name}-narrow"), class_="narrow"),
        tag(
            "div",
            tag("span", told),
            tag("span", "As files: ", links[0], ", ", links[1]),
            class_="under small",
        ),
        tag("details", tag("summary", "The numbers"), table.numbers(picture)),
    )


def _facts(result: Result) -> Markup:
    experiment, manifest = result.experiment, result.manifest
    few = f" (the experiment asks for {result.asked})" if result.seeds < result.asked else ""
    facts = {
        "Parameters": _pairs(experiment.base) or "the defaults",
        **{f"Axis {axis}": ", ".join(map(_plain, values)) for axis, values in experiment.axes.items()},
        **{f"Series {series.name}": _pairs(series.params) or "as above" for series in experiment.series if series.name},
        "Seeds": f"{result.seeds}{few}",
        "Engine": manifest.engine,
        "Data": manifest.data or "",
        "Wall time": f"{duration(manifest.wall_s)} on {' and on '.join(_places(manifest))}",
        "Code": _code(manifest),
        "Versions": ", ".join(f"{name} {version}" for name, version in manifest.means.versions.items()),
    }
    listed = [join(tag("dt", name), tag("dd", said)) for name, said in facts.items() if said]
    return join(tag("dl", *listed), tag("pre", tag("code", manifest.command)))


def _places(manifest: Manifest) -> list[str]:
    """Where its portions were made, each place once."""
    means = [stored.means for stored in manifest.stored] or [manifest.means]
    return list(dict.fromkeys(f"{one.master}, {one.cores} cores" for one in means))


def _code(manifest: Manifest) -> str:
    commit = f"commit {manifest.commit[:12]}{' with changes' if manifest.changed else ''}, " if manifest.commit else ""
    return f"{commit}source {manifest.fingerprint}"


def _pairs(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {_plain(value)}" for name, value in given.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


FIGURES: Final = "figures"
"""The directory beside the page that holds its figures as files."""

_TITLE: Final = "Veilcast lab report"
