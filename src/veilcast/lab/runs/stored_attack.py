"""Attacks on stored runs: tables that `lab run --keep` has kept in, guesses and measures out. No run is made again.

1. The manifest names the experiment, its cells with their parameters, and the files of the kept tables.
2. The tables of a cell go to the attack of its kind of run (`STORED_ATTACKS`): the same jobs that a sweep calls inside
   its tasks. Small tables are attacked in this process, others on Spark; both give the same guesses.
3. Where the table `truth` was kept, each run's guesses are measured as the sweep measures them, and summarised over the
   seeds.

The truth is read here and by the measures. Attackers are handed the other tables alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.experiment.definition import ExperimentCell
from veilcast.lab.experiment.kept_tables import count_kept_rows, kept_frame, read_kept, run_name
from veilcast.lab.experiment.manifest import SweepManifest, read_manifest
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.store import manifest_path
from veilcast.lab.measure.summary import summarise_table
from veilcast.lab.tables import GuessRow, MeasureRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredAttack(Protocol):
    """The module that attacks and measures a kind of run."""

    def attack_tables(
        self, observed: Mapping[str, AnyTable], params: Any, names: Collection[str], data: Path | None
    ) -> AnyTable:
        """The guesses of the attackers with these names; of those that the parameters name, if `names` is empty."""

    def measure_guesses(
        self, guesses: pa.Table, truth: pa.Table, params: Any, names: Collection[str], seed: int
    ) -> list[Measure]:
        """The measures of one run."""


class AttackedRuns(NamedTuple):
    guesses: pa.Table
    measures: pa.Table | None
    """None where the truth was not kept."""
    scores: pa.Table | None


def attack_stored(
    root: Path,
    name: str,
    attackers: Collection[str] = (),
    *,
    start_spark: Callable[[], SparkSession],
    on_spark: bool = False,
    progress: Callable[[str], object] = lambda _: None,
) -> AttackedRuns:
    """Attack the stored runs of an experiment.

    `on_spark` attacks on Spark whatever the size. `StorageError` if there is no such result, or tables are missing.
    """
    manifest = read_manifest(manifest_path(root, name))
    definition = manifest.load_definition()
    data = None if manifest.data is None else Path(manifest.data)
    cells = [*definition.make_cells(quick=manifest.quick, engine=manifest.engine)]
    guessed, measured = [], []
    for number, cell in enumerate(cells):
        attack = find_stored_attack(cell.params.kind(), manifest.engine)
        progress(f"{name}, {cell.name} ({number + 1} of {len(cells)})")
        rows = count_kept_rows(manifest, number)
        far = on_spark or rows > ROWS_HERE
        spark = start_spark() if far else None
        observed = _observed_tables(spark, root, manifest, number)
        guesses = attack.attack_tables(observed, cell.params, attackers, data)
        if spark is not None:
            guesses = engine_of(guesses).keep(guesses)
        if "truth" in manifest.keep:
            truth = _load(spark, root, manifest, "truth", number)
            measured.append(_measure(attack, manifest, cell, guesses, truth, attackers))
        guessed.append(guesses if isinstance(guesses, pa.Table) else guesses.toArrow())
    measures = pa.concat_tables(measured) if measured else None
    guesses = pa.concat_tables(guessed) if guessed else tables.arrow_schema(GuessRow).empty_table()
    return AttackedRuns(guesses, measures, None if measures is None else summarise_table(measures))


def find_stored_attack(kind: str, engine: str) -> StoredAttack:
    if engine not in STORED_ATTACKS.get(kind, {}):
        known = ", ".join(f"{each} by {' and '.join(engines)}" for each, engines in STORED_ATTACKS.items())
        raise ConfigError(f"stored runs of kind {kind} by {engine} cannot be attacked again; those of {known} can")
    return cast(StoredAttack, import_module(f"veilcast.lab.runs.{STORED_ATTACKS[kind][engine]}"))


def _observed_tables(spark: SparkSession | None, root: Path, manifest: SweepManifest, cell: int) -> dict[str, AnyTable]:
    """The kept tables of a cell, but for those that attackers must not see or make themselves."""
    kept = [table for table in manifest.keep if table not in _NOT_OBSERVED]
    if not kept:
        raise ConfigError(
            f"nothing that an attacker sees was kept of {manifest.experiment}; `veilcast lab run "
            f"{manifest.experiment} --keep all` in another --out keeps it"
        )
    return {table: _load(spark, root, manifest, table, cell) for table in kept}


def _load(spark: SparkSession | None, root: Path, manifest: SweepManifest, table: str, cell: int) -> AnyTable:
    if spark is None:
        return read_kept(root, manifest, table, cell)
    return kept_frame(spark, root, manifest, table, cell)


def _measure(
    attack: StoredAttack,
    manifest: SweepManifest,
    cell: ExperimentCell,
    guesses: AnyTable,
    truth: AnyTable,
    attackers: Collection[str],
) -> pa.Table:
    function = partial(_measure_run, attack, manifest.experiment, cell.name, cell.params, tuple(attackers))
    found = engine_of(guesses).apply_by_pair(guesses, truth, ["run"], function, MeasureRow)
    table = found if isinstance(found, pa.Table) else found.toArrow()
    return table.sort_by(
        [("seed", "ascending"), ("attack", "ascending"), ("metric", "ascending"), ("step", "ascending")]
    )


def _measure_run(
    attack: StoredAttack,
    experiment: str,
    cell: str,
    params: Any,
    attackers: Collection[str],
    guesses: pa.Table,
    truth: pa.Table,
) -> pa.Table:
    run = (guesses if len(guesses) else truth)["run"][0].as_py()
    seed = int(run.removeprefix(run_name(cell, 0)[:-1]))
    ordered = guesses.sort_by([(name, "ascending") for name in ("attack", "role", "epochs", "topic", "node")])
    found = attack.measure_guesses(ordered, truth, params, attackers, seed)
    rows = [MeasureRow(experiment, cell, seed, each.attack, each.metric, each.step, each.value) for each in found]
    return tables.from_rows(MeasureRow, rows)


def compare_guesses(root: Path, name: str, guesses: pa.Table) -> tuple[int, int]:
    """Number of kept guesses by the attackers of `guesses`, and of those among them that `guesses` does not have."""
    manifest = read_manifest(manifest_path(root, name))
    kept = read_kept(root, manifest, "guesses")
    asked = kept.filter(pc.is_in(kept["attack"], pc.unique(guesses["attack"])))
    columns = tables.arrow_schema(GuessRow).names
    missing = engine_of(asked).query(
        "SELECT * FROM {kept} EXCEPT ALL SELECT * FROM {found}",
        kept=asked.select(columns),
        found=guesses.select(columns),
    )
    return len(asked), len(missing)


def write_guesses(path: Path, attacked: Sequence[AttackedRuns]) -> None:
    """Put all guesses into one Parquet file."""
    tables.write(path, pa.concat_tables(each.guesses for each in attacked))


ROWS_HERE: Final = 2_000_000
"""Kept rows of a cell up to which this process attacks them itself."""
_NOT_OBSERVED: Final = ("truth", "guesses")
STORED_ATTACKS: Final[Mapping[str, Mapping[str, str]]] = {
    "mesh.epochs": {"kernel": "mesh.attack_suite", "machines": "mesh.attack_suite"},
    "mesh.wires": {"machines": "mesh.wires_machines"},
    "relay.attacks": {"kernel": "relay.attacks_model"},
}
"""Kind of run -> engine -> module below `veilcast.lab.runs` that attacks its tables and measures the guesses."""
