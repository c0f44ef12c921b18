"""The attackers of a relay on tables: what its server, its proxy and its clients' wires show, in; `guesses` out.

1. Relations, as SQL for both engines: requests by tag; records on the wires, counted by client and window of time; and
   bodies that came down, joined with those that went up before. Deliveries and cells are many, and stay in the engine.
2. The relations of a run go to one task, which builds `ServerObservations` and asks the attackers of the registry.

Tables: `server` with the roles `server:subscribe`, `server:publish`, `proxy:subscribe`, `proxy:send` and
`proxy:deliver`; `topology`, the clients of the proxy; `presence`; `cells`; and what is public: `words`, `popularity`,
`pairs`, `facts`. `tokens` holds the answers to the questions that a server may ask as a user; it reads those to its own
questions. The proxy is called `proxy` in `cells` and `topology`, and names of pseudonyms have one length. A missing
table is one without rows, and an attacker that needs it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, name_scores, union_tables
from veilcast.lab.attack.registry import Attacker, applies, attackers_on, find_needs
from veilcast.lab.attack.server import attackers as relay
from veilcast.lab.attack.server.observations import (
    ANSWERS,
    BODIES,
    PAIRS,
    PARTS,
    PROXY,
    SUBSCRIPTIONS,
    WIRES,
    WORDS,
    BodyCounts,
    ClientWires,
    ServerObservations,
)
from veilcast.lab.attack.server.tag_inference import TagNames
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.models.server_log import PUBLISHED, SUBSCRIBED, ServerLog
from veilcast.lab.tables import GuessRow

Floats = NDArray[np.float64]


def guess_from_server(
    observed: Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """Rows of `guesses`, after each number of epochs; after all epochs of a run if no number is given."""
    if "server" not in observed:
        raise ConfigError("the attackers of a relay need the table server")
    chosen = attackers_on(ServerObservations, names, called="attack at a relay")
    grouped = list(_relations(observed, find_needs(chosen, PARTS)))

    def of_run(rows: pa.Table) -> pa.Table:
        return _guess_run(GroupedRun(rows), chosen, epochs)

    united = union_tables(grouped)
    return engine_of(united).apply_by(united, ["run"], of_run, GuessRow)


def _relations(observed: Mapping[str, AnyTable], needs: Collection[str]) -> Iterable[RunTable]:
    engine = engine_of(observed["server"])
    roles = [role for role, parts in _REQUESTS_OF.items() if parts & set(needs)]
    if roles:
        query = _REQUESTS.format(roles=", ".join(f"'{role}'" for role in roles))
        columns = {"at": "epoch", "number": "t_us", "word": "pseudonym", "value": "tag", "w": "role"}
        yield RunTable(_ASKED, engine.query(query, server=observed["server"]), columns)
    if BODIES in needs:
        columns = {"at": "epoch", "u": "receiver", "v": "sender", "number": "bodies"}
        yield RunTable(BODIES, engine.query(_BODIES, server=observed["server"]), columns)
    if WIRES in needs and {"cells", "facts"} <= observed.keys():
        counted = {"at": "epoch", "number": "window_start", "u": "client", "share": "cast(records as double)"}
        for kind, client, end in ((_SENT, "src", "dst"), (_GOT, "dst", "src")):
            query = _RECORDS.format(client=client, end=end, proxy=PROXY_NAME)
            yield RunTable(kind, engine.query(query, cells=observed["cells"], facts=observed["facts"]), counted)
    for name, kind, columns in _AS_THEY_ARE:
        if name in observed:
            yield RunTable(kind, observed[name], columns)


def _guess_run(run: GroupedRun, chosen: Sequence[Attacker[ServerObservations]], epochs: Sequence[int]) -> pa.Table:
    observed = _RunTables(run)
    whole = observed.build()
    chosen = [each for each in chosen if applies(each, whole)]
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    for number in sorted({min(number, whole.epochs) for number in epochs or (whole.epochs,)}):
        so_far = whole.first_epochs(number)
        for each in chosen:
            rows, columns = observed.names_of(each.role, so_far)
            scores = each.score(so_far)
            parts.append(name_scores(run.run, each.name, each.role, number, 1, scores, rows(), columns()))
    return pa.concat_tables(parts)


class _RunTables:
    """The tables of a run, and the names behind the numbers of its observations."""

    def __init__(self, run: GroupedRun) -> None:
        self._run = run
        self.users = distinct_values([run.table(_CLIENTS)["v"]])
        self.topics = distinct_values([run.table(_SHARES)["word"], run.table(WORDS)["word"]])
        requests = run.table(_ASKED)
        asked, made, proxy = (requests.filter(pc.equal(requests["w"], role)) for role in _REQUESTS_OF)
        self.pseudonyms, self.requests = distinct_values([asked["word"]]), distinct_values([made["word"]])
        self.tags = _distinct_tags(asked, made, run.table(WORDS), run.table(ANSWERS))
        self._at_proxy = _distinct_tags(proxy)
        self._asked, self._made, self._by_clients = asked, made, proxy
        # Epochs are numbered from the first one that anything was seen in: real ones are far from 0.
        seen = [rows["at"].to_numpy() for rows in (run.table(_THERE), asked, made, proxy, run.table(BODIES))]
        self._epochs = np.unique(np.concatenate(seen))
        self._facts = dict(zip(*(run.table(_FACTS)[name].to_pylist() for name in ("word", "share")), strict=True))

    def build(self) -> ServerObservations:
        run = self._run
        there, bodies = run.table(_THERE), run.table(BODIES)
        epochs = len(self._epochs)
        present = np.zeros((epochs, len(self.users)), np.bool_)
        present[self._numbers_of_epochs(there), self._users(there["u"])] = True
        asked = self._log(self._asked, SUBSCRIBED, self.pseudonyms, self.tags)
        made = self._log(self._made, PUBLISHED, self.requests, self.tags)
        proxy = self._log(self._by_clients, SUBSCRIBED, self.users, self._at_proxy)
        words = run.table(WORDS)
        queries = self._facts.get("queries", 0.0)
        return ServerObservations(
            epochs=epochs,
            users=len(self.users),
            tags=self.tags.to_pylist(),
            present=present if len(there) else None,
            server=_join(asked, made) if len(asked) + len(made) else None,
            proxy=proxy if len(proxy) else None,
            bodies=self._bodies(bodies) if len(bodies) else None,
            wires=self._wires(asked, made),
            topics=len(self.topics),
            words=self._words(words) if len(words) else None,
            popularity=self._popularity(),
            together=self._together(),
            answers=self._answers(epochs),
            queries=int(queries) or None,
            lasting=bool(self._facts.get("lasting", 0.0)),
            filter_bound=self._facts.get("filter_bound", 0.0),
        )

    def names_of(self, role: str, seen: ServerObservations) -> tuple[Callable[[], pa.Array], Callable[[], pa.Array]]:
        """The names of rows and columns of the scores for a role, as in `server.attackers`."""

        def pseudonyms(epoch: int) -> pa.Array:
            asked = seen.server.select(SUBSCRIBED, epoch, epoch) if seen.server else None
            return self.pseudonyms.take(pa.array(np.unique(asked.who))) if asked else self.pseudonyms[:0]

        everything = pa.array([""])
        known: dict[str, tuple[Callable[[], pa.Array], Callable[[], pa.Array]]] = {
            "subscriber": (lambda: self.topics, lambda: self.users),
            relay.PSEUDONYM: (lambda: self.topics, lambda: pseudonyms(seen.last)),
            relay.TAG: (lambda: self.topics, lambda: _hex(self.tags, seen.last_tags)),
            relay.READER: (lambda: self.users, lambda: self.users),
            "publisher": (lambda: self.requests.take(pa.array(seen.last_publications.who)), lambda: self.users),
            relay.ALIAS: (lambda: pseudonyms(seen.last - 1), lambda: pseudonyms(seen.last)),
            relay.REPEAT: (lambda: _hex(self._at_proxy, self._repeatable(seen)), lambda: self.users),
            relay.DELIVERED: (lambda: everything, lambda: self.users),
            relay.ORDER: (lambda: everything, lambda: self.requests),
        }
        return known[role]

    def _repeatable(self, seen: ServerObservations) -> NDArray[np.int64]:
        assert seen.proxy is not None
        return np.unique(seen.proxy.select(SUBSCRIBED, seen.first_counted, seen.last).what)

    def _numbers_of_epochs(self, rows: pa.Table) -> NDArray[np.int64]:
        return np.asarray(np.searchsorted(self._epochs, rows["at"].to_numpy()), np.int64)

    def _users(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        """Numbers of users; -1 for a name that no client of the proxy has."""
        return _numbers(column, self.users)

    def _log(self, rows: pa.Table, kind: int, names: pa.Array, tags: pa.Array) -> ServerLog:
        # Rows of one time are in the order of their names.
        rows = rows.sort_by([(name, "ascending") for name in ("number", "word", "value")])
        kinds, who, what = (
            np.full(len(rows), kind, np.int8),
            _numbers(rows["word"], names),
            _numbers(rows["value"], tags),
        )
        return ServerLog(self._numbers_of_epochs(rows), rows["number"].to_numpy(), kinds, who, what)

    def _bodies(self, rows: pa.Table) -> BodyCounts:
        receiver, bodies = self._users(rows["u"]), rows["number"].to_numpy()
        kept = receiver >= 0
        counts = BodyCounts(self._numbers_of_epochs(rows), self._users(rows["v"]), receiver, bodies)
        return BodyCounts(*(column[kept] for column in counts))

    def _words(self, words: pa.Table) -> TagNames:
        tags = _numbers(words["value"], self.tags)
        order = np.argsort(tags)
        return TagNames(tags[order], _numbers(words["word"], self.topics)[order])

    def _popularity(self) -> Floats | None:
        rows = self._run.table(_SHARES)
        found = np.zeros(len(self.topics))
        found[_numbers(rows["word"], self.topics)] = rows["share"].to_numpy()
        return found if len(rows) else None

    def _together(self) -> Floats | None:
        rows = self._run.table(PAIRS)
        found = np.zeros((len(self.topics), len(self.topics)))
        other = _numbers(rows["value"].cast(pa.string()), self.topics)
        found[_numbers(rows["word"], self.topics), other] = rows["share"].to_numpy()
        return found if len(rows) else None

    def _answers(self, epochs: int) -> NDArray[np.int64] | None:
        rows = self._run.table(ANSWERS)
        found = np.full((epochs, len(self.topics)), -1, np.int64)
        rows = rows.filter(pc.is_in(rows["at"], pa.array(self._epochs)))
        found[self._numbers_of_epochs(rows), _numbers(rows["word"], self.topics)] = _numbers(rows["value"], self.tags)
        return found if len(rows) else None

    def _wires(self, asked: ServerLog, made: ServerLog) -> ClientWires | None:
        sent, got = self._run.table(_SENT), self._run.table(_GOT)
        if not len(sent):
            return None
        window, epoch_us = int(self._facts["window_us"]), int(self._facts["epoch_us"])
        sent, got = (rows.filter(pc.is_in(rows["at"], pa.array(self._epochs))) for rows in (sent, got))
        starts = self._epochs * epoch_us // window
        publishing, ends = starts.copy(), starts.copy()
        np.maximum.at(publishing, asked.epoch, (asked.t_us - 1) // window + 1)
        np.maximum.at(ends, made.epoch, (made.t_us - 1) // window + 1)
        for rows in (sent, got):
            np.maximum.at(ends, self._numbers_of_epochs(rows), rows["number"].to_numpy() // window + 1)
        ends = np.maximum(ends, publishing)
        empty = np.zeros((0, 0))
        wires = ClientWires(window, starts, publishing, ends, empty, empty, empty)
        asking, publications = wires.first_windows[-1].tolist()
        counted = [np.zeros((rows, len(self.users))) for rows in (asking, publications, publications)]
        for rows, while_asking, while_publishing in ((sent, counted[0], counted[1]), (got, None, counted[2])):
            epoch, at, user = self._numbers_of_epochs(rows), rows["number"].to_numpy() // window, self._users(rows["u"])
            published, records = at >= publishing[epoch], rows["share"].to_numpy()
            first = wires.first_windows[epoch, published.astype(np.int64)]
            row = first + at - np.where(published, publishing[epoch], starts[epoch])
            for found, these in ((while_asking, ~published), (while_publishing, published)):
                if found is not None:
                    kept = these & (user >= 0)
                    found[row[kept], user[kept]] = records[kept]
        return ClientWires(window, starts, publishing, ends, *counted)


def _numbers(column: pa.ChunkedArray, names: pa.Array) -> NDArray[np.int64]:
    """The places of values among the names; -1 for others."""
    return np.asarray(pc.fill_null(pc.index_in(column, names), -1).to_numpy(), np.int64)


def _distinct_tags(*tables_of_tags: pa.Table) -> pa.Array:
    """In order."""
    chunks = [chunk for table in tables_of_tags for chunk in table["value"].chunks]
    return pc.unique(pa.chunked_array(chunks, pa.binary())).sort()


def _hex(tags: pa.Array, chosen: NDArray[np.int64]) -> pa.Array:
    return pa.array([tag.hex() for tag in tags.take(pa.array(chosen)).to_pylist()], pa.string())


def _join(first: ServerLog, second: ServerLog) -> ServerLog:
    columns = ("epoch", "t_us", "kind", "who", "what")
    return ServerLog(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in columns))


PROXY_NAME: Final = "proxy"
"""The proxy's name in `cells` and `topology`."""
_ASKED: Final = "asked"
_SENT: Final = "sent"
_GOT: Final = "got"
_THERE: Final = "there"
_CLIENTS: Final = "clients"
_SHARES: Final = "shares"
_FACTS: Final = "facts"
_AS_THEY_ARE: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    ("presence", _THERE, {"at": "epoch", "u": "node"}),
    ("topology", _CLIENTS, {"v": f"CASE WHEN u = '{PROXY_NAME}' THEN v ELSE u END"}),
    ("facts", _FACTS, {"word": "name", "share": "value"}),
    ("popularity", _SHARES, {"word": "topic", "share": "share"}),
    ("pairs", PAIRS, {"word": "topic", "value": "cast(other as binary)", "share": "share"}),
    ("words", WORDS, {"word": "topic", "value": "tag"}),
    ("tokens", ANSWERS, {"at": "epoch", "word": "topic", "value": "token"}),
)
_REQUESTS_OF: Final[dict[str, set[str]]] = {
    "server:subscribe": {SUBSCRIPTIONS, WIRES},
    "server:publish": {SUBSCRIPTIONS, WIRES},
    "proxy:subscribe": {PROXY},
}
"""Roles of requests by tag, and the parts of the observations that need them."""
_REQUESTS: Final = "SELECT run, epoch, t_us, role, pseudonym, tag FROM {{server}} WHERE role IN ({roles})"
_RECORDS: Final = """
    SELECT c.run, c.epoch, (c.t_us - 1) - (c.t_us - 1) % cast(f.value AS bigint) AS window_start, c.{client} AS client,
           count(*) AS records
    FROM {{cells}} AS c JOIN {{facts}} AS f ON c.run = f.run AND f.name = 'window_us'
    WHERE c.{end} = '{proxy}' GROUP BY 1, 2, 3, 4
"""
_BODIES: Final = """
    SELECT g.run, g.epoch, s.pseudonym AS sender, g.pseudonym AS receiver, count(*) AS bodies
    FROM (SELECT run, epoch, pseudonym, tag FROM {server} WHERE role = 'proxy:deliver') AS g
    LEFT JOIN (
        SELECT run, tag, min(pseudonym) AS pseudonym FROM {server} WHERE role = 'proxy:send' GROUP BY run, tag
    ) AS s
    ON g.run = s.run AND g.tag = s.tag GROUP BY g.run, g.epoch, s.pseudonym, g.pseudonym
"""
