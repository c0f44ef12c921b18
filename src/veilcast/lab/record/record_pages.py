"""The pages of a record, as Markdown: an overview with counts, a table of every number, and a report for each paper.

A report has, for each experiment, its claim, how the paper is read, its figures, and every number with our interval,
the verdict, and the command and commit that made it. Everything is written from the recorded runs and the experiments
as they stand now, so that no page can say what the record does not.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from veilcast.lab.experiment.definition import Experiment, load_experiment, packaged_names
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.measure.stated_numbers import VERDICTS
from veilcast.lab.record.recorded_runs import Record, RecordedRun
from veilcast.lab.report.charts import draw_standalone
from veilcast.lab.report.figure_data import make_figure_data
from veilcast.lab.report.number_format import format_interval, format_number
from veilcast.lab.tables import VerdictRow


@dataclass(frozen=True)
class RecordedResult:
    run: RecordedRun
    experiment: Experiment
    verdicts: tuple[VerdictRow, ...]

    @property
    def paper(self) -> str:
        """P0 to P4; empty for an experiment of our own."""
        return self.experiment.source[:2]

    def figure_file(self, figure: str) -> str:
        return f"figures/{self.run.name}.{figure}.svg"


def render_record(record: Record) -> dict[str, str]:
    """All pages and figures, by file name."""
    found, figures = read_recorded(record), {}
    scores: dict[str, dict[str, ScoreTable]] = {}
    for result in found:
        table = ScoreTable(msgspec.structs.asdict(row) for row in record.read_scores(result.run))
        scores.setdefault(result.run.experiment, {})[result.run.engine] = table
    for result in found:
        first, *others = scores[result.run.experiment]
        if result.run.engine != first:
            continue
        tables = scores[result.run.experiment]
        for figure in result.experiment.figures:
            plot = make_figure_data(
                result.experiment, figure, tables[first], {engine: tables[engine] for engine in others}
            )
            if any(line.points for line in plot.lines):
                figures[result.figure_file(figure.name)] = draw_standalone(plot)
    pages = {page: _report(title, _of_paper(found, paper), figures) for paper, (page, title) in _PAGES.items()}
    return {"README.md": _overview(found), "numbers.csv": _table(found), **pages, **figures}


def read_recorded(record: Record) -> list[RecordedResult]:
    """All recorded runs but the quick ones, with the experiments as they stand."""
    runs = record.list_runs()
    return [RecordedResult(run, load_experiment(run.experiment)[1], tuple(record.read_verdicts(run))) for run in runs]


def count_verdicts(results: Iterable[RecordedResult], kind: str) -> Counter[str]:
    return Counter(row.verdict for result in results for row in result.verdicts if row.kind == kind)


def summarise_published(results: Iterable[RecordedResult]) -> str:
    """The counts of published numbers, as one sentence."""
    counts = count_verdicts(results, "published")
    fits, near, partly, missed = (counts[verdict] for verdict in ("fits", "near", "partly", "not reproduced"))
    return (
        f"Of {counts.total()} judgements of published numbers, {fits} fit, {near} are near, {partly} fit partly, "
        f"and {missed} are not reproduced."
    )


def list_missing(results: Iterable[RecordedResult]) -> list[str]:
    """Experiments, and engines of experiments, that are not in the record."""
    known = {(result.run.experiment, result.run.engine) for result in results}
    wanted = [(name, engine) for name in packaged_names() for engine in load_experiment(name)[1].engines]
    return [f"{name} ({engine})" for name, engine in wanted if (name, engine) not in known]


def _overview(found: Sequence[RecordedResult]) -> str:
    lines = [
        "# The record",
        "",
        "Every number of the lab, as it came out. `veilcast lab verify` makes all of it again and compares; with",
        "`--quick` that takes minutes. This page is written by `veilcast lab record`.",
        "",
        f"{len(found)} runs of {len({result.run.experiment for result in found})} experiments.",
        summarise_published(found),
        "",
        f"| | {' | '.join(VERDICTS)} |",
        f"|---|{'---|' * len(VERDICTS)}",
        *(_counts(title, count_verdicts(found, kind)) for kind, title in _KINDS.items()),
        "",
        "| paper | " + " | ".join(f"{verdict}" for verdict in VERDICTS) + " | report |",
        f"|---|{'---|' * (len(VERDICTS) + 1)}",
    ]
    for paper, (page, title) in _PAGES.items():
        counts = count_verdicts(_of_paper(found, paper), "published")
        lines.append(_counts(title, counts) + f" [{page}]({page}) |")
    lines += [
        "",
        "The counts by paper are of published numbers. All numbers as a table: [numbers.csv](numbers.csv).",
        "",
    ]
    missing = list_missing(found)
    lines.append(f"Not run yet: {', '.join(missing)}." if missing else "Nothing is left out.")
    return "\n".join(lines) + "\n"


def _counts(title: str, counts: Counter[str]) -> str:
    return f"| {title} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |"


def _report(title: str, found: Sequence[RecordedResult], figures: dict[str, str]) -> str:
    lines = [f"# {title}", "", f"[The record](README.md). {len(found)} runs.", ""]
    for result in found:
        run, experiment = result.run, result.experiment
        lines += [f"## {experiment.title} ({run.engine})", "", experiment.claim, ""]
        lines += [f"*{experiment.source or 'Our own.'}* {' '.join(experiment.reading.split())}", ""]
        for figure in experiment.figures:
            if result.figure_file(figure.name) in figures:
                lines += [f"![{figure.title}]({result.figure_file(figure.name)})", ""]
        if result.verdicts:
            lines += ["| claim | kind | where | stated | reproduced | verdict |", "|---|---|---|---|---|---|"]
            lines += [_row(row) for row in result.verdicts]
            lines.append("")
        changed = f" at {run.commit[:10]}" if run.commit else ""
        lines += [f"`{run.command}`, {run.seeds} seeds{changed}, {run.wall_s:g} s.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(row: VerdictRow) -> str:
    _, _, compare = row.statistic.partition(", ")
    stated = f"{compare} {format_number(row.stated, 6)}".strip()
    ours = f"{format_number(row.reproduced, 4)} {format_interval(row.reproduced, row.low, row.high)}".strip()
    surprise = "" if row.verdict == row.expected else f" (expected: {row.expected})"
    why = f"; {row.why}" if row.why and row.verdict != "fits" else ""
    cells = (row.what, row.kind, row.origin, stated, ours, f"{row.verdict}{surprise}{why}")
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _table(found: Sequence[RecordedResult]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for result in found:
        for row in result.verdicts:
            values = (getattr(row, name) for name in _COLUMNS[:-3])
            written = [repr(value) if isinstance(value, float) else value for value in values]
            table.writerow([*written, result.run.engine, result.run.command, result.run.commit[:10]])
    return text.getvalue()


def _of_paper(found: Sequence[RecordedResult], paper: str) -> list[RecordedResult]:
    return [result for result in found if (result.paper if result.paper in _PAGES else "") == paper]


_KINDS: Final = {"published": "published numbers", "earlier": "earlier runs", "check": "checks of our own"}
_PAGES: Final = {
    "P0": ("P0.md", "P0: the mesh with probabilistic forwarding and the shell game"),
    "P1": ("P1.md", "P1: the distributed, anonymous overlay"),
    "P2": ("P2.md", "P2: relay and tree"),
    "P3": ("P3.md", "P3: foiling"),
    "P4": ("P4.md", "P4: brokers that may lie"),
    "": ("own.md", "Experiments of our own"),
}
_COLUMNS: Final = (
    *("experiment", "kind", "what", "origin", "figure", "curve", "x", "statistic", "stated", "reproduced", "low"),
    *("high", "within", "difference", "verdict", "expected", "why", "engine", "command", "commit"),
)
