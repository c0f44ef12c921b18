"""What a running process keeps on a disk for its next life, looked after now and then.

A full disk, or a folder that only root may write to, is no reason to end: what the process does for others goes on, the
log says so once, and it is tried again until it works.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from veilcast.errors import StorageError


class FileSync:
    def __init__(self, keep: Callable[[], None]) -> None:
        """`keep` raises `StorageError` as long as it cannot be done, and costs nothing if there is nothing to do."""
        self._keep, self._failed = keep, False

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.sync()

    def sync(self) -> None:
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
