"""Group commit: one thread writes all changes that have gathered since the last write.

The disk is slow, and the links must not wait for it. So a journal gathers changes without blocking, a thread writes
them while more gather, and after the write the journal tells the machine. A caller that was promised durability waits
for the write that contains its change. A failed write ends the service: nothing may go on as if it had succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from veilcast.machine import Event

if TYPE_CHECKING:
    from veilcast.net.driver import MachineDriver


class EventJournal(Protocol):
    """Gathers the changes that a machine's events cause. `changes` and the answer of a write are of the store's own
    types."""

    def take(self, event: Event, now: int) -> bool: ...

    def changes(self) -> list[Any]: ...

    def written(self, changes: Sequence[Any], answer: Any, now: int) -> None: ...


class GroupCommit:
    def __init__(self, journal: EventJournal, write: Callable[[Sequence[Any]], Any], driver: MachineDriver) -> None:
        """`write` is called in the thread, and returns when all changes are on the disk."""
        self._journal, self._write, self._driver = journal, write, driver
        self._dirty = asyncio.Event()
        self.committed = asyncio.Event()
        """Set and replaced after each write."""
        self._begun = 0
        self._done = 0

    async def run(self) -> None:
        """Write changes as they gather. Never returns."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "disk") as thread:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                self._begun += 1
                if changes := self._journal.changes():
                    answer = await loop.run_in_executor(thread, self._write, changes)
                    self._journal.written(changes, answer, self._driver.now())
                    self._driver.touch()
                self._done = self._begun
                news, self.committed = self.committed, asyncio.Event()
                news.set()

    def act_on(self, event: Event) -> None:
        """Handle an event of the machine that the driver leaves to its owner."""
        if self._journal.take(event, self._driver.now()):
            self._dirty.set()

    async def flush(self) -> None:
        """Return when all changes that the journal has now are on the disk."""
        self._driver.touch()
        self._dirty.set()
        # A write under way may have begun before; the next one has it for certain.
        goal = self._begun + 1
        while self._done < goal:
            await self.committed.wait()
