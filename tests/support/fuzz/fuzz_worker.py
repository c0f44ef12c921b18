"""One target in one process: first all seeds, then mutated inputs, until an input breaks the contract.

    python -m support.fuzz.fuzz_worker TARGET... --runs N --seconds S --seed K --corpus DIR --findings DIR --logs DIR

Several targets share the imports, which take longer than 2,000 inputs do: the process prepares all of them, then forks
one process for each in turn, which writes to its own log and is killed if an input kills it. The directories have an
entry for each target, by its name.

With atheris the fuzzer is libFuzzer and sees which branches of `veilcast` an input takes. Where atheris has no wheel,
the same seeds and the same structured mutators run without that. Exit codes: 0 nothing found; 77 a finding, which lies
in the directory of findings; libFuzzer has 70 for an input that takes too long and 71 for one that takes too much
memory.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from support.fuzz import fuzz_feedback

if TYPE_CHECKING:
    from support.fuzz.fuzz_target import Prepared

FOUND = 77
INPUT_S = 120
"""An input that takes longer than this many seconds is a finding."""
MEMORY_MB = 2048
"""A process that needs more than this is a finding."""
STRUCTURED = 0.5
"""Share of structured mutations; the other mutations are the fuzzer's own."""


def main() -> None:
    options = _options()
    os.environ.setdefault("PYTHONHASHSEED", "0")
    with_coverage = not options.plain and importlib.util.find_spec("atheris") is not None
    with _instrument(with_coverage):
        from support.fuzz.fuzz_table import find

        prepared = {name: find(name).prepare() for name in options.target}
    if len(prepared) == 1:
        [(name, only)] = prepared.items()
        _fuzz(name, only, options, with_coverage=with_coverage)
    else:
        for name, each in prepared.items():
            _run_forked(name, each, options, with_coverage=with_coverage)


def replay(name: str, file: Path) -> int:
    """Run one input in this process; returns 77 if it breaks the contract."""
    from support.fuzz.fuzz_table import find

    try:
        find(name).prepare().run(file.read_bytes())
    except Exception:
        traceback.print_exc()
        return FOUND
    return 0


def committed_corpus(name: str) -> Path:
    """The committed inputs, one on each line in hexadecimal: past findings, and the fewest inputs that reach all known
    edges."""
    return Path(__file__).parents[2] / "fuzz" / "corpus" / f"{name}.hex"


def _run_forked(name: str, prepared: Prepared, options: argparse.Namespace, *, with_coverage: bool) -> None:
    """Run one target in a child. The child's exit code is the last line of its log."""
    with (options.logs / f"{name}.log").open("ab") as log:
        child = os.fork()
        if child == 0:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
            _fuzz(name, prepared, options, with_coverage=with_coverage)
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.write(f"exit code: {code}\n".encode())


def _fuzz(name: str, prepared: Prepared, options: argparse.Namespace, *, with_coverage: bool) -> None:
    from support.fuzz.fuzz_seeds import seeds

    corpus, findings = options.corpus / name, options.findings / name
    inputs = [*(bytes.fromhex(line) for line in _lines(name)), *seeds(prepared)]
    for data in inputs:
        _run_or_exit(prepared.run, data, findings, "seed")
    _say(f"seeds: {len(inputs)}")
    if options.seeds_only:
        return
    if with_coverage:
        _with_atheris(prepared, inputs, options, corpus, findings)
    else:
        _without_atheris(prepared, inputs, options, findings)


def _with_atheris(
    prepared: Prepared, inputs: list[bytes], options: argparse.Namespace, corpus: Path, findings: Path
) -> NoReturn:
    import atheris

    from support.fuzz.fuzz_mutator import mutator

    fuzz_feedback.use(atheris.instrument_func)
    corpus.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        if len(data) <= prepared.max_len:
            (corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    mutate = mutator(prepared)

    def custom(data: bytes, size: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < options.structured:
            return mutate(bytes(data), size, rng) or b"\0"
        return bytes(atheris.Mutate(bytes(data), size))

    arguments = [
        sys.argv[0],
        f"-seed={options.seed}",
        f"-max_len={prepared.max_len}",
        f"-timeout={INPUT_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        "-len_control=0",  # Short limits at first would cut every structured mutation.
    ]
    if options.runs:
        arguments.append(f"-runs={options.runs}")
    if options.seconds:
        arguments.append(f"-max_total_time={options.seconds}")
    keywords = {"custom_mutator": custom} if options.structured else {}
    atheris.Setup([*arguments, str(corpus)], prepared.run, **keywords)
    atheris.Fuzz()
    sys.exit(0)


def _without_atheris(prepared: Prepared, inputs: list[bytes], options: argparse.Namespace, findings: Path) -> None:
    from support.fuzz.fuzz_mutator import mutate_bytes, mutator

    _say("no coverage: atheris has no wheel here; structured mutations of the seeds only")
    rng, mutate = Random(options.seed), mutator(prepared)
    pool = [data for data in inputs if len(data) <= prepared.max_len] or [b""]
    deadline = time.monotonic() + options.seconds if options.seconds else None
    done = 0
    signal.signal(signal.SIGALRM, _too_slow)
    with contextlib.suppress(KeyboardInterrupt):
        while done < options.runs if options.runs else True:
            if deadline is not None and time.monotonic() >= deadline:
                break
            data = rng.choice(pool)
            for _ in range(rng.randrange(1, 4)):
                data = (mutate if rng.random() < STRUCTURED else mutate_bytes)(data, prepared.max_len, rng)
            done += 1
            signal.alarm(INPUT_S)
            _run_or_exit(prepared.run, data, findings, "crash", done)
            signal.alarm(0)
    _say(f"stat::number_of_executed_units: {done}")


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"an input took more than {INPUT_S} s")


def _run_or_exit(run: Callable[[bytes], None], data: bytes, findings: Path, kind: str, done: int = 0) -> None:
    try:
        run(data)
    except Exception as error:
        findings.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        (findings / f"{kind}-{name}").write_bytes(data)
        traceback.print_exc()
        _say(f" === Uncaught Python exception: ===\n{type(error).__name__}: {error}")
        _say(f"stat::number_of_executed_units: {done}")
        sys.exit(FOUND)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _lines(name: str) -> list[str]:
    path = committed_corpus(name)
    return path.read_text().split() if path.exists() else []


@contextlib.contextmanager
def _instrument(wanted: bool) -> Iterator[None]:
    if not wanted:
        resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_MB << 20, 4 * MEMORY_MB << 20))
        yield
        return
    import atheris

    with atheris.instrument_imports(include=["veilcast"], enable_loader_override=False):
        yield


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="+")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--findings", type=Path, required=True)
    parser.add_argument("--logs", type=Path, help="where several targets log to; a single one logs to stderr")
    parser.add_argument("--structured", type=float, default=STRUCTURED)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seeds-only", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
