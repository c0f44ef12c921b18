"""Attacks on stored runs: tables that `lab run --keep` has kept in, guesses and measures out. No run is made again.

1. The manifest names the experiment, its cells with their parameters, and the files of the kept tables. Files of one
   portion and one cell hold the same whole runs.
2. A task (`stored_attack_task`) attacks the runs of such files, in this process or on Spark (`workplace`): the same
   jobs that a sweep calls inside its tasks. Each task reads and writes its own files, so Spark moves no observations
   and no guesses. Spark summarises the measures, and nothing comes to this process but counts and scores.
3. A run with more rows than a task may hold is attacked by Spark's own aggregations and joins. They give the same
   guesses, a few for each node of the run.
4. Where the truth was kept, each run's guesses are measured as the sweep measures them, and summarised over the seeds.
   Where the sweep's guesses were kept, too, they are compared with those of the attack.

The truth is read by the measures. Attackers are handed the other tables alone.
"""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Collection, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import tables
from veilcast.lab.attack.foreign import AttackerSource, install_attackers
from veilcast.lab.experiment.kept_tables import KeptFile, KeptGroup, KeptOutput, list_groups
from veilcast.lab.experiment.manifest import (
    CodeVersion,
    StoredTable,
    SweepManifest,
    describe_code,
    list_manifests,
    read_manifest,
)
from veilcast.lab.experiment.task import task_schema
from veilcast.lab.experiment.workplace import Workplace
from veilcast.lab.runs.stored_attack_task import (
    NOT_OBSERVED,
    AttackedGroup,
    AttackTask,
    GroupResult,
    find_stored_attack,
)
from veilcast.lab.spark.locations import address_of
from veilcast.lab.storage.location import Location
from veilcast.lab.storage.write_once_log import WriteOnceLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veilcast.lab.spark import Progress, SparkLater


class AttackedRuns(msgspec.Struct, frozen=True):
    """The outcome of an attack on the stored runs of one experiment."""

    experiment: str
    rows: int
    """Rows of observations that attackers were handed."""
    guesses: int
    compared: int | None
    """Kept guesses by the same attackers; None where none were kept."""
    different: int
    """Those of `compared` that the attack does not give again."""
    measures: int
    """Number of measures; 0 where the truth was not kept."""
    scores: pa.Table | None
    """None where the truth was not kept."""
    files: tuple[KeptFile, ...]
    """The files of guesses and of measures, below the `out` of the attack."""
    seconds: tuple[float, ...]
    """Duration of each task."""

    def describe_skew(self) -> dict[str, float]:
        """How evenly the work was divided among tasks."""
        return {"tasks": len(self.seconds), "median_s": median(self.seconds), "slowest_s": max(self.seconds)}


class AttackManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the log of an attack's output: where written guesses come from. Each file says more in its
    metadata."""

    experiment: str
    stored: str
    """The attacked location of results."""
    attackers: tuple[str, ...]
    """Empty: those that the experiment names."""
    fingerprint: str
    """Digest of the attacking code."""
    commit: str
    command: str
    guesses: int
    files: tuple[KeptFile, ...]
    scores: StoredTable | None


def attack_stored(
    spark: SparkSession | SparkLater | None,
    root: Location,
    name: str,
    attackers: Collection[str] = (),
    *,
    out: Location | None = None,
    sources: tuple[AttackerSource, ...] = (),
    progress: Progress | None = None,
) -> AttackedRuns:
    """Attack the stored runs of an experiment, on the session; in this process, with None; or, with `SparkLater`,
    where it is quicker.

    `attackers` are names; `sources` are files of attackers that some of these names stand in. Guesses, measures and
    scores are written to the location `out`, if it is given. `StorageError` if there is no such result, or tables are
    missing.
    """
    install_attackers(sources)
    manifest = read_manifest(root, name)
    groups = list_groups(manifest)
    _require_observations(manifest)
    definition = manifest.load_definition()
    cells = [*definition.make_cells(quick=manifest.quick, engine=manifest.engine)]
    for kind in {cell.params.kind() for cell in cells}:
        find_stored_attack(kind, manifest.engine)
    code = describe_code()
    output = None
    if out is not None:
        out.check_writable()
        made = {"stored": root.place, "made_by": manifest.fingerprint}
        lineage = {"engine": manifest.engine, "fingerprint": code.fingerprint, "commit": code.commit, **made}
        output = KeptOutput(address_of(out), name, (), lineage)
    small = [group for group in groups if group.rows_of_run <= RUN_ROWS]
    task = AttackTask(
        root=address_of(root),
        experiment=name,
        engine=manifest.engine,
        data=manifest.data,
        cells=tuple((cell.name, msgspec.json.encode(cell.params)) for cell in cells),
        groups=tuple(small),
        attackers=tuple(attackers),
        output=output,
        sources=sources,
    )
    place = Workplace(spark, progress)
    if progress is not None:
        progress.begin(f"{name}, {sum(group.rows for group in groups):,} rows of kept tables", 0, 1)
    large = [group for group in groups if group.rows_of_run > RUN_ROWS]
    apart = [_attack_apart(place.require_session(), task, group) for group in large]
    beside = pa.concat_tables([task_schema().empty_table(), *apart])
    scores, listed = place.make_scores(task, len(small), max(1, len(small)), name, beside)
    done = sorted((_GROUP.decode(text) for text in listed), key=_place_of)
    measured = bool({"truth", "stream_truth"} & set(manifest.keep))
    compared = [each.compared for each in done if each.compared is not None]
    result = AttackedRuns(
        experiment=name,
        rows=sum(each.rows for each in done),
        guesses=sum(each.guesses for each in done),
        compared=sum(compared) if compared else None,
        different=sum(each.different for each in done),
        measures=sum(each.measures for each in done),
        scores=scores if measured else None,
        files=tuple(file for each in done for file in each.files),
        seconds=tuple(each.seconds for each in done),
    )
    if out is not None:
        _write(out, root, tuple(attackers), code, result)
    return result


def _attack_apart(spark: SparkSession, task: AttackTask, group: KeptGroup) -> pa.Table:
    """The same by Spark's aggregations and joins: the rows of `GroupResult.finish`."""
    from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error

    root = task.root.open()
    observed = {
        table: tables.frame(spark, root, tables.TABLES[table], task.experiment, [file.path])
        for table, file in group.files.items()
        if table not in NOT_OBSERVED
    }
    result, start = GroupResult(task, group), time.perf_counter()
    try:
        result.add(group.seeds, task.attack(group, observed).toArrow(), [], {})
    except SPARK_ERRORS as error:
        raise translate_error(error) from error
    return result.finish(time.perf_counter() - start)


def _require_observations(manifest: SweepManifest) -> None:
    if set(manifest.keep) <= set(NOT_OBSERVED):
        raise ConfigError(
            f"nothing that an attacker sees was kept of {manifest.experiment}; `veilcast lab run "
            f"{manifest.experiment} --keep all` in another --out keeps it"
        )


def _place_of(group: AttackedGroup) -> tuple[str, ...]:
    """Sort key: tasks end in any order."""
    return tuple(file.path for file in group.files)


def _write(out: Location, stored: Location, attackers: tuple[str, ...], code: CodeVersion, found: AttackedRuns) -> None:
    """Write the scores, and then the entry that lists them and the files of the tasks."""
    log, attempt = _log(out, found.experiment), secrets.token_hex(4)
    number = max(log.numbers(), default=-1) + 1
    scores = None
    if found.scores is not None:
        file = f"{log.directory}/scores.{attempt}.parquet"
        scores = StoredTable(file, tables.write(out, file, found.scores))
    manifest = AttackManifest(
        found.experiment,
        stored.place,
        attackers,
        code.fingerprint,
        code.commit,
        shlex.join(["veilcast", *sys.argv[1:]]),
        found.guesses,
        found.files,
        scores,
    )
    if not log.create(number, msgspec.json.encode(manifest)):
        raise StorageError(f"another attack on {found.experiment} has just written to {out.place}; attack again")


def read_attack(out: Location, name: str) -> AttackManifest:
    """The last attack that was written to the location."""
    log = _log(out, name)
    for number in reversed(log.numbers()):
        if (line := log.read(number)) is not None:
            return _ATTACK.decode(line, log.path_of(number))
    raise StorageError(f"{out.place} holds no attack on {name}; `veilcast lab attack DIR {name} --out` makes one")


def read_guesses(out: Location, name: str) -> pa.Table:
    """The guesses that the last attack has written. For small ones."""
    return _read(out, name, [file for file in read_attack(out, name).files if file.table != "measures"])


def read_measures(out: Location, name: str) -> pa.Table:
    """The measures that the last attack has written. For few."""
    return _read(out, name, [file for file in read_attack(out, name).files if file.table == "measures"])


def _read(out: Location, name: str, files: Sequence[KeptFile]) -> pa.Table:
    return pa.concat_tables(tables.read(out, tables.TABLES[file.table], name, [file.path]) for file in files)


def _log(out: Location, name: str) -> WriteOnceLog:
    return WriteOnceLog(out, f"attacks/{name}")


def choose_kept_experiments(root: Location, names: Sequence[str]) -> list[str]:
    """These experiments, or all in the location of which tables were kept."""
    if names:
        return list(names)
    found = [name for name in list_manifests(root) if read_manifest(root, name).keep]
    if not found:
        raise ConfigError(f"{root.place} holds no kept tables; `veilcast lab run NAME --keep all --out DIR` keeps them")
    return found


RUN_ROWS: Final = 20_000_000
"""Most rows of a run that a task holds at once: some 2 GB."""
_GROUP: Final = JsonDecoder(AttackedGroup, TamperedError, "what a task tells of its guesses is damaged")
_ATTACK: Final = JsonDecoder(AttackManifest, TamperedError, "is no manifest of guesses of ours")
