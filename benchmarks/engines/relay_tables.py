"""Tables of any size of what a relay's server, its proxy and the wires of its clients saw, tiled as in `tiled_tables`.

A tile is one epoch of a relay of the paper's profile, in which users keep their pseudonyms and topics their tags. Every
run has the same answer.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from engines.tiled_tables import tile_table, write_tiles
from veilcast.lab import tables
from veilcast.lab.models.relay import (
    EPOCH_US,
    RelayObservations,
    RelayService,
    RelayTruth,
    run_relay,
    settle_users,
)
from veilcast.lab.models.server_log import DELIVERED, SENT, server_rows
from veilcast.lab.models.topic_mix import zipf_popularity
from veilcast.observe import CellRow, ObservationRow, PresenceRow, ServerRow


class RelayTables(msgspec.Struct, frozen=True):
    """Directories of Parquet files."""

    server: str
    cells: str
    presence: str
    rows: int
    """Rows of `server`."""


def write_tables(folder: Path, count: int) -> RelayTables:
    """Write `count` rows of what server and proxy saw, and the cells on the wires."""
    base = {row: tables.from_rows(row, made) for row, made in _epoch().items()}
    tiles = ceil(count / len(base[ServerRow]))
    places = {row: folder / tables.TABLE_OF[row] for row in base}
    for row, table in base.items():
        write_tiles(places[row], row, tile_table(table, tiles, EPOCH_US))
    return RelayTables(
        **{tables.TABLE_OF[row]: str(place) for row, place in places.items()}, rows=tiles * len(base[ServerRow])
    )


def topic_popularity() -> dict[str, float]:
    """The public share of users that subscribe, by topic."""
    return {_TOPIC % number: float(share) for number, share in enumerate(zipf_popularity(_TOPICS, _MOST))}


def topic_words() -> list[tuple[str, bytes]]:
    """Each topic and its tag, as an observer can compute it."""
    return [(_TOPIC % topic, int(tag).to_bytes(8, "big")) for topic, tag in enumerate(_relay()[1].computed)]


@cache
def _relay() -> tuple[RelayObservations, RelayTruth]:
    reads = np.random.default_rng(1).random((USERS, _TOPICS)) < zipf_popularity(_TOPICS, _MOST)
    return run_relay(settle_users(reads, 2, 80.0, 0.2, 1), RelayService("paper", batch=4), 1)


def _epoch() -> dict[type[ObservationRow], list[ObservationRow]]:
    shown, _ = _relay()
    wires: list[ObservationRow] = []
    for kind in (SENT, DELIVERED):
        part = shown.proxy.select(kind)
        for t_us, who in zip(part.t_us.tolist(), part.who.tolist(), strict=True):
            src, dst = (_USER % who, PROXY) if kind == SENT else (PROXY, _USER % who)
            wires.append(CellRow("", 0, t_us, src, dst, 500))
    there = np.flatnonzero(shown.present[0]).tolist()
    return {
        ServerRow: [
            *server_rows(shown.server, "", "server", lambda who: f"{who:x}"),
            *server_rows(shown.proxy, "", "proxy", lambda who: _USER % who),
        ],
        CellRow: wires,
        PresenceRow: [PresenceRow("", 0, _USER % user) for user in there],
    }


USERS: Final = 60
_TOPICS: Final = 8
_MOST: Final = 0.5
_USER: Final = "u%02d"
_TOPIC: Final = "t%d"
PROXY: Final = "proxy"
