"""`veilcast lab ...`: experiments on Spark.

The lab is an extra: its rooms are imported by the command that needs them, and a library that is not there is told with
what to install. `lab list` needs none of it.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from veilcast.cli.bounds import within
from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from veilcast.lab.sweep.experiment import Experiment
    from veilcast.lab.sweep.sweep import Result


def add_commands(commands: Any) -> None:
    group = commands.add_parser("lab", help="experiments on Spark: list, run, report, doctor, ...")
    group.set_defaults(parser=group)
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    doctor = verbs.add_parser("doctor", help="what the lab would run on, tried out")
    _add_master(doctor)
    _add_json(doctor)
    doctor.set_defaults(run=_doctor, parser=doctor)

    listed = verbs.add_parser("list", help="the experiments; of those that are named, what they claim and need")
    listed.add_argument("names", nargs="*", metavar="NAME", help="or a pattern (mesh-fig*), or a file")
    _add_json(listed)
    listed.set_defaults(run=_list, parser=listed)

    run = verbs.add_parser(
        "run",
        help="sweep experiments; what is there already is not done again",
        description="Sweep experiments over their cells and seeds. A sweep that was ended goes on where it was.",
    )
    run.add_argument("names", nargs="+", metavar="NAME", help="of `lab list`, a pattern (mesh-fig*), all, or a file")
    run.add_argument("--seeds", type=int, metavar="N", help="so many seeds (what each experiment asks for)")
    run.add_argument("--out", type=Path, default=_OUT, metavar="DIR", help=f"where results go ({_OUT})")
    _add_master(run)
    run.add_argument("--data", type=Path, metavar="DIR", help="the folder of real data ($VEILCAST_DATA)")
    run.add_argument("--trace", type=Path, metavar="FILE", help="interactions of your own, for brokers: CSV or Parquet")
    run.add_argument(
        "--engine",
        choices=("kernel", "machines", "live"),
        help="models, the real machines, or these on real sockets (the first that an experiment has)",
    )
    run.add_argument("--quick", action="store_true", help="as small as shows anything")
    run.add_argument("--fresh", action="store_true", help="discard what is there of these experiments")
    _add_json(run)
    run.set_defaults(run=_run, parser=run)

    report = verbs.add_parser("report", help="write one HTML page of the results in a directory")
    report.add_argument("dir", type=Path, metavar="DIR", help="of `lab run --out`")
    report.add_argument("--out", type=Path, metavar="FILE", help="the page (DIR/report.html)")
    _add_json(report)
    report.set_defaults(run=_report, parser=report)

    bench = verbs.add_parser("bench", help="kernels, attacks, matching in bulk, or traces of brokers")
    bench.add_argument(
        "what", nargs="?", choices=("kernels", "attacks", "bulk", "traces"), default="kernels", help="default: kernels"
    )
    bench.add_argument("--quick", action="store_true", help="kernels: small sizes, few rounds")
    bench.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="attacks: of the largest table (100,000,000); bulk: publications and subscriptions (1,000,000); "
        "traces: interactions of the longest (10,000,000)",
    )
    _add_json(bench)
    bench.set_defaults(run=_bench, parser=bench)


def _add_master(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--master", default="local[*]", metavar="URL", help="local[N], spark://HOST:PORT, yarn, k8s://..."
    )


def _add_json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def _doctor(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.spark.doctor import examine
    diagnosis = examine(arguments.master)
    width = max(map(len, diagnosis.found))
    lines = [f"{name:{width}}  {found}" for name, found in diagnosis.found.items()]
    lines += [f"wrong: {problem}" for problem in diagnosis.wrong] or ["nothing is wrong"]
    return Report({"found": diagnosis.found, "wrong": diagnosis.wrong}, lines, FAILED_CHECK if diagnosis.wrong else 0)


def _list(arguments: argparse.Namespace, _: Context) -> Report:
    from veilcast.cli import listing
    from veilcast.lab.sweep import experiment

    rows = listing.rows(_chosen(arguments.names or ["all"], experiment.names()))
    return Report({"experiments": rows}, listing.sheets(rows) if arguments.names else listing.table(rows))


def _run(arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.lab.sweep import experiment

    loaded = [experiment.load(name) for name in _chosen(arguments.names, experiment.names())]
    data = _data_folder(arguments.data)
    if arguments.trace is not None:
        loaded = _on_trace(loaded, arguments.trace, data, (lambda _: None) if arguments.json else context.say)
    chosen = [(name, definition, arguments.engine or definition.engines[0]) for name, definition in loaded]
    for name, definition, engine in chosen:
        definition.check_means(name, engine, data)
    with lab_extra():
        from veilcast.lab.spark import Progress, session
        from veilcast.lab.sweep import plan, sweep
        from veilcast.lab.sweep.engines import ENGINES
    if arguments.seeds is not None:
        within("--seeds", arguments.seeds, 1, plan.SEEDS_MAX)
    for name, definition, engine in chosen:
        sweep.check(
            name,
            definition,
            arguments.out,
            engine=engine,
            quick=arguments.quick,
            data=data,
            fresh=arguments.fresh,
        )
    results = []
    with session(arguments.master) as spark, Progress(spark) as progress:
        for name, definition, engine in chosen:
            result = sweep.run(
                spark,
                name,
                definition,
                arguments.out,
                engine=engine,
                runner=ENGINES[engine],
                seeds=arguments.seeds,
                quick=arguments.quick,
                data=data,
                fresh=arguments.fresh,
                progress=progress,
                command=shlex.join(["veilcast", *sys.argv[1:]]),
            )
            results.append(result)
            if not arguments.json:
                progress.say(context.say, _lines(result))
    lines = [f"`veilcast lab report {shlex.quote(str(arguments.out))}` draws them"]
    return Report({"experiments": [_data(result) for result in results]}, lines)


def _on_trace(
    loaded: list[tuple[str, Experiment]], file: Path, data: Path | None, say: Callable[[str], object]
) -> list[tuple[str, Experiment]]:
    with lab_extra():
        from veilcast.lab import own_trace
        from veilcast.lab.sweep import own_traces
    trace = own_trace.load(file)
    found = [(name, own_traces.replaying(name, definition, file, trace, data)) for name, definition in loaded]
    say(own_traces.said(file, trace))
    return found


def _report(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.report import page
    path = page.write(arguments.dir, arguments.out)
    return Report({"page": str(path)}, [f"wrote {path}"])


def _bench(arguments: argparse.Namespace, context: Context) -> Report:
    say = (lambda _: None) if arguments.json else context.say
    if arguments.what != "kernels":
        rows = arguments.rows if arguments.rows is not None else _ROWS[arguments.what]
        within("--rows", rows, 1, 100 * _ROWS[arguments.what])
        with lab_extra():
            from veilcast.lab.bench import attacks, bulk, traces
        benches = {"attacks": attacks.run, "bulk": bulk.run, "traces": traces.run}
        return Report(benches[arguments.what](rows, say))
    with lab_extra():
        from veilcast.lab.bench import main
    return Report(main.run(arguments.quick, say))


def _chosen(asked: list[str], known: tuple[str, ...]) -> list[str]:
    """Each once, in the order of their asking; what is no pattern is left as it is, and may be a file."""
    chosen: dict[str, None] = {}
    for name in asked:
        found = list(known) if name == "all" else fnmatch.filter(known, name)
        if not found and any(letter in name for letter in "*?["):
            raise ConfigError(f"no experiment is called like {name}; `veilcast lab list` shows those there are")
        chosen |= dict.fromkeys(found or [name])
    return list(chosen)


def _data_folder(given: Path | None) -> Path | None:
    folder = given or (Path(os.environ["VEILCAST_DATA"]) if os.environ.get("VEILCAST_DATA") else None)
    if folder is not None and not folder.is_dir():
        raise StorageError(f"{folder} is not a directory; --data or VEILCAST_DATA names the one with the real data")
    return folder


def _lines(result: Result) -> list[str]:
    manifest = result.manifest
    lines = [
        f"{manifest.experiment}: {manifest.seeds} seeds, {result.runs:,} runs done now, {manifest.wall_s:.1f} s in all"
    ]
    for row in result.verdicts.to_pylist():
        expected = "" if row["verdict"] == row["expected"] else f" (expected: {row['expected']})"
        target = "" if row["target"] == row["published"] else f", held against {row['target']:g}"
        lines.append(
            f"  {row['what']}: published {row['published']:g}{target}, reproduced {row['reproduced']:.4g} "
            f"{_interval(row, manifest.seeds)}: {row['verdict']}{expected}"
        )
    return lines


def _data(result: Result) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "experiment": manifest.experiment,
        "seeds": manifest.seeds,
        "runs": result.runs,
        "wall_s": manifest.wall_s,
        "engine": manifest.engine,
        "fingerprint": manifest.fingerprint,
        "scores": _finite(result.scores.to_pylist()),
        "verdicts": _finite(result.verdicts.to_pylist()),
    }


def _interval(row: dict[str, Any], seeds: int) -> str:
    return f"[{row['low']:.4g}, {row['high']:.4g}]" if seeds > 1 else "(one seed: no interval)"


def _finite(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON has no infinity, which is where a curve settles that never does, and how far one seed may be off."""
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


_OUT: Final = Path("veilcast-results")
_ROWS: Final = {"attacks": 10**8, "bulk": 10**6, "traces": 10**7}
"""That are measured if nobody says otherwise."""
