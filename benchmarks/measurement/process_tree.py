"""A process and all processes that it started: Java, and Python's workers. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def process_tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for one in found:
        found += children.get(one, [])
    return found


def processor_seconds(root: int) -> float:
    """Processor time of a process tree so far, with that of descendants that have ended and were waited for.

    It depends far less than wall-clock time on what else the machine does.
    """
    return sum(map(processor_seconds_of, process_tree(root)))


def processor_seconds_of(process: int) -> float:
    """The same of one process, with those of its children that have ended and were waited for."""
    return sum(map(int, _stat(process)[11:15])) / os.sysconf("SC_CLK_TCK")


def own_ticks(process: int) -> int:
    """Processor time of one process alone, in clock ticks; 0 if it has ended."""
    return sum(int(tick) for tick in _stat(process)[11:13])


def kill_tree(root: int) -> None:
    for process in process_tree(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if the process has ended."""
    with contextlib.suppress(OSError):
        # The name before the state can contain anything, and ends with the last bracket.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []
