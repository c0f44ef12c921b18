"""The reductions in Polars: lazy frames over Parquet, run by its streaming engine."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from engines.lab_pipeline import BIN_US
from engines.tiled_tables import HEARTBEAT_US, TiledTables


class PolarsEngine:
    def __init__(self, tiled: TiledTables) -> None:
        self._tiled = tiled

    def reduce_links(self) -> pa.Table:
        ends = pl.col("src"), pl.col("dst")
        pairs = self._cells("run", "src", "dst").unique().filter(ends[0] != ends[1])
        return _collect(pairs.select("run", u=pl.min_horizontal(*ends), v=pl.max_horizontal(*ends)).unique())

    def reduce_presence(self) -> pa.Table:
        seen = self._cells("run", "epoch", "src", "dst").unique().filter(pl.col("src") != pl.col("dst"))
        ends = [seen.select("run", "epoch", node=pl.col(end)) for end in ("src", "dst")]
        return _collect(pl.concat(ends).unique())

    def count_beats(self) -> pa.Table:
        bin_us = (pl.col("t_us") % HEARTBEAT_US // BIN_US * BIN_US).alias("t_us")
        cells = self._cells("run", "src", "dst", "size", "t_us")
        return _collect(cells.group_by("run", "src", "dst", "size", bin_us).agg(cells=pl.len()))

    def select_notifications(self, sizes: pa.Table) -> pa.Table:
        frame = pl.from_arrow(sizes)
        assert isinstance(frame, pl.DataFrame)
        cells = self._cells("run", "epoch", "t_us", "src", "dst", "size")
        return _collect(cells.join(frame.lazy(), on=["run", "size"], how="semi").drop("size"))

    def count_gaps(self) -> pa.Table:
        # The sorted rows are narrow, as Spark's are: a link is a hash, and gets its names back afterwards.
        link = pl.struct("run", "src", "dst").hash(seed=1).alias("link")
        cells = self._cells("run", "src", "dst", "t_us", "size")
        ordered = cells.select(link, "t_us", pl.col("size").cast(pl.Int32)).sort("link", "t_us", "size")
        follows = pl.col("link") == pl.col("link").shift(1)
        gap = ((pl.col("t_us") - pl.col("t_us").shift(1)) // 1000).alias("gap")
        counted = ordered.select("link", gap, "size", follows=follows).filter("follows").drop("follows")
        named = self._cells("run", "src", "dst").unique().with_columns(link)
        counts = counted.group_by("link", "gap", "size").agg(cells=pl.len())
        return _collect(counts.join(named, on="link").drop("link"))

    def reduce_coalition(self) -> pa.Table:
        return _collect(self._insiders("run", "observer").unique().rename({"observer": "node"}))

    def select_first_adverts(self) -> pa.Table:
        ours = self._insiders("run", "observer").unique().rename({"observer": "peer"})
        rows = self._insiders("run", "epoch", "message", "t_us", "peer", "kind").filter(pl.col("kind") == "in:Advert")
        heard = rows.drop("kind").join(ours, on=["run", "peer"], how="anti")
        first = heard.group_by("run", "epoch", "message").agg(pl.col("t_us").min())
        found = heard.join(first, on=["run", "epoch", "message", "t_us"], how="semi")
        return _collect(found.drop("t_us").with_columns(topic=pl.lit("")))

    def read_topology(self) -> pa.Table:
        return _collect(pl.scan_parquet(self._tiled.topology).select("run", "u", "v"))

    def read_presence(self) -> pa.Table:
        return _collect(pl.scan_parquet(self._tiled.presence).select("run", "epoch", "node"))

    def _cells(self, *columns: str) -> pl.LazyFrame:
        return pl.scan_parquet(self._tiled.cells).select(columns)

    def _insiders(self, *columns: str) -> pl.LazyFrame:
        return pl.scan_parquet(self._tiled.insiders).select(columns)


def _collect(frame: pl.LazyFrame) -> pa.Table:
    """An Arrow table with the lab's string types: Polars has longer ones."""
    found = frame.collect(engine="streaming").to_arrow(compat_level=pl.CompatLevel.oldest())
    shorter = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return found.cast(pa.schema([field.with_type(shorter.get(field.type, field.type)) for field in found.schema]))
