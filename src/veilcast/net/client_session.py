"""A client's side of the control socket, without I/O: checks arguments, sends requests, receives answers and notes.

The blocking client (`sync_client`) and the asyncio client (`client`) drive the same session. Each operation is a
*call*: a generator that yields whenever it needs more from the node. The driver moves bytes until the call returns:

    session.act_on_incoming()        # acts on what has arrived
    next(call)                       # StopIteration: the result
    ...send session.outgoing, append what arrives to session.incoming...

Claim: an exception of a signal handler (Ctrl-C) at any instruction of a call leaves the session usable. No byte and no
note is lost.
Reason: every step is one operation of the interpreter, or can be repeated. Bytes are appended to a list.
`act_on_incoming` acts on a message first and then moves on by one assignment, so that an interrupted call acts on the
message again. Acting twice changes nothing: notes are filed under their offset in the stream, answers under the number
of their request.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from veilcast.decoding import read_toml
from veilcast.errors import (
    ConfigError,
    LocalError,
    MalformedError,
    PermissionsError,
    StorageError,
    UnreachableError,
    VeilcastError,
)
from veilcast.machine import Note, Publication, Value
from veilcast.net import control_protocol
from veilcast.net.control_protocol import Answer, Request, Waiting
from veilcast.topics.interests import Conjunction, Label, check_attribute, check_text, is_number


def control_path(config: Path) -> Path:
    """Return the path of the control socket that a configuration file names, or `control.sock` in its state directory.
    Paths in the file are relative to the file."""
    try:
        values = read_toml(config.read_bytes(), config)
    except OSError as error:
        raise StorageError(f"cannot read {config}: {error.strerror}") from error
    for key in ("control", "state"):
        if not isinstance(values.get(key, ""), str):
            raise ConfigError(f"{config}: {key} must be a path")
    return config.absolute().parent / (values.get("control") or Path(values.get("state", STATE)) / SOCKET)


STATE: Final = "state"
SOCKET: Final = "control.sock"


def make_publication(what: object, body: object, values: Mapping[str, object]) -> Publication:
    """Make a publication from the arguments of `publish`. Raises `LocalError` for one that no node could accept."""
    if isinstance(what, Publication):
        if values or not isinstance(body, bytes | str) or body:
            raise LocalError("a Publication has its body and values already")
        return Publication(tuple(_pair(each) for each in _pairs(what.pairs)), _body(what.body))
    if isinstance(what, str):
        what = Label(what)
    if not isinstance(what, Label):
        raise LocalError(f"the topic to publish on is a string, a Label or a Publication, not {_kind(what)}")
    return Publication((what.pair, *map(_pair, values.items())), _body(body))


def make_interest(interest: object) -> Conjunction:
    """Check the argument of `subscribe`. A string is the name of a topic."""
    if isinstance(interest, str):
        return Label(interest)
    if not isinstance(interest, Conjunction):
        raise LocalError(
            f"an interest is a topic's name, a Label, Equal, Range, Box, or All(...) of several, not {_kind(interest)}"
        )
    return interest


def check_timeout(timeout_s: object) -> float | None:
    if timeout_s is None or (is_number(timeout_s) and timeout_s >= 0):
        return timeout_s
    raise LocalError(f"a timeout is a number of seconds, or None for no end, not {timeout_s!r}")


def find_control_socket(config: object) -> Path:
    """Return the control socket of the node with this configuration file. Raises `PermissionsError` if another user
    owns it."""
    if not isinstance(config, str | os.PathLike):
        raise LocalError(f"name the node's configuration file, as in 'node.toml', not {_kind(config)}")
    name = os.fspath(config)
    if not isinstance(name, str) or "\0" in name:
        raise ConfigError(f"the name of the configuration file is no text that a path can be: {name!r}")
    path = control_path(Path(name))
    try:
        owner = path.stat().st_uid
    except OSError as error:
        raise unreachable_error(path, config, error) from error
    if owner != os.geteuid():
        raise PermissionsError(f"the node at {path} is another user's")
    return path


def unreachable_error(path: Path, config: object, error: OSError) -> UnreachableError:
    return UnreachableError(
        f"no node answers at {path} ({error.strerror or error}); start it: veilcast node run -c {config}"
    )


def _body(body: object) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise LocalError(
                "a body that is a string must be valid Unicode; encode it yourself, and hand in bytes"
            ) from error
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise LocalError(f"a body is bytes or a string, not {_kind(body)}; encode it first, for example with json.dumps")


def _pairs(pairs: object) -> tuple[object, ...]:
    if not isinstance(pairs, tuple | list):
        raise LocalError(f"the pairs of a Publication are a tuple of (attribute, value), not {_kind(pairs)}")
    return tuple(pairs)


def _pair(pair: object) -> tuple[str, Value]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise LocalError(f"a pair of a Publication is (attribute, value), not {_kind(pair)}")
    attribute, value = pair
    check_attribute(attribute)
    if isinstance(value, str):
        check_text(value)
        return attribute, str(value)
    if is_number(value):
        # A subclass of a number, as numpy has them, is not one for the wire.
        return attribute, float(value) if isinstance(value, float) else int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise LocalError(f"the value of {attribute!r} must be a finite number of 64 bits at most")
    raise LocalError(f"the value of {attribute!r} is a number or a string, not {_kind(value)}")


def _kind(value: object) -> str:
    return type(value).__name__


T = TypeVar("T")
Call: TypeAlias = Generator[None, None, T]
"""One operation; yields when it needs more from the node."""
Kind = TypeVar("Kind", bound=Answer)


class ClientSession:
    """One connection to a node. Bounded: `WINDOW` notes for each subscription."""

    def __init__(self) -> None:
        self.outgoing: tuple[list[bytes], list[int]] = ([], [])
        """Messages to send, and the bytes of them that each `send` took."""
        self._stream: tuple[list[bytes], int] = ([], 0)
        """Bytes that have arrived and are not acted on, and the offset of the first of them in the stream."""
        self._last = 0
        self._answers: dict[int, Answer | None] = {_UNASKED: None}
        """The answer to each request that is under way; None until it arrives. The node speaks first."""
        self._followed: dict[int | None, _Followed] = {}
        self._subscriptions: list[SubscriptionCalls] = []
        self._lost: VeilcastError | None = None

    # --- the driver

    @property
    def incoming(self) -> list[bytes]:
        """The driver appends what arrives to this list."""
        return self._stream[0]

    def act_on_incoming(self) -> None:
        """Act on all complete messages that have arrived."""
        while self._lost is None:
            chunks, start = self._stream
            data = b"".join(chunks)
            try:
                found = control_protocol.decode_answer(data)
                if found is None:
                    return
                number, answer, size = found
                self._act_on(number, answer, start)
            except MalformedError:
                self.fail(UnreachableError(_NOT_UNDERSTOOD))
                return
            self._stream = ([data[size:]] if len(data) > size else [], start + size)

    def fail(self, error: VeilcastError) -> None:
        """End the session: from now on every call raises this error."""
        if self._lost is None:
            self._lost = error

    def fail_disconnected(self) -> None:
        """End the session because the connection has ended."""
        self.fail(UnreachableError(_GONE))

    def check(self) -> None:
        """Raise the error that ended the session, if there is one."""
        if self._lost is not None:
            raise self._lost

    # --- the client

    def greet(self) -> Call[None]:
        """Receive the node's first message. The driver limits the time."""
        try:
            welcome = yield from self._answer(_UNASKED, control_protocol.Welcome)
        except UnreachableError as error:
            raise UnreachableError(NO_NODE_OF_OURS) from error
        del self._answers[_UNASKED]
        if welcome.version != control_protocol.VERSION:
            raise UnreachableError("the node runs another version of veilcast; restart it")

    def ask(self, request: Request, kind: type[Kind]) -> Call[Kind]:
        number = self.send(request)
        try:
            return (yield from self._answer(number, kind))
        finally:
            self._answers.pop(number, None)

    def send(self, request: Request) -> int:
        """Queue a request; its number leads to the answer (`_answer`)."""
        self.check()
        self._last += 1
        number = self._last
        message = control_protocol.encode_request(number, request)
        self._answers[number] = None
        self.outgoing[0].append(message)
        return number

    def subscribe(self, interest: Conjunction, *, keep: bool) -> SubscriptionCalls:
        """Queue the request for a subscription at once; `SubscriptionCalls.start` waits for the answer."""
        subscription = SubscriptionCalls(self, interest, keep)
        self._subscriptions.append(subscription)
        return subscription

    def abandon(self, subscription: SubscriptionCalls | None) -> None:
        """Forget all pending answers. A subscription that the node grants later is ended, and so is this one."""
        heard = [each.number for each in self._answers.values() if isinstance(each, control_protocol.SubscribedAnswer)]
        self._answers.clear()
        for number in heard:
            self._drop(number)
        for unheard in [each for each in self._subscriptions if each.number is None]:
            self._subscriptions.remove(unheard)
        if subscription in self._subscriptions and subscription.number is not None:
            self._subscriptions.remove(subscription)
            self._drop(subscription.number)

    def close(self) -> Call[None]:
        """End the subscriptions that are not to be kept."""
        for subscription in list(self._subscriptions):
            yield from subscription.close()

    # --- inside

    def _drop(self, number: int) -> None:
        """Unsubscribe without waiting for the answer. The node keeps what this client asked to keep."""
        self._followed.pop(number, None)
        if self._lost is None:
            self._answers.pop(self.send(control_protocol.UnsubscribeRequest(number)), None)

    def _answer(self, number: int, kind: type[Kind]) -> Call[Kind]:
        while (answer := self._answers[number]) is None:
            self.check()
            yield
        if isinstance(answer, control_protocol.RefusedAnswer):
            raise answer.error()
        if not isinstance(answer, kind):
            raise UnreachableError(_SOMETHING_ELSE)
        return answer

    def _act_on(self, number: int, answer: Answer, offset: int) -> None:
        match answer:
            case control_protocol.NoteArrived(subscription, note) if subscription in self._followed:
                notes = self._followed[subscription].notes
                notes[offset] = note
                if (
                    len(notes) > control_protocol.WINDOW + 1
                ):  # One may be acknowledged already; its call has not gone on yet.
                    raise MalformedError("more notes than the window allows")
            case control_protocol.SubscriptionEnded(subscription) if subscription in self._followed:
                self._followed[subscription].ended = True
            case control_protocol.Readiness(subscription, ready, until_us) if subscription in self._followed:
                followed = self._followed[subscription]
                followed.waiting, followed.is_known = None if ready else Waiting(until_us), True
            case control_protocol.SubscribedAnswer(subscription):
                if number in self._answers:
                    # Made here, because the first note may follow before the caller runs again.
                    self._followed.setdefault(subscription, _Followed())
                else:
                    self._drop(subscription)
            case control_protocol.RefusedAnswer() if number == _UNASKED and number not in self._answers:
                self.fail(answer.error())
        if number in self._answers:
            self._answers[number] = answer


class SubscriptionCalls:
    """The calls of one subscription."""

    def __init__(self, session: ClientSession, interest: Conjunction, keep: bool) -> None:
        self._session = session
        self._request = session.send(control_protocol.SubscribeRequest(interest.constraints, keep))
        self.number: int | None = None
        """The node's number for the subscription; None until the node has answered."""
        self._ending = False
        self._refusal: VeilcastError | None = None
        self.handed_out: Note | None = None
        """The note that the program received last, unless it is acknowledged. The driver sets it as the last step
        before the program has the note: a note that Ctrl-C keeps from the program must not be acknowledged by the next
        call."""

    def start(self) -> Call[None]:
        """Wait for the node's answer; raise its refusal."""
        while self.number is None and self._refusal is None:
            match self._session._answers.get(self._request):
                case control_protocol.SubscribedAnswer(number):
                    self.number = number
                case control_protocol.RefusedAnswer() as refused:
                    self._refusal = refused.error()
                case None:
                    self._session.check()
                    yield
                case _:
                    self._refusal = UnreachableError(_SOMETHING_ELSE)
        self._session._answers.pop(self._request, None)
        if self._refusal is not None:
            raise self._refusal

    def waiting(self) -> Call[Waiting | None]:
        followed = yield from self._follow()
        while not followed.is_known:
            self._check(followed)
            yield
        return followed.waiting

    def ready(self) -> Call[None]:
        followed = yield from self._follow()
        while not followed.is_known or followed.waiting is not None:
            self._check(followed)
            yield

    def next_note(self) -> Call[Note]:
        yield from self.acknowledge()
        followed = yield from self._follow()
        while True:
            self._session.check()
            if followed.notes:
                break
            self._check(followed)
            yield
        return next(iter(followed.notes.values()))

    def acknowledge(self) -> Call[None]:
        if self.handed_out is not None and self.number is not None:
            note = self.handed_out.id
            yield from self._session.ask(
                control_protocol.AcknowledgeRequest(self.number, note), control_protocol.DoneAnswer
            )
            if (followed := self._session._followed.get(self.number)) is not None:
                followed.notes = {offset: each for offset, each in followed.notes.items() if each.id != note}
            self.handed_out = None

    def close(self) -> Call[None]:
        """Leave the subscription; the node ends it unless it is to be kept. The note handed out last stays
        unacknowledged."""
        if self not in self._session._subscriptions:
            return
        with contextlib.suppress(VeilcastError):  # Where the node has refused it, there is nothing to end.
            yield from self.start()
        if self.number is not None:
            repeated, self._ending = self._ending, True
            # Before the request: the answer may come together with that to the next subscription of this number.
            self._session._followed.pop(self.number, None)
            try:
                yield from self._session.ask(
                    control_protocol.UnsubscribeRequest(self.number), control_protocol.DoneAnswer
                )
            except LocalError:
                self._session.check()
                if not repeated:  # An interrupted `close` has done it.
                    raise
        self._session._subscriptions.remove(self)

    def _follow(self) -> Call[_Followed]:
        if self._ending or self not in self._session._subscriptions:
            raise LocalError("this subscription is closed; subscribe again")
        yield from self.start()
        assert self.number is not None
        return self._session._followed[self.number]

    def _check(self, followed: _Followed) -> None:
        self._session.check()
        if followed.ended:
            raise UnreachableError("the node ended this subscription")


class _Followed:
    """Notes and state that have arrived for one subscription."""

    __slots__ = ("ended", "is_known", "notes", "waiting")

    def __init__(self) -> None:
        self.notes: dict[int, Note] = {}
        """Notes by their offset in the stream, in the order of arrival."""
        self.waiting: Waiting | None = None
        self.is_known = False
        """True once the node has sent the readiness of the subscription."""
        self.ended = False


def not_ready_text(timeout_s: float | None) -> str:
    return f"the subscription was not ready within {timeout_s:g} s; it stands, and `status` says what it waits for"


GREET_S: Final = 60.0
"""Seconds that a node has for its first message. A node answers at once, but its computer may be busy."""
LEAVE_S: Final = 30.0
"""Longest time, in seconds, that a client takes to end its subscriptions in an orderly way."""
NO_FIRST_WORD: Final = f"the node took the call and said nothing for {GREET_S:g} s; if the machine is busy, try again"
NO_NODE_OF_OURS: Final = "what listens at the control socket is no node of ours; -c names a member's file, not a host's"
_GONE: Final = "the node has gone away, and its log says why; start it again: what it had not confirmed may be lost"
_NOT_UNDERSTOOD: Final = "the node sent a message that this client does not understand"
_SOMETHING_ELSE: Final = "the node answered something else than it was asked"
_UNASKED: Final = 0
"""The number of messages that answer no request."""
