"""Writes what an observer sees of a world into the tables of `veilcast.observe`.

Times are the world's own, not a node's skewed clock: the observer's clock is right. A pair or a node that is seen
several times in an epoch is one row.
"""

from __future__ import annotations

from typing import Protocol

from veilcast.machine import Address
from veilcast.observe import CellRow, ObservationRow, PresenceRow, TopologyRow, TruthRow


class RowSink(Protocol):
    """Receives rows: a `veilcast.observe.TableWriter`, or anything that keeps them."""

    def append(self, row: ObservationRow) -> None: ...


class RunRecorder:
    """The rows of one run."""

    __slots__ = ("_epoch_us", "_recorder", "_run", "_seen", "_seen_in")

    def __init__(self, recorder: RowSink, run: str, epoch_us: int) -> None:
        self._recorder = recorder
        self._run = run
        self._epoch_us = epoch_us
        self._seen: dict[tuple[Address, ...], None] = {}  # Pairs and nodes of one epoch; emptied by the next.
        self._seen_in = -1

    def cell(self, time: int, source: Address, destination: Address, size: int) -> None:
        epoch = time // self._epoch_us
        self._recorder.append(CellRow(self._run, epoch, time, source, destination, size))

    def pair(self, time: int, u: Address, v: Address) -> None:
        low, high = sorted((u, v))
        if self._is_new(time, (low, high)):
            self._recorder.append(TopologyRow(self._run, time // self._epoch_us, low, high))

    def presence(self, time: int, node: Address) -> None:
        if self._is_new(time, (node,)):
            self._recorder.append(PresenceRow(self._run, time // self._epoch_us, node))

    def truth(self, topic: str, node: Address, role: str, since_us: int, until_us: int) -> None:
        self._recorder.append(TruthRow(self._run, topic, node, role, since_us, until_us))

    def epoch_edges(self, start: int, end: int) -> range:
        """The epochs that begin after `start`, up to and including `end`."""
        return range(start - start % self._epoch_us + self._epoch_us, end + 1, self._epoch_us)

    def _is_new(self, time: int, what: tuple[Address, ...]) -> bool:
        epoch = time // self._epoch_us
        if epoch != self._seen_in:
            self._seen_in = epoch
            self._seen.clear()
        if what in self._seen:
            return False
        self._seen[what] = None
        return True
