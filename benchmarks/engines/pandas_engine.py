"""The reductions in pandas: whole columns in memory, on one core."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from engines.lab_pipeline import BIN_US
from engines.tiled_tables import HEARTBEAT_US, TiledTables


class PandasEngine:
    def __init__(self, tiled: TiledTables) -> None:
        self._tiled = tiled

    def reduce_links(self) -> pa.Table:
        pairs = self._cells("run", "src", "dst").drop_duplicates()
        pairs = pairs[pairs["src"] != pairs["dst"]]
        turned = pairs["src"] > pairs["dst"]
        u, v = pairs["src"].where(~turned, pairs["dst"]), pairs["dst"].where(~turned, pairs["src"])
        return _table(pd.DataFrame({"run": pairs["run"], "u": u, "v": v}).drop_duplicates())

    def reduce_presence(self) -> pa.Table:
        seen = self._cells("run", "epoch", "src", "dst").drop_duplicates()
        seen = seen[seen["src"] != seen["dst"]]
        ends = [seen[["run", "epoch", end]].rename(columns={end: "node"}) for end in ("src", "dst")]
        return _table(pd.concat(ends).drop_duplicates())

    def count_beats(self) -> pa.Table:
        cells = self._cells("run", "src", "dst", "size", "t_us")
        cells["t_us"] = cells["t_us"] % HEARTBEAT_US // BIN_US * BIN_US
        return _table(_count(cells, ["run", "src", "dst", "size", "t_us"]))

    def select_notifications(self, sizes: pa.Table) -> pa.Table:
        cells = self._cells("run", "epoch", "t_us", "src", "dst", "size")
        return _table(cells.merge(sizes.to_pandas(), on=["run", "size"])[["run", "epoch", "t_us", "src", "dst"]])

    def count_gaps(self) -> pa.Table:
        cells = self._cells("run", "src", "dst", "t_us", "size")
        # One number for each link makes the sort narrow.
        links = cells[["run", "src", "dst"]].drop_duplicates(ignore_index=True)
        number = cells.groupby(["run", "src", "dst"], sort=False).ngroup().to_numpy()
        t_us, size = cells["t_us"].to_numpy(), cells["size"].to_numpy()
        order = np.lexsort((size, t_us, number))
        number, t_us, size = number[order], t_us[order], size[order]
        follows = np.diff(number) == 0
        gaps = pd.DataFrame({"link": number[1:], "gap": np.diff(t_us) // 1000, "size": size[1:]})[follows]
        counted = _count(gaps, ["link", "gap", "size"])
        return _table(counted.join(links, on="link").drop(columns="link"))

    def reduce_coalition(self) -> pa.Table:
        return _table(self._insiders("run", "observer").drop_duplicates().rename(columns={"observer": "node"}))

    def select_first_adverts(self) -> pa.Table:
        rows = self._insiders("run", "epoch", "message", "t_us", "observer", "peer", "kind")
        ours = rows[["run", "observer"]].drop_duplicates().rename(columns={"observer": "peer"})
        rows = rows[rows["kind"] == "in:Advert"].merge(ours.assign(ours=True), how="left", on=["run", "peer"])
        heard = rows[rows["ours"].isna()]
        first = heard[heard["t_us"] == heard.groupby(["run", "epoch", "message"])["t_us"].transform("min")]
        return _table(first[["run", "epoch", "message", "peer"]].assign(topic=""))

    def read_topology(self) -> pa.Table:
        return _table(pd.read_parquet(self._tiled.topology, columns=["run", "u", "v"]))

    def read_presence(self) -> pa.Table:
        return _table(pd.read_parquet(self._tiled.presence, columns=["run", "epoch", "node"]))

    def _cells(self, *columns: str) -> pd.DataFrame:
        return _read(self._tiled.cells, *columns)

    def _insiders(self, *columns: str) -> pd.DataFrame:
        return _read(self._tiled.insiders, *columns)


def _read(place: str, *columns: str) -> pd.DataFrame:
    return pd.read_parquet(place, columns=list(columns))


def _count(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return frame.groupby(keys, sort=False).size().reset_index(name="cells")


def _table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)
