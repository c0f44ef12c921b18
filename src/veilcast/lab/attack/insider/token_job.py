"""The attackers of a coalition without keys on tables: the table `insiders` in, the table `guesses` out.

1. Relations, as SQL for both engines, are those of every coalition (`coalition_tables`); the digits of a token stand
   for the topic.
2. The relations of a run go to one task. There the tokens of each epoch become arrays (`TokenObservations`), in the
   order of their bytes, and the attackers of the registry score them after each requested number of epochs.

Tables: `insiders`, `topology`, `presence` and `popularity`, which has the public share of subscribers of each topic;
and where they are given `facts`, `roots` and `pairs`. The topic of a root is its token, in capital hexadecimal digits.
A row of the kind `in:Present` says that the node `about` is in a token's flood although it is not among `presence`.
`lasting_tokens` says which tokens of different epochs are one topic's, for an attacker on tokens that never change.
`tokens` has their names, for a holder of all keys. An attacker without what it needs is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, name_scores, union_tables
from veilcast.lab.attack.insider import coalition_tables
from veilcast.lab.attack.insider.token_attackers import (
    FOLLOWED,
    IN_FIRST,
    IN_LAST,
    LINKED,
    NEXT,
    TokenEpoch,
    TokenObservations,
)
from veilcast.lab.attack.insider.token_inference import count_requests
from veilcast.lab.attack.registry import applies, attackers_on
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.models.graph import from_edges
from veilcast.lab.models.link_observations import ASKED, AWAY, SILENT, LinkObservations
from veilcast.lab.tables import GuessRow

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


def guess_from_tokens(
    observed: Mapping[str, AnyTable],
    names: Collection[str] | None = None,
    epochs: Sequence[int] = (1, 5, 20, 50),
) -> AnyTable:
    """By these attackers, or by all, after each of these numbers of epochs; links also after every number between."""
    chosen = attackers_on(TokenObservations, names, called="attack on tokens")
    united = union_tables(_relations(observed))

    def of_run(rows: pa.Table) -> pa.Table:
        run = GroupedRun(rows)
        whole = _TokenTables(run).build()
        parts = [tables.arrow_schema(GuessRow).empty_table()]
        if whole is None:
            return parts[0]
        able = [each for each in chosen if applies(each, whole)]
        honest, topics = np.flatnonzero(~whole.hostile), _topics(run)
        nodes = pa.array([run.names[node] for node in honest], pa.string())
        last = {min(number, whole.epochs) for number in epochs}
        for number in range(1, max(last) + 1):
            seen = whole.first_epochs(number)
            first, before, now = (pa.array(each.tokens, pa.string()) for each in _named_epochs(seen))
            places = {
                IN_FIRST: (topics, first),
                IN_LAST: (topics, now),
                NEXT: (before, now),
                LINKED: (before, now),
                FOLLOWED: (first, now),
                "subscriber": (topics, nodes),
            }
            for each in able:
                if number in last or each.role in (NEXT, LINKED):
                    scores = each.score(seen)
                    if each.role == "subscriber":
                        scores = scores[:, honest]
                    size = whole.nodes - len(honest)
                    parts.append(name_scores(run.run, each.name, each.role, number, size, scores, *places[each.role]))
        return pa.concat_tables(parts)

    return engine_of(united).apply_by(united, ["run"], of_run, GuessRow)


def _named_epochs(seen: TokenObservations) -> tuple[TokenEpoch, TokenEpoch, TokenEpoch]:
    """The first epoch, the one before the last, and the last."""
    return seen.first, seen.by_epoch[max(0, seen.epochs - 2)], seen.last


def _relations(observed: Mapping[str, AnyTable]) -> Iterator[RunTable]:
    named = coalition_tables.name_tokens(observed["insiders"])
    needs = {coalition_tables.SIGHTS, coalition_tables.ORIGINS, coalition_tables.NOTES}
    yield from coalition_tables.select_tables(named, observed, needs)
    there = engine_of(named).query(_IN_FLOODS, named=named)
    yield RunTable(_FLOODED, there, {"at": "epoch", "word": "topic", "u": "about"})
    for name, kind, columns in _AS_THEY_ARE:
        if name in observed:
            yield RunTable(kind, observed[name], columns)


def _topics(run: GroupedRun) -> pa.Array:
    return distinct_values([run.table(_POPULARITY)["word"]])


class _TokenTables:
    """The tables of a run as arrays over the tokens of each epoch."""

    def __init__(self, run: GroupedRun) -> None:
        self._run = run
        links = run.table(coalition_tables.LINKS)
        self._graph = from_edges(len(run.names), run.node_numbers(links["u"]), run.node_numbers(links["v"]))
        self._hostile = np.zeros(self._graph.nodes, np.bool_)
        self._hostile[run.node_numbers(run.table(coalition_tables.COALITION)["u"])] = True
        ends = np.repeat(np.arange(self._graph.nodes, dtype=np.int32), self._graph.degrees)
        outward = self._hostile[ends] & ~self._hostile[self._graph.targets]
        self._observer, self._peer = ends[outward], self._graph.targets[outward]
        self._began = run.table(coalition_tables.BEGAN)
        self._epochs = np.unique(self._began["at"].to_numpy())
        self._words = distinct_values([self._began["word"]])
        self._tokens, self._place = self._place_tokens()

    def build(self) -> TokenObservations | None:
        """None if the coalition heard of no token."""
        shares, asks = _share_of_askers(self._run)
        if not self._epochs.size:
            return None
        present, seen, delay = self._observe_links()
        origin, lasting, named = (
            self._read_origins(),
            self._numbers(_LASTING),
            self._numbers(_NAMED, _topics(self._run)),
        )
        notes, games = self._count_notes(seen), self._read_handovers()
        asked = self._count_requests(origin, present, seen, delay)
        epochs = [
            TokenEpoch(
                tokens,
                seen[at],
                delay[at],
                present[at],
                origin[at],
                notes[at],
                games[at],
                *asked[at],
                None if lasting is None else lasting[at],
                None if named is None else named[at],
            )
            for at, tokens in enumerate(self._tokens)
        ]
        return TokenObservations(
            graph=self._graph,
            hostile=self._hostile,
            observer=self._observer,
            peer=self._peer,
            by_epoch=tuple(epochs),
            popularity=shares,
            asks=asks,
            kept=coalition_tables.read_knowledge(self._run).kept,
            together=self._read_pairs(),
            lasting=None if lasting is None else True,
            named=None if named is None else True,
        )

    def _place_tokens(self) -> tuple[list[list[str]], Numbers]:
        """The tokens of each epoch, in order; and epochs x words, the place of each."""
        place, tokens = np.full((self._epochs.size, len(self._words)), -1), []
        row, word = self._rows(self._began), self._codes(self._began)
        for epoch in range(self._epochs.size):
            own = np.sort(word[row == epoch])
            place[epoch, own] = np.arange(own.size)
            tokens.append(self._words.take(pa.array(own)).to_pylist())
        return tokens, place

    def _rows(self, rows: pa.Table) -> Numbers:
        return np.asarray(np.searchsorted(self._epochs, rows["at"].to_numpy()), np.int64)

    def _codes(self, rows: pa.Table) -> Numbers:
        return np.asarray(pc.fill_null(pc.index_in(rows["word"], self._words), -1).to_numpy(), np.int64)

    def _at(self, rows: pa.Table) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """The epoch and the place of the token of each row, and the rows that have one."""
        within = np.isin(rows["at"].to_numpy(), self._epochs)
        epoch, code = self._rows(rows), self._codes(rows)
        place = self._place[np.minimum(epoch, self._epochs.size - 1), code]
        return epoch, place, within & (code >= 0) & (place >= 0)

    def _observe_links(self) -> tuple[list[NDArray[np.bool_]], list[NDArray[np.int8]], list[NDArray[np.int16]]]:
        """For each epoch: who is present, what each link shows, and the delays of requests."""
        run, there = self._run, self._run.table(coalition_tables.PRESENCE)
        base = np.zeros((self._epochs.size, self._graph.nodes), np.bool_)
        kept = np.isin(there["at"].to_numpy(), self._epochs)
        base[self._rows(there)[kept], run.node_numbers(there["u"])[kept]] = True
        present = [np.repeat(base[at][None], len(tokens), axis=0) for at, tokens in enumerate(self._tokens)]
        flooded = run.table(_FLOODED)
        epoch, place, known = self._at(flooded)
        node = run.node_numbers(flooded["u"])
        for at in range(self._epochs.size):
            here = known & (epoch == at)
            present[at][place[here], node[here]] = True
        seen = [np.where(each[:, self._peer], SILENT, AWAY).astype(np.int8) for each in present]
        delay = [np.full(each.shape, -1, np.int16) for each in seen]
        sights = run.table(coalition_tables.SIGHTS)
        pairs = coalition_tables.pair_numbers(self._observer, self._peer)
        wanted = coalition_tables.pair_numbers(run.node_numbers(sights["u"]), run.node_numbers(sights["v"]))
        link = np.minimum(np.searchsorted(pairs, wanted), max(0, len(pairs) - 1))
        epoch, place, known = self._at(sights)
        known &= pairs[link] == wanted if len(pairs) else False
        sight, t_us = sights["number"].to_numpy(), sights["share"].to_numpy()
        hop_us = coalition_tables.read_facts(run).get("hop_us")
        start = np.zeros(self._place.shape)
        start[self._rows(self._began), self._codes(self._began)] = self._began["number"].to_numpy()
        began = start[epoch, self._codes(sights)]
        for at in range(self._epochs.size):
            here = known & (epoch == at)
            seen[at][place[here], link[here]] = sight[here]
            if hop_us is not None:
                here &= sight == ASKED
                hops = np.round((t_us[here] - began[here]) / hop_us)
                delay[at][place[here], link[here]] = np.minimum(hops, np.iinfo(np.int16).max)
        return present, seen, delay

    def _read_origins(self) -> list[NDArray[np.int32]]:
        """Where floods begin; inferred for a token whose root is not public."""
        found = [np.full(len(tokens), -1, np.int32) for tokens in self._tokens]
        roots = self._run.table(coalition_tables.ORIGINS)
        epoch, place, known = self._at(roots)
        node = self._run.node_numbers(roots["u"])
        for at in range(self._epochs.size):
            here = known & (epoch == at)
            found[at][place[here]] = node[here]
            for missing in np.flatnonzero(found[at] < 0).tolist():
                token = self._tokens[at][missing]
                inferred = coalition_tables.build_coalition(self._run, token).seen.origin
                found[at][missing] = inferred[coalition_tables.find_epochs(self._run).tolist().index(self._epochs[at])]
        return found

    def _count_notes(self, seen: Sequence[NDArray[np.int8]]) -> list[Floats]:
        """Only a coalition with members in the mesh counts its notifications."""
        rows = self._run.table(coalition_tables.NOTES)
        epoch, place, known = self._at(rows)
        found = []
        for at, each in enumerate(seen):
            notes, here = np.zeros(len(each)), known & (epoch == at)
            notes[place[here]] = rows["number"].to_numpy()[here]
            found.append(np.where((each > SILENT).any(axis=1), notes, -1.0))
        return found

    def _read_handovers(self) -> list[list[NDArray[np.int32]]]:
        rows = self._run.table(coalition_tables.NAMES)
        found = [[np.empty((0, 6), np.int32) for _ in tokens] for tokens in self._tokens]
        if not len(rows):
            return found
        epoch, place, known = self._at(rows)
        observer, peer, node = (self._run.node_numbers(rows[name]) for name in ("u", "v", "w"))
        zero = np.zeros(len(rows), np.int32)
        games = np.column_stack([zero, zero, observer, peer, zero, node]).astype(np.int32)
        for at, tokens in enumerate(self._tokens):
            for each in range(len(tokens)):
                found[at][each] = games[known & (epoch == at) & (place == each)]
        return found

    def _count_requests(
        self,
        origin: Sequence[NDArray[np.int32]],
        present: Sequence[NDArray[np.bool_]],
        seen: Sequence[NDArray[np.int8]],
        delay: Sequence[NDArray[np.int16]],
    ) -> list[tuple[Floats, Floats]]:
        """For each epoch: how many neighbours asked for each token, and how many could have."""
        found = [(np.zeros(len(tokens)), np.zeros(len(tokens))) for tokens in self._tokens]
        for place in range(max(map(len, self._tokens))):
            epochs = [at for at, tokens in enumerate(self._tokens) if len(tokens) > place]
            sights = LinkObservations(
                self._observer,
                self._peer,
                np.array([origin[at][place] for at in epochs]),
                np.array([present[at][place] for at in epochs]),
                np.array([seen[at][place] for at in epochs]),
                np.array([delay[at][place] for at in epochs]),
                np.empty((0, 6), np.int32),
            )
            for at, asked, chances in zip(epochs, *count_requests(self._graph, sights), strict=True):
                found[at][0][place], found[at][1][place] = asked, chances
        return found

    def _numbers(self, kind: str, names: pa.Array | None = None) -> list[Numbers] | None:
        """What tokens stand for, as numbers: places among these names, or of the distinct values."""
        rows = self._run.table(kind)
        if not len(rows):
            return None
        values = rows["value"].combine_chunks()
        known_as = pc.unique(values).sort() if names is None else names.cast(pa.binary())
        number = np.asarray(pc.fill_null(pc.index_in(values, known_as), -1).to_numpy(), np.int64)
        epoch, place, known = self._at(rows)
        found = [np.full(len(tokens), -1) for tokens in self._tokens]
        for at in range(self._epochs.size):
            here = known & (epoch == at)
            found[at][place[here]] = number[here]
        return found

    def _read_pairs(self) -> Floats | None:
        rows, topics = self._run.table(_PAIRS), _topics(self._run)
        if not len(rows):
            return None
        found = np.zeros((len(topics), len(topics)))
        other = pc.index_in(rows["value"].cast(pa.string()), topics).to_numpy()
        found[pc.index_in(rows["word"], topics).to_numpy(), other] = rows["share"].to_numpy()
        return found


def _share_of_askers(run: GroupedRun) -> tuple[Floats, Floats]:
    """By topic, the share of nodes that read it, and of those that ask for it: covers are among all others."""
    popular, covers = run.table(_POPULARITY).sort_by("word"), coalition_tables.read_facts(run).get("cover_share", 0.0)
    shares = popular["share"].to_numpy()
    if not len(shares) or not ((shares > 0) & (shares < 1)).all():
        raise ConfigError("for each topic a share of nodes between none and all asks")
    return shares, shares + covers * (1 - shares)


_FLOODED: Final = "flooded"
_POPULARITY: Final = "popularity"
_PAIRS: Final = "pairs"
_LASTING: Final = "lasting"
_NAMED: Final = "named"
_AS_THEY_ARE: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    ("popularity", _POPULARITY, {"word": "topic", "share": "share"}),
    ("pairs", _PAIRS, {"word": "topic", "value": "cast(other as binary)", "share": "share"}),
    ("lasting_tokens", _LASTING, {"at": "epoch", "word": "hex(token)", "value": "lasting"}),
    ("tokens", _NAMED, {"at": "epoch", "word": "hex(token)", "value": "cast(topic as binary)"}),
)
_IN_FLOODS: Final = "SELECT run, epoch, topic, about FROM {named} WHERE kind = 'in:Present'"
