"""The same attacks in plain pandas, for tables that fit into memory: the peer of those on Spark."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from engines.tiled_tables import HEARTBEAT_US, TiledTables
from veilcast.lab.attack.observer import cadence, publication_waves

Scores = dict[tuple[str, str, str, str], float]
"""Scores by run, attack, role and node."""


class PandasResult(NamedTuple):
    seconds: dict[str, float]
    scores: Scores
    peak_bytes: int


def run_in_pandas(tiled: TiledTables) -> PandasResult:
    """Runs in its own process, whose peak memory is reported."""
    seconds: dict[str, float] = {}
    scores: Scores = {}
    for name, attack in _ATTACKS.items():
        start = time.perf_counter()
        scores |= attack(tiled)
        seconds[name] = time.perf_counter() - start
    return PandasResult(seconds, scores, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)


def _of_notes(tiled: TiledTables) -> Scores:
    cells = pd.read_parquet(tiled.cells, columns=["run", "t_us", "src", "dst", "size"])
    found: Scores = {}
    for run, rows in _notes(cells).groupby("run"):
        rows = rows.sort_values(["t_us", "src", "dst"])
        names = np.unique(cells.loc[cells["run"] == run, ["src", "dst"]])
        publication, count = _publications(rows)
        leaf: defaultdict[str, float] = defaultdict(float)
        rounds: defaultdict[str, int] = defaultdict(int)
        left = set(names)
        for number in range(count):
            copies = rows[publication == number]
            senders, reached = set(copies["src"]), set(copies["dst"])
            for node in sorted(reached):
                leaf[node] += 0.5 if node in senders else 1.0
            left &= reached
            for node in sorted(left):
                rounds[node] += 1
        for node in names:
            found[str(run), "leaf", "subscriber", node] = leaf[node] / count
            found[str(run), "intersection", "subscriber", node] = rounds[node] / count
    return found


def _notes(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that stand out, as in `publication_waves`."""
    on = cells.drop_duplicates(["run", "src", "dst", "size"])
    links = cells.drop_duplicates(["run", "src", "dst"]).groupby("run").size()
    carried = on.groupby(["run", "size"]).size().reset_index(name="on")
    usual = carried[carried["on"] >= publication_waves.USUAL_SHARE * carried["run"].map(links)][["run", "size"]]
    marked = cells.merge(usual.assign(usual=True), how="left", on=["run", "size"])
    is_usual = marked["usual"].notna()
    bins = marked["t_us"] % HEARTBEAT_US // publication_waves.PHASE_BIN_US
    beats = marked[is_usual].assign(bin=bins).groupby(["run", "src", "bin"]).size().reset_index(name="cells")
    beats = beats.sort_values(["cells", "bin"], ascending=[False, True]).drop_duplicates(["run", "src"])
    others = marked[~is_usual].merge(beats[["run", "src", "bin"]], how="left", on=["run", "src"])
    late_us = (
        others["t_us"] - others["bin"] * publication_waves.PHASE_BIN_US + publication_waves.BEAT_EARLY_US
    ) % HEARTBEAT_US
    beside = np.where(late_us < publication_waves.BEAT_EARLY_US + publication_waves.BEAT_LATE_US, -1, 1)
    surplus = others.assign(beside=beside).groupby(["run", "size"])["beside"].sum().reset_index()
    best = surplus.sort_values(["beside", "size"], ascending=[False, True]).drop_duplicates("run")
    return cells.merge(best.loc[best["beside"] > 0, ["run", "size"]], on=["run", "size"])


def _publications(rows: pd.DataFrame) -> tuple[np.ndarray[Any, Any], int]:
    """A node that sends shortly after it received one forwards that publication."""
    last: dict[str, tuple[int, int]] = {}
    found, count = [], 0
    for t_us, src, dst in rows[["t_us", "src", "dst"]].itertuples(index=False):
        wave, had = last.get(src, (-1, 0))
        if wave < 0 or t_us - had > publication_waves.FORWARD_WITHIN_US:
            wave, count = count, count + 1
        last[src] = last[dst] = (wave, t_us)
        found.append(wave)
    return np.array(found), count


def _of_cadence(tiled: TiledTables) -> Scores:
    cells = pd.read_parquet(tiled.cells, columns=["run", "t_us", "src", "dst", "size"])
    cells = cells.sort_values(["run", "src", "dst", "t_us", "size"], ignore_index=True)
    cells["gap"] = cells.groupby(["run", "src", "dst"])["t_us"].diff()
    cells = cells.dropna(subset="gap")
    cells["gap"] = cells["gap"].astype(np.int64) // 1000
    tally = cells.groupby(["run", "src", "dst", "gap", "size"]).size().reset_index(name="cells")
    found: Scores = {}
    for run, rows in tally.groupby("run"):
        names, places = np.unique(rows[["src", "dst"]], return_inverse=True)
        src, dst = places.reshape(-1, 2).astype(np.int32).T
        seen = cadence.GapCounts(src, dst, *(rows[name].to_numpy() for name in ("gap", "size", "cells")))
        unlike = cadence.score_cadence(seen, len(names))
        for node, received, sent in zip(names, unlike.received.tolist(), unlike.sent.tolist(), strict=True):
            found[str(run), "cadence", "subscriber", node] = received
            found[str(run), "cadence", "publisher", node] = sent
    return found


def _first_spy(tiled: TiledTables) -> Scores:
    advert = ["run", "epoch", "message"]
    rows = pd.read_parquet(tiled.insiders, columns=[*advert, "t_us", "observer", "peer", "kind"])
    ours = rows[["run", "observer"]].drop_duplicates().rename(columns={"observer": "peer"})
    rows = rows.merge(ours.assign(ours=True), how="left", on=["run", "peer"])
    rows = rows[rows["ours"].isna() & (rows["kind"] == "in:Advert")]
    first = rows[rows["t_us"] == rows.groupby(advert)["t_us"].transform("min")]
    voices = first.groupby([*advert, "peer"]).size().reset_index(name="voices")
    best = voices[voices["voices"] == voices.groupby(advert)["voices"].transform("max")]
    share = 1 / best.groupby(advert)["voices"].transform("size")
    votes = best.assign(share=share).groupby(["run", "peer"])["share"].sum()
    adverts = best.drop_duplicates(advert).groupby("run").size()
    named = pd.read_parquet(tiled.presence, columns=["run", "node"]).drop_duplicates()
    named = named.merge(ours.rename(columns={"peer": "node"}).assign(ours=True), how="left", on=["run", "node"])
    return {
        (run, "first-spy", "publisher", node): float(votes.get((run, node), 0.0)) / int(adverts[run])
        for run, node in named.loc[named["ours"].isna(), ["run", "node"]].itertuples(index=False)
    }


_ATTACKS: dict[str, Callable[[TiledTables], Scores]] = {
    "leaf, intersection": _of_notes,
    "cadence": _of_cadence,
    "first-spy": _first_spy,
}
