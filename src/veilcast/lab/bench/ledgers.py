"""What a relay's server, its proxy and the wires of its clients saw, as large as one likes: tiled as `tiles` does it.

A tile is one epoch of a relay of the paper's profile, where users keep their pseudonyms and topics their tags. The
attackers of `served`, `windows` and `pseudonyms` go over it on Spark; every run has the same answer.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from veilcast.lab import tables
from veilcast.lab.attack import pseudonyms, served, windows
from veilcast.lab.bench.tiles import tiled, write
from veilcast.lab.kernels.ledger import DELIVERED, SENT, rows
from veilcast.lab.kernels.relay import EPOCH_US, WINDOW_US, Answers, Service, Shown, serve, settle
from veilcast.lab.kernels.tokens import zipf
from veilcast.observe import Cell, Presence, Row, Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Ledgers(msgspec.Struct, frozen=True):
    """Directories of Parquet files."""

    server: str
    cells: str
    presence: str
    rows: int
    """Of `server`."""


def lay(folder: Path, count: int) -> Ledgers:
    """Write so many rows of what server and proxy saw, and what the wires had of it."""
    base = {row: tables.from_rows(row, made) for row, made in _epoch().items()}
    tiles = ceil(count / len(base[Server]))
    places = {row: folder / tables.TABLE_OF[row] for row in base}
    for row, table in base.items():
        write(places[row], row, tiled(table, tiles, EPOCH_US))
    return Ledgers(
        **{tables.TABLE_OF[row]: str(place) for row, place in places.items()}, rows=tiles * len(base[Server])
    )


def attacked(spark: SparkSession, ledgers: Ledgers) -> DataFrame:
    """What all attackers hold of whom."""

    def read(place: str, row: type[Row]) -> DataFrame:
        return spark.read.schema(tables.spark_schema(row)).parquet(f"file://{place}")

    server, cells = read(ledgers.server, Server), read(ledgers.cells, Cell)
    words = server.select("run").distinct().crossJoin(spark.createDataFrame(_words(), "topic string, tag binary"))
    popularity = {_TOPIC % number: float(share) for number, share in enumerate(zipf(_TOPICS, _MOST))}
    named = served.guesses(
        server, attacks=served.ATTACKS, popularity=popularity, users=_USERS, lasting=True, words=words
    )
    seen = windows.guesses(cells, server, proxy=_PROXY, window_us=WINDOW_US, attacks=["disclosure"])
    presence = read(ledgers.presence, Presence)
    followed = pseudonyms.guesses(server, presence, words=words, attacks=["filter-intersection"])
    return named.unionByName(seen).unionByName(followed)


@cache
def _relay() -> tuple[Shown, Answers]:
    reads = np.random.default_rng(1).random((_USERS, _TOPICS)) < zipf(_TOPICS, _MOST)
    return serve(settle(reads, 2, 80.0, 0.2, 1), Service("paper", batch=4), 1)


def _epoch() -> dict[type[Row], list[Row]]:
    shown, _ = _relay()
    wires: list[Row] = []
    for kind in (SENT, DELIVERED):
        part = shown.proxy.of(kind)
        for t_us, who in zip(part.t_us.tolist(), part.who.tolist(), strict=True):
            src, dst = (_USER % who, _PROXY) if kind == SENT else (_PROXY, _USER % who)
            wires.append(Cell("", 0, t_us, src, dst, 500))
    there = np.flatnonzero(shown.present[0]).tolist()
    return {
        Server: [
            *rows(shown.server, "", "server", lambda who: f"{who:x}"),
            *rows(shown.proxy, "", "proxy", lambda who: _USER % who),
        ],
        Cell: wires,
        Presence: [Presence("", 0, _USER % user) for user in there],
    }


def _words() -> list[tuple[str, bytes]]:
    return [(_TOPIC % topic, int(tag).to_bytes(8, "big")) for topic, tag in enumerate(_relay()[1].computed)]


_USERS: Final = 60
_TOPICS: Final = 8
_MOST: Final = 0.5
_USER: Final = "u%02d"
_TOPIC: Final = "t%d"
_PROXY: Final = "proxy"
