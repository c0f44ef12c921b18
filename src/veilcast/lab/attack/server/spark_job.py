"""A relay's server, proxy and client wires on Spark: the tables `server`, `cells` and `presence` in, `guesses` out.

- `guess_from_log`: the server's or the proxy's own log. It is joins and counts, which Spark does. "dictionary" joins
  subscriptions with the tags that a dictionary gives; "tag-frequency", and "proxy-frequency" for the proxy's log, which
  names users, with the topics that tags are named by; "bodies" joins bodies that went up with those that came down.
  Only the naming of the tags of a run, or of one epoch where tags change, is done in one place.
- `guess_from_windows`: the wires of the clients, alone or together with the server's log. Spark counts the records to
  and from the proxy in windows of time (a batch, where the proxy batches). All of a run goes to one task, where
  `batch_disclosure` says which user another one reads ("disclosure") and which user sent a request: one of those that
  sent then ("timing"), or the one that usually sends such ("matching"). A publication with several tags is several
  rows, of which the first counts.
- `guess_from_filters`: the server's log over epochs. "filter-intersection" follows tags under changing pseudonyms
  (`linkage`). "order" sorts publications by the tags of their values' prefixes (`tag_inference`); it is for
  publications of one attribute, which all have the same number of tags. All rows of a run go to one task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, distinct_values, make_guesses, union_tables
from veilcast.lab.attack.server import batch_disclosure, linkage, tag_inference
from veilcast.lab.attack.server.tag_inference import name_counted_tags
from veilcast.lab.models.server_log import KINDS, PUBLISHED, SUBSCRIBED, ServerLog
from veilcast.lab.tables import GuessRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Floats = NDArray[np.float64]


def guess_from_windows(
    cells: DataFrame, server: DataFrame, *, proxy: str, window_us: int, attacks: Collection[str] = ("disclosure",)
) -> DataFrame:
    """Score every pair of a user and a request (the topic of a guess), or of a user and a sender.

    `proxy` is the proxy's name in `cells`. Only publications in the server's log count, and only cells of windows in
    which a publication went on.
    """
    from pyspark.sql import functions as sql

    for attack in attacks:
        if attack not in WINDOW_ATTACKS:
            raise ConfigError(f"wires of a relay know no attack {attack!r}; there are {', '.join(WINDOW_ATTACKS)}")
    window = f"(t_us - 1) div {window_us}"
    published = (
        server.where("role = 'server:publish'").groupBy("run", "pseudonym", "t_us").agg(sql.min("tag").alias("tag"))
    )
    asked = published.selectExpr("run", f"{window} as at", "pseudonym", "tag")
    busy = asked.select("run", "at").distinct()
    sheets = [RunTable(_REQUESTS, asked, {"at": "at", "word": "pseudonym", "value": "tag"})]
    for kind, end, node in ((_SENT, "dst", "src"), (_GOT, "src", "dst")):
        on_wire = cells.where(cells[end] == proxy).selectExpr("run", f"{window} as at", f"{node} as node")
        records = on_wire.join(busy, ["run", "at"]).groupBy("run", "at", "node").count()
        sheets.append(RunTable(kind, records, {"at": "at", "u": "node", "share": "cast(count as double)"}))

    def of_run(rows: pa.Table) -> pa.Table:
        parts = [*_guess_windows(GroupedRun(rows), attacks)]
        return pa.concat_tables(parts) if parts else tables.arrow_schema(GuessRow).empty_table()

    return union_tables(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(GuessRow))


def guess_from_filters(
    server: DataFrame, presence: DataFrame, *, words: DataFrame | None = None, attacks: Collection[str]
) -> DataFrame:
    """Score users for topics, by the names that `words` (run, topic, tag) gives to tags; or publications by their
    order."""
    for attack in attacks:
        if attack not in FILTER_ATTACKS:
            raise ConfigError(f"pseudonyms know no attack {attack!r}; there are {', '.join(FILTER_ATTACKS)}")
    if "filter-intersection" in attacks and words is None:
        raise ConfigError("without words a filter has no topics")
    columns = {"at": "epoch", "number": "t_us", "word": "pseudonym", "value": "tag"}
    kinds = {kind: server.where(f"role = 'server:{KINDS[kind]}'") for kind in (SUBSCRIBED, PUBLISHED)}
    sheets = [RunTable(KINDS[kind], rows, columns) for kind, rows in kinds.items()]
    sheets.append(RunTable(_THERE, presence, {"at": "epoch", "u": "node"}))
    if words is not None:
        sheets.append(RunTable(_WORDS, words, {"word": "topic", "value": "tag"}))

    def of_run(rows: pa.Table) -> pa.Table:
        parts = [*_guess_filters(GroupedRun(rows), attacks)]
        return pa.concat_tables(parts) if parts else tables.arrow_schema(GuessRow).empty_table()

    return union_tables(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(GuessRow))


def guess_from_log(
    server: DataFrame,
    *,
    attacks: Collection[str],
    popularity: Mapping[str, float] | None = None,
    users: int = 0,
    lasting: bool = False,
    words: DataFrame | None = None,
) -> DataFrame:
    """Score the observer's names of users as subscribers of a topic; for "bodies", as subscribers of a sender.

    `popularity` is the share of `users` that subscribe to each topic, as far as it is public. If tags are `lasting`,
    they are counted over all epochs. `words` (run, topic, tag) are the tags that the server can compute.
    """
    for attack in attacks:
        if attack not in LOG_ATTACKS:
            raise ConfigError(f"no attack on a server log is called {attack!r}; there are {', '.join(LOG_ATTACKS)}")
    if "dictionary" in attacks and words is None:
        raise ConfigError("a dictionary attack needs words")
    if {"tag-frequency", "proxy-frequency"} & set(attacks) and not (popularity and users):
        raise ConfigError("naming tags needs the popularity of topics and the number of users")
    found = []
    if "dictionary" in attacks and words is not None:
        found.append(_count_guesses("dictionary", _select_subscriptions(server, "server").join(words, ["run", "tag"])))
    for attack, observer in (("tag-frequency", "server"), ("proxy-frequency", "proxy")):
        if attack in attacks and popularity:
            found.append(
                _count_guesses(
                    attack, _name_subscriptions(_select_subscriptions(server, observer), popularity, users, lasting)
                )
            )
    if "bodies" in attacks:
        found.append(_count_guesses("bodies", _link_bodies(server)))
    whole = found[0]
    for part in found[1:]:
        whole = whole.unionByName(part)
    return whole


def _guess_windows(run: GroupedRun, attacks: Collection[str]) -> Iterator[pa.Table]:
    asked = run.table(_REQUESTS).sort_by([("at", "ascending"), ("word", "ascending")])
    at = asked["at"].to_numpy()
    windows = np.unique(at)
    sent, got = (_matrix(run, kind, windows) for kind in (_SENT, _GOT))
    if "disclosure" in attacks:
        said = batch_disclosure.fit_profiles(sent, got)
        for number in np.flatnonzero(sent.any(axis=0)):
            yield make_guesses(run.run, "disclosure", 1, 0, run.names[number], "subscriber", run.names, said[number])
    place = np.searchsorted(windows, at)
    if "timing" in attacks:
        yield from _guess_requests(run, "timing", asked, batch_disclosure.spread_over_senders(sent, place))
    if "matching" in attacks:
        tags = pc.unique(asked["value"].combine_chunks())
        tag = np.asarray(pc.index_in(asked["value"], tags).to_numpy(), np.int64)
        usual = batch_disclosure.fit_profiles(
            sent, batch_disclosure.count_effects(place, tag, (windows.size, len(tags)))
        )
        yield from _guess_requests(run, "matching", asked, batch_disclosure.match_senders(sent, place, tag, usual))


def _matrix(run: GroupedRun, kind: str, windows: NDArray[np.int64]) -> Floats:
    """Windows x users: number of records."""
    sheet = run.table(kind)
    found = np.zeros((windows.size, len(run.names)))
    found[np.searchsorted(windows, sheet["at"].to_numpy()), run.node_numbers(sheet["u"])] = sheet["share"].to_numpy()
    return found


def _guess_requests(run: GroupedRun, attack: str, asked: pa.Table, scores: Floats) -> Iterator[pa.Table]:
    """Guesses for each request; users with score 0 are left out."""
    for request, said in zip(asked["word"].to_pylist(), scores, strict=True):
        suspects = np.flatnonzero(said)
        names = [run.names[number] for number in suspects]
        yield make_guesses(run.run, attack, 1, 1, request, "publisher", names, said[suspects])


def _guess_filters(run: GroupedRun, attacks: Collection[str]) -> Iterator[pa.Table]:
    asked, published = (run.table(KINDS[kind]) for kind in (SUBSCRIBED, PUBLISHED))
    tags = pc.unique(pa.chunked_array([*asked["value"].chunks, *published["value"].chunks], pa.binary()))
    if "filter-intersection" in attacks and len(asked):
        yield from _guess_users(run, _ledger(asked, tags, SUBSCRIBED), tags)
    if "order" in attacks and len(published):
        wanted, made = _ledger(asked, tags, SUBSCRIBED), _ledger(published, tags, PUBLISHED)
        order = np.argsort(made.who, kind="stable")
        requests = distinct_values([published["word"]]).to_pylist()
        if order.size % len(requests):
            raise ConfigError("publications of one attribute have as many tags each, and these have not")
        ranges = [wanted.what[wanted.who == one] for one in np.unique(wanted.who)]
        place = tag_inference.order_publications(made.what[order].reshape(len(requests), -1), ranges)
        yield make_guesses(run.run, "order", 1, 1, "", "order", requests, place)


def _guess_users(run: GroupedRun, asked: ServerLog, tags: pa.Array) -> Iterator[pa.Table]:
    there, words = run.table(_THERE), run.table(_WORDS)
    epochs = np.union1d(np.unique(asked.epoch), there["at"].to_numpy())
    present = np.zeros((epochs.size, len(run.names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), run.node_numbers(there["u"])] = True
    seen = ServerLog(np.searchsorted(epochs, asked.epoch), asked.t_us, asked.kind, asked.who, asked.what)
    tastes, counts, held = linkage.group_by_filter(seen, epochs.size)
    likely = linkage.assign_users(counts, present)
    for topic in distinct_values([words["word"]]).to_pylist():
        of_topic = words.filter(pc.equal(words["word"], topic))["value"]
        known = np.isin(held, _tag_numbers(of_topic, tags))
        scores: NDArray[np.float64] = likely @ (tastes @ known > 0)
        yield make_guesses(run.run, "filter-intersection", epochs.size, 1, topic, "subscriber", run.names, scores)


def _ledger(rows: pa.Table, tags: pa.Array, kind: int) -> ServerLog:
    who = np.asarray(pc.index_in(rows["word"], distinct_values([rows["word"]])).to_numpy(), np.int64)
    return ServerLog(
        rows["at"].to_numpy(),
        rows["number"].to_numpy(),
        np.full(len(rows), kind, np.int8),
        who,
        _tag_numbers(rows["value"], tags),
    )


def _tag_numbers(values: pa.ChunkedArray, tags: pa.Array) -> NDArray[np.int64]:
    """Its place among the tags, by value; -1 for other values."""
    return np.asarray(pc.fill_null(pc.index_in(values, tags), -1).to_numpy(), np.int64)


def _select_subscriptions(server: DataFrame, observer: str) -> DataFrame:
    """Columns run, epoch, node, tag: each subscription once."""
    asked = server.where(f"role = '{observer}:subscribe'")
    return asked.selectExpr("run", "epoch", "pseudonym as node", "tag").distinct()


def _name_subscriptions(asked: DataFrame, popularity: Mapping[str, float], users: int, lasting: bool) -> DataFrame:
    """The subscriptions with the topics that their tags are taken for."""
    from pyspark.sql import functions as sql

    topics, shares = list(popularity), np.array(list(popularity.values()))
    asked = asked.withColumn("era", sql.lit(-1).cast("bigint") if lasting else sql.col("epoch"))
    epochs = asked.groupBy("run", "era").agg(sql.countDistinct("epoch").alias("epochs"))
    counts = asked.groupBy("run", "era", "tag").agg(sql.count("*").alias("many")).join(epochs, ["run", "era"])

    def of_era(rows: pa.Table) -> pa.Table:
        rows = rows.sort_by("tag")
        every = float(users * rows["epochs"][0].as_py())
        found = name_counted_tags(np.arange(len(rows)), rows["many"].to_numpy(), every, shares)
        kept = rows.take(pa.array(found.tags))
        return kept.select(["run", "era", "tag"]).append_column("topic", pa.array([topics[at] for at in found.topics]))

    names = counts.groupBy("run", "era").applyInArrow(of_era, "run string, era bigint, tag binary, topic string")
    return asked.join(names, ["run", "era", "tag"])


def _link_bodies(server: DataFrame) -> DataFrame:
    """The receivers of each sent body, with the sender as the topic."""
    sent = server.where("role = 'proxy:send'").selectExpr("run", "tag", "pseudonym as topic")
    got = server.where("role = 'proxy:deliver'").selectExpr("run", "epoch", "tag", "pseudonym as node")
    return got.join(sent, ["run", "tag"])


def _count_guesses(attack: str, said: DataFrame) -> DataFrame:
    """Rows of `guesses`: the number of matches, for each node and topic."""
    from pyspark.sql import functions as sql

    counted = said.groupBy("run", "topic", "node").agg(
        sql.countDistinct("epoch").alias("epochs"), sql.count("*").cast("double").alias("score")
    )
    fixed = {"attack": sql.lit(attack), "coalition": sql.lit(1).cast("bigint"), "role": sql.lit("subscriber")}
    return counted.withColumns(fixed).select(*tables.spark_schema(GuessRow).fieldNames())


WINDOW_ATTACKS: Final = ("disclosure", "timing", "matching")
_REQUESTS: Final = "asked"
_SENT: Final = "sent"
_GOT: Final = "got"
FILTER_ATTACKS: Final = ("filter-intersection", "order")
_THERE: Final = "there"
_WORDS: Final = "words"
LOG_ATTACKS: Final = ("dictionary", "tag-frequency", "proxy-frequency", "bodies")
