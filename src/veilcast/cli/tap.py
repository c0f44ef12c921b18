"""The wire tap: a machine around the outermost machine of a node that records every datagram as the wire shows it;
where peers are reached through Tor, it records every frame, with the names that this node has for its peers.

It is for the lab and for demonstrations. It records what an observer of this node's wires would have: times, addresses
and sizes, in the lab's table `cells`, and no contents. On a disk that is still a list of the member's peers and times,
so the tap is off unless it is asked for by a name that warns.

A datagram has the machine's `now` when the driver takes it. A failing disk ends the recording, not the node.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from veilcast.cli.files import make_directory
from veilcast.errors import StorageError
from veilcast.machine import Address, Frame, Machine
from veilcast.observe import TABLE_OF, CellRow, TableWriter
from veilcast.sim.wrappers import MachineWrapper

WrapMachine: TypeAlias = Callable[[Machine, Address, int], Machine]
"""Wraps a node's outermost machine; receives the machine, the node's own address and the length of its epochs."""


@contextmanager
def open_tap(directory: Path, run: str) -> Iterator[WrapMachine]:
    """Open the table, and yield the function that puts a tap around a node's machine. Only the owner can read the
    file."""
    make_directory(directory)
    _make_private(directory / f"{TABLE_OF[CellRow]}.jsonl")
    with TableWriter(directory) as table:
        yield lambda machine, own, epoch_us: WireTap(machine, table, own, run=run, epoch_us=epoch_us)


class CellTable(Protocol):
    def append(self, row: CellRow) -> None: ...
    def flush(self) -> None: ...


class WireTap(MachineWrapper):
    """Forwards every call to the inner machine and records the frames; `rows_max` bounds the table."""

    def __init__(
        self, inner: Machine, table: CellTable, own: Address, *, run: str, epoch_us: int, rows_max: int = 10_000_000
    ) -> None:
        super().__init__(inner)
        self._table, self._own = table, own
        self._run, self._epoch_us, self._rows_left = run, epoch_us, rows_max
        self._flushed_us = 0

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._write(now, source, self._own, len(data))
        self._inner.receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._inner.frames_to_send(now, limit)
        for frame in frames:
            self._write(now, self._own, frame.destination, len(frame.data))
        return frames

    def _write(self, now: int, source: Address, destination: Address, size: int) -> None:
        if not self._rows_left:
            return
        self._rows_left -= 1
        try:
            self._table.append(CellRow(self._run, now // self._epoch_us, now, source, destination, size))
            if now - self._flushed_us >= FLUSH_US:
                self._table.flush()
                self._flushed_us = now
        except StorageError:
            self._rows_left = 0
            _LOG.exception("the tap cannot write, and ends")
        else:
            if not self._rows_left:
                _LOG.warning("the tap is full, and ends")


def _make_private(path: Path) -> None:
    """Create the file for its owner alone; the directory may be older and readable for others."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


FLUSH_US: Final = 1_000_000
"""Longest time in which rows are held back from a reader that follows the table, while there is traffic."""
_LOG: Final = logging.getLogger("veilcast.tap")
