"""What is said on the control socket: requests of clients, answers of the node, and notes as they come.

Each message is four bytes of length and a msgpack array of a number and a tagged struct. Answers bear the number of
their request; notes, and what the node says unasked, bear 0. The node speaks first, with `Welcome`. Requests of one
client are answered in turn.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import msgspec

from veilcast import errors
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError, VeilcastError
from veilcast.machine import Note, Publication
from veilcast.net.agent import Peer, Status
from veilcast.topics import Constraint


class Said(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all messages."""


class Publish(Said, frozen=True):
    publication: Publication


class Subscribe(Said, frozen=True):
    constraints: tuple[Constraint, ...]


class Unsubscribe(Said, frozen=True):
    number: int


class Acknowledge(Said, frozen=True):
    number: int
    note: bytes


class AskStatus(Said, frozen=True):
    pass


class AskPeers(Said, frozen=True):
    pass


class Stop(Said, frozen=True):
    pass


class Welcome(Said, frozen=True):
    version: int


class Done(Said, frozen=True):
    pass


class Subscribed(Said, frozen=True):
    number: int


class Noted(Said, frozen=True):
    number: int
    note: Note


class Ended(Said, frozen=True):
    """No more notes of this subscription come: it was given up by another client, or the node goes down."""

    number: int


class StatusIs(Said, frozen=True):
    status: Status


class PeersAre(Said, frozen=True):
    peers: list[Peer]


class Refused(Said, frozen=True):
    """Why a request was not done: the name of an error of `veilcast.errors`, and its text."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: VeilcastError) -> Refused:
        return cls(type(error).__name__, str(error))

    def error(self) -> VeilcastError:
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, VeilcastError):
            return kind(self.text)
        return LocalError(self.text)


Request: TypeAlias = Publish | Subscribe | Unsubscribe | Acknowledge | AskStatus | AskPeers | Stop
Answer: TypeAlias = Welcome | Done | Subscribed | Noted | Ended | StatusIs | PeersAre | Refused


def encode_request(number: int, request: Request) -> bytes:
    return _encode((number, request), REQUEST_MAX)


def encode_answer(number: int, answer: Answer) -> bytes:
    return _encode((number, answer), ANSWER_MAX)


def _encode(message: object, at_most: int) -> bytes:
    body = _ENCODER.encode(message)
    if len(body) > at_most:
        raise LocalError(f"too large for the control socket: {len(body):,} bytes, and {at_most:,} at most")
    return len(body).to_bytes(LENGTH, "big") + body


async def read_request(reader: asyncio.StreamReader) -> tuple[int, Request]:
    return _REQUESTS.decode(await _read(reader, REQUEST_MAX))


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, Answer]:
    return _ANSWERS.decode(await _read(reader, ANSWER_MAX))


async def _read(reader: asyncio.StreamReader, at_most: int) -> bytes:
    size = int.from_bytes(await reader.readexactly(LENGTH), "big")
    if size > at_most:
        raise MalformedError("a message longer than any of ours")
    return await reader.readexactly(size)


VERSION: Final = 1
LENGTH: Final = 4
REQUEST_MAX: Final = 1 << 20
ANSWER_MAX: Final = REQUEST_MAX + 4096
"""More than a request, so that whatever could be published can be handed out."""
WINDOW: Final = 16
"""Notes of one subscription that a client may have without having acknowledged them. The node sends no more, so this
bounds what either side keeps in memory."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_NONE_OF_OURS: Final = "bytes that are no message of ours"
_REQUESTS: Final = MsgpackDecoder(tuple[int, Request], MalformedError, _NONE_OF_OURS, REQUEST_MAX)
_ANSWERS: Final = MsgpackDecoder(tuple[int, Answer], MalformedError, _NONE_OF_OURS, ANSWER_MAX)
