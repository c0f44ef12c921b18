"""The global observer of captures: the table `cells` in, the table `guesses` out, for any number of runs.

`ReducedCells` reduces the cells; on Spark it does so on both sides of a shuffle, so the shuffled data is as small as
the result. What is left of a run goes to a few tasks, one for all attackers of the registry that read the same: waves,
activity, gaps or volumes. There they score every node. A run's notifications, and each of its counts, must fit into a
task, its cells need not. Spark frames and Arrow tables take the same path.

Public facts about a run are in the table `facts`: its heartbeat, its share of subscribers, and the time from which its
rounds and volumes are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.classifiers import ClassifierPair
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, make_guesses, union_tables
from veilcast.lab.attack.observer import flow_job
from veilcast.lab.attack.observer.cadence import GapCounts, LinkWindows
from veilcast.lab.attack.observer.flow_correlation import FlowScores
from veilcast.lab.attack.observer.observations import ActivityRounds, CaptureObservations
from veilcast.lab.attack.observer.reduced_cells import WINDOW_SUMS, ReducedCells
from veilcast.lab.attack.registry import (
    ACTIVITY,
    CADENCE,
    DEPARTURES,
    FORMATION,
    PUBLISHED,
    VOLUMES,
    WAVES,
    WINDOWS,
    Attacker,
    attackers_on,
)
from veilcast.lab.attack.table_engine import AnyTable, LocalTable, Table, engine_of
from veilcast.lab.models.graph import from_edges
from veilcast.lab.tables import GuessRow

Trained = Mapping[str, ClassifierPair]
"""Classifiers of cadence by role, trained on other captures."""


def guess_from_captures(
    observed: Mapping[str, Table],
    names: Collection[str] | None = None,
    epochs: Sequence[int] = (),
    *,
    trained: Trained | None = None,
) -> Table:
    """Score every observed node by each attack. The whole record counts, whatever `epochs` says.

    Tables by name: `cells`; `facts`; `topology`, without which the overlay is the links that carry anything;
    `presence`, without which every node with a cell is present; `published`, if the observer is a subscriber and knows
    the times of publications.
    """
    chosen = choose_attackers(names, published="published" in observed, trained=trained is not None)
    reduced = ReducedCells(observed, needed_parts(chosen))
    return guess_from_reduced(reduced, observed, chosen, trained or {})


def choose_attackers(
    names: Collection[str] | None, *, published: bool, trained: bool
) -> list[Attacker[CaptureObservations]]:
    """The attackers of these names; without names, all that have what they need."""
    found = attackers_on(CaptureObservations, names, called="attack from outside")
    able = [each for each in found if (published or PUBLISHED not in each.needs) and (trained or not each.trained)]
    for name in names or ():
        if all(each.name != name for each in able):
            lacking = "the times of publications" if not published else "training on other captures"
            raise ConfigError(f"{name} needs {lacking}")
    return able


def needed_parts(chosen: Collection[Attacker[CaptureObservations]]) -> set[str]:
    """The parts of a capture that these attackers read. Waves tell busy rounds, unless publications are known; and how
    a mesh formed."""
    needs = {need for each in chosen for need in each.needs if need != FORMATION}
    return needs | {WAVES} if needs & {ACTIVITY, DEPARTURES} else needs


def guess_from_reduced(
    reduced: ReducedCells,
    observed: Mapping[str, Table],
    chosen: Sequence[Attacker[CaptureObservations]],
    trained: Trained,
) -> Table:
    """The guesses about every run, and about every part of a run: part N of run R has the name `part_name(R, N)`."""
    engine = engine_of(observed["cells"])
    # On Spark, attackers that read other parts of a run work in other tasks. In this process they share what they read.
    shares = [chosen] if isinstance(observed["cells"], LocalTable) else split_by_needs(chosen)

    def guess(share: Sequence[Attacker[CaptureObservations]]) -> Table:
        def of_run(rows: pa.Table) -> pa.Table:
            return _guess_run(observe_run(GroupedRun(rows), trained), share)

        rows = union_tables(_select_tables(reduced, observed, needed_parts(share)))
        found: Table = engine.apply_by(rows, ["run"], of_run, GuessRow)
        return found

    found = {f"share{number}": guess(share) for number, share in enumerate(shares)}
    guesses: Table = engine.query(" UNION ALL ".join(f"SELECT * FROM {{{name}}}" for name in found), **found)  # noqa: S608
    return guesses


def split_by_needs(chosen: Sequence[Attacker[CaptureObservations]]) -> list[list[Attacker[CaptureObservations]]]:
    """The attackers in groups that read the same parts of a run."""
    shares: dict[frozenset[str], list[Attacker[CaptureObservations]]] = {}
    for each in chosen:
        shares.setdefault(frozenset(needed_parts([each])), []).append(each)
    return list(shares.values())


def part_name(run: str, part: int) -> str:
    return f"{run}{_PART}{part}"


class ObservedRun(NamedTuple):
    run: str
    names: list[str]
    """Nodes by their numbers."""
    topics: list[str]
    """The known topics; a nameless one if none is known."""
    seen: CaptureObservations


def observe_tables(observed: Mapping[str, pa.Table], needs: Collection[str]) -> ObservedRun:
    """The observations of the one run of these Arrow tables, for attackers with these needs."""
    reduced = ReducedCells(observed, needs)
    return observe_run(GroupedRun(union_tables(_select_tables(reduced, observed, needs))), {})


def observe_run(run: GroupedRun, trained: Trained) -> ObservedRun:
    links, there, notes, published, facts = map(run.table, (_LINKS, _PRESENCE, WAVES, _PUBLISHED, _FACTS))
    epochs = np.union1d(there["at"].to_numpy(), notes["number"].to_numpy())
    present = np.zeros((len(epochs), len(run.names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), run.node_numbers(there["u"])] = True
    # Copies at the same time are in an arbitrary but fixed order.
    notes = notes.sort_by([("at", "ascending"), ("u", "ascending"), ("v", "ascending")])
    notes = notes.take(np.repeat(np.arange(len(notes)), notes["share"].to_numpy().astype(np.int64)))
    topics = distinct_values([published["word"]])
    round_us = facts["number"][0].as_py()
    seen = CaptureObservations(
        graph=from_edges(len(run.names), run.node_numbers(links["u"]), run.node_numbers(links["v"])),
        present=present,
        src=run.node_numbers(notes["u"]),
        dst=run.node_numbers(notes["v"]),
        at=notes["at"].to_numpy(),
        epoch=np.searchsorted(epochs, notes["number"].to_numpy()),
        rounds=_rounds(run, ACTIVITY, round_us),
        published=published["at"].to_numpy(),
        topic=np.asarray(pc.index_in(published["word"], topics).to_numpy(), np.int64),
        gaps=_gap_counts(run),
        correlated=_flow_scores(run),
        rate=facts["share"][0].as_py(),
        covers=run.table(_BEGINS)["share"][0].as_py(),
        begins_us=run.table(_BEGINS)["at"][0].as_py(),
        sent=_rounds(run, DEPARTURES, round_us),
        windows=_windows(run),
        trained=trained,
    )
    return ObservedRun(run.run, run.names, topics.to_pylist() or [""], seen)


def _select_tables(reduced: ReducedCells, observed: Mapping[str, Any], needs: Collection[str]) -> list[RunTable]:
    """The parts of the runs' observations, for a task each. Nodes are the same in every part of a run."""
    engine = engine_of(observed["cells"])

    def in_every_part(table: AnyTable) -> AnyTable:
        return engine.query(
            "SELECT t.*, r.part FROM {table} AS t JOIN {runs} AS r ON t.run = r.run", table=table, runs=reduced.runs
        )

    known = (
        ("topology", "SELECT DISTINCT run, u, v FROM {table}"),
        ("presence", "SELECT run, epoch, node FROM {table}"),
    )
    given = {name: in_every_part(engine.query(sql, table=observed[name])) for name, sql in known if name in observed}
    found = [
        (_FACTS, reduced.runs, {"at": "heartbeat_us", "number": "round_us", "share": "rate"}),
        (_BEGINS, reduced.runs, {"at": "begins_us", "share": "covers"}),
        (_NODES, in_every_part(reduced.nodes), {"u": "node"}),
        (_LINKS, given.get("topology", reduced.links), {"u": "u", "v": "v"}),
        (_PRESENCE, given.get("presence", reduced.presence), {"at": "epoch", "u": "node"}),
    ]
    if WAVES in needs:
        columns = {"at": "t_us", "u": "src", "v": "dst", "number": "epoch", "share": "cast(cells as double)"}
        found.append((WAVES, reduced.copies, columns))
    if ACTIVITY in needs:
        found.append((ACTIVITY, reduced.activity, _ROUNDS))
    if DEPARTURES in needs:
        found.append((DEPARTURES, reduced.departures, _ROUNDS))
    if CADENCE in needs:
        columns = {"at": "gap", "u": "src", "v": "dst", "number": "size", "share": "cast(cells as double)"}
        found.append((CADENCE, reduced.gaps, columns))
    if WINDOWS in needs:
        columns = {"at": "window_us", "u": "src", "v": "dst", "word": "feature", "share": "value"}
        found.append((WINDOWS, reduced.windows, columns))
    if "published" in observed:
        found.append((_PUBLISHED, in_every_part(observed["published"]), {"at": "t_us", "word": "topic"}))
    selected = [RunTable(*each) for each in found]
    if reduced.has_parts:
        selected = [
            RunTable(kind, _spread_parts(table, columns), {name: f"{name}_" for name in columns})
            for kind, table, columns in selected
        ]
    if VOLUMES in needs:
        # Correlating a record is too much for one task.
        counted = [reduced.volumes, in_every_part(reduced.nodes), reduced.runs]
        if reduced.has_parts:
            counted = [
                _spread_parts(table, {name: name for name in columns}, "")
                for table, columns in zip(counted, _COUNTED, strict=True)
            ]
        scores = flow_job.score_volumes(*counted)
        selected.append(RunTable(VOLUMES, scores, {"u": "node", "number": "leads", "share": "score"}))
    return selected


def _spread_parts(table: AnyTable, columns: Mapping[str, str], mark: str = "_") -> AnyTable:
    """The whole record is all rows under the run's name; each part is its own rows under the part's name. Names of
    columns get a mark."""
    name = f"concat(run, '{_PART}', cast(part as string))"
    rest = ", ".join(f"{expression} AS {column}{mark}" for column, expression in columns.items())
    whole, part = (f"SELECT {of} AS run, {rest} FROM {{table}}" for of in ("run", name))  # noqa: S608
    rows: AnyTable = engine_of(table).query(f"{whole} UNION ALL {part} WHERE part IS NOT NULL", table=table)
    return rows


def _guess_run(observed: ObservedRun, chosen: Sequence[Attacker[CaptureObservations]]) -> pa.Table:
    run, names, topics, seen = observed
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    for each in chosen:
        found = each.score_topics(seen)
        # An attacker that cannot tell topics apart has one score for all of them.
        for topic, scores in zip(topics if len(found) == len(topics) else [""], found, strict=True):
            parts.append(make_guesses(run, each.name, len(seen.present), 0, topic, each.role, names, scores))
    return pa.concat_tables(parts)


def _rounds(run: GroupedRun, kind: str, length_us: int) -> ActivityRounds:
    activity = run.table(kind)
    number = activity["at"].to_numpy() // length_us
    first = int(number.min()) if len(number) else 0
    did = np.zeros((int(number.max(initial=first - 1)) + 1 - first, len(run.names)))
    np.add.at(did, (number - first, run.node_numbers(activity["u"])), activity["share"].to_numpy())
    return ActivityRounds(length_us, first, did)


def _gap_counts(run: GroupedRun) -> GapCounts:
    counted = run.table(CADENCE)
    gap, size, cells = (counted[name].to_numpy() for name in ("at", "number", "share"))
    return GapCounts(run.node_numbers(counted["u"]), run.node_numbers(counted["v"]), gap, size, cells.astype(np.int64))


def _flow_scores(run: GroupedRun) -> FlowScores | None:
    rows = run.table(VOLUMES)
    found = np.zeros((2, len(run.names)))
    found[rows["number"].to_numpy(), run.node_numbers(rows["u"])] = rows["share"].to_numpy()
    return FlowScores(*found) if len(rows) else None


def _windows(run: GroupedRun) -> LinkWindows:
    rows = run.table(WINDOWS).sort_by([(column, "ascending") for column in ("word", "u", "v", "at")])
    sums = {name: rows.filter(pc.equal(rows["word"], name)) for name in WINDOW_SUMS}
    one = sums["follows"]
    value: dict[str, NDArray[np.float64]] = {name: table["share"].to_numpy() for name, table in sums.items()}
    many = value["follows"]
    columns = [many]
    for of in ("gap", "size"):
        total, squares = value[f"{of}_sum"], value[f"{of}_squares"]
        spread = np.sqrt(np.maximum(0.0, many * squares - total**2)) / many
        columns += [total / many, spread, value[f"{of}_least"], value[f"{of}_most"]]
    return LinkWindows(
        run.node_numbers(one["u"]), run.node_numbers(one["v"]), one["at"].to_numpy(), np.column_stack(columns)
    )


_COUNTED: Final = (("bin", "node", "arriving", "bytes"), ("node",), ("heartbeat_us",))
"""What flow correlation takes of volumes, of nodes and of runs."""
_ROUNDS: Final = {"at": "round", "u": "node", "share": "cast(bytes as double)"}
_FACTS: Final = "facts"
_BEGINS: Final = "begins"
_NODES: Final = "nodes"
_LINKS: Final = "links"
_PRESENCE: Final = "there"
_PUBLISHED: Final = "published"
_PART: Final = " part "
