"""Processor time and peak memory of several process trees, which may lose processes while they are watched.

A tree is read several times a second. The time of a process that has ended is that of its last reading, so little is
lost even if its parent was killed. Memory is the proportional set size.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

from measurement.peak_memory import held_bytes
from measurement.process_tree import own_ticks, process_tree


class TreeUsage(NamedTuple):
    processor_s: float
    peak_mb: int


class ProcessUsage:
    """Watches the trees below these processes for the time of a `with`."""

    def __init__(self, roots: Mapping[str, tuple[int, ...]]) -> None:
        """`roots` are processes, by the name of what they do together."""
        self._roots = roots
        self._first = {name: self._read(name) for name in roots}
        self._last: dict[str, dict[int, int]] = {name: dict(found) for name, found in self._first.items()}
        self._peaks = dict.fromkeys(roots, 0)
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def usage_of(self, name: str) -> TreeUsage:
        """Processor time since the watch began, and the peak memory of all processes together."""
        ticks = sum(last - self._first[name].get(process, 0) for process, last in self._last[name].items())
        return TreeUsage(round(ticks / os.sysconf("SC_CLK_TCK"), 1), self._peaks[name] >> 20)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()

    def sample(self) -> None:
        for name in self._roots:
            found = self._read(name)
            self._last[name].update(found)
            self._peaks[name] = max(self._peaks[name], sum(map(held_bytes, found)))

    def _watch(self) -> None:
        while True:
            self.sample()
            if self._over.wait(_EVERY_S):
                return

    def _read(self, name: str) -> dict[int, int]:
        return {process: own_ticks(process) for root in self._roots[name] for process in process_tree(root)}


_EVERY_S: Final = 0.5
