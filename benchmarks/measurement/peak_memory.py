"""The peak memory of a process and of all processes that it started: Java, and Python's workers.

It is measured as proportional set size: pages that several processes share, such as forked workers, count once. It is
sampled several times a second, so shorter peaks can be missed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self


class PeakMemory:
    """Measures for the duration of a `with`."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(_held, process_tree(os.getpid()))))
            if self._over.wait(_EVERY_S):
                return


def process_tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # The process has ended meanwhile.
                # The name before the state can contain anything, and ends with the last bracket.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for one in found:
        found += children.get(one, [])
    return found


def _held(process: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return 0


_EVERY_S: Final = 0.25
