"""The reductions that an engine makes for an attack, from observation tables in Parquet.

A peer makes each table of `lab_pipeline.REDUCED` that the attack needs; the attackers of the lab do the rest.
Spark is not among the peers: it runs the lab's own job.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa

from engines import lab_pipeline
from engines.tiled_tables import TiledTables


class EngineLimits(NamedTuple):
    cores: int
    memory_mb: int | None
    """Memory of all processes of the engine; None if there is no limit."""
    scratch: str
    """Directory for what does not fit into memory."""


class PeerEngine(Protocol):
    """One attack's reductions. Every method reads the Parquet files anew, as a first query would."""

    def reduce_links(self) -> pa.Table:
        """Columns run, u, v: pairs of nodes that exchanged cells, u < v, each once in a run."""

    def reduce_presence(self) -> pa.Table:
        """Columns run, epoch, node: the nodes with any link in an epoch."""

    def count_beats(self) -> pa.Table:
        """Columns run, src, dst, size, t_us, cells: the cells of a link by size and bin of a heartbeat."""

    def select_notifications(self, sizes: pa.Table) -> pa.Table:
        """Columns run, epoch, t_us, src, dst: the cells that have their run's size of `sizes` (run, size)."""

    def count_gaps(self) -> pa.Table:
        """Columns run, src, dst, gap, size, cells: the cells of a link by size and by milliseconds since the cell
        before. Of cells at the same time the smaller comes first."""

    def reduce_coalition(self) -> pa.Table:
        """Columns run, node: the observers of the table of insiders."""

    def select_first_adverts(self) -> pa.Table:
        """Columns run, epoch, message, peer, topic: the first honest senders of each advert; the topic is empty."""

    def read_topology(self) -> pa.Table:
        """Columns run, u, v."""

    def read_presence(self) -> pa.Table:
        """Columns run, epoch, node."""


def guess_by_peer(engine: PeerEngine, attack: str) -> pa.Table:
    """Rows of `guesses`: the engine's reductions, then the lab's attackers."""
    if attack == "first-spy":
        reduced = {
            "links": engine.read_topology(),
            "presence": engine.read_presence(),
            "coalition": engine.reduce_coalition(),
            "adverts": engine.select_first_adverts(),
        }
    else:
        reduced = {"links": engine.reduce_links(), "presence": engine.reduce_presence()}
        if attack == "notifications":
            sizes = lab_pipeline.find_notification_sizes(engine.count_beats())
            reduced["notifications"] = engine.select_notifications(sizes)
        else:
            reduced["gaps"] = engine.count_gaps()
    return lab_pipeline.guess_from_reduced(attack, reduced)


def open_peer(name: str, tiled: TiledTables, limits: EngineLimits) -> PeerEngine:
    """The peer of this name. Only its own library is imported."""
    if name == "duckdb":
        from engines.duckdb_engine import DuckDbEngine

        return DuckDbEngine(tiled, limits)
    if name == "polars":
        from engines.polars_engine import PolarsEngine

        return PolarsEngine(tiled)
    if name == "pandas":
        from engines.pandas_engine import PandasEngine

        return PandasEngine(tiled)
    raise ValueError(f"no engine is called {name}")
