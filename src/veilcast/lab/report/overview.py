"""The overview: modes and profiles down, adversaries across, what each reaches at most, and what hiding costs.

An experiment names what it contributes (`[[overview]]`, `[[costs]]` in its file). A cell shows the strongest of the
attackers that the experiment names for one adversary, with its interval, and links to the experiment. The colour goes
from chance to certainty, as in the matrices. An empty cell was not measured; nothing is filled in from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from veilcast.lab.experiment.definition import OverviewCost, OverviewEntry
from veilcast.lab.experiment.verdicts import Score
from veilcast.lab.report import style
from veilcast.lab.report.markup import Markup, join, slug, tag
from veilcast.lab.report.number_format import format_interval, format_number
from veilcast.lab.report.results import StoredResult


class OverviewCell(NamedTuple):
    experiment: str
    entry: OverviewEntry
    attack: str
    """The strongest of the entry's attackers."""
    score: Score

    @property
    def level(self) -> int:
        """The shade, from chance to certainty."""
        return round(min(max(_share(self.entry, self.score), 0.0), 1.0) * (len(style.SHADES) - 1))


def render_overview(results: Sequence[StoredResult]) -> Markup:
    """Empty if no result contributes to it."""
    counted = [result for result in results if not result.doubt]
    cells = [cell for result in counted for cell in find_cells(result)]
    costs = [found for result in counted for found in find_costs(result)]
    if not cells:
        return Markup()
    rows = sorted({(cell.entry.mode, cell.entry.profile) for cell in cells}, key=_order)
    columns = list(dict.fromkeys((cell.entry.adversary, cell.entry.asks) for cell in sorted(cells, key=_column_order)))
    named = list(dict.fromkeys(cost.what for _, cost, _ in costs))
    head = tag(
        "tr",
        tag("th", "Mode", scope="col"),
        *(tag("th", tag("span", adversary), _small(asks), scope="col") for adversary, asks in columns),
        *(tag("th", tag("span", what), _small("cost"), scope="col") for what in named),
    )
    body = []
    for mode, profile in rows:
        own = {(each.entry.adversary, each.entry.asks): each for each in cells if _row(each.entry) == (mode, profile)}
        paid = {cost.what: (name, score) for name, cost, score in costs if _row(cost) == (mode, profile)}
        body.append(
            tag(
                "tr",
                tag("th", mode, _small(profile), scope="row"),
                *(_cell(own.get(column)) for column in columns),
                *(_cost(paid.get(what)) for what in named),
            )
        )
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="overview")
    return tag(
        "section",
        tag("h2", "What each adversary reaches", class_="minor"),
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="What each adversary reaches"),
        tag("p", _TOLD, class_="small"),
        aria_label="Overview",
    )


def find_cells(result: StoredResult) -> Iterator[OverviewCell]:
    """What a result contributes: for each of its entries the strongest attacker."""
    for entry in result.experiment.overview:
        name = _cell_name(result, entry)
        found = [(attack, _last(result, name, attack, entry.metric, entry.at)) for attack in entry.attacks]
        known = [(attack, score) for attack, score in found if score is not None]
        if known:
            attack, score = max(known, key=lambda each: _share(entry, each[1]))
            yield OverviewCell(result.name, entry, attack, score)


def find_costs(result: StoredResult) -> Iterator[tuple[str, OverviewCost, Score]]:
    for cost in result.experiment.costs:
        score = _last(result, _cell_name(result, cost), "", cost.metric, cost.at)
        if score is not None:
            yield result.name, cost, score


def _cell_name(result: StoredResult, entry: OverviewEntry | OverviewCost) -> str:
    at = {name: value for name, value in entry.at.items() if name != "step"}
    for cell in result.experiment.make_cells():
        if cell.series == entry.series and all(cell.at.get(name) == value for name, value in at.items()):
            return cell.name
    return ""


def _last(result: StoredResult, cell: str, attack: str, metric: str, at: dict[str, Any]) -> Score | None:
    steps = result.scores.steps(cell, attack, metric)
    return steps.get(float(at.get("step", max(steps)))) if steps else None


def _share(entry: OverviewEntry, score: Score) -> float:
    """0 for chance, 1 for certainty."""
    return (score.value - entry.chance) / (entry.certain - entry.chance)


def _row(entry: OverviewEntry | OverviewCost) -> tuple[str, str]:
    return entry.mode, entry.profile


def _order(row: tuple[str, str]) -> tuple[int, int]:
    return _MODES.index(row[0]), _PROFILES.index(row[1])


def _column_order(cell: OverviewCell) -> tuple[int, int, int]:
    return (_ADVERSARIES.index(cell.entry.adversary), *_order(_row(cell.entry)))


def _cell(cell: OverviewCell | None) -> Markup:
    if cell is None:
        return tag("td", "\u2013", class_="none")
    score = cell.score
    told = f"{cell.entry.measure}; chance {format_number(cell.entry.chance)}"
    return tag(
        "td",
        tag("a", format_number(score.value), href=f"#{slug(cell.experiment)}", title=told),
        _small(format_interval(score.value, score.low, score.high)),
        _small(cell.attack),
        class_=f"shade h{cell.level}",
    )


def _cost(found: tuple[str, Score] | None) -> Markup:
    if found is None:
        return tag("td", "\u2013", class_="none")
    name, score = found
    return tag("td", tag("a", format_number(score.value), href=f"#{slug(name)}"), class_="cost")


def _small(text: str) -> Markup:
    return tag("span", text, class_="small") if text else join()


_MODES: Final = ("mesh", "relay", "tree", "foil", "brokers")
_PROFILES: Final = ("paper", "hardened")
_ADVERSARIES: Final = ("global observer", "insiders", "server", "proxy", "nodes", "broker", "Byzantine brokers")
_TOLD: Final = (
    "Each cell is the strongest attacker that was tried, with its interval; weaker ones are in the experiment. A cell "
    "without a number was not measured. Models and settings differ between modes: the experiment behind a number says "
    "what it is about."
)
