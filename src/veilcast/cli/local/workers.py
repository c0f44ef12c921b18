"""The processes that serve a local network: a few workers with many nodes each, on one event loop each.

Why a few: such a node keeps a core busy for one or two percent, while a process of its own costs an interpreter (30 MB,
and a fifth of a second to start). Two workers use two cores. Nodes in one worker behave as nodes in two: each has its
own sockets, store and clock, and all their messages go through the system's loopback.

A worker locks its pid file while it lives. So a locked pid file names a living worker of this network, and an unlocked
one was left by a dead worker: no process id is ever mistaken for another process. A worker may also have a lifeline, a
pipe that its starter keeps open: when the pipe ends for any reason, so does the worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from veilcast.errors import LocalError, StorageError


class WorkerGroup:
    """The workers that this process has started: all of a network, or those of these numbers."""

    def __init__(self, directory: Path, workers: int, *, lifeline: bool, numbers: Sequence[int] | None = None) -> None:
        self._directory = directory
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for number in range(workers) if numbers is None else numbers:
                self._children[number] = _start(directory, number, workers, lifeline=lifeline)
        except BaseException:
            self.end()
            raise

    def check(self) -> None:
        """Raise the last error of a worker that has ended, if one has."""
        for number, child in self._children.items():
            if child.poll() is not None:
                lines = _log(self._directory, number).read_text(errors="replace").strip().splitlines()
                last_line = lines[-1] if lines else f"worker {number} ended with {child.returncode}"
                raise LocalError(last_line.removeprefix("veilcast: "))

    def detach(self) -> None:
        """Let the workers go on when this process ends; from now on `end_workers` ends them."""
        for child in self._children.values():
            child.returncode = 0  # Or it would be reported as forgotten.
        self._children.clear()

    def end(self) -> None:
        """Cut the lifelines and end all workers, without waiting for unfinished work."""
        for child in self._children.values():
            if child.stdin is not None:
                child.stdin.close()
            child.terminate()
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        remove_files(self._directory)


def add_worker(directory: Path, hosts: Sequence[str]) -> None:
    """Start one more worker for these hosts, beside the living ones; `end_workers` ends it."""
    number = 1 + max((int(path.stem.rpartition("-")[2]) for path in directory.glob("worker-*.pid")), default=WORKERS)
    child = _start(directory, number, 1, *hosts)
    while _holder(_pid_file(directory, number)) is None:
        if child.poll() is not None:
            lines = _log(directory, number).read_text(errors="replace").strip().splitlines()
            raise LocalError((lines or ["it did not start"])[-1].removeprefix("veilcast: "))
        time.sleep(_LOOK_S)
    child.returncode = 0  # Or it would be reported as forgotten.


def register_worker(directory: Path, number: int) -> int:
    """Lock the pid file of this worker and write the process id. The system closes the descriptor when the process
    ends."""
    descriptor = os.open(_pid_file(directory, number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # A process that looks for workers has the lock for a moment; another worker has it for its lifetime.
    for left in reversed(range(_LOOKS)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if left == 0:
                os.close(descriptor)
                raise StorageError(f"worker {number} of this network runs already") from error
            time.sleep(_LOOK_S)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def missing_workers(directory: Path) -> list[int]:
    """Return the numbers of the original workers of a network that do not live."""
    alive = living_workers(directory)
    return [number for number in range(WORKERS) if _pid_file(directory, number) not in alive]


def living_workers(directory: Path) -> dict[Path, int]:
    """Return the process ids of the living workers, by pid file."""
    return {path: pid for path in sorted(directory.glob("worker-*.pid")) if (pid := _holder(path)) is not None}


def end_workers(directory: Path, within_s: float) -> int:
    """End the living workers, whatever process started them. Returns how many had to be killed."""
    for pid in living_workers(directory).values():
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    while living_workers(directory) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    stubborn = living_workers(directory)
    for pid in stubborn.values():
        _signal(pid, signal.SIGKILL)
    while living_workers(directory):
        time.sleep(_LOOK_S)
    remove_files(directory)
    return len(stubborn)


def remove_files(directory: Path) -> None:
    """Remove the files that dead workers left."""
    alive = living_workers(directory)
    for path in directory.glob("worker-*.*"):
        if path.with_suffix(".pid") not in alive:
            path.unlink(missing_ok=True)


def _start(directory: Path, number: int, workers: int, *only: str, lifeline: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "veilcast.cli.local.worker", str(directory.absolute()), str(number), str(workers)]
    command += [f"--only={host}" for host in only]
    with _log(directory, number).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command if not lifeline else [*command, "--lifeline"],
            stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is for the starter, which ends its workers in order.
            start_new_session=True,
        )


def _holder(path: Path) -> int | None:
    """Return the process that has locked this pid file, if there is one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        content = os.read(descriptor, 32)
        return int(content) if content.isdigit() else None
    else:
        return None
    finally:
        os.close(descriptor)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _pid_file(directory: Path, number: int) -> Path:
    return directory / f"worker-{number}.pid"


def _log(directory: Path, number: int) -> Path:
    return directory / f"worker-{number}.log"


WORKERS: Final = 2
_END_S: Final = 10.0
_LOOK_S: Final = 0.05
_LOOKS: Final = 10
