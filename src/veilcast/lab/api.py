"""The public functions of the lab, for programs and notebooks: `from veilcast import lab`.

They take a Spark session of the caller, or None to work in this process, and raise the errors of `veilcast.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.capture import reader
from veilcast.lab.capture.reading_report import ReadingReport
from veilcast.lab.data import require_files
from veilcast.lab.experiment import user_inputs
from veilcast.lab.experiment.definition import Experiment, load_experiment
from veilcast.lab.experiment.sweep import SweepResult, run_sweep
from veilcast.lab.runs.table import ENGINES
from veilcast.lab.spark.locations import open_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def captures(
    spark: SparkSession | None, *paths: str | Path, run: str = "capture", epoch_s: int = 3600
) -> tuple[DataFrame | pa.Table, ReadingReport]:
    """The cells of captures (pcap or pcapng) or of directories of taps, all of one network, and what was read.

    `run` names them in the column `run`; `epoch_s` is the length of the network's epochs, in seconds.
    """
    files = [Path(path) for path in paths]
    if spark is None:
        return reader.read(files, run=run, epoch_us=epoch_s * 1_000_000)
    return reader.read(files, run=run, epoch_us=epoch_s * 1_000_000, spark=spark)


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
) -> SweepResult:
    """Run an experiment, by its name, its file or its definition, with its results in the location `out`.

    As by `lab run`: stored runs are not made again, and `attackers` are files of attackers to add. A definition needs a
    `name`, and brings its own attackers. The controls of attackers are `lab.runs.attacker_controls.run_controls`.
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
    )
