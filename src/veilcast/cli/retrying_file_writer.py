"""Keeps a file of a running process up to date for its next run.

A full disk, or a directory that only root may write to, does not end the process: its work goes on, the log says so
once, and the write is repeated until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from veilcast.errors import StorageError


class RetryingFileWriter:
    def __init__(self, keep: Callable[[], None]) -> None:
        """`keep` writes the file if it is out of date, and raises `StorageError` if it cannot. It is cheap if nothing
        has changed."""
        self._keep, self._failed = keep, False

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.save()

    def save(self) -> None:
        try:
            self._keep()
        except StorageError:
            if not self._failed:
                _LOG.warning("a newer overlay cannot be written to its file: see to its disk and folder; trying again")
            self._failed = True
        else:
            if self._failed:
                _LOG.info("the newer overlay is in its file now")
            self._failed = False


LOOK_S: Final = 0.5
_LOG: Final = logging.getLogger("veilcast.keeping")
