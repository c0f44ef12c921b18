"""What a relay's server makes of who comes under which tags: `server` and `presence` in, `guesses` out.

"filter-intersection" follows tags over epochs, under whatever pseudonyms, and takes for their user who was connected
whenever they were there and never without them (`filters`). "order" sorts publications by the tags of their values'
prefixes (`trie`); it is for publications of one attribute, which all have as many tags. All rows of a run go to one
task, where they are a ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack import filters, trie
from veilcast.lab.attack.folder import Folder, Sheet, distinct, filed
from veilcast.lab.attack.guessing import told
from veilcast.lab.kernels.ledger import KINDS, PUBLISHED, SUBSCRIBED, Ledger
from veilcast.lab.tables import Guess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def guesses(
    server: DataFrame, presence: DataFrame, *, words: DataFrame | None = None, attacks: Collection[str]
) -> DataFrame:
    """Users and topics, by the names that `words` (run, topic, tag) gives to tags; or publications and their places."""
    for attack in attacks:
        if attack not in ATTACKS:
            raise ConfigError(f"pseudonyms know no attack {attack!r}; there are {', '.join(ATTACKS)}")
    if "filter-intersection" in attacks and words is None:
        raise ConfigError("without words a filter has no topics")
    columns = {"at": "epoch", "number": "t_us", "word": "pseudonym", "value": "tag"}
    kinds = {kind: server.where(f"role = 'server:{KINDS[kind]}'") for kind in (SUBSCRIBED, PUBLISHED)}
    sheets = [Sheet(KINDS[kind], rows, columns) for kind, rows in kinds.items()]
    sheets.append(Sheet(_THERE, presence, {"at": "epoch", "u": "node"}))
    if words is not None:
        sheets.append(Sheet(_WORDS, words, {"word": "topic", "value": "tag"}))

    def of_run(rows: pa.Table) -> pa.Table:
        parts = [*_guessed(Folder(rows), attacks)]
        return pa.concat_tables(parts) if parts else tables.arrow_schema(Guess).empty_table()

    return filed(sheets).groupBy("run").applyInArrow(of_run, tables.spark_schema(Guess))


def _guessed(folder: Folder, attacks: Collection[str]) -> Iterator[pa.Table]:
    asked, published = (folder.sheet(KINDS[kind]) for kind in (SUBSCRIBED, PUBLISHED))
    tags = pc.unique(pa.chunked_array([*asked["value"].chunks, *published["value"].chunks], pa.binary()))
    if "filter-intersection" in attacks and len(asked):
        yield from _users(folder, _ledger(asked, tags, SUBSCRIBED), tags)
    if "order" in attacks and len(published):
        wanted, made = _ledger(asked, tags, SUBSCRIBED), _ledger(published, tags, PUBLISHED)
        order = np.argsort(made.who, kind="stable")
        requests = distinct([published["word"]]).to_pylist()
        if order.size % len(requests):
            raise ConfigError("publications of one attribute have as many tags each, and these have not")
        ranges = [wanted.what[wanted.who == one] for one in np.unique(wanted.who)]
        place = trie.order(made.what[order].reshape(len(requests), -1), ranges)
        yield told(folder.run, "order", 1, 1, "", "order", requests, place)


def _users(folder: Folder, asked: Ledger, tags: pa.Array) -> Iterator[pa.Table]:
    there, words = folder.sheet(_THERE), folder.sheet(_WORDS)
    epochs = np.union1d(np.unique(asked.epoch), there["at"].to_numpy())
    present = np.zeros((epochs.size, len(folder.names)), np.bool_)
    present[np.searchsorted(epochs, there["at"].to_numpy()), folder.nodes(there["u"])] = True
    seen = Ledger(np.searchsorted(epochs, asked.epoch), asked.t_us, asked.kind, asked.who, asked.what)
    tastes, counts, held = filters.tastes(seen, epochs.size)
    likely = filters.users(counts, present)
    for topic in distinct([words["word"]]).to_pylist():
        of_topic = words.filter(pc.equal(words["word"], topic))["value"]
        known = np.isin(held, _numbers(of_topic, tags))
        scores: NDArray[np.float64] = likely @ (tastes @ known > 0)
        yield told(folder.run, "filter-intersection", epochs.size, 1, topic, "subscriber", folder.names, scores)


def _ledger(rows: pa.Table, tags: pa.Array, kind: int) -> Ledger:
    who = np.asarray(pc.index_in(rows["word"], distinct([rows["word"]])).to_numpy(), np.int64)
    return Ledger(
        rows["at"].to_numpy(),
        rows["number"].to_numpy(),
        np.full(len(rows), kind, np.int8),
        who,
        _numbers(rows["value"], tags),
    )


def _numbers(values: pa.ChunkedArray, tags: pa.Array) -> NDArray[np.int64]:
    """Of each its place among the tags; -1 of what is none of them."""
    return np.asarray(pc.fill_null(pc.index_in(values, tags), -1).to_numpy(), np.int64)


ATTACKS: Final = ("filter-intersection", "order")
_THERE: Final = "there"
_WORDS: Final = "words"
