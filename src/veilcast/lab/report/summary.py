"""The top of the page: how many published numbers were reproduced, which were not, and why.

Numbers of earlier runs and checks of our own are counted apart.

Only complete sweeps with the experiment's own parameters are counted. Incomplete sweeps, smaller ones, and unexpected
results are listed before the first figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.lab.experiment.definition import packaged_names
from veilcast.lab.measure.stated_numbers import VERDICTS
from veilcast.lab.report.markup import Markup, join, slug, tag
from veilcast.lab.report.results import StoredResult
from veilcast.lab.report.shapes import draw_sign
from veilcast.lab.report.verdict_table import describe_both, verdict_class
from veilcast.lab.tables import VerdictRow

Found = Sequence[tuple[StoredResult, VerdictRow]]


def render_summary(results: Sequence[StoredResult]) -> Markup:
    counted = [(result, row) for result in results if not result.doubt for row in result.verdicts]
    return tag(
        "section",
        _opening(results, counted),
        _tallies(counted),
        _doubts(results),
        _reservations(results),
        _findings("Not reproduced, and why", [pair for pair in counted if pair[1].verdict == "not reproduced"]),
        _findings("Near, and not the same", [pair for pair in counted if pair[1].verdict == "near"]),
        _findings("Partly reproduced, and why", [pair for pair in counted if pair[1].verdict == "partly"]),
        _findings("Better than expected", [pair for pair in counted if _better(pair[1])]),
        aria_label="Summary",
    )


def render_contents(results: Sequence[StoredResult]) -> Markup:
    return tag(
        "nav",
        tag("h2", "Experiments", class_="minor"),
        tag("ol", *(tag("li", _entry(result)) for result in results)),
        class_="contents",
        aria_label="Experiments",
    )


def explain_doubt(result: StoredResult) -> str:
    """Why the result is not counted, in a sentence."""
    if result.doubt == "quick":
        return "a quick run, smaller than the experiment asks for"
    return f"the sweep is incomplete: {_many(result.seeds, 'seed')} stored, and its scores are of those at most"


def _opening(results: Sequence[StoredResult], counted: Found) -> Markup:
    used = len({result.name for result, _ in counted})
    if not counted:
        said = f"{_many(len(results), 'experiment')}. Nothing is held against stated numbers here."
        return tag("p", said, class_="lead")
    kinds = [sum(row.kind == kind for _, row in counted) for kind in _KINDS]
    listed = [_many(count, noun) for count, noun in zip(kinds, _KINDS.values(), strict=True) if count]
    told = " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
    said = f"{told}, held against what came out of {_many(used, 'experiment')}."
    if others := len(results) - used:
        said += f" {_many(others, 'other experiment')}: no number to hold against, or not counted."
    return tag("p", said, class_="lead")


def _tallies(counted: Found) -> Markup:
    """How many numbers of each kind have which verdict."""
    rows = []
    for kind, title in _TITLES.items():
        own = [pair for pair in counted if pair[1].kind == kind]
        if own:
            rows.append(tag("h2", title, class_="minor"))
            rows.append(tag("ul", *(_count(verdict, own) for verdict in VERDICTS), class_="tally"))
    return join(*rows)


def _count(verdict: str, counted: Found) -> Markup:
    count = sum(row.verdict == verdict for _, row in counted)
    return tag("li", tag("b", draw_sign(verdict), str(count), class_=verdict_class(verdict)), verdict)


def _doubts(results: Sequence[StoredResult]) -> Markup:
    """Results that are in the report but not counted, and experiments that were not run."""
    items = [tag("div", _link(result), f": {explain_doubt(result)}.") for result in results if result.doubt]
    if absent := sorted(set(packaged_names()) - {result.name for result in results}):
        items.append(_list_missing(absent, len(packaged_names())))
    return _titled_list("Not counted", items, "soft")


def _list_missing(absent: Sequence[str], known: int) -> Markup:
    """The packaged experiments that were not run; a long list is folded."""
    if len(absent) <= _LISTED:
        return tag("div", f"Not run: {', '.join(absent)}.")
    folded = f"Not run: {len(absent)} of the {known} packaged experiments"
    return tag("details", tag("summary", folded), f"{', '.join(absent)}.")


def _reservations(results: Sequence[StoredResult]) -> Markup:
    """Counted results with fewer seeds than asked for, and stated numbers without a verdict."""
    items = []
    for result in results:
        if result.doubt:
            continue
        if result.seeds < result.asked_seeds:
            items.append(
                tag("div", _link(result), f": {_many(result.seeds, 'seed')}, of {result.asked_seeds} asked for.")
            )
        if result.unjudged:
            items.append(tag("div", _link(result), f": no verdict on {'; '.join(result.unjudged)}."))
    return _titled_list("Counted with reservations", items, "soft")


def _findings(title: str, found: Found) -> Markup:
    items = [
        join(
            tag("div", tag("b", row.what), f": {describe_both(row)}. ", _link(result), _by(row)),
            tag("div", _reason(row), class_="small"),
        )
        for result, row in found
    ]
    return _titled_list(title, items, verdict_class(found[0][1].verdict) if found else "")


def _titled_list(title: str, items: Sequence[Markup], colour: str) -> Markup:
    """A list under its title; empty without items."""
    if not items:
        return Markup()
    listed = tag("ul", *(tag("li", item) for item in items), class_=f"findings {colour}")
    return join(tag("h2", title, class_="minor"), listed)


def _by(row: VerdictRow) -> str:
    return "" if row.engine == "kernel" else f", by {row.engine}"


def _better(row: VerdictRow) -> bool:
    return VERDICTS.index(row.verdict) < VERDICTS.index(row.expected)


def _reason(row: VerdictRow) -> str:
    """The reason that the experiment states beforehand. It does not explain an unexpected result."""
    if row.verdict == row.expected:
        return row.why or "No reason is given."
    return f"This was expected to be otherwise ({row.expected}). {row.why}".strip()


def _entry(result: StoredResult) -> Markup:
    signs = (
        [tag("span", result.doubt, class_="flag")]
        if result.doubt
        else [draw_sign(row.verdict) for row in result.verdicts]
    )
    told = result.doubt or ", ".join(row.verdict for row in result.verdicts) or "no number to compare with"
    return tag(
        "a",
        tag("span", result.experiment.title, class_="what"),
        tag("span", result.experiment.source, class_="source"),
        tag("span", *signs, class_="signs", role="img", aria_label=told, title=told),
        href=f"#{slug(result.name)}",
    )


def _link(result: StoredResult) -> Markup:
    return tag("a", result.name, href=f"#{slug(result.name)}")


def _many(count: int, noun: str) -> str:
    """The count with its noun; the first word of a longer noun takes the plural."""
    if count == 1:
        return f"1 {noun}"
    word, of, rest = noun.partition(" of ")
    return f"{count} {word}s{of}{rest}"


_KINDS: Final = {"published": "published number", "earlier": "number of an earlier run", "check": "check of our own"}
_TITLES: Final = {"published": "Published numbers", "earlier": "Earlier runs", "check": "Checks of our own"}
_LISTED: Final = 5
"""Up to this number, experiments that were not run are listed unfolded."""
