"""The streams under a Byzantine broker's messages: it can send more, fewer or other messages than the honest machine
inside.

Items of a stream are numbered and acknowledged, and a peer stops listening after a gap. So changed messages get new
numbers, and acknowledged numbers are translated back. An item keeps its number and content when it is sent again on the
next stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from veilcast.errors import MalformedError
from veilcast.machine import Address, Frame, Machine
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import Hello, ItemAck, SessionItem


class RewritingBroker(MachineWrapper):
    """Wraps a broker and replaces each of its messages by the result of `rewrite`."""

    def __init__(self, inner: Machine) -> None:
        super().__init__(inner)
        self._sessions: dict[Address, _StreamSession] = {}
        self._out: list[Frame] = []

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        """The messages to send to this peer in place of `message`."""
        return [message]

    def preview(self, batch: Sequence[tuple[Address, Message]]) -> None:
        """Look at all messages that are sent for the first time, before any of them is rewritten."""

    def on_message(self, message: Message, source: Address) -> None:
        """Look at a received message before the inner machine does."""

    def inject(self, peer: Address, *messages: Message) -> None:
        """Send further messages to a peer that the broker has a stream with; at most `INJECTED_MAX` unacknowledged
        ones."""
        session = self._sessions.get(peer)
        if session is not None and len(session) < INJECTED_MAX:
            self._send(peer, session, session.put(map(encode, messages)))

    def receive(self, data: bytes, source: Address, now: int) -> None:
        message, session = decode_or_none(data), self._sessions.get(source)
        if session is not None and isinstance(message, ItemAck):
            data = encode(ItemAck(session.acknowledge(message.number)))
        elif session is not None and isinstance(message, Hello):
            if message.theirs == session.session:
                data = encode(msgspec.structs.replace(message, heard=session.acknowledge(message.heard)))
                session.open = False
                self._resume(source, session)
            elif (
                not session.last_replaced
            ):  # The peer has no session with us, and the inner machine has sent nothing: send our items again.
                self._sessions[source] = _StreamSession(session.session)
                self._sessions[source].put(item.cargo for item in session.unacknowledged())
                self._resume(source, self._sessions[source])
        elif isinstance(message, SessionItem) and (cargo := decode_or_none(message.cargo)) is not None:
            self.on_message(cargo, source)
        super().receive(data, source, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._sessions:
            self._sessions[peer].open = False
        super().peer_lost(peer, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        read = [(frame, decode_or_none(frame.data)) for frame in self._frames_of_inner(now, limit)]
        self.preview(
            [
                (frame.destination, cargo)
                for frame, message in read
                if isinstance(message, SessionItem)
                and not self._is_replaced(frame.destination, message.number)
                and (cargo := decode_or_none(message.cargo)) is not None
            ]
        )
        for frame, message in read:
            self._translate(frame, message)
        sent, self._out = self._out[:limit], self._out[limit:]
        return sent

    def _is_replaced(self, peer: Address, number: int) -> bool:
        return peer in self._sessions and number <= self._sessions[peer].last_replaced

    def _translate(self, frame: Frame, message: Message | None) -> None:
        peer = frame.destination
        session = self._sessions.get(peer)
        if isinstance(message, Hello) and (session is None or session.session != message.session):
            self._sessions[peer] = _StreamSession(message.session)
        if not isinstance(message, SessionItem) or session is None:
            self._out.append(frame)
        elif message.number > session.last_replaced:
            # The inner machine sends only after the greeting. What it repeats, we have sent again already.
            self._resume(peer, session)
            cargo = decode_or_none(message.cargo)
            rewritten = [] if cargo is None else self.rewrite(cargo, peer)
            self._send(peer, session, session.put(map(encode, rewritten), message.number))

    def _resume(self, peer: Address, session: _StreamSession) -> None:
        if not session.open:
            session.open = True
            self._send(peer, session, session.unacknowledged())

    def _send(self, peer: Address, session: _StreamSession, items: Iterable[SessionItem]) -> None:
        if session.open:
            self._out += [Frame(peer, encode(item)) for item in items]


class _StreamSession:
    """One session with one peer: unacknowledged items, and the items of the inner machine that they replace."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self.open = False
        self.last_replaced = 0
        """Number of the inner machine's last item."""
        self._items: dict[int, SessionItem] = {}
        self._ends: dict[int, int] = {}
        """For each item of the inner machine, our last item that has to be acknowledged for it."""
        self._last = self._heard = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, cargoes: Iterable[bytes], number: int | None = None) -> list[SessionItem]:
        """Number these messages; they replace the inner machine's item `number`, if it is given."""
        items = [SessionItem(self._last + at, cargo) for at, cargo in enumerate(cargoes, 1)]
        self._items |= {item.number: item for item in items}
        self._last += len(items)
        if number is not None:
            self.last_replaced = number
            self._ends[number] = self._last
        return items

    def unacknowledged(self) -> list[SessionItem]:
        return list(self._items.values())

    def acknowledge(self, number: int) -> int:
        """The peer has our items up to `number`. Returns the inner machine's last item that they cover."""
        self._items = {at: item for at, item in self._items.items() if at > number}
        while (following := self._heard + 1) in self._ends and self._ends[following] <= number:
            del self._ends[following]
            self._heard = following
        return self._heard


@lru_cache(1024)
def decode_or_none(data: bytes) -> Message | None:
    """The message, or None if the data is malformed. Cached: sender, receiver and checkers decode the same frame."""
    try:
        return decode(data)
    except MalformedError:
        return None


INJECTED_MAX: Final = 256
