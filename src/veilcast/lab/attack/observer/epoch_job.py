"""The attack of a global observer over epochs: the copies of one notification in each epoch in, `guesses` out.

The observer knows which cells are copies of the topic's notifications, as P0 grants, and who is present. All rows of a
run go to one task (`grouped_tables`), where epochs are shown to the attackers in their order, and each attacker scores
every node after each requested number of epochs. The copies need not be in order. Rounds with counted bytes
(`received`) fill their epochs, so that a round in which nobody received anything is known, too.

Slow attackers, which try every member as the root, look at the last epoch before each requested number alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, make_guesses, union_tables
from veilcast.lab.attack.observer.observations import EpochObservations, EpochWires, Masks, Scores
from veilcast.lab.attack.registry import ACTIVITY, FORMATION, Attacker, attackers_on, find_needs
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.models.graph import from_edges, restrict_graph
from veilcast.lab.tables import GuessRow


def guess_from_epochs(
    observed: Mapping[str, AnyTable],
    names: Collection[str] | None = None,
    epochs: Sequence[int] = (1, 5, 20, 50),
) -> AnyTable:
    """Score every node by each attack, after each of these numbers of epochs; larger numbers than there are count once.

    Reads the tables cells, topology, presence and facts; formation for attacks on how a mesh grew; received, published
    and popularity for attacks on activity. Of several topics the first by name is in question. Without names, all
    attacks for which the tables are there.
    """
    chosen = attackers_on(EpochObservations, names, called="attack over epochs")
    if names is None:
        chosen = [each for each in chosen if _can(each, observed)]
    for each in chosen:
        if not _can(each, observed):
            raise ConfigError(f"{each.name} reads the tables {' and '.join(_tables_of(each))}, which are not all there")
    needs = {need for need in find_needs(chosen, _TABLES) if set(_TABLES.get(need, ())) <= set(observed)}
    grouped = [
        RunTable(_CELLS, observed["cells"], {"number": "epoch", "at": "t_us", "u": "src", "v": "dst"}),
        RunTable(_LINKS, observed["topology"], {"u": "u", "v": "v"}),
        RunTable(_PRESENCE, observed["presence"], {"at": "epoch", "u": "node"}),
        RunTable(_FACTS, observed["facts"], {"word": "name", "share": "value"}),
    ]
    if FORMATION in needs:
        grouped.append(RunTable(FORMATION, observed["formation"], {"at": "epoch", "number": "stage", "u": "node"}))
    if ACTIVITY in needs:
        received = {"at": "t_us", "number": "round_us", "u": "node", "share": "cast(size as double)"}
        grouped.append(RunTable(ACTIVITY, observed["received"], received))
        grouped.append(RunTable(_PUBLISHED, observed["published"], {"at": "t_us", "word": "topic"}))
        grouped.append(RunTable(_POPULARITY, observed["popularity"], {"word": "topic"}))
    united = union_tables(grouped)

    def of_run(rows: pa.Table) -> pa.Table:
        return _guess_run(GroupedRun(rows), chosen, epochs)

    return engine_of(united).apply_by(united, ["run"], of_run, GuessRow)


def _tables_of(attacker: Attacker[EpochObservations]) -> list[str]:
    return [table for need in attacker.needs for table in _TABLES.get(need, ("cells",))]


def _can(attacker: Attacker[EpochObservations], observed: Mapping[str, AnyTable]) -> bool:
    return set(_tables_of(attacker)) <= set(observed)


def _guess_run(run: GroupedRun, chosen: list[Attacker[EpochObservations]], epochs: Sequence[int]) -> pa.Table:
    shown = _ShownRun(run)
    numbers = sorted({min(number, len(shown.epochs)) for number in epochs})
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    seen = EpochObservations(shown.graph, shown.subscribers, shown.facts.get("cover_share", 0.0))
    for number in range(1, numbers[-1] + 1):
        seen.see(shown.wires(number - 1), closely=number in numbers)
        if shown.rounds is not None:
            seen.count_rounds(*shown.rounds_of(number - 1))
        for each in chosen if number in numbers else ():
            scores = each.score_topics(seen)[0]
            parts.append(make_guesses(run.run, each.name, number, 0, shown.topics[0], each.role, run.names, scores))
    return pa.concat_tables(parts)


class _Rounds(NamedTuple):
    busy: Masks
    """Rounds x topics."""
    activity: Scores
    """Rounds x nodes."""
    each: int
    """Rounds in an epoch."""


class _ShownRun:
    """The tables of one run as arrays."""

    def __init__(self, run: GroupedRun) -> None:
        facts, links, there, cells = (run.table(kind) for kind in (_FACTS, _LINKS, _PRESENCE, _CELLS))
        self.facts: dict[str, float] = dict(zip(facts["word"].to_pylist(), facts["share"].to_pylist(), strict=True))
        self.nodes = len(run.names)
        self.graph = from_edges(self.nodes, run.node_numbers(links["u"]), run.node_numbers(links["v"]))
        self.subscribers = round(self.facts.get("subscriber_share", _USUAL_SHARE) * self.nodes)
        self.epochs = np.union1d(there["at"].to_numpy(), cells["number"].to_numpy())
        self.present = self._mask(there["at"], run.node_numbers(there["u"]))
        order = np.argsort(cells["number"].to_numpy(), kind="stable")
        self._src, self._dst = (run.node_numbers(cells[end])[order] for end in ("u", "v"))
        self._at = cells["at"].to_numpy()[order]
        self._bounds = np.searchsorted(cells["number"].to_numpy()[order], np.append(self.epochs, _NEVER))
        self._stages = self._read_formation(run)
        words = [run.table(kind)["word"] for kind in (_POPULARITY, _PUBLISHED)]
        self.topics = distinct_values(words).to_pylist() or [""]
        self.rounds = self._read_rounds(run)

    def wires(self, epoch: int) -> EpochWires:
        first, end = self._bounds[epoch], self._bounds[epoch + 1]
        present = self.present[epoch]
        stages = None if self._stages is None else self._stages[:, epoch]
        overlay = restrict_graph(self.graph, present)
        return EpochWires(present, overlay, self._src[first:end], self._dst[first:end], self._at[first:end], stages)

    def rounds_of(self, epoch: int) -> tuple[Masks, Scores]:
        assert self.rounds is not None
        here = slice(epoch * self.rounds.each, (epoch + 1) * self.rounds.each)
        return self.rounds.busy[here], self.rounds.activity[here]

    def _mask(self, epoch: pa.ChunkedArray, node: NDArray[np.int32]) -> Masks:
        found = np.zeros((len(self.epochs), self.nodes), np.bool_)
        found[np.searchsorted(self.epochs, epoch.to_numpy()), node] = True
        return found

    def _read_formation(self, run: GroupedRun) -> Masks | None:
        """Stages x epochs x nodes."""
        grown = run.table(FORMATION)
        if not len(grown):
            return None
        stage, node = grown["number"].to_numpy(), run.node_numbers(grown["u"])
        found = np.zeros((int(stage.max()) + 1, len(self.epochs), self.nodes), np.bool_)
        found[stage, np.searchsorted(self.epochs, grown["at"].to_numpy()), node] = True
        return found

    def _read_rounds(self, run: GroupedRun) -> _Rounds | None:
        received, published = run.table(ACTIVITY), run.table(_PUBLISHED)
        if not len(received):
            return None
        epoch_us, round_us = int(self.facts["epoch_us"]), int(received["number"][0].as_py())
        each = epoch_us // round_us

        def rounds(t_us: pa.ChunkedArray) -> NDArray[np.int64]:
            epoch, after_us = np.divmod(t_us.to_numpy(), epoch_us)
            return np.asarray(np.searchsorted(self.epochs, epoch) * each + after_us // round_us, np.int64)

        shape = each * len(self.epochs), self.nodes
        activity, busy = np.zeros(shape), np.zeros((shape[0], len(self.topics)), np.bool_)
        activity[rounds(received["at"]), run.node_numbers(received["u"])] = received["share"].to_numpy()
        topic = pc.index_in(published["word"], pa.array(self.topics, pa.string())).to_numpy()
        busy[rounds(published["at"]), topic] = True
        return _Rounds(busy, activity, each)


_TABLES: Final = {FORMATION: ("formation",), ACTIVITY: ("received", "published", "popularity")}
_CELLS: Final = "cells"
_LINKS: Final = "links"
_PRESENCE: Final = "there"
_FACTS: Final = "facts"
_PUBLISHED: Final = "published"
_POPULARITY: Final = "popularity"
_NEVER: Final = np.iinfo(np.int64).max
_USUAL_SHARE: Final = 0.1
