"""The inviter's machine: it serves one invitation, to one joiner, until it is used, burned or over.

1. A stranger that knows no code learns only that somebody invites: the inviter sends a share, which says nothing.
2. A wrong confirmation is a guess, and burns the invitation: the inviter answers no further run. So an adversary that
   reaches the inviter has one guess, and can spoil the invitation, but not use it.
3. A run without a confirmation tells its caller nothing, so it burns nothing: a joiner whose connection broke comes
   again. Their number is limited by a rate, since each costs two multiplications.
4. The first request under a right code binds the invitation. The same request gets the same reply again, however often
   the connection breaks. Any other request is refused: the code was used by somebody else.
5. The owner stores what the authority decided before it hands the reply to the machine, so nothing is granted that the
   authority does not know. When the joiner says that its keyring is on its disk, the invitation is used.

With a rendezvous, the inviter calls it and opens a number there. Every frame of the joiner then comes from the
rendezvous, and a MEET begins anew: so a rendezvous can spoil the invitation, as any adversary can, and learns no more.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.core.bounded import BoundedMap
from veilcast.core.rate_limit import TokenBucket
from veilcast.crypto.cpace import SHARE_SIZE
from veilcast.crypto.derive import digest
from veilcast.errors import MalformedError, RemoteError
from veilcast.invitation.channel import SealedChannel, begin_run, expect
from veilcast.invitation.code import InvitationCode
from veilcast.invitation.messages import (
    FrameKind,
    InvitationOffer,
    JoinReceipt,
    JoinRefusal,
    JoinReply,
    JoinRequest,
    Reason,
    encode_content,
)
from veilcast.machine import Address, Connect, Entropy, Event, Frame


class Requested(Event, frozen=True):
    """A joiner with the right code asks; the owner calls `answer` or `refuse`."""

    ask: JoinRequest


class InvitationOver(Event, frozen=True):
    """The last event. `outcome` is "used", "burned" by a wrong code, "expired", "refused" by the owner or the
    rendezvous, "unreachable" if the rendezvous does not answer, or "unconfirmed" if a reply was sent and the joiner
    never said that it has it."""

    outcome: str
    reason: Reason | None = None


class RendezvousOpened(Event, frozen=True):
    """The rendezvous holds the number: the code may be told."""


class Inviter:
    def __init__(
        self,
        code: InvitationCode,
        offer: InvitationOffer,
        until: int,
        entropy: Entropy,
        permit: bytes = b"",
        opened_by: int | None = None,
    ) -> None:
        """`permit` is what a rendezvous wants to see (`rendezvous`); it is empty if joiners call the inviter itself.
        The rendezvous has until `opened_by` to open the number.
        """
        encode_content(offer)  # Raises before anybody is told a code.
        self._code, self._offer, self._entropy = code, offer, entropy
        self._until = until
        self._meetings: BoundedMap[Address, _Meeting] = BoundedMap(MEETINGS_MAX)
        self._runs = TokenBucket(RUN_EVERY_US, RUN_BURST)
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque()
        self._asked = b""
        self._reply: JoinReply | JoinRefusal | None = None
        self._over: Reason | None = None
        self._permit, self._opened_by = permit, opened_by
        self._rendezvous = Address(f"{PURPOSE}@{code.place}") if permit else None
        if self._rendezvous is not None:
            self._events.append(Connect(self._rendezvous))

    # --- calls of the owner -----------------------------------------------------------------------------------

    def answer(self, reply: bytes, now: int) -> None:
        """Send the authority's reply, which is stored; the joiner has `CONFIRM_US` to say that it has it."""
        self._reply = JoinReply(reply)
        self._until = min(self._until, now + CONFIRM_US)
        self._send_reply()

    def refuse(self, text: str, now: int) -> None:
        """Tell the joiner why the authority does not grant its request, and end."""
        self._reply = JoinRefusal(text[:REFUSAL_MAX])
        self._send_reply()
        self._end("refused", Reason.OVER)

    # --- the machine ------------------------------------------------------------------------------------------

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            self._take(data, source, now)
        except RemoteError:
            self._meetings.pop(source, None)

    def handle_timer(self, now: int) -> None:
        if self._opened_by is not None and now >= self._opened_by:
            self._end("unreachable", Reason.OVER)
        elif self._over is None and now >= self._until:
            self._end("unconfirmed" if isinstance(self._reply, JoinReply) else "expired", Reason.OVER)

    def next_timer(self) -> int | None:
        if self._over is not None:
            return None
        return self._until if self._opened_by is None else min(self._until, self._opened_by)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))]

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def peer_up(self, peer: Address, now: int) -> None:
        if peer == self._rendezvous:
            number = self._code.number.to_bytes(2, "big")
            self._send(peer, bytes((FrameKind.OPEN,)) + number + self._permit)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._meetings.pop(peer, None)

    # --- frames -----------------------------------------------------------------------------------------------

    def _take(self, data: bytes, source: Address, now: int) -> None:
        if self._rendezvous not in (None, source):
            raise MalformedError("only the rendezvous speaks here")
        kind, fields = data[:1], data[1:]
        if kind == bytes((FrameKind.MEET,)):
            self._meet(fields, source, now)
        elif kind in (bytes((FrameKind.OPENED,)), bytes((FrameKind.REFUSED,))) and source == self._rendezvous:
            self._hear_rendezvous(fields)
        elif (meeting := self._meetings.get(source)) is None:
            raise MalformedError("no run has begun")
        elif kind == bytes((FrameKind.CONFIRM,)):
            self._confirm(meeting, fields, source, now)
        elif kind == bytes((FrameKind.SEALED,)) and meeting.is_confirmed:
            self._open(meeting, fields, source)
        else:
            raise MalformedError("a frame that may not come now")

    def _hear_rendezvous(self, fields: bytes) -> None:
        if fields == self._code.number.to_bytes(2, "big"):
            self._opened_by = None
            self._events.append(RendezvousOpened())
        elif len(fields) == 1 and fields[0] in Reason.__members__.values():
            self._end("refused", Reason(fields[0]))

    def _meet(self, fields: bytes, source: Address, now: int) -> None:
        if self._over is not None:
            self._refuse(source, self._over)
        elif len(fields) != 2 + SHARE_SIZE or fields[:2] != self._code.number.to_bytes(2, "big"):
            raise MalformedError("not the beginning of a run")
        elif not self._runs.take(now):
            self._refuse(source, Reason.BUSY)
        else:
            run = begin_run(self._code, self._entropy)
            self._meetings.pop(source, None)
            self._meetings[source] = _Meeting(SealedChannel(run, fields[2:], "inviter", self._entropy))
            self._send(source, bytes((FrameKind.SHARE,)) + run.share)

    def _confirm(self, meeting: _Meeting, tag: bytes, source: Address, now: int) -> None:
        if self._over is not None or meeting.is_confirmed:
            raise MalformedError("nothing is to be confirmed")
        if not meeting.channel.confirms(tag):
            self._refuse(source, Reason.WRONG_CODE)
            if not self._asked:  # Somebody with the right code came first: this guess spoils nothing.
                self._end("burned", Reason.OVER)
            raise MalformedError("a wrong code")
        meeting.is_confirmed = True
        self._frames += [Frame(source, frame) for frame in meeting.channel.seal(self._offer)]

    def _open(self, meeting: _Meeting, sealed: bytes, source: Address) -> None:
        content = meeting.channel.open(sealed)
        if content is None:
            return
        expect(content, JoinRequest, JoinReceipt)
        if isinstance(content, JoinReceipt):
            if isinstance(self._reply, JoinReply):
                self._end("used", Reason.OVER)
            return
        assert isinstance(content, JoinRequest)
        name = digest(encode_content(content), purpose=b"vc/ask")
        if self._asked and self._asked != name:
            self._refuse(source, Reason.OVER)
            raise MalformedError("the invitation was used by another request")
        meeting.has_asked = True
        if not self._asked:
            self._asked = name
            self._events.append(Requested(content))
        self._send_reply()

    def _send_reply(self) -> None:
        if self._reply is None:
            return
        for peer, meeting in self._meetings.items():
            if meeting.has_asked and not meeting.has_reply:
                meeting.has_reply = True
                self._frames += [Frame(peer, frame) for frame in meeting.channel.seal(self._reply)]

    def _refuse(self, peer: Address, reason: Reason) -> None:
        self._send(peer, bytes((FrameKind.REFUSED, reason)))

    def _send(self, peer: Address, data: bytes) -> None:
        if len(self._frames) < FRAMES_MAX:
            self._frames.append(Frame(peer, data))

    def _end(self, outcome: str, reason: Reason) -> None:
        if self._over is None:
            self._over = Reason.OVER
            self._events.append(InvitationOver(outcome, reason))


class _Meeting:
    """One run with one caller."""

    __slots__ = ("channel", "has_asked", "has_reply", "is_confirmed")

    def __init__(self, channel: SealedChannel) -> None:
        self.channel = channel
        self.is_confirmed = self.has_asked = self.has_reply = False


PURPOSE: Final = "join"
"""The purpose of a stream, before the address that is called."""
MEETINGS_MAX: Final = 16
RUN_EVERY_US: Final = 200_000
RUN_BURST: Final = 16
FRAMES_MAX: Final = 64
"""Short frames that wait to be sent; more are dropped, since only strangers could cause them."""
CONFIRM_US: Final = 120_000_000
REFUSAL_MAX: Final = 400
