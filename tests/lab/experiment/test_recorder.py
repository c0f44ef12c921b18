"""A recorder takes the tables that are kept, in the columns of the table, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from veilcast.errors import ConfigError, LocalError
from veilcast.lab import tables
from veilcast.lab.experiment.mesh_params import MeshFlows
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder
from veilcast.lab.runs.table import ENGINES, KEPT_TABLES, RUNS, choose_kept_tables, run_by


def recorded(*wanted: str) -> tuple[TableRecorder, dict[str, list[pa.Table]]]:
    found: dict[str, list[pa.Table]] = {name: [] for name in wanted}
    return TableRecorder("r seed=1", {name: parts.append for name, parts in found.items()}), found


def test_columns_are_arrays_or_one_value_for_all_rows() -> None:
    recorder, found = recorded("cells")
    recorder.record("cells", epoch=0, t_us=np.array([1, 2]), src=["a", "b"], dst=np.array(["b", "c"]), size=7)
    (part,) = found["cells"]
    assert part.schema == tables.arrow_schema(tables.TABLES["cells"])
    assert part.to_pylist()[1] == {"run": "r seed=1", "epoch": 0, "t_us": 2, "src": "b", "dst": "c", "size": 7}


def test_a_table_that_is_not_kept_costs_nothing() -> None:
    recorder, found = recorded("truth")
    assert not recorder.wants("cells")
    assert not NO_RECORDER.wants("truth")
    recorder.record("cells", nothing="of this is looked at")
    assert found == {"truth": []}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"epoch": 0, "u": ["a"]}, "a part of topology has columns epoch, u"),
        ({"epoch": 0, "u": ["a"], "v": ["b"], "w": 1}, "has columns epoch, u, v, w"),
        ({"epoch": [1, 2], "u": ["a"], "v": ["b"]}, "different lengths"),
    ],
)
def test_a_part_with_other_columns_is_refused(columns: dict[str, Any], told: str) -> None:
    recorder, _ = recorded("topology")
    with pytest.raises(LocalError, match=told):
        recorder.record("topology", **columns)


@pytest.mark.parametrize("kind", sorted(KEPT_TABLES))
def test_a_listed_table_is_known_and_its_engine_exists(kind: str) -> None:
    for engine, names in KEPT_TABLES[kind].items():
        assert engine in RUNS[kind]
        assert set(names) <= set(tables.OBSERVATIONS)
        choose_kept_tables(names, [kind], engine)


def test_a_table_that_a_kind_does_not_give_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--keep guesses: runs of kind tree\.costs by kernel do not give it; they"):
        choose_kept_tables(["guesses"], ["tree.costs"], "kernel")
    with pytest.raises(ConfigError, match="--keep sells: there is no such table; there are cells, "):
        choose_kept_tables(["sells"], ["mesh.flows"], "kernel")


@pytest.mark.parametrize(
    "params",
    [
        MeshFlows(nodes=60),
        MeshFlows(nodes=60, cover="one", mu=0.5, publications=3, covers="variable"),
        MeshFlows(nodes=60, game="events", look="swaps", steps=(1.0, 5.0)),
    ],
)
def test_flows_are_recorded_as_the_attackers_see_them(params: MeshFlows) -> None:
    recorder, found = recorded("truth", "topology", "cells")
    measures = run_by("kernel", params, 3, None, recorder)
    assert measures == ENGINES["kernel"](params, 3, None)
    value = {(one.attack, one.metric): one.value for one in measures}
    cells, truth = (pa.concat_tables(found[name]).to_pylist() for name in ("cells", "truth"))
    assert len(cells) == value["", "messages_total"]
    (publisher,) = [row["node"] for row in truth if row["role"] == "publisher"]
    subscribers = {row["node"] for row in truth if row["role"] == "subscriber"}
    last = [row for row in cells if row["t_us"] == cells[-1]["t_us"]]
    # The leaf rule, by hand, on the newest publication.
    leaves = {row["dst"] for row in last} - {row["src"] for row in last}
    assert len(leaves & subscribers) / len(leaves) == pytest.approx(value["leaf", "leaf_precision"])
    assert publisher not in subscribers
    links = {(row["u"], row["v"]) for row in pa.concat_tables(found["topology"]).to_pylist()}
    assert all(u < v for u, v in links)
    # The model of the game exchanges whole nodes, and leaves the links of the overlay where they are.
    assert params.game != "none" or {tuple(sorted((row["src"], row["dst"]))) for row in cells} <= links
