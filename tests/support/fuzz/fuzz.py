"""Coverage-guided fuzzing of every parser of foreign or stored bytes.

    ./run fuzz [TARGET] [SECONDS] [--list] [--json] [--runs N] [--seed K] [--replay FILE] [--plain]

Each target runs in a process of its own, with limits on memory and on the time of one input. At the end, a table lists
the runs and the findings; the exit code is 1 if there are findings. Ctrl-C ends the running target and prints the table
of the finished ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from support.fuzz.fuzz_table import UnknownTargetError, find, table
from support.fuzz.fuzz_target import Target
from support.fuzz.fuzz_worker import replay

TESTS = Path(__file__).parents[2]
SECONDS = 60
GRACE_S = 600
"""Seconds after its time at which a process is killed."""


@dataclass
class Row:
    """The outcome of one target."""

    target: str
    runs: int = 0
    edges: int | None = None
    features: int | None = None
    finding: str | None = None
    """The error, in one line."""
    input: str | None = None
    """The input file that causes the error."""


def run_target(
    target: Target, work: Path, corpus: Path, *, runs: int = 0, seconds: int = 0, options: Sequence[str] = ()
) -> Row:
    """Run one target in a process of its own; `work` receives its log and findings, `corpus` the inputs that reach new
    code."""
    _prepare_folders(target, work)
    log = _log_of(target, work)
    with log.open("wb") as output:
        process = _start([target], work, corpus, [f"--runs={runs}", f"--seconds={seconds}", *options], output)
        try:
            code = process.wait(seconds + GRACE_S if seconds else None)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal has sent the signal to the process, too; it ends with its figures.
            process.send_signal(signal.SIGINT)
            process.wait(30)
            raise
    return _row_of(target, work, code)


def run_together(targets: Sequence[Target], work: Path, corpus: Path, runs: int) -> list[Row]:
    """Run a bounded number of inputs of each target, in processes that share their imports."""
    for target in targets:
        _prepare_folders(target, work)
        _log_of(target, work).unlink(missing_ok=True)
    log = work / "logs" / "together.log"
    with log.open("wb") as output:
        code = _start(targets, work, corpus, [f"--runs={runs}"], output).wait()
    if code:
        return [Row(target.name, finding=f"could not be run: {_last_line(log.read_text())}") for target in targets]
    return [_row_of(target, work, _code_in(_log_of(target, work))) for target in targets]


def _start(
    targets: Sequence[Target], work: Path, corpus: Path, options: Sequence[str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    interpreted = {"NUMBA_DISABLE_JIT": "1"} if any(target.interpreted for target in targets) else {}
    command = [sys.executable, "-m", "support.fuzz.fuzz_worker", *(target.name for target in targets), *options]
    command += [f"--corpus={corpus}", f"--findings={work / 'findings'}", f"--logs={work / 'logs'}"]
    paths = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": paths, **interpreted}
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def _prepare_folders(target: Target, work: Path) -> None:
    """Make the folders that a process writes to, and move the findings of an earlier run away."""
    findings = work / "findings" / target.name
    for folder in (findings / "earlier", work / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    for path in findings.iterdir():
        if path.is_file():
            path.replace(findings / "earlier" / path.name)


def _row_of(target: Target, work: Path, code: int) -> Row:
    text = _log_of(target, work).read_text(errors="replace")
    row = read_log(target.name, text)
    found = sorted(path for path in (work / "findings" / target.name).iterdir() if path.is_file())
    if found:
        row.finding, row.input = row.finding or "an input that takes too long, or too much memory", str(found[0])
    elif code not in (0, INTERRUPTED):
        row.finding = f"could not be run: {_last_line(text)}; see {_log_of(target, work)}"
    return row


def _log_of(target: Target, work: Path) -> Path:
    return work / "logs" / f"{target.name}.log"


def _code_in(log: Path) -> int:
    """The exit code that the parent of a forked process has left in the log."""
    return int(_last_line(log.read_text(errors="replace")).removeprefix("exit code: "))


def read_log(name: str, text: str) -> Row:
    """Read the figures in the log of a process, even of one that was ended early."""
    row = Row(name)
    if seeds := re.search(r"^seeds: (\d+)", text, re.MULTILINE):
        row.runs += int(seeds[1])
    units = re.findall(r"^stat::number_of_executed_units: +(\d+)", text, re.MULTILINE)
    units = units or re.findall(r"^#(\d+)\t", text, re.MULTILINE)
    row.runs += int(units[-1]) if units else 0
    if covered := re.findall(r"cov: (\d+) ft: (\d+)", text):
        row.edges, row.features = map(int, covered[-1])
    if found := re.search(r"=== Uncaught Python exception: ===\s*\n(.*)", text):
        row.finding = found[1].strip()[:200]
    elif fault := re.search(r"ERROR: libFuzzer: (.*)", text):
        row.finding = fault[1].strip()[:200]
    return row


def as_text(rows: Sequence[Row]) -> str:
    widths = max([len(row.target) for row in rows] + [len("target")])
    lines = [f"{'target':{widths}}  {'runs':>12}  {'edges':>6}  {'features':>8}  findings"]
    for row in rows:
        edges, features = ("-" if value is None else f"{value:,}" for value in (row.edges, row.features))
        lines.append(f"{row.target:{widths}}  {row.runs:12,}  {edges:>6}  {features:>8}  {row.finding or 'none'}")
    lines.append(f"{'in all':{widths}}  {sum(row.runs for row in rows):12,}")
    for row in rows:
        if row.input is not None:
            lines += ["", f"{row.target}: {row.finding}", f"  input:  {row.input}"]
            lines.append(f"  replay: ./run fuzz {row.target} --replay {row.input}")
    return "\n".join(lines)


def main() -> int:
    options = _options()
    if options.list:
        listed = [{"target": target.name, "about": target.about} for target in table().values()]
        width = max(len(each["target"]) for each in listed)
        _print(
            json.dumps(listed) if options.json else "\n".join(f"{e['target']:{width}}  {e['about']}" for e in listed)
        )
        return 0
    if options.replay is not None:
        if find(options.target).interpreted and "NUMBA_DISABLE_JIT" not in os.environ:
            again = [sys.executable, "-m", "support.fuzz.fuzz", *sys.argv[1:]]
            os.execve(sys.executable, again, {**os.environ, "NUMBA_DISABLE_JIT": "1"})
        code = replay(options.target, options.replay)
        _print("the input does what the contract forbids" if code else "the input is answered or refused, as it should")
        return 1 if code else 0
    targets = [find(options.target)] if options.target else list(table().values())
    if options.plain or importlib.util.find_spec("atheris") is None:
        _complain("atheris has no wheel for this Python or system: mutated seeds only, without coverage")
    rows: list[Row] = []
    given = [f"--seed={options.seed}", *(["--plain"] if options.plain else [])]
    seconds = 0 if options.runs else options.seconds
    with tempfile.TemporaryDirectory() as fresh:
        # Runs by number are the same each time, so they start from the committed corpus alone.
        corpus = Path(fresh) if options.runs else options.work / "corpus"
        try:
            for target in targets:
                _complain(f"{target.name}: {target.about} ...")
                rows.append(run_target(target, options.work, corpus, runs=options.runs, seconds=seconds, options=given))
        except KeyboardInterrupt:
            log = options.work / "logs" / f"{targets[len(rows)].name}.log"
            rows.append(read_log(targets[len(rows)].name, log.read_text(errors="replace") if log.exists() else ""))
            _complain("interrupted; what was done until then:")
    _print(json.dumps([asdict(row) for row in rows]) if options.json else as_text(rows))
    return 1 if any(row.finding for row in rows) else 0


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it says nothing")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run fuzz", description="Fuzz the parsers of foreign and stored bytes.")
    parser.add_argument("target", nargs="?", help="one target, or all in turn")
    parser.add_argument("seconds", nargs="?", type=int, default=SECONDS, help=f"for each target ({SECONDS})")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--runs", type=int, default=0, help="so many inputs for each target, the same each time")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (1)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run TARGET on one input")
    parser.add_argument("--plain", action="store_true", help="without coverage, as where atheris has no wheel")
    parser.add_argument("--work", type=Path, default=TESTS.parent / ".fuzz", help="corpora, logs, findings (.fuzz)")
    options = parser.parse_args()
    if options.target is not None and options.target.isdigit():
        # `./run fuzz 10`: all targets, so many seconds each.
        options.target, options.seconds = None, int(options.target)
    if options.seconds < 1 or options.runs < 0:
        parser.error("SECONDS and --runs are positive numbers")
    if options.replay is not None and options.target is None:
        parser.error("--replay needs the name of a target")
    if options.replay is not None and not options.replay.is_file():
        parser.error(f"no file {options.replay}")
    return options


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _complain(text: str) -> None:
    sys.stderr.write(f"fuzz: {text}\n")


INTERRUPTED = 72
"""libFuzzer's exit code after Ctrl-C."""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UnknownTargetError as error:
        _complain(str(error))
        sys.exit(2)
