"""What lies under a Byzantine broker's words: the numbered items of its streams, so that it can say more, less or other
things than the honest machine inside it.

Items are numbered and acknowledged, and whoever leaves a gap is not listened to any more. So what is said otherwise is
numbered anew, and numbers that come back are translated. What is said once under a number stays the same when it is
sent again on the next stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from veilcast.errors import MalformedError
from veilcast.machine import Address, Frame, Machine
from veilcast.sim.adversaries import Wrapper
from veilcast.wire import decode, encode
from veilcast.wire.brokers import Heard, Hello, Item
from veilcast.wire.messages import Message


class Speaker(Wrapper):
    """Wraps a broker, and says of each of its messages what `say` makes of it: the base of the liars."""

    def __init__(self, inner: Machine) -> None:
        super().__init__(inner)
        self._numbers: dict[Address, _Numbers] = {}
        self._besides: dict[Address, deque[Message]] = {}
        self._out: list[Frame] = []

    def say(self, message: Message, peer: Address) -> list[Message]:
        """What it tells this peer in place of the message."""
        return [message]

    def prepare(self, batch: Sequence[tuple[Address, Message]]) -> None:
        """Look at all that is about to be said for the first time, before any of it is."""

    def overhear(self, message: Message, source: Address) -> None:
        """Look at what has come, before the machine inside does."""

    def add(self, peer: Address, *messages: Message) -> None:
        """Say this, too, with the next item for the peer; past a bound the oldest is left unsaid."""
        self._besides.setdefault(peer, deque(maxlen=BESIDES_MAX)).extend(messages)

    def receive(self, data: bytes, source: Address, now: int) -> None:
        message = opened(data)
        numbers = self._numbers.get(source)
        if numbers is not None and isinstance(message, Heard):
            data = encode(Heard(numbers.inner(message.number)))
        elif numbers is not None and isinstance(message, Hello) and message.theirs == numbers.session:
            data = encode(msgspec.structs.replace(message, heard=numbers.inner(message.heard)))
        elif isinstance(message, Item) and (cargo := opened(message.cargo)) is not None:
            self.overhear(cargo, source)
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._frames_of_inner(now, limit)
        read = [(frame, opened(frame.data)) for frame in frames]
        self.prepare(
            [
                (frame.destination, cargo)
                for frame, message in read
                if isinstance(message, Item)
                and not self._knows(frame.destination, message.number)
                and (cargo := opened(message.cargo)) is not None
            ]
        )
        for frame, message in read:
            self._out += self._translated(frame, message)
        sent, self._out = self._out[:limit], self._out[limit:]
        return sent

    def _knows(self, peer: Address, number: int) -> bool:
        return peer in self._numbers and self._numbers[peer].knows(number)

    def _translated(self, frame: Frame, message: Message | None) -> list[Frame]:
        peer = frame.destination
        if isinstance(message, Hello):
            numbers = self._numbers.get(peer)
            if numbers is None or numbers.session != message.session:
                self._numbers[peer] = _Numbers(message.session)
        if not isinstance(message, Item) or peer not in self._numbers:
            return [frame]
        numbers = self._numbers[peer]
        if not numbers.knows(message.number):
            cargo = opened(message.cargo)
            said = [] if cargo is None else self.say(cargo, peer)
            besides = self._besides.pop(peer, ())
            numbers.put(message.number, [encode(each) for each in (*said, *besides)])
        return [Frame(peer, encode(item)) for item in numbers.items(message.number)]


class _Numbers:
    """Of one session with one peer: which items stand for which of the machine's."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self._items: dict[int, tuple[Item, ...]] = {}
        self._last = 0
        self._heard = 0
        """All of the machine's up to this one were heard, and are forgotten."""

    def knows(self, number: int) -> bool:
        return number <= self._heard or number in self._items

    def put(self, number: int, cargoes: Iterable[bytes]) -> None:
        items = tuple(Item(self._last + at, cargo) for at, cargo in enumerate(cargoes, 1))
        self._items[number] = items
        self._last += len(items)

    def items(self, number: int) -> tuple[Item, ...]:
        return self._items.get(number, ())

    def inner(self, heard: int) -> int:
        """Up to which of the machine's own items the peer has what stands for them."""
        for number in sorted(self._items):
            if any(item.number > heard for item in self._items[number]):
                break
            del self._items[number]
            self._heard = number
        return self._heard


def opened(data: bytes) -> Message | None:
    """What stands there, if it is a message."""
    try:
        return decode(data)
    except MalformedError:
        return None


BESIDES_MAX: Final = 256
