"""Messages of the control socket: requests of clients, answers of the node, and notes.

Each message is four bytes of length and a msgpack array of a number and a tagged struct. An answer has the number of
its request; notes and other messages that answer no request have 0. The node speaks first, with `Welcome`. The requests
of one client are answered in order. A request that the node cannot decode is refused like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from veilcast import errors
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError, VeilcastError
from veilcast.machine import Delay, Note, Publication
from veilcast.topics.interests import Constraint

if TYPE_CHECKING:
    import asyncio


class Status(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a node, and how well its member is hidden."""

    mode: str
    profile: str
    members: int
    """Members of the group, including this one, as far as the node knows."""
    cover_share: float
    """Share of the other members that act as subscribers; the smallest among the topics that this node reads."""
    publications_hidden: int | None = None
    """Publications for which the bound on naming their publisher holds; None if the mode states no such bound."""
    neighbours: int
    member_until_us: int
    """End of the membership, in Unix microseconds; the authority can extend it."""
    subscriptions: int
    outbox: int
    """Publications on the disk that are not settled: other members may not have them yet."""
    overdue: int
    """Unsettled publications that have waited longer than they should; the node goes on trying."""
    inbox: int
    """Unacknowledged notes."""
    refused: int
    """Notes that were refused because their subscription was full, counted each time they came."""
    lapsed: int
    """Subscriptions that no grant of the keyring allows any more."""
    waiting: dict[int, int | None]
    """Subscriptions that are not ready: Unix time in microseconds from which they receive notes; None if unknown."""
    uptime_s: float
    draining: bool = False
    faults: int = 0
    """Messages and timers that veilcast failed on and dropped: a bug, or an attack that found one."""
    hindrances: tuple[str, ...] = ()
    """Reasons that keep the node from its work, in words for its owner; the node goes on trying."""
    ending: tuple[str, ...] = ()
    """Grants that end soon, in words for the owner, who asks the authority for new ones."""
    delay: Delay | None = None
    """Why the publications of the outbox wait, and an estimate of how long; None if the outbox is empty."""


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One neighbour, for the node's owner."""

    address: str
    up: bool
    since_s: float
    """Seconds since the peer is up or down."""
    reason: str = ""
    """Why the peer is down, if known."""


class Waiting(NamedTuple):
    """A subscription that is not ready yet. `until_us` is the Unix time in microseconds from which it receives notes;
    None if the node does not know."""

    until_us: int | None


class ControlMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all messages. The tag of a message on the socket is fixed, whatever its class is called."""


class PublishRequest(ControlMessage, frozen=True, tag="Publish"):
    publication: Publication


class SubscribeRequest(ControlMessage, frozen=True, tag="Subscribe"):
    constraints: tuple[Constraint, ...]
    keep: bool = False
    """True if the subscription outlives the client."""


class UnsubscribeRequest(ControlMessage, frozen=True, tag="Unsubscribe"):
    """Leaves a subscription. The subscription ends unless another client has it or this client asked to keep it."""

    number: int


class AcknowledgeRequest(ControlMessage, frozen=True, tag="Acknowledge"):
    number: int
    note: bytes


class StatusRequest(ControlMessage, frozen=True, tag="AskStatus"):
    pass


class PeersRequest(ControlMessage, frozen=True, tag="AskPeers"):
    pass


class StopRequest(ControlMessage, frozen=True, tag="Stop"):
    pass


class ReloadRequest(ControlMessage, frozen=True, tag="Reload"):
    pass


class Welcome(ControlMessage, frozen=True, tag="Welcome"):
    version: int


class DoneAnswer(ControlMessage, frozen=True, tag="Done"):
    pass


class SubscribedAnswer(ControlMessage, frozen=True, tag="Subscribed"):
    number: int


class NoteArrived(ControlMessage, frozen=True, tag="Noted"):
    number: int
    note: Note


class SubscriptionEnded(ControlMessage, frozen=True, tag="Ended"):
    """No more notes of this subscription follow: another client ended it, or the node stops."""

    number: int


class Readiness(ControlMessage, frozen=True, tag="Readiness"):
    """Tells whether the subscription receives what is published from now on. Sent after `SubscribedAnswer` and at each
    change."""

    number: int
    ready: bool
    until_us: int | None = None
    """If not ready: Unix time in microseconds at which the subscription becomes ready; None if unknown."""


class StatusAnswer(ControlMessage, frozen=True, tag="StatusIs"):
    status: Status


class PeersAnswer(ControlMessage, frozen=True, tag="PeersAre"):
    peers: list[Peer]


class ReloadedAnswer(ControlMessage, frozen=True, tag="Reloaded"):
    changed: bool
    """True if the node has new keys."""
    problems: tuple[str, ...] = ()
    """What could not be taken, and why."""


class RefusedAnswer(ControlMessage, frozen=True, tag="Refused"):
    """Why a request failed: the name of an error of `veilcast.errors`, and its text."""

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
    """A request with a number that cannot be decoded, and the reason."""

    reason: str


Request: TypeAlias = (
    PublishRequest
    | SubscribeRequest
    | UnsubscribeRequest
    | AcknowledgeRequest
    | StatusRequest
    | PeersRequest
    | StopRequest
    | ReloadRequest
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
    | ReloadedAnswer
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
    """Read one request. Raises `MalformedError` if the bytes are no message, so that the next message cannot be
    found."""
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
    """Decode the answer at the start of `data`: its number, the answer and its size in bytes; None if bytes are
    missing."""
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
"""Bytes of an answer: more than a request, so that everything that can be published can be delivered."""
WINDOW: Final = 16
"""Unacknowledged notes of one subscription at one client. The node sends no more, which bounds the memory of both
sides."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_TOO_LONG: Final = "a message longer than any of ours"
_NONE_OF_OURS: Final = "bytes that are no message of ours"
_REQUESTS: Final = MsgpackDecoder(tuple[int, Request], MalformedError, _NONE_OF_OURS, REQUEST_MAX)
_ANSWERS: Final = MsgpackDecoder(tuple[int, Answer], MalformedError, _NONE_OF_OURS, ANSWER_MAX)
_NUMBERED: Final = MsgpackDecoder(tuple[int, Any], MalformedError, _NONE_OF_OURS, REQUEST_MAX)
"""Finds the number of a request whose rest cannot be decoded, so that the refusal can have the number."""
