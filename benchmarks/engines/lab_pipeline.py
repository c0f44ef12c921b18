"""The lab's own attackers, for every engine of a benchmark. Beside `lab_job`, only this file depends on
`veilcast.lab.attack`.

An engine reduces observations to a few small tables by SQL or by frames. All else is the lab's: which size a
notification has, and how attackers score nodes. So two engines differ in their reductions alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engines.lab_job import ATTACKS, TABLES_OF, TiledFiles, guess, guess_from_files
from engines.relay_tables import PUBLIC, RelayTables, observe_epoch
from engines.tiled_tables import HEARTBEAT_US, TiledTables
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, distinct_values
from veilcast.lab.attack.insider import coalition_job, coalition_tables
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.observer import capture_job
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.observer.publication_waves import PHASE_BIN_US, notification_size
from veilcast.lab.attack.registry import CADENCE, WAVES, attackers_on
from veilcast.lab.attack.server.server_job import guess_from_server
from veilcast.lab.capture import tasks
from veilcast.lab.tables import GuessRow
from veilcast.observe import TABLES, ObservationRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextlib.contextmanager
def open_spark(cores: int, memory_mb: int | None, master: str | None = None) -> Iterator[SparkSession]:
    """A session of the lab, on this machine unless a master is given. A limit on memory is divided as the memory of a
    machine is."""
    from pyspark import cloudpickle

    from veilcast.lab.spark import session
    from veilcast.lab.spark.resources import Resources

    url = master or f"local[{cores}]"
    resources = Resources.of_machine() if memory_mb is None else Resources(cores, memory_mb)
    # A cluster is sent the lab, not the benchmarks: its tasks carry the code of this module.
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)  # type: ignore[no-untyped-call]
    try:
        with mock.patch.object(Resources, "of_machine", return_value=resources), session(url) as spark:
            yield spark
    finally:
        cloudpickle.unregister_pickle_by_value(here)  # type: ignore[no-untyped-call]


def guess_on_spark(spark: SparkSession, tiled: TiledTables, attack: str) -> pa.Table:
    """The product's way with stored runs: each task reads files of whole runs, and attacks them in its process."""
    groups = _list_files(tiled)
    schema = tables.spark_schema(GuessRow)
    return tasks.frame(spark, groups, partial(guess_from_files, attack=attack), schema).toArrow()


def guess_in_process(tiled: TiledTables, attack: str) -> pa.Table:
    """The same in this process: one thread, one file at a time."""
    return pa.concat_tables(table for group in _list_files(tiled) for table in guess_from_files(group, attack))


def guess_by_spark_sql(spark: SparkSession, tiled: TiledTables, attack: str) -> pa.Table:
    """The product's way with a record that no task can hold: Spark's own aggregations and joins."""
    given = {name: _read(spark, getattr(tiled, name), TABLES[name]) for name in TABLES_OF[attack]}
    guesses: pa.Table = guess(given, attack).toArrow()
    return guesses


def _list_files(tiled: TiledTables) -> list[TiledFiles]:
    found: dict[str, dict[str, str]] = {}
    for table in ("cells", "insiders", "topology", "presence"):
        for path in sorted(Path(getattr(tiled, table)).glob("*.parquet")):
            found.setdefault(path.name, {})[table] = str(path)
    return [TiledFiles(paths) for paths in found.values()]


def guess_on_relay(spark: SparkSession, ledgers: RelayTables) -> DataFrame:
    """The guesses of the attackers that join and count, or learn over all windows."""
    observed = {name: _read(spark, place, TABLES[name]) for name, place in ledgers.places.items()}
    runs = observed["server"].select("run").distinct()
    for name in PUBLIC:
        observed[name] = runs.crossJoin(tables.make_frame(spark, observe_epoch()[name].drop_columns(["run"])))
    guesses = guess_from_server(observed, _RELAY_ATTACKS)
    assert not isinstance(guesses, pa.Table)
    return guesses


def find_notification_sizes(beats: pa.Table) -> pa.Table:
    """Columns run, size. `beats` has the number of cells of a size on a link in each bin of a heartbeat: columns run,
    src, dst, size, t_us, cells."""
    found: dict[str, int] = {}
    for rows in _by_run(beats):
        names = distinct_values([rows["src"], rows["dst"]])
        src, dst = (np.asarray(pc.index_in(rows[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
        t_us, size, cells = (rows[name].to_numpy() for name in ("t_us", "size", "cells"))
        noted = notification_size(t_us, src, dst, size, HEARTBEAT_US, cells)
        if noted is not None:
            found[rows["run"][0].as_py()] = noted
    return pa.table({"run": pa.array(found, pa.string()), "size": pa.array(found.values(), pa.int64())})


def guess_from_reduced(attack: str, reduced: Mapping[str, pa.Table]) -> pa.Table:
    """Rows of `guesses`, from the tables that a peer reduced: `REDUCED` lists their columns."""
    parts = [_in_common_form(kind, table) for kind, table in {**reduced, **_known_facts(reduced["links"])}.items()]
    whole = pa.concat_tables(parts)
    return pa.concat_tables([_guess_run(attack, GroupedRun(rows)) for rows in _by_run(whole)])


def _guess_run(attack: str, run: GroupedRun) -> pa.Table:
    if attack == "first-spy":
        insiders = attackers_on(CoalitionObservations, ATTACKS[attack])
        return coalition_job._guess_run(run, insiders, None, [sys.maxsize])
    attackers = attackers_on(CaptureObservations, ATTACKS[attack])
    return capture_job._guess_run(capture_job.observe_run(run, {}), attackers)


def _known_facts(links: pa.Table) -> dict[str, pa.Table]:
    """What the lab's job reads from the table of facts."""
    runs = links["run"].unique()
    beat, share, begins = (pa.array([value] * len(runs)) for value in (HEARTBEAT_US, 0.1, 0))
    return {
        "facts": pa.table({"run": runs, "heartbeat_us": beat, "share": share}),
        "begins": pa.table({"run": runs, "begins_us": begins}),
    }


def _in_common_form(kind: str, table: pa.Table) -> pa.Table:
    columns, absent = REDUCED[kind], pa.nulls(len(table))
    if kind == "notifications":
        table = table.append_column("cells", pa.repeat(1.0, len(table)))
    made = {"run": table["run"], "kind": pa.repeat(pa.scalar(_KIND_NAMES[kind]), len(table))}
    for name, form in _FORM.items():
        taken = table[columns[name]] if name in columns else absent
        made[name] = taken.cast(form)
    return pa.table(made)


def _by_run(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of each run. The table is sorted once: a scan of all rows for each run would be quadratic."""
    ordered = table.sort_by("run").combine_chunks()
    runs = ordered["run"].combine_chunks()
    ends = pc.run_end_encode(runs).run_ends.to_pylist() if len(ordered) else []
    for first, end in zip([0, *ends], ends, strict=False):
        yield ordered.slice(first, end - first)


def _read(spark: SparkSession, place: str, row: type[ObservationRow]) -> DataFrame:
    return spark.read.schema(tables.spark_schema(row)).parquet(f"file://{place}")


_RELAY_ATTACKS: Final = (
    "dictionary",
    "tag-frequency",
    "proxy-frequency",
    "bodies",
    "disclosure",
    "filter-intersection",
)
REDUCED: Final[Mapping[str, Mapping[str, str]]] = {
    "links": {"u": "u", "v": "v"},
    "presence": {"at": "epoch", "u": "node"},
    "notifications": {"at": "t_us", "u": "src", "v": "dst", "number": "epoch", "share": "cells"},
    "gaps": {"at": "gap", "u": "src", "v": "dst", "number": "size", "share": "cells"},
    "coalition": {"u": "node"},
    "adverts": {"at": "epoch", "u": "peer", "value": "message", "word": "topic"},
    "facts": {"at": "heartbeat_us", "number": "heartbeat_us", "share": "share"},
    "begins": {"at": "begins_us"},
}
"""Columns of the common table, and the column of a reduced table that goes there; every table has `run`, too."""
BIN_US: Final = PHASE_BIN_US
GUESS_COLUMNS: Final = tuple(tables.arrow_schema(GuessRow).names)
_KIND_NAMES: Final = {
    "links": capture_job._LINKS,
    "presence": capture_job._PRESENCE,
    "facts": capture_job._FACTS,
    "begins": capture_job._BEGINS,
    "notifications": WAVES,
    "gaps": CADENCE,
    "coalition": coalition_tables.COALITION,
    "adverts": coalition_tables.ADVERTS,
}
_FORM: Final[dict[str, Any]] = {
    **dict.fromkeys(("at", "number"), pa.int64()),
    "share": pa.float64(),
    **dict.fromkeys(("u", "v", "w", "word"), pa.string()),
    "value": pa.binary(),
}
