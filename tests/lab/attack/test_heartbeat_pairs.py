"""Heartbeat pairs and traced swaps: planted swaps are found and undone, and heartbeats alone say nothing else."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.observer.pair_job import guess_from_heartbeats
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.measure.ranking import auc

BEAT_US = 1_000_000
TREE = {"b": "a", "c": "b", "d": "b", "e": "c", "f": "c", "g": "d", "h": "a", "i": "h"}
"""The parent of each node; `a` publishes. All links are in the overlay, and x, y and z are outside the mesh."""
OVERLAY = [*((parent, node) for node, parent in TREE.items()), ("x", "y"), ("y", "z"), ("z", "a")]
LEAVES = {"e", "f", "g", "i"}


class Recorded:
    """Cells of heartbeats and of one publication, while nodes swap."""

    def __init__(self) -> None:
        self.above = dict(TREE)
        self._pairs: dict[tuple[str, str], int] = {}
        self._rows: list[tuple[int, str, str, int]] = []
        self._now = 0
        self.run_until(20)

    def swap(self, high: str, low: str) -> None:
        """A parent and its child exchange their places."""
        self.above = {
            {high: low, low: high}.get(node, node): {high: low, low: high}.get(parent, parent)
            for node, parent in self.above.items()
        }

    def run_until(self, second: int) -> None:
        for beat in range(self._now, second):
            linked = dict.fromkeys([*OVERLAY, *((parent, node) for node, parent in self.above.items())])
            self._rows += [(beat * BEAT_US, src, dst, 1000) for u, v in linked for src, dst in ((u, v), (v, u))]
        self._now = second

    def tables(self, *, published: bool = True) -> dict[str, AnyTable]:
        rows = list(self._rows)
        for node, parent in self.above.items() if published else ():
            rows.append((self._now * BEAT_US + 1000, parent, node, 300))
        t_us, src, dst, size = zip(*rows, strict=True)
        u, v = zip(*OVERLAY, strict=True)
        facts = {"name": ["heartbeat_us", "subscriber_share"], "value": [float(BEAT_US), 0.3]}
        return {
            "cells": tables.from_columns("cells", run="r", epoch=0, t_us=t_us, src=src, dst=dst, size=size),
            "topology": tables.from_columns("topology", run="r", epoch=0, u=u, v=v),
            "facts": tables.from_columns("facts", run="r", **facts),
        }


def scores(seen: dict[str, AnyTable], attack: str) -> dict[str, float]:
    guesses = guess_from_heartbeats(seen, [attack])
    assert isinstance(guesses, pa.Table)
    return dict(zip(guesses["node"].to_pylist(), guesses["score"].to_pylist(), strict=True))


def leaves(found: dict[str, float]) -> set[str]:
    return {node for node, score in found.items() if score == 1}


def test_nodes_that_swapped_are_members_and_nobody_else_is_named() -> None:
    """The positive control, without a publication."""
    record = Recorded()
    record.swap("b", "c")
    record.run_until(40)
    found = scores(record.tables(published=False), "heartbeat-pairs")
    assert {node for node, score in found.items() if score > 0} == {"a", "b", "c", "d", "e", "f"}


def test_without_a_swap_heartbeats_name_nobody() -> None:
    """The null control."""
    found = scores(Recorded().tables(published=False), "heartbeat-pairs")
    assert set(found.values()) == {0.0}


def test_pairs_from_the_beginning_of_the_record_name_nobody() -> None:
    record = Recorded()
    seen = record.tables()
    early = tables.from_columns(
        "cells",
        run="r",
        epoch=0,
        t_us=[beat * BEAT_US for beat in range(20)],
        src="e",
        dst="x",
        size=1000,
    )
    cells = seen["cells"]
    assert isinstance(cells, pa.Table)
    seen["cells"] = pa.concat_tables([cells, early])
    assert set(scores(seen, "heartbeat-pairs").values()) == {0.0}


@pytest.mark.parametrize(
    "swaps", [[("c", "e")], [("b", "d"), ("h", "i")], [("b", "c"), ("b", "e")], [("b", "c"), ("b", "e"), ("c", "d")]]
)
def test_swaps_are_traced_back_and_the_leaves_before_them_found(swaps: list[tuple[str, str]]) -> None:
    """The positive control of the tracker: the leaf rule fails, since others are leaves now."""
    record = Recorded()
    for number, pair in enumerate(swaps, 1):
        record.swap(*pair)
        record.run_until(20 + 20 * number)
    seen = record.tables()
    assert leaves(scores(seen, "leaf")) != LEAVES
    assert leaves(scores(seen, "swap-tracker")) == LEAVES


def test_without_swaps_the_tracker_is_the_leaf_rule() -> None:
    seen = Recorded().tables()
    assert scores(seen, "swap-tracker") == scores(seen, "leaf")
    assert leaves(scores(seen, "leaf")) == LEAVES


def test_scores_say_nothing_of_shuffled_labels() -> None:
    """The null control: over many shuffles the mean AUC is a half."""
    record = Recorded()
    record.swap("b", "c")
    record.run_until(40)
    found, rng = scores(record.tables(), "swap-tracker"), Random(1)
    values, means = np.array(list(found.values())), []
    for _ in range(400):
        labels = [node in LEAVES for node in found]
        rng.shuffle(labels)
        means.append(auc(values, np.array(labels)))
    assert abs(np.mean(means) - 0.5) < 0.02


def test_an_overlay_is_needed() -> None:
    seen = Recorded().tables()
    del seen["topology"]
    with pytest.raises(ConfigError, match="topology"):
        guess_from_heartbeats(seen)


def test_several_runs_are_attacked_one_by_one() -> None:
    seen = Recorded().tables()
    both = {
        name: pa.concat_tables([table, table.set_column(0, "run", pa.array(["s"] * len(table))).cast(table.schema)])
        for name, table in seen.items()
        if isinstance(table, pa.Table)
    }
    guesses = guess_from_heartbeats(both, ["swap-tracker"])
    assert isinstance(guesses, pa.Table)
    own = guesses.filter(pc.equal(guesses["run"], "s"))
    assert dict(zip(own["node"].to_pylist(), own["score"].to_pylist(), strict=True)) == scores(seen, "swap-tracker")
