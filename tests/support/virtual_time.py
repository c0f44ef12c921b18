"""An event loop in virtual time, for real UDP sockets of one process.

The clock stands still while anything is ready. If nothing is, the loop jumps to its next timer. So an hour of
heartbeats takes as long as the processor needs for them, and a busy machine delays nothing that the test could see.

Assumption: the system hands a datagram on loopback to its receiver before `sendto` returns. Where that is not so, the
datagram arrives some virtual time late, as on any network. Not for threads or other processes: the clock would not wait
for them.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")


class VirtualTime:
    """The clock of one run, in nanoseconds since its beginning."""

    def __init__(self) -> None:
        self._now_ns = 0

    def steady_ns(self) -> int:
        """Stands for `time.monotonic_ns`."""
        return self._now_ns

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(main)

    def skip(self, seconds: float) -> None:
        # Rounded up, so that a timer that is waited for is due.
        self._now_ns += int(seconds * 1e9) + 1


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualTime) -> None:
        self._virtual = clock
        super().__init__(_Skipping(clock))

    def time(self) -> float:
        return self._virtual.steady_ns() / 1e9


class _Skipping(selectors.BaseSelector):
    """Waits for nothing: if no socket is ready, the time that the loop would have waited has passed."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock, self._inner = clock, selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0 if timeout is not None else None)
        if not ready and timeout:
            self._clock.skip(timeout)
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()
