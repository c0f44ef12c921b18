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
import pyarrow as pa

from engines.tiled_tables import runs_of_file, tile_table, write_tiles
from veilcast.lab.models.relay import EPOCH_US, RelayService, run_relay, settle_users
from veilcast.lab.models.topic_mix import zipf_popularity
from veilcast.lab.runs.relay.relay_tables import observe_relay
from veilcast.observe import TABLES


class RelayTables(msgspec.Struct, frozen=True):
    places: dict[str, str]
    """Directories of Parquet files, by table."""
    rows: int
    """Rows of `server`."""


def write_tables(folder: Path, count: int) -> RelayTables:
    """Write `count` rows of what server and proxy saw, and the cells on the wires."""
    base = observe_epoch()
    tiles = ceil(count / len(base["server"]))
    for name in TILED:
        write_tiles(folder / name, TABLES[name], tile_table(base[name], tiles, EPOCH_US), runs_of_file(count))
    return RelayTables({name: str(folder / name) for name in TILED}, tiles * len(base["server"]))


@cache
def observe_epoch() -> dict[str, pa.Table]:
    """All tables of one tile."""
    popularity = zipf_popularity(_TOPICS, 0.5)
    reads = np.random.default_rng(1).random((_USERS, _TOPICS)) < popularity
    people, service = settle_users(reads, 2, 80.0, 0.2, 1), RelayService("paper", batch=4)
    shown, answers = run_relay(people, service, 1)
    return observe_relay("", people, service, shown, answers, popularity, None, 0, 0.001)


TILED: Final = ("server", "cells", "presence")
PUBLIC: Final = ("topology", "facts", "popularity", "words")
"""Tables that are the same in every run."""
_USERS: Final = 60
_TOPICS: Final = 8
