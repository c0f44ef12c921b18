"""Streams with unsent bytes: more was written to them than their peers have read.

A driver never blocks on a slow peer. `FrameStream` limits the unsent bytes of each stream, this module limits the
unsent bytes of all streams together, and a stream that sends nothing between two reviews is closed.

A fast peer can still be slower than the machine writes. So when a stream passes the high-water mark, the driver stops
asking the machine for frames until that stream has sent everything, or until `patience_s` is over. The driver waits
again for this stream only after the stream has sent everything. So a peer that reads slowly on purpose delays the other
peers once, for `patience_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from veilcast.net.close_reasons import SLOW
from veilcast.net.stream import FrameStream
from veilcast.net.stream_limits import StreamLimits


class SendBacklog:
    def __init__(self, limits: StreamLimits, go_on: Callable[[], None]) -> None:
        """`go_on` is called when the machine no longer has to wait."""
        self._limits, self._go_on = limits, go_on
        self._sent: dict[FrameStream, int] = {}
        """Bytes that each stream of the backlog had sent at the last review."""
        self._slow: dict[FrameStream, None] = {}
        """Streams that the driver has waited for in vain."""
        self._awaited: FrameStream | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """The number of streams with unsent bytes."""
        return len(self._sent)

    @property
    def must_wait(self) -> bool:
        """True while the driver must not ask the machine for frames."""
        return self._awaited is not None

    @property
    def unsent(self) -> int:
        return sum(stream.unsent for stream in self._sent)

    def add(self, stream: FrameStream) -> None:
        """Add a stream that has unsent bytes."""
        self._sent.setdefault(stream, _NOT_LOOKED_AT)
        if stream.unsent > self._limits.high_water and self._awaited is None and stream not in self._slow:
            self._awaited = stream
            self._patience = asyncio.get_running_loop().call_later(self._limits.patience_s, self._give_up)

    def remove(self, stream: FrameStream) -> None:
        """Remove a stream that has sent everything or has ended."""
        self._sent.pop(stream, None)
        self._slow.pop(stream, None)
        if stream is self._awaited and self._patience is not None:
            self._patience.cancel()
            self._awaited = None
            self._go_on()
        self._news.set()

    def drop_longest(self) -> None:
        """Close the stream with the most unsent bytes if all streams together have more than `waiting_max`."""
        if self._sent and self.unsent > self._limits.waiting_max:
            max(self._sent, key=lambda stream: stream.unsent).drop(SLOW)

    def drop_stalled(self) -> None:
        """Close the streams that have sent nothing since the last review."""
        for stream, before in list(self._sent.items()):
            if stream.sent == before:
                stream.drop(SLOW)
            else:
                self._sent[stream] = stream.sent

    async def wait_empty(self) -> None:
        """Return when no stream has unsent bytes."""
        while self._sent:
            self._news.clear()
            await self._news.wait()

    def _give_up(self) -> None:
        assert self._awaited is not None
        self._slow[self._awaited] = None
        self._awaited = None
        self._go_on()


_NOT_LOOKED_AT: Final = -1
