"""Streams for which more is written than their peers have read.

Nobody waits for a peer that reads slowly: what gathers for it is limited, by `FrameStream` for each and here for all of
them together, and a stream that does not move at all ends. But who reads as fast as it can may be slower than a machine
writes. So when much has gathered for a peer the machine has to wait until that peer has caught up, or patience ends. It
is waited for again only when it has caught up: who reads slowly by intent holds up others for a moment, and no more.
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
        """`go_on` is called when the machine need not wait any longer."""
        self._limits, self._go_on = limits, go_on
        self._sent: dict[FrameStream, int] = {}
        """Of streams that are behind: how much each had sent when it was looked at last."""
        self._slow: dict[FrameStream, None] = {}
        """Those that were waited for in vain."""
        self._awaited: FrameStream | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """How many streams are behind."""
        return len(self._sent)

    @property
    def must_wait(self) -> bool:
        """Whether the machine is to be asked for nothing now."""
        return self._awaited is not None

    @property
    def unsent(self) -> int:
        return sum(stream.unsent for stream in self._sent)

    def add(self, stream: FrameStream) -> None:
        """It has something unsent."""
        self._sent.setdefault(stream, _NOT_LOOKED_AT)
        if stream.unsent > self._limits.high_water and self._awaited is None and stream not in self._slow:
            self._awaited = stream
            self._patience = asyncio.get_running_loop().call_later(self._limits.patience_s, self._give_up)

    def remove(self, stream: FrameStream) -> None:
        """It has caught up, or ended."""
        self._sent.pop(stream, None)
        self._slow.pop(stream, None)
        if stream is self._awaited and self._patience is not None:
            self._patience.cancel()
            self._awaited = None
            self._go_on()
        self._news.set()

    def drop_longest(self) -> None:
        """Keep within what may wait for all: who is furthest behind goes."""
        if self._sent and self.unsent > self._limits.waiting_max:
            max(self._sent, key=lambda stream: stream.unsent).drop(SLOW)

    def drop_stalled(self) -> None:
        """From time to time: who has not moved since the last time goes."""
        for stream, before in list(self._sent.items()):
            if stream.sent == before:
                stream.drop(SLOW)
            else:
                self._sent[stream] = stream.sent

    async def wait_empty(self) -> None:
        """Returns when nobody is behind."""
        while self._sent:
            self._news.clear()
            await self._news.wait()

    def _give_up(self) -> None:
        assert self._awaited is not None
        self._slow[self._awaited] = None
        self._awaited = None
        self._go_on()


_NOT_LOOKED_AT: Final = -1
