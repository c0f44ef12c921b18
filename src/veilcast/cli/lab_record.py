"""`veilcast lab record` and `veilcast lab verify`: results that a repository keeps, and how they are made again."""

from __future__ import annotations

import argparse
import fnmatch
import shlex
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilcast.authority.secret_file import replace_file
from veilcast.cli.context import Context, Report
from veilcast.cli.exits import FAILED_CHECK
from veilcast.cli.lab import find_data_folder, lab_extra
from veilcast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from veilcast.lab.record.recorded_runs import RecordedRun


def record(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.record.record_pages import render_record
        from veilcast.lab.record.recorded_runs import Record, choose_drawn_scores, describe_run
        from veilcast.lab.record.verification import judge_recorded
        from veilcast.lab.report.results import read_results
        from veilcast.lab.spark.locations import open_location
    kept, added, left = Record(arguments.out), list[str](), list[str]()
    for place in arguments.dirs:
        for result in read_results(open_location(place)):
            run = describe_run(result.manifest)
            if result.manifest.status != "complete":
                left.append(f"{run.name} is incomplete, and not recorded: `veilcast lab run {result.name}` goes on")
                continue
            kept.write_run(run, choose_drawn_scores(result.experiment, result.score_rows), result.verdicts)
            added.append(run.name)
    for run in kept.list_runs():
        kept.write_verdicts(run, judge_recorded(kept, run))
    pages = render_record(kept)
    for name, text in pages.items():
        path = arguments.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=0o644)
    lines = [f"recorded {len(added)} results in {arguments.out}; wrote {len(pages)} pages and figures", *left]
    return Report({"recorded": added, "left_out": left, "files": sorted(pages)}, lines)


def verify(arguments: argparse.Namespace, context: Context) -> Report:
    with lab_extra():
        from veilcast.lab.record.recorded_runs import Record
        from veilcast.lab.record.verification import verify_run
        from veilcast.lab.spark import LOCAL, Progress, SparkLater, SparkOptions
        from veilcast.lab.spark.locations import open_location
    kept = Record(arguments.record)
    data = find_data_folder(arguments.data)
    recorded = kept.list_runs(quick=arguments.quick)
    if not recorded:
        other = "" if arguments.quick or not kept.list_runs(quick=True) else "; --quick verifies its quick runs"
        raise StorageError(f"{arguments.record} records no such runs; `veilcast lab record` fills a record{other}")
    chosen, left = _choose_runs(recorded, arguments.names, data)
    options = SparkOptions.parse(arguments.conf, ui=arguments.ui, event_log=arguments.event_log)
    say: Callable[[str], object] = (lambda _: None) if arguments.json else context.say
    found: dict[str, list[str]] = {}
    with ExitStack() as stack:
        out = arguments.out or stack.enter_context(tempfile.TemporaryDirectory(prefix="veilcast-verify-"))
        later = stack.enter_context(SparkLater(arguments.master or LOCAL, options, say))
        progress = stack.enter_context(Progress(None, say=say))
        for run in chosen:
            # One experiment may be recorded by several engines.
            place = open_location(f"{out}/{run.engine}")
            found[run.name] = verify_run(later, kept, run, place, data=data, progress=progress)
            if not arguments.json:
                progress.say(context.say, _lines(run, found[run.name]))
    differences = sum(map(len, found.values()))
    lines = [f"{len(found)} runs verified, {differences} differences", *left]
    report: dict[str, Any] = {"runs": found, "differences": differences, "left_out": left}
    return Report(report, lines, FAILED_CHECK if differences else 0)


def _choose_runs(runs: list[RecordedRun], names: list[str], data: Path | None) -> tuple[list[RecordedRun], list[str]]:
    """The runs to verify, and a line for each that this call leaves out."""
    for name in names:
        if not any(fnmatch.fnmatch(run.experiment, name) for run in runs):
            raise ConfigError(f"the record has no run of {name}; it has {', '.join(run.experiment for run in runs)}")
    asked = [run for run in runs if not names or any(fnmatch.fnmatch(run.experiment, name) for name in names)]
    blind = [run for run in asked if run.data_sha256 and data is None]
    left = [f"not verified: {', '.join(run.name for run in blind)}; --data names the folder of their data"]
    return [run for run in asked if run not in blind], left if blind else []


def _lines(run: RecordedRun, differences: list[str]) -> list[str]:
    shown = [f"  {line}" for line in differences[:_SHOWN]]
    more = [f"  and {len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []
    state = f"{len(differences)} differences" if differences else "the same"
    return [f"{shlex.quote(run.name)}: {state}", *shown, *more]


_SHOWN = 10
