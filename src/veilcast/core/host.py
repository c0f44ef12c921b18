"""Bases of machines: what the machines of members and of hosts have in common, and what a host adds.

A host serves peers that call it, and has no client: the proxy and the server of a relay, the directory of a tree. Its
records are all that it knows in its next life.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from veilcast.core.durable_records import DurableRecords
from veilcast.errors import RemoteError, VeilcastError
from veilcast.faults import Faults
from veilcast.machine import Address, Event, Frame, Listen
from veilcast.wire import encode
from veilcast.wire.base import Message


class MachineBase:
    """Counts refused messages and its own calls, keeps exceptions of our own code inside, and holds frames to send."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        """Messages that were refused, by the name of the error's class or by the code of the answer."""
        self.version = 0
        """The number of calls that may have changed the machine."""
        self._frames: list[Frame] = []

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def _receive_with(self, hear: Callable[[], object]) -> None:
        """Hear a message. A `RemoteError` refuses the message; any other exception is a fault of our own."""
        self.version += 1
        try:
            hear()
        except RemoteError as error:
            self._refuse(error)
        except Exception as error:
            self.faults.count_exception(error)

    def _refuse(self, error: Exception) -> None:
        """Count a refused message, and a fault if the exception is not an error of ours."""
        if not isinstance(error, VeilcastError):
            self.faults.count_exception(error)
        self.refused[type(error).__name__] += 1


class HostBase(MachineBase):
    """A machine that listens for one kind of peer and keeps records; `standing` are those of earlier lives."""

    def __init__(self, listens_for: str, standing: Iterable[int]) -> None:
        super().__init__()
        self._records = DurableRecords(standing)
        self._events: list[Event] = [Listen(listens_for)]

    def next_event(self) -> Event | None:
        return self._events.pop(0) if self._events else self._records.next_event()

    def stored(self, record: int, now: int) -> None:
        self.version += 1
        self._records.stored(record, now)

    def _post(self, peer: Address, message: Message) -> None:
        self._frames.append(Frame(peer, encode(message)))
