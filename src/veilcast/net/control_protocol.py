"""What is said on the control socket: requests of clients, answers of the node, and notes as they come.

Each message is four bytes of length and a msgpack array of a number and a tagged struct. Answers bear the number of
their request; notes, and what the node says unasked, bear 0. The node speaks first, with `Welcome`. Requests of one
client are answered in turn. A request that the node cannot read is refused like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from veilcast import errors
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError, VeilcastError
from veilcast.machine import Note, Publication
from veilcast.net.agent import Peer, Status
from veilcast.topics.interests import Constraint

if TYPE_CHECKING:
    import asyncio


class ControlMessage(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all messages."""


class PublishRequest(ControlMessage, frozen=True):
    publication: Publication


class SubscribeRequest(ControlMessage, frozen=True):
    constraints: tuple[Constraint, ...]
    keep: bool = False
    """True if the subscription outlives the client that asks for it."""


class UnsubscribeRequest(ControlMessage, frozen=True):
    """Leave a subscription. It ends, unless another client has it, or this client has asked to keep it."""

    number: int


class AcknowledgeRequest(ControlMessage, frozen=True):
    number: int
    note: bytes


class StatusRequest(ControlMessage, frozen=True):
    pass


class PeersRequest(ControlMessage, frozen=True):
    pass


class StopRequest(ControlMessage, frozen=True):
    pass


class Welcome(ControlMessage, frozen=True):
    version: int


class DoneAnswer(ControlMessage, frozen=True):
    pass


class SubscribedAnswer(ControlMessage, frozen=True):
    number: int


class NoteArrived(ControlMessage, frozen=True):
    number: int
    note: Note


class SubscriptionEnded(ControlMessage, frozen=True):
    """No more notes of this subscription come: it was given up by another client, or the node goes down."""

    number: int


class Readiness(ControlMessage, frozen=True):
    """Whether what is published from now on reaches a subscription. The node says it after `SubscribedAnswer`, and
    again at
    each change."""

    number: int
    ready: bool
    until_us: int | None = None
    """If not ready: the Unix time in microseconds when the subscription becomes ready; None if that is unknown."""


class StatusAnswer(ControlMessage, frozen=True):
    status: Status


class PeersAnswer(ControlMessage, frozen=True):
    peers: list[Peer]


class RefusedAnswer(ControlMessage, frozen=True):
    """Why a request was not done: the name of an error of `veilcast.errors`, and its text."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: VeilcastError) -> RefusedAnswer:
        return cls(type(error).__name__, str(error))

    def error(self) -> VeilcastError:
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, VeilcastError):
            return kind(self.text)
        return LocalError(self.text)


class UnreadableRequest(NamedTuple):
    """A request that has a number, and is none that the node knows; `reason` is what is wrong with it."""

    reason: str


Request: TypeAlias = (
    PublishRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | AcknowledgeRequest
    | StatusRequest
    | PeersRequest
    | StopRequest
)
Answer: TypeAlias = (
    Welcome
    | DoneAnswer
    | SubscribedAnswer
    | NoteArrived
    | SubscriptionEnded
    | Readiness
    | StatusAnswer
    | PeersAnswer
    | RefusedAnswer
)


def encode_request(number: int, request: Request) -> bytes:
    return _encode((number, request), REQUEST_MAX)


def encode_answer(number: int, answer: Answer) -> bytes:
    return _encode((number, answer), ANSWER_MAX)


def _encode(message: object, at_most: int) -> bytes:
    body = _ENCODER.encode(message)
    if len(body) > at_most:
        raise LocalError(f"too large for the control socket: {len(body):,} bytes, and {at_most:,} at most")
    return len(body).to_bytes(LENGTH, "big") + body


async def read_request(reader: asyncio.StreamReader) -> tuple[int, Request | UnreadableRequest]:
    """Read one request. `MalformedError` if the bytes are no message at all, and the next message cannot be found."""
    size = int.from_bytes(await reader.readexactly(LENGTH), "big")
    if size > REQUEST_MAX:
        raise MalformedError(_TOO_LONG)
    body = await reader.readexactly(size)
    try:
        return _REQUESTS.decode(body)
    except MalformedError as error:
        number, _ = _NUMBERED.decode(body)
        return number, UnreadableRequest(str(error.__cause__))


def decode_answer(data: bytes) -> tuple[int, Answer, int] | None:
    """Read the answer that `data` begins with: its number, the answer, the bytes that it takes; None if some lack."""
    if len(data) < LENGTH:
        return None
    size = int.from_bytes(data[:LENGTH], "big")
    if size > ANSWER_MAX:
        raise MalformedError(_TOO_LONG)
    if len(data) < LENGTH + size:
        return None
    number, answer = _ANSWERS.decode(memoryview(data)[LENGTH : LENGTH + size])
    return number, answer, LENGTH + size


VERSION: Final = 2
LENGTH: Final = 4
REQUEST_MAX: Final = 1 << 20
ANSWER_MAX: Final = REQUEST_MAX + 4096
"""More than a request, so that whatever could be published can be handed out."""
WINDOW: Final = 16
"""Notes of one subscription that a client may have without having acknowledged them. The node sends no more, so this
bounds what either side keeps in memory."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_TOO_LONG: Final = "a message longer than any of ours"
_NONE_OF_OURS: Final = "bytes that are no message of ours"
_REQUESTS: Final = MsgpackDecoder(tuple[int, Request], MalformedError, _NONE_OF_OURS, REQUEST_MAX)
_ANSWERS: Final = MsgpackDecoder(tuple[int, Answer], MalformedError, _NONE_OF_OURS, ANSWER_MAX)
_NUMBERED: Final = MsgpackDecoder(tuple[int, Any], MalformedError, _NONE_OF_OURS, REQUEST_MAX)
"""Finds the number of a request whose rest cannot be read, so that the refusal can bear the number."""
