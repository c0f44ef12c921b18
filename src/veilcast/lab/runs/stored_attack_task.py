"""The task of an attack on stored runs: it reads the files of whole runs, attacks them, and measures the guesses.

A file can hold more runs than memory. So a task takes some runs at a time, as many as have `_ROWS_AT_ONCE` rows. Small
runs share the queries of an attack, and one run is never divided. What is read of a file for some runs are its row
groups with rows of those, for a sweep writes run after run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError, LocalError, VeilcastError
from veilcast.lab import tables
from veilcast.lab.attack.foreign import AttackerSource, install_attackers
from veilcast.lab.attack.table_engine import AnyTable, LocalTable, engine_of, group_rows, scan_files
from veilcast.lab.experiment.kept_tables import KeptFile, KeptGroup, KeptOutput, KeptWriter, run_name
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import record_tables
from veilcast.lab.experiment.task import PARAMS_DECODER, one_thread, task_schema
from veilcast.lab.spark.locations import LocationAddress
from veilcast.lab.storage.location import LocalDirectory
from veilcast.lab.tables import MeasureRow


class StoredAttack(Protocol):
    """The module that attacks and measures a kind of run."""

    def attack_tables(
        self, observed: Mapping[str, AnyTable], params: Any, names: Collection[str], data: Path | None
    ) -> AnyTable:
        """The guesses of the attackers with these names; of those that the parameters name, if `names` is empty."""

    def measure_guesses(
        self, guesses: pa.Table, truth: pa.Table, params: Any, names: Collection[str], seed: int, **beside: pa.Table
    ) -> list[Measure]:
        """The measures of one run; `beside` are the tables that `GuessTables` names."""


class GuessTables(NamedTuple):
    """The tables of a kind of guesses."""

    guesses: str
    truth: str
    order: tuple[str, ...]
    """Columns that put the guesses about a run into the order of the sweep."""
    beside: tuple[str, ...] = ()
    """Observations that the measures need beside the truth."""


class AttackedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a task tells of the runs that it attacked."""

    rows: int
    guesses: int
    measures: int
    compared: int | None
    different: int
    seconds: float
    files: tuple[KeptFile, ...] = ()


class AttackTask(msgspec.Struct, frozen=True):
    """Attacks groups of stored runs. An executor calls it with the numbers of its groups."""

    root: LocationAddress
    experiment: str
    engine: str
    data: str | None
    cells: tuple[tuple[str, bytes], ...]
    """Names of cells, and their parameters as JSON."""
    groups: tuple[KeptGroup, ...]
    attackers: tuple[str, ...]
    output: KeptOutput | None
    """Where guesses are written, if anywhere."""
    sources: tuple[AttackerSource, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        install_attackers(self.sources)
        with one_thread():
            for batch in batches:
                for number in batch["id"].to_pylist():
                    yield from self.attack_group(self.groups[number]).to_batches()

    def attack_group(self, group: KeptGroup) -> pa.Table:
        """The rows of `GroupResult.finish`."""
        start = time.perf_counter()
        cell = self.cells[group.cell][0]
        at_once = max(1, _ROWS_AT_ONCE // max(1, group.rows_of_run))
        observed = [table for table in group.files if table not in NOT_OBSERVED]
        result = GroupResult(self, group)
        for first in range(0, len(group.seeds), at_once):
            seeds = group.seeds[first : first + at_once]
            whole = len(seeds) == len(group.seeds)
            runs = [] if whole else [run_name(cell, seed) for seed in seeds]
            try:
                seen = {table: self.observe(group, table, runs) for table in observed}
                read = {table: rows for table, rows in seen.items() if isinstance(rows, pa.Table)}
                result.add(seeds, self.attack(group, seen), runs, read)
            except VeilcastError:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise LocalError(f"cell {cell}, seeds {seeds[0]} to {seeds[-1]}: {why}") from error
        return result.finish(time.perf_counter() - start)

    def attack(self, group: KeptGroup, observed: Mapping[str, Any]) -> Any:
        """The guesses about these tables of runs of the group, as a table of the same engine."""
        params = PARAMS_DECODER.decode(self.cells[group.cell][1])
        data = Path(self.data) if self.data is not None else None
        return find_stored_attack(params.kind(), self.engine).attack_tables(observed, params, self.attackers, data)

    def observe(self, group: KeptGroup, table: str, runs: Collection[str]) -> LocalTable:
        """The rows of `read`, if possible in the file: then queries read the columns that they need, and no others."""
        root, path, row = self.root.open(), group.files[table].path, tables.TABLES[table]
        measured = guess_tables(PARAMS_DECODER.decode(self.cells[group.cell][1]).kind()).beside
        if table not in measured and isinstance(root, LocalDirectory) and tables.check(root, path, row):
            return scan_files([root.path_of(path)], tables.arrow_schema(row).names, runs)
        return self.read(group, table, runs)

    def read(self, group: KeptGroup, table: str, runs: Collection[str]) -> pa.Table:
        """The rows of these runs in a kept table, or of all runs of the group, if `runs` is empty."""
        where = {"run": runs} if runs else {}
        return tables.read(
            self.root.open(), tables.TABLES[table], self.experiment, [group.files[table].path], where=where
        )


class GroupResult:
    """Takes the guesses about the runs of a group, some runs at a time: measures, compares and writes them."""

    def __init__(self, task: AttackTask, group: KeptGroup) -> None:
        self._task, self._group = task, group
        name, params = task.cells[group.cell]
        self._cell, self._params = name, PARAMS_DECODER.decode(params)
        self._attack = find_stored_attack(self._params.kind(), task.engine)
        self._tables = guess_tables(self._params.kind())
        self._rows: list[tuple[Any, ...]] = []
        self._guesses = self._different = 0
        self._compared: int | None = None
        output = task.output
        self._writer = None
        if output is not None:
            named = msgspec.structs.replace(output, names=(self._tables.guesses, "measures"))
            self._writer = KeptWriter(named, group.cell, name, params, group.seeds)

    def add(
        self, seeds: Collection[int], guesses: pa.Table, runs: Collection[str], seen: Mapping[str, pa.Table]
    ) -> None:
        """The guesses about the runs of these seeds; `runs` names them, or is empty if they are all. `seen` are tables
        that have been read already."""
        self._guesses += len(guesses)
        by_run = {run["run"][0].as_py(): run for run in group_rows(guesses, ["run"])}
        if self._writer is not None:
            for seed in seeds:
                run = run_name(self._cell, seed)
                recorder = self._writer.record_run(run)
                if run in by_run:
                    record_tables(recorder, {self._tables.guesses: by_run[run]})
        files = self._group.files
        if self._tables.guesses in files:
            compared, different = count_different(self._task.read(self._group, self._tables.guesses, runs), guesses)
            self._compared = (self._compared or 0) + compared
            self._different += different
        if {self._tables.truth, *self._tables.beside} <= files.keys():
            known = {
                table: seen[table] if table in seen else self._task.read(self._group, table, runs)
                for table in (self._tables.truth, *self._tables.beside)
            }
            for seed in seeds:
                self._measure(seed, by_run, known)

    def _measure(self, seed: int, by_run: Mapping[str, pa.Table], known: Mapping[str, pa.Table]) -> None:
        run = run_name(self._cell, seed)
        own = {name: table.filter(pc.equal(table["run"], run)) for name, table in known.items()}
        truth = own.pop(self._tables.truth)
        guesses = by_run.get(run)
        if guesses is None:
            guesses = tables.arrow_schema(tables.TABLES[self._tables.guesses]).empty_table()
        ordered = guesses.sort_by([(name, "ascending") for name in self._tables.order])
        found = self._attack.measure_guesses(ordered, truth, self._params, self._task.attackers, seed, **own)
        self._rows += sorted((self._cell, seed, *msgspec.structs.astuple(measure), 0.0, "") for measure in found)

    def finish(self, seconds: float) -> pa.Table:
        """The measures of the runs, and a row that lists an `AttackedGroup`, in the columns of `task_schema`."""
        schema = task_schema()
        measures = _table_of(self._rows, schema)
        files: tuple[KeptFile, ...] = ()
        if self._writer is not None:
            self._writer.add_rows("measures", measures.select(tables.arrow_schema(MeasureRow, stored=True).names))
            files = tuple(self._writer.finish())
        rows = sum(file.rows for table, file in self._group.files.items() if table not in NOT_OBSERVED)
        told = AttackedGroup(rows, self._guesses, len(measures), self._compared, self._different, seconds, files)
        listed = msgspec.json.encode(told).decode()
        row = (self._cell, self._group.seeds[-1], "", "", 0.0, 0.0, 0.0, listed)
        return pa.concat_tables([measures, _table_of([row], schema)])


def _table_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def count_different(kept: pa.Table, found: pa.Table) -> tuple[int, int]:
    """Number of kept guesses by the attackers of `found`, and of those among them that `found` does not have."""
    asked = kept.filter(pc.is_in(kept["attack"], pc.unique(found["attack"])))
    columns = found.column_names
    # The same attack gives the same rows in the same order, mostly.
    if asked.select(columns).equals(found):
        return len(asked), 0
    missing = engine_of(asked).query(
        "SELECT * FROM {kept} EXCEPT ALL SELECT * FROM {found}", kept=asked.select(columns), found=found
    )
    return len(asked), len(missing)


def find_stored_attack(kind: str, engine: str) -> StoredAttack:
    if engine not in STORED_ATTACKS.get(kind, {}):
        known = ", ".join(f"{each} by {' and '.join(engines)}" for each, engines in STORED_ATTACKS.items())
        raise ConfigError(f"stored runs of kind {kind} by {engine} cannot be attacked again; those of {known} can")
    return cast(StoredAttack, import_module(f"veilcast.lab.runs.{STORED_ATTACKS[kind][engine]}"))


def guess_tables(kind: str) -> GuessTables:
    return OF_STREAMS if kind.startswith("foil.") else OF_NODES


OF_NODES: Final = GuessTables("guesses", "truth", ("attack", "role", "epochs", "topic", "node"))
OF_STREAMS: Final = GuessTables(
    "stream_guesses", "stream_truth", ("attack", "stream", "step", "slot"), ("streams", "facts")
)
NOT_OBSERVED: Final = (*OF_NODES[:2], *OF_STREAMS[:2])
"""Tables that attackers are not handed."""
_ROWS_AT_ONCE: Final = 1_000_000
STORED_ATTACKS: Final[Mapping[str, Mapping[str, str]]] = {
    "mesh.epochs": {"kernel": "mesh.attack_suite", "machines": "mesh.attack_suite"},
    "mesh.swaps": {"machines": "mesh.swaps_machines"},
    "mesh.wires": {"machines": "mesh.wires_machines"},
    "relay.attacks": {"kernel": "relay.attacks_model", "machines": "relay.attacks_machines"},
    "relay.timing": {"machines": "relay.timing"},
    "mesh.topics": {"kernel": "mesh.topics_model"},
    "mesh.pruning": {"kernel": "mesh.pruning_model"},
    "mesh.clocks": {"kernel": "mesh.clocks_model"},
    "tree.attacks": {"kernel": "tree.attacks_model"},
    "tree.definitions": {"kernel": "tree.definitions_model"},
    "foil.guesses": {"kernel": "foil.guesses"},
    "foil.categories": {"kernel": "foil.categories"},
    "foil.pairs": {"kernel": "foil.pairs"},
    "foil.pedigrees": {"kernel": "foil.pedigrees"},
}
"""Kind of run -> engine -> module below `veilcast.lab.runs` that attacks its tables and measures the guesses."""
