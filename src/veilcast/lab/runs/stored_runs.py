"""The kept tables of an experiment's runs, for programs and notebooks: `lab run --keep` has stored them.

The runs of one cell have the same parameters. With the tables come the functions that attack and measure this kind of
run: those of `lab attack`, with the attackers' training. So a notebook gets the guesses and the measures of the sweep.
The truth is kept apart from what attackers are handed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import pyarrow as pa

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import tables
from veilcast.lab.attack.plain_tables import attack_plain_tables
from veilcast.lab.attack.table_engine import AnyTable, GroupFunction, concat_rows, engine_of
from veilcast.lab.experiment.kept_tables import list_groups, run_name, split_run_name
from veilcast.lab.experiment.manifest import read_manifest
from veilcast.lab.experiment.params import RunParams
from veilcast.lab.measure.node_guesses import BESIDE, measure_node_guesses
from veilcast.lab.measure.stream_guesses import measure_stream_guesses
from veilcast.lab.runs.stored_attack_task import (
    NOT_OBSERVED,
    OF_NODES,
    OF_STREAMS,
    STORED_ATTACKS,
    GuessTables,
    find_stored_attack,
    guess_tables,
)
from veilcast.lab.storage.location import Location
from veilcast.lab.tables import MeasureRow
from veilcast.nearest import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoredRuns:
    """The runs of one cell. Their tables are Arrow tables, or frames if they were read on a session."""

    experiment: str
    cell: str
    engine: str
    params: RunParams
    data: Path | None
    """The folder of real data that the runs read."""
    observations: dict[str, AnyTable]
    """The tables that adversaries saw, by name."""
    truth: AnyTable | None = field(repr=False)
    """None if it was not kept."""
    guesses: AnyTable | None = field(repr=False)
    """The guesses of the sweep; None if they were not kept."""

    @property
    def has_own_attack(self) -> bool:
        """Whether this kind of run has attacks and measures of its own, as `lab attack` makes them."""
        return self.engine in STORED_ATTACKS.get(self.params.kind(), {})

    def attack(self, names: Collection[str] = ()) -> AnyTable:
        """The guesses of these attackers, or of those that the experiment names."""
        if not self.observations:
            raise ConfigError(f"nothing that an attacker sees was kept of {self.experiment}")
        if not self.has_own_attack:
            return attack_plain_tables(self.observations, names or None)
        found = find_stored_attack(self.params.kind(), self.engine)
        return found.attack_tables(self.observations, self.params, names, self.data)

    def measure(self, guesses: AnyTable) -> AnyTable:
        """The measures of these guesses, as rows of `measures`: those of the sweep."""
        if self.truth is None:
            raise ConfigError(f"the truth of {self.experiment} was not kept; `lab run --keep truth,...` keeps it")
        if not self.has_own_attack:
            return measure_tables(guesses, self.truth, self.experiment)
        its = guess_tables(self.params.kind())
        work = partial(_measure_stored_run, self.experiment, self.cell, self.params, self.engine)
        beside = {name: self.observations[name] for name in its.beside}
        return _measure_runs({its.guesses: guesses, its.truth: self.truth, **beside}, work)


def read_stored_runs(root: Location, name: str, cell: str = "", spark: SparkSession | None = None) -> StoredRuns:
    """The kept tables of the runs of a cell; `cell` may be left out if the experiment has one cell. `StorageError` if
    no tables were kept."""
    manifest = read_manifest(root, name)
    if not manifest.keep:
        raise StorageError(
            f"{root.place} has no tables of {name}; `veilcast lab run {name} --keep all` in another --out keeps them"
        )
    cells = [*manifest.load_definition().make_cells(quick=manifest.quick, engine=manifest.engine)]
    known = [each.name for each in cells]
    if not cell and len(known) > 1:
        raise ConfigError(f"{name} has {len(known)} cells; name one of {', '.join(map(repr, known[:_SHOWN]))}")
    if cell and cell not in known:
        raise ConfigError(
            f"{name} has no cell {cell!r}; it has {', '.join(map(repr, known[:_SHOWN]))}{did_you_mean(cell, known)}"
        )
    number = known.index(cell) if cell else 0
    files: dict[str, list[str]] = {table: [] for table in manifest.keep}
    for group in list_groups(manifest):
        if group.cell == number:
            for table, file in group.files.items():
                files[table].append(file.path)

    def read(table: str) -> AnyTable:
        if spark is None:
            return tables.read(root, tables.TABLES[table], name, files[table])
        return tables.frame(spark, root, tables.TABLES[table], name, files[table])

    params = cells[number].params
    its = guess_tables(params.kind())
    return StoredRuns(
        name,
        known[number],
        manifest.engine,
        params,
        Path(manifest.data) if manifest.data is not None else None,
        {table: read(table) for table in files if table not in NOT_OBSERVED},
        read(its.truth) if its.truth in files else None,
        read(its.guesses) if its.guesses in files else None,
    )


def measure_tables(guesses: AnyTable, truth: AnyTable, experiment: str = "") -> AnyTable:
    """The measures of guesses about nodes or streams, as rows of `measures`; a run is a cell with the seed 0, unless
    its name is that of a stored run."""
    columns = guesses.column_names if isinstance(guesses, pa.Table) else guesses.columns
    its = OF_STREAMS if "stream" in columns else OF_NODES
    return _measure_runs({its.guesses: guesses, its.truth: truth}, partial(_measure_plain_run, experiment))


class PackedTable(msgspec.Struct, frozen=True):
    """All rows of a run in one table, as the bytes of an Arrow stream."""

    run: str
    name: str
    rows: bytes


RunMeasure: TypeAlias = Callable[[dict[str, pa.Table]], pa.Table]


def _measure_runs(of_runs: dict[str, AnyTable], work: RunMeasure) -> AnyTable:
    """Apply the function to all tables of each run at once: Arrow tables by name, of those that have rows."""
    engine = engine_of(next(iter(of_runs.values())))

    def measure_run(rows: pa.Table) -> pa.Table:
        named = zip(rows["name"].to_pylist(), rows["rows"].to_pylist(), strict=True)
        return work({name: pa.ipc.open_stream(data).read_all() for name, data in named})

    packed = [engine.apply_by(table, ["run"], _pack_as(name), PackedTable) for name, table in of_runs.items()]
    return engine.apply_by(concat_rows(packed), ["run"], measure_run, MeasureRow)


def _pack_as(name: str) -> GroupFunction:
    def pack_run(rows: pa.Table) -> pa.Table:
        data = pa.BufferOutputStream()
        with pa.ipc.new_stream(data, rows.schema) as stream:
            stream.write_table(rows)
        packed = PackedTable(rows["run"][0].as_py(), name, data.getvalue().to_pybytes())
        return tables.from_rows(PackedTable, [packed])

    return pack_run


def _measure_plain_run(experiment: str, known: dict[str, pa.Table]) -> pa.Table:
    its = OF_STREAMS if {OF_STREAMS.guesses, OF_STREAMS.truth} & known.keys() else OF_NODES
    run, guesses, truth = _take_run(known, its)
    if not len(guesses):
        return _rows(experiment, run, [])
    if its is OF_STREAMS:
        return _rows(experiment, run, measure_stream_guesses(guesses, truth))
    if _OF_RELAYS & set(truth["role"].to_pylist()):
        raise ConfigError("guesses about a relay are measured with the stored runs that they are about")
    return _rows(experiment, run, measure_node_guesses(guesses, truth, seed=split_run_name(run)[1]))


def _measure_stored_run(
    experiment: str, cell: str, params: RunParams, engine: str, known: dict[str, pa.Table]
) -> pa.Table:
    its = guess_tables(params.kind())
    run, guesses, truth = _take_run(known, its)
    if run != run_name(cell, split_run_name(run)[1]):
        raise ConfigError(f"{run!r} is no stored run of {experiment}, cell {cell!r}")
    attacks = set(guesses["attack"].to_pylist())
    names = sorted(attacks - _BESIDE) or sorted(attacks)
    ordered = guesses.sort_by([(name, "ascending") for name in its.order])
    beside = {name: known[name] for name in its.beside}
    measure = find_stored_attack(params.kind(), engine).measure_guesses
    found = measure(ordered, truth, params, names, split_run_name(run)[1], **beside) if names else []
    return _rows(experiment, run, (msgspec.structs.astuple(each) for each in found))


def _take_run(known: dict[str, pa.Table], its: GuessTables) -> tuple[str, pa.Table, pa.Table]:
    """The run of these tables, its guesses and its truth. Raises `ConfigError` if there is no truth of it."""
    if its.truth not in known:
        raise ConfigError(f"the truth has no row of run {next(iter(known.values()))['run'][0].as_py()!r}")
    truth = known[its.truth]
    empty = tables.arrow_schema(tables.TABLES[its.guesses]).empty_table()
    return truth["run"][0].as_py(), known.get(its.guesses, empty), truth


def _rows(experiment: str, run: str, found: Iterable[tuple[str, str, float, float]]) -> pa.Table:
    cell, seed = split_run_name(run)
    rows = (
        MeasureRow(experiment, cell, seed, attack, metric, float(step), value) for attack, metric, step, value in found
    )
    return tables.from_rows(MeasureRow, sorted(rows, key=msgspec.structs.astuple))


_SHOWN: Final = 8
"""Cells that an error names."""
_OF_RELAYS: Final = {"pseudonym", "owner", "tag"}
"""Roles that only the truth about a relay has."""
_BESIDE: Final = {"mesh-members", *(name for names in BESIDE.values() for name in names)}
"""Attacks that are made for the measures of another one."""
