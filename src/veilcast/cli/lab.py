"""`veilcast lab ...`: experiments on Spark.

The lab is an extra: each command imports the rooms that it needs, and a missing library is reported with what to
install. `lab list` needs none of it.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.input_checks import check_range
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.experiment import definition as experiment

if TYPE_CHECKING:
    from veilcast.lab.experiment.definition import Experiment
    from veilcast.lab.experiment.params import RunFunction
    from veilcast.lab.experiment.sweep import SweepResult


Row: TypeAlias = dict[str, Any]
"""What `lab list` tells about one experiment."""


def doctor(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.spark.doctor import diagnose, make_class_archive
        from veilcast.lab.spark.master import Master
    made = {}
    if arguments.class_archive:
        if not Master.parse(arguments.master).is_local:
            raise ConfigError("--class-archive is for sessions on this machine; leave --master out")
        made = {"class archive": str(make_class_archive(arguments.master))}
    diagnosis = diagnose(arguments.master)
    diagnosis.found |= made
    width = max(map(len, diagnosis.found))
    lines = [f"{name:{width}}  {found}" for name, found in diagnosis.found.items()]
    lines += [f"wrong: {problem}" for problem in diagnosis.wrong] or ["nothing is wrong"]
    return Report({"found": diagnosis.found, "wrong": diagnosis.wrong}, lines, FAILED_CHECK if diagnosis.wrong else 0)


def list_experiments(arguments: argparse.Namespace, _: Context) -> Report:
    rows = list_rows(_choose(arguments.names or ["all"], experiment.packaged_names()))
    return Report({"experiments": rows}, format_sheets(rows) if arguments.names else format_table(rows))


def run(arguments: argparse.Namespace, context: Context) -> Report:
    asked = _choose(arguments.names, experiment.packaged_names())
    loaded = [experiment.load_experiment(name, arguments.attacker) for name in asked]
    data = find_data_folder(arguments.data)
    if arguments.series is not None:
        loaded = _on_series(loaded, arguments.series)
    if arguments.trace is not None:
        loaded = _on_trace(loaded, arguments.trace, data, (lambda _: None) if arguments.json else context.say)
    chosen = [(name, definition, arguments.engine or definition.engines[0]) for name, definition in loaded]
    with lab_extra():
        for name, definition, engine in chosen:
            definition.check_requirements(name, engine, data)
        from veilcast.lab.data import require_files
        from veilcast.lab.experiment import dry_run, plan, sweep
        from veilcast.lab.experiment.user_inputs import check_user_files
        from veilcast.lab.runs.table import choose_kept_tables
        from veilcast.lab.spark import LOCAL, Progress, SparkLater, SparkOptions
        from veilcast.lab.spark.locations import open_location
        from veilcast.lab.storage.location import LocalDirectory
    keep = [name for name in arguments.keep.split(",") if name]
    kept: dict[str, list[str]] = {}
    for name, definition, engine in chosen:
        cells = definition.make_cells(quick=arguments.quick, engine=engine)
        kept[name] = choose_kept_tables(keep, sorted({cell.params.kind() for cell in cells}), engine)
    options = SparkOptions.parse(arguments.conf, ui=arguments.ui, event_log=arguments.event_log)
    say: Callable[[str], object] = (lambda _: None) if arguments.json else context.say
    with lab_extra():
        later = SparkLater(arguments.master or LOCAL, options, say)
    on_spark = arguments.master is not None or options != SparkOptions()
    if arguments.seeds is not None:
        check_range("--seeds", arguments.seeds, 1, plan.SEEDS_MAX)
    quick = arguments.quick
    if arguments.check and (quick or arguments.seeds is not None):
        raise ConfigError("--check holds for all seeds; leave out --quick and --seeds")
    require_files({each for _, one, engine in chosen for each in one.data_sources(engine, quick=quick)}, data)
    own = dict.fromkeys(file for _, one, engine in chosen for file in one.user_files(engine, quick=quick))
    notes = check_user_files(own)
    for note in notes:
        say(note)
    out = open_location(arguments.out, arguments.master or LOCAL, options)
    runners, controls = _add_attackers(chosen, arguments.attacker, say)
    if on_spark:
        # Java starts while the stored results are checked.
        later.begin()
    for name, definition, engine in chosen:
        sweep.check_sweep(
            name,
            definition,
            out,
            engine=engine,
            quick=arguments.quick,
            data=data,
            fresh=arguments.fresh,
            keep=kept[name],
        )
        # Tests check that packaged experiments draw what their runs give; on real sockets a run takes too long to try.
        if name not in experiment.packaged_names() and engine != "live":
            dry_run.check_drawn_metrics(name, definition, engine, runners[name], data)
    results = []
    with later, Progress(None, say=say) as progress:
        if on_spark:
            progress.begin(f"starting Spark for {', '.join(name for name, _, _ in chosen)}", 0, len(chosen))
            progress.watch(later.get())
        for name, definition, engine in chosen:
            result = sweep.run_sweep(
                later,
                name,
                definition,
                out,
                engine=engine,
                runner=runners[name],
                seeds=arguments.seeds,
                quick=arguments.quick,
                data=data,
                fresh=arguments.fresh,
                progress=progress,
                command=shlex.join(["veilcast", *sys.argv[1:]]),
                keep=kept[name],
            )
            results.append(result)
            if not arguments.json:
                theirs = own_attacker_lines(result.scores.to_pylist(), {each["attacker"] for each in controls})
                progress.say(context.say, [*_lines(result, definition), *theirs])
    page = "" if isinstance(out, LocalDirectory) else " --out report.html"
    lines = [f"`veilcast lab report {shlex.quote(arguments.out)}{page}` draws them"]
    unexpected = find_unexpected(results, chosen) if arguments.check else []
    if arguments.check:
        lines += [f"not as expected: {line}" for line in unexpected] or ["all verdicts are as expected"]
    told: dict[str, Any] = {"unexpected": unexpected} if arguments.check else {}
    told |= {"experiments": [_data(result) for result in results], "files": notes, "controls": controls}
    return Report(told, lines, FAILED_CHECK if unexpected else 0)


def find_unexpected(results: list[SweepResult], chosen: list[tuple[str, Experiment, str]]) -> list[str]:
    """Return a line for each verdict that is not the expected one, and for each stated number without a verdict."""
    found = []
    for result, (name, definition, engine) in zip(results, chosen, strict=True):
        rows = result.verdicts.to_pylist()
        for row in rows:
            if row["verdict"] != row["expected"]:
                found.append(f"{name}, {row['what']}: {row['verdict']}, not {row['expected']}")
        judged = {(row["figure"], row["what"]) for row in rows}
        # The machines run a part of the cells.
        for number in definition.stated if engine == definition.engines[0] else ():
            if (number.figure, number.what) not in judged:
                found.append(f"{name}, {number.what}: no verdict")
    return found


def _add_attackers(
    chosen: list[tuple[str, Experiment, str]], files: list[Path], say: Callable[[str], object]
) -> tuple[dict[str, RunFunction], list[dict[str, Any]]]:
    """Put the user's attackers into the experiments. Return the run function of each experiment, and the controls."""
    from veilcast.lab.attack.registry import Attacker
    from veilcast.lab.experiment import user_inputs
    from veilcast.lab.runs.attacker_controls import ControlResult, run_controls
    from veilcast.lab.runs.table import ENGINES

    runners: dict[str, RunFunction] = {}
    results: dict[Attacker[Any], ControlResult] = {}
    for number, (name, definition, engine) in enumerate(chosen):
        found = user_inputs.check_attackers(name, definition)
        if files:
            definition = user_inputs.add_attackers(definition, found)
            chosen[number] = name, definition, engine
        for attacker in found.values():
            if attacker not in results:
                results[attacker] = run_controls(attacker)
                say(results[attacker].describe())
            if not results[attacker].is_fair:
                raise ConfigError(f"{results[attacker].describe()}: its shuffled scores must be a guess")
        sources = user_inputs.find_sources(definition) if found else ()
        run = ENGINES[engine]
        runners[name] = user_inputs.RunWithAttackers(run, sources) if sources else run
    return runners, [result._asdict() for result in results.values()]


def _on_series(loaded: list[tuple[str, Experiment]], given: str) -> list[tuple[str, Experiment]]:
    """Put the user's own series, FILE or FILE:COLUMN, in place of real prices."""
    with lab_extra():
        from veilcast.lab.runs.foil.user_series import foil_user_series
    path, colon, column = given.rpartition(":")
    if not colon or Path(given).exists():
        path, column = given, ""
    return [(name, foil_user_series(name, definition, Path(path), column)) for name, definition in loaded]


def list_rows(names: list[str]) -> list[Row]:
    """Return one row for each experiment with its defaults: the first engine, and all seeds."""
    found = []
    for name, definition in map(experiment.load_outline, names):
        engine = definition.engines[0]
        cells = list(definition.make_cells(engine=engine))
        seeds = definition.default_seeds(engine, quick=False)
        found.append(
            {
                "name": name,
                "title": definition.title,
                "claim": definition.claim,
                "source": definition.source,
                "engines": definition.engines,
                "data": any(cell.params.data_sources(engine) for cell in cells),
                "cells": len(cells),
                "seeds": seeds,
                "runs": len(cells) * seeds,
                "minutes": definition.minutes,
            }
        )
    return found


def format_table(found: list[Row]) -> list[str]:
    name = max(len(row["name"]) for row in found)
    lines = [f"{'name':{name}} {'min':>4}  title"]
    for row in found:
        lines += _hung(f"{row['name']:{name}} {row['minutes']:>4g}  ", row["title"] + ("*" if row["data"] else ""))
    return [
        *lines,
        "",
        "min: about how many minutes on two cores; *: needs --data",
        "`veilcast lab list NAME` tells more",
    ]


def format_sheets(found: list[Row]) -> list[str]:
    return [line for row in found for line in (*_sheet(row), "")][:-1]


def _on_trace(
    loaded: list[tuple[str, Experiment]], file: Path, data: Path | None, say: Callable[[str], object]
) -> list[tuple[str, Experiment]]:
    with lab_extra():
        from veilcast.lab import trace_file
        from veilcast.lab.runs.brokers import user_trace
    trace = trace_file.load_trace(file)
    found = [(name, user_trace.replay_user_trace(name, definition, file, trace, data)) for name, definition in loaded]
    say(user_trace.describe_trace(file, trace))
    return found


def report(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.report import results_page
        from veilcast.lab.spark import LOCAL, SparkOptions
        from veilcast.lab.spark.locations import open_location
        from veilcast.lab.storage.location import require_local
    out = None if arguments.out is None else require_local(arguments.out)
    options = SparkOptions.parse(arguments.conf)
    path = results_page.write_report([open_location(place, LOCAL, options) for place in arguments.dirs], out)
    return Report({"page": str(path)}, [f"wrote {path}"])


def bench(_: argparse.Namespace, __: Context) -> Report:
    raise ConfigError(
        "`lab bench` is no command any more; in a checkout, `./run bench mesh_models` (or attack_engines, "
        "relay_attackers, relay_spark_match, broker_traces) measures the same"
    )


def _choose(asked: list[str], known: tuple[str, ...]) -> list[str]:
    """Return each name once, in the given order; a name that is no pattern stays as it is, and may be a file."""
    chosen: dict[str, None] = {}
    for name in asked:
        found = list(known) if name == "all" else fnmatch.filter(known, name)
        if not found and any(letter in name for letter in "*?["):
            raise ConfigError(f"no experiment is called like {name}; `veilcast lab list` shows those there are")
        chosen |= dict.fromkeys(found or [name])
    return list(chosen)


def find_data_folder(given: Path | None) -> Path | None:
    folder = given or (Path(os.environ["VEILCAST_DATA"]) if os.environ.get("VEILCAST_DATA") else None)
    if folder is not None and not folder.is_dir():
        raise StorageError(f"{folder} is not a directory; --data or VEILCAST_DATA names the one with the real data")
    return folder


def _lines(result: SweepResult, definition: Experiment) -> list[str]:
    manifest = result.manifest
    lines = [
        f"{manifest.experiment}: {manifest.seeds} seeds, {result.runs:,} runs done now, {manifest.wall_s:.1f} s in all"
    ]
    if result.skew is not None:
        lines.append(f"  {result.skew.describe()}")
    for row in result.verdicts.to_pylist():
        expected = "" if row["verdict"] == row["expected"] else f" (expected: {row['expected']})"
        lines.append(
            f"  {row['what']}: {_STATED[row['kind']]} {row['stated']:g}, reproduced {row['reproduced']:.4g} "
            f"{_interval(row, manifest.seeds)}: {row['verdict']}{expected}"
        )
    return [*lines, *_curves(result, definition)]


def own_attacker_lines(scores: list[dict[str, Any]], names: set[str]) -> list[str]:
    """Return the main measure of each of the user's attackers at its last step, by cell: figures do not draw them."""
    last: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in scores:
        if row["attack"] in names and row["metric"] in _MAIN_METRICS:
            last[row["attack"], row["cell"], row["metric"]] = row  # Scores are sorted by their steps.
    lines = [
        f"  attacker {attack}, {cell}: {metric} {row['value']:.4g} at step {row['step']:g}"
        for (attack, cell, metric), row in last.items()
    ]
    more = [f"  and {len(lines) - _CURVES} more cells, in the table of scores"] if len(lines) > _CURVES else []
    return [*lines[:_CURVES], *more]


def _curves(result: SweepResult, definition: Experiment) -> list[str]:
    """Return the first and the last point of each curve, and the curves without points."""
    from veilcast.lab.experiment.verdicts import ScoreTable, curve_points

    scores, lines, empty = ScoreTable(result.scores.to_pylist()), list[str](), list[str]()
    for figure in definition.figures:
        for curve in figure.curves:
            found = curve_points(definition, figure, curve, scores)
            if not found:
                empty.append(f"{figure.name}, {curve.label}")
                continue
            ends = dict.fromkeys((found[0], found[-1]))
            points_text = ", ".join(f"{point.value:.4g} at {figure.x} {point.x:g}" for point in ends)
            lines.append(f"  {figure.name}, {curve.label}: {points_text}")
    more = [f"  and {len(lines) - _CURVES} more curves"] if len(lines) > _CURVES else []
    warned = [f"  curves without points, since no run of these gave their metric: {'; '.join(empty)}"] if empty else []
    return [*lines[:_CURVES], *more, *warned]


def _data(result: SweepResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "experiment": manifest.experiment,
        "seeds": manifest.seeds,
        "runs": result.runs,
        "wall_s": manifest.wall_s,
        "engine": manifest.engine,
        "fingerprint": manifest.fingerprint,
        "skew": result.skew and result.skew.to_dict(),
        "scores": finite_rows(result.scores.to_pylist()),
        "verdicts": finite_rows(result.verdicts.to_pylist()),
    }


def _interval(row: dict[str, Any], seeds: int) -> str:
    return f"[{row['low']:.4g}, {row['high']:.4g}]" if seeds > 1 else "(one seed: no interval)"


def finite_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace infinity by None, because JSON has none: it is the settling point of a curve that never settles, and the
    error of a single seed."""
    return [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in rows
    ]


@contextmanager
def lab_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "veilcast":
            raise
        raise ConfigError(f"the lab needs {error.name}, which is not installed: pip install 'veilcast[lab]'") from error


def _sheet(row: Row) -> list[str]:
    size = f"{row['cells']:,} cells with {row['seeds']:,} seeds each, about {row['minutes']:g} minutes on two cores"
    details = {
        "claim": row["claim"],
        "source": row["source"],
        "runs": size,
        "engines": ", ".join(row["engines"]),
        "needs": "a folder of real data, --data" if row["data"] else "",
    }
    lines = _hung(f"{row['name']}: ", row["title"])
    for name, text in details.items():
        lines += _hung(f"  {name:8} ", text) if text else []
    return lines


def _hung(head: str, text: str) -> list[str]:
    width = shutil.get_terminal_size().columns
    return textwrap.wrap(
        text,
        max(width - 1, len(head) + 20),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )


_STATED: Final = {"published": "published", "earlier": "in an earlier run", "check": "stated"}
_MAIN_METRICS: Final = ("auc", "success", "identified")
_CURVES: Final = 12
"""Curves of one experiment whose end points are printed."""
