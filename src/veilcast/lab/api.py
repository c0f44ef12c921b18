"""The public functions of the lab, for programs and notebooks: `from veilcast import lab`.

They take a Spark session of the caller, or None to work in this process, and raise the errors of `veilcast.errors`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.foreign import guard_attacker, known_attackers, load_attackers, read_attacker_file
from veilcast.lab.attack.plain_tables import attack_plain_tables, check_tables
from veilcast.lab.attack.registry import FOREIGN, Attacker
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.capture import reader
from veilcast.lab.capture.reading_report import ReadingReport
from veilcast.lab.capture.remote_files import find_records
from veilcast.lab.data import require_files
from veilcast.lab.experiment import user_inputs
from veilcast.lab.experiment.definition import Experiment, load_experiment
from veilcast.lab.experiment.sweep import SweepResult, run_sweep
from veilcast.lab.measure.summary import summarise_table
from veilcast.lab.report.results import read_results
from veilcast.lab.runs.attacker_controls import ControlResult, run_controls
from veilcast.lab.runs.stored_runs import StoredRuns, measure_tables, read_stored_runs
from veilcast.lab.runs.table import ENGINES, choose_kept_tables
from veilcast.lab.spark.locations import open_location
from veilcast.lab.tables import ScoreRow, VerdictRow

if TYPE_CHECKING:
    import altair
    from pyspark.sql import DataFrame, SparkSession

AltairChart: TypeAlias = "altair.LayerChart | altair.FacetChart"


def captures(
    spark: SparkSession | None, *paths: str | Path, run: str = "capture", epoch_s: int = 3600
) -> tuple[DataFrame | pa.Table, ReadingReport]:
    """The cells of captures (pcap or pcapng) or of directories of taps, all of one network, and what was read.

    A path is of this machine, or a location such as `hdfs://HOST/own.pcap`. `run` names the cells in the column `run`;
    `epoch_s` is the length of the network's epochs, in seconds.
    """
    files = [find_records(path) for path in paths]
    if spark is None:
        return reader.read(files, run=run, epoch_us=epoch_s * 1_000_000)
    return reader.read(files, run=run, epoch_us=epoch_s * 1_000_000, spark=spark)


def register_sources(spark: SparkSession) -> None:
    """Make captures and taps a source of this session: `spark.read.format("pcap").load("own.pcap")` has the cells that
    `captures` has, and `spark.readStream.format("pcap")` follows files that grow. `lab.capture.data_source` has the
    options."""
    from veilcast.lab.capture import data_source

    data_source.register_sources(spark)


def run(
    spark: SparkSession | None,
    experiment: str | Path | Experiment,
    out: str | Path,
    *,
    name: str = "",
    engine: str = "",
    seeds: int | None = None,
    quick: bool = False,
    data: str | Path | None = None,
    attackers: Sequence[str | Path] = (),
    keep: Collection[str] = (),
) -> SweepResult:
    """Run an experiment, by its name, its file or its definition, with its results in the location `out`.

    As by `lab run`: stored runs are not made again, and `attackers` are files of attackers to add. A definition needs a
    `name`, and brings its own attackers; `controls` runs the controls of one. `keep` names observation tables
    to keep for `stored_runs`; "all" stands for all that this kind of run gives.
    """
    if isinstance(experiment, Experiment):
        definition = experiment
        if not name or attackers:
            raise ConfigError("a definition needs a name, and lists its own attackers")
    else:
        loaded_name, definition = load_experiment(experiment, [Path(path) for path in attackers])
        name = name or loaded_name
    engine = engine or definition.engines[0]
    folder = Path(data) if data is not None else None
    definition.check_requirements(name, engine, folder)
    require_files(definition.data_sources(engine, quick=quick), folder)
    user_inputs.check_user_files(definition.user_files(engine, quick=quick))
    found = user_inputs.check_attackers(name, definition)
    if attackers:
        definition = user_inputs.add_attackers(definition, found)
    kinds = sorted({cell.params.kind() for cell in definition.make_cells(quick=quick, engine=engine)})
    runner = ENGINES[engine]
    if found:
        runner = user_inputs.RunWithAttackers(runner, user_inputs.find_sources(definition))
    return run_sweep(
        spark,
        name,
        definition,
        open_location(str(out)),
        engine=engine,
        runner=runner,
        seeds=seeds,
        quick=quick,
        data=folder,
        keep=choose_kept_tables(keep, kinds, engine),
    )


def attack(
    observations: AnyTable | Mapping[str, AnyTable] | StoredRuns,
    names: Collection[str | Path | Attacker[Any]] = (),
    *,
    epochs: Sequence[int] = (),
) -> AnyTable:
    """Attack observations. The result is a table `guesses`, or `stream_guesses` for foiled streams.

    `observations` are a table of cells, as `captures` gives it; tables by name (`docs/experiments.md` lists them), as
    frames or Arrow tables; or the tables of a stored experiment (`stored_runs`). Their names say which adversary has
    seen them. `names` are attackers of `veilcast lab reference attackers`, Python files with attackers of your own, or
    `Attacker` values; without any, all attackers that have what they need are asked, or those of the stored experiment.
    With `epochs`, cells are copies of one notification in each epoch, and guesses are made after these numbers of them.

    The result is a frame if the observations are frames, and is then computed when it is first read. Raises
    `ConfigError`, in one line, for an unknown name, and for a missing table or column.
    """
    with _asked_attackers(names) as asked:
        if isinstance(observations, StoredRuns):
            if epochs:
                raise ConfigError("a stored experiment has its own steps; attack its `observations` to choose epochs")
            guesses = observations.attack(asked)
        else:
            guesses = attack_plain_tables(observations, asked or None, epochs)
    return _keep(guesses)


def measure(guesses: AnyTable, truth: AnyTable | StoredRuns, *, experiment: str = "") -> AnyTable:
    """How right guesses are: rows of `measures`, one for each run, attack, metric and number of epochs.

    `truth` is a table of the truth (`truth` for nodes, `stream_truth` for streams), or the stored runs that the guesses
    are about; these are measured as the sweep measures them. A run becomes a cell with the seed 0, unless it is named
    as stored runs are. `summarise` makes scores of measures. `experiment` names them.
    """
    if isinstance(truth, StoredRuns):
        return _keep(truth.measure(guesses))
    streams = "stream" in (guesses.column_names if isinstance(guesses, pa.Table) else guesses.columns)
    kinds = ("stream_guesses", "stream_truth") if streams else ("guesses", "truth")
    given = check_tables(dict(zip(kinds, (guesses, truth), strict=True)))
    return _keep(measure_tables(given[kinds[0]], given[kinds[1]], experiment))


def summarise(measures: AnyTable) -> pa.Table:
    """The mean of each measure over seeds, with its 95 % interval: columns experiment, cell, attack, metric, step,
    value, spread, low, high, seeds."""
    return summarise_table(measures if isinstance(measures, pa.Table) else measures.toArrow())


def controls(attacker: str | Path | Attacker[Any]) -> ControlResult:
    """The controls of an attacker of your own: a run where it should succeed, and the same with shuffled scores."""
    with _asked_attackers([attacker]) as asked:
        if len(asked) != 1 or asked[0] not in FOREIGN:
            raise ConfigError("controls are for one attacker of your own: an Attacker, or a file that has one")
        return run_controls(FOREIGN[asked[0]])


def results(out: str | Path) -> dict[str, SweepResult]:
    """The stored results of all experiments in a location, by name: what `run` returned."""
    location = open_location(str(out))
    found = {}
    for each in read_results(location):
        files = [each.manifest.scores.path] if each.manifest.scores is not None else []
        scores = tables.read(location, ScoreRow, each.name, files)
        found[each.name] = SweepResult(each.manifest, 0, scores, tables.from_rows(VerdictRow, each.verdicts))
    return found


def stored_runs(spark: SparkSession | None, out: str | Path, experiment: str, cell: str = "") -> StoredRuns:
    """The tables that a run with `keep` has stored of one cell, as frames of this session or as Arrow tables.

    Its `observations` are what the adversaries saw, `truth` the labels, `guesses` those of the sweep. `attack` and
    `measure` take it as it is."""
    return read_stored_runs(open_location(str(out)), experiment, cell, spark)


def chart(
    shown: SweepResult | AnyTable,
    what: str = "",
    *,
    roles: Mapping[str, Iterable[str]] | None = None,
) -> AltairChart:
    """An Altair chart: of a result the figure with this name, or with this metric; of measures or scores the metric
    (`auc`); of guesses the score of each node, with the nodes of known `roles` in colour."""
    from veilcast.lab.report import notebook_charts  # Imported here: only a chart pays for Altair.

    if isinstance(shown, SweepResult):
        definition = shown.manifest.load_definition()
        if any(figure.name == what for figure in definition.figures) or not what:
            return notebook_charts.draw_figure(definition, shown.scores, what)
        return notebook_charts.draw_scores(shown.scores, what)
    table = shown if isinstance(shown, pa.Table) else shown.toArrow()
    if {"attack", "node", "score"} <= set(table.column_names):
        return notebook_charts.draw_guesses(table, roles)
    if not {"attack", "metric", "step", "value"} <= set(table.column_names):
        raise ConfigError("a chart shows a result, scores, measures or guesses")
    return notebook_charts.draw_scores(table if "low" in table.column_names else summarise_table(table), what or "auc")


def _keep(table: AnyTable) -> AnyTable:
    """The same rows, computed once. A kept frame also depends on no view, of which the engine drops the oldest."""
    kept: AnyTable = engine_of(table).keep(table)
    return kept


@contextmanager
def _asked_attackers(names: Collection[str | Path | Attacker[Any]]) -> Iterator[list[str]]:
    """The names of these attackers; those from outside the package are known by their names meanwhile."""
    own: list[Attacker[Any]] = []
    asked: list[str] = []
    for each in names:
        if isinstance(each, Attacker):
            found: Sequence[Attacker[Any]] = [guard_attacker(each, "an attacker of this program")]
        elif isinstance(each, Path) or each.endswith(".py"):
            found = load_attackers(read_attacker_file(Path(each)))
        else:
            asked.append(each)
            continue
        own += found
        asked += [attacker.name for attacker in found]
    with known_attackers(own):
        yield asked
