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

from measurement.process_tree import kill_tree, process_tree


class PeakMemory:
    """Measures for the duration of a `with`. Above the limit, if there is one, it kills the processes."""

    def __init__(self, root: int | None = None, limit: int | None = None) -> None:
        self.bytes = 0
        self.exceeded = False
        self._root = os.getpid() if root is None else root
        self._limit = limit
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
            self.bytes = max(self.bytes, sum(map(held_bytes, process_tree(self._root))))
            if self._limit is not None and self.bytes > self._limit:
                self.exceeded = True
                kill_tree(self._root)
                return
            if self._over.wait(_EVERY_S):
                return


def held_bytes(process: int) -> int:
    """The proportional set size of a process; 0 if it has ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return 0


_EVERY_S: Final = 0.25
