"""A rendezvous: a place that an inviter and a joiner both call, for groups in which neither is called by the other.

A running node, or a host, offers it to its own authority and that authority's delegates. It passes frames on and keeps
nothing: both sides are there at once, as at the inviter's own port.

1. An inviter opens a number with a permit: the authority's signature on the number, this place and a time. So strangers
   have no use of a rendezvous. A number that is open is given to no other inviter.
2. A number has one joiner at a time. Another one is told to come again, unless the first has been silent for `IDLE_US`.
3. From a joiner only MEET, CONFIRM and SEALED pass, from an inviter only SHARE, SEALED and REFUSED. So neither side can
   speak for the rendezvous, or be taken for it.

Property: the rendezvous learns two addresses (through Tor none), sizes and times, and which authority invites; and it
can do no more than an adversary between the two (`inviter`, `joiner`): spoil an invitation, with three guesses at the
joiner and one at the inviter.
Reason: everything that passes is sealed under the code's password, or is a share, or is the tag of a run.
Assumption: the code does not go through the rendezvous.

Property: what strangers and inviters can fill is bounded: `NUMBERS_MAX` numbers, each for `LIFE_US` at most and with
`BYTES_MAX` of traffic; runs by a rate for all numbers together; signatures that must be checked by another.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.revocation import RevokedKeys
from veilcast.core.rate_limit import TokenBucket
from veilcast.crypto.certificate import Certificate, signer_of
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import MalformedError, RemoteError, StaleError
from veilcast.invitation.messages import FrameKind, Reason
from veilcast.machine import Address, Disconnect, Event, Frame


class Permit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The authority's word that an inviter may open this number at this place until a time."""

    number: int
    place: str
    until_us: int
    delegation: Certificate | None
    signature: bytes

    def __post_init__(self) -> None:
        if len(self.place) > PLACE_MAX or len(self.signature) != SIGNATURE:
            raise MalformedError("a permit's field has the wrong size")
        if not 0 < self.number <= 0xFFFF or not 0 <= self.until_us < 1 << 62:
            raise MalformedError("a permit's number or time is out of bounds")


def sign_permit(key: SigningKey, delegation: Certificate | None, number: int, place: Address, until_us: int) -> bytes:
    """What an inviter shows to a rendezvous."""
    signature = key.sign(_body(number, place, until_us), purpose=_PURPOSE)
    return msgspec.msgpack.encode(Permit(number, place, until_us, delegation, signature))


class Rendezvous:
    def __init__(self, root: bytes, epoch_us: int, place: Address, revoked: RevokedKeys | None = None) -> None:
        """`place` is the address by which inviters and joiners know this rendezvous."""
        self._root, self._epoch_us, self._place, self._revoked = root, epoch_us, place, revoked
        self._numbers: dict[int, _Meeting] = {}
        self._peers: dict[Address, int] = {}
        """The number that a peer has opened, or joins."""
        self._openings = TokenBucket(OPEN_EVERY_US, OPEN_BURST)
        self._runs = TokenBucket(RUN_EVERY_US, RUN_BURST)
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque()

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            self._take(data, source, now)
        except RemoteError:
            self._drop(source)

    def handle_timer(self, now: int) -> None:
        for number, meeting in list(self._numbers.items()):
            if now >= meeting.until:
                self._close(number)

    def next_timer(self) -> int | None:
        return min((meeting.until for meeting in self._numbers.values()), default=None)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))]

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def peer_up(self, peer: Address, now: int) -> None:
        """Its first frame says what it is."""

    def peer_lost(self, peer: Address, now: int) -> None:
        number = self._peers.pop(peer, None)
        meeting = self._numbers.get(number) if number is not None else None
        if number is None or meeting is None:
            return
        if meeting.inviter == peer:
            self._close(number)
        elif meeting.joiner == peer:
            meeting.joiner = None

    def sizes(self) -> dict[str, int]:
        return {"numbers": len(self._numbers), "peers": len(self._peers), "frames": len(self._frames)}

    # --- frames -----------------------------------------------------------------------------------------------

    def _take(self, data: bytes, source: Address, now: int) -> None:
        kind = data[0] if data else 0
        if kind == FrameKind.OPEN:
            self._open(data[1:], source, now)
        elif kind == FrameKind.MEET:
            self._meet(data, source, now)
        else:
            self._pass_on(kind, data, source, now)

    def _open(self, fields: bytes, source: Address, now: int) -> None:
        permit = _DECODER.decode(fields[2:])
        if source in self._peers or fields[:2] != permit.number.to_bytes(2, "big"):
            raise MalformedError("not the beginning of an invitation")
        if len(self._numbers) >= NUMBERS_MAX or permit.number in self._numbers or not self._openings.take(now):
            self._refuse(source, Reason.FULL)
            return
        try:
            self._check(permit, now)
        except RemoteError:
            self._refuse(source, Reason.FORBIDDEN)
            raise
        self._numbers[permit.number] = _Meeting(source, permit.until_us)
        self._peers[source] = permit.number
        self._send(source, bytes((FrameKind.OPENED,)) + fields[:2])

    def _check(self, permit: Permit, now: int) -> None:
        epoch = epoch_of(now, self._epoch_us)
        if permit.place != self._place or not now < permit.until_us <= now + LIFE_US:
            raise StaleError("a permit for another place or time")
        signer = signer_of(self._root, permit.delegation, epoch)
        if permit.delegation is not None and self._revoked is not None:
            self._revoked.check_key(self._root, fingerprint(signer), epoch)
        verify(signer, _body(permit.number, permit.place, permit.until_us), permit.signature, purpose=_PURPOSE)

    def _meet(self, data: bytes, source: Address, now: int) -> None:
        number = int.from_bytes(data[1:3], "big")
        meeting = self._numbers.get(number)
        if len(data) != MEET_SIZE or self._peers.get(source, number) != number:
            raise MalformedError("not the beginning of a run")
        if meeting is None:
            self._refuse(source, Reason.UNKNOWN)
        elif meeting.inviter == source:
            raise MalformedError("an inviter does not join")
        elif (meeting.joiner not in (None, source) and now < meeting.heard_us + IDLE_US) or not self._runs.take(now):
            self._refuse(source, Reason.BUSY)
        else:
            if meeting.joiner not in (None, source):
                self._drop(meeting.joiner)
            meeting.joiner, meeting.heard_us = source, now
            self._peers[source] = number
            self._forward(meeting, number, meeting.inviter, data)

    def _pass_on(self, kind: int, data: bytes, source: Address, now: int) -> None:
        number = self._peers.get(source)
        meeting = self._numbers.get(number) if number is not None else None
        if number is None or meeting is None:
            raise MalformedError("a peer that neither invites nor joins")
        if meeting.inviter == source and kind in _FROM_INVITER:
            if meeting.joiner is not None:
                self._forward(meeting, number, meeting.joiner, data)
        elif meeting.joiner == source and kind in _FROM_JOINER:
            meeting.heard_us = now
            self._forward(meeting, number, meeting.inviter, data)
        else:
            raise MalformedError("a frame that does not pass")

    def _forward(self, meeting: _Meeting, number: int, peer: Address, data: bytes) -> None:
        meeting.bytes_left -= len(data)
        if meeting.bytes_left < 0:
            self._close(number)
        else:
            self._frames.append(Frame(peer, data))

    def _refuse(self, peer: Address, reason: Reason) -> None:
        self._send(peer, bytes((FrameKind.REFUSED, reason)))

    def _send(self, peer: Address, data: bytes) -> None:
        if len(self._frames) < FRAMES_MAX:
            self._frames.append(Frame(peer, data))

    def _close(self, number: int) -> None:
        meeting = self._numbers.pop(number)
        for peer in (meeting.inviter, meeting.joiner):
            if peer is not None and self._peers.pop(peer, None) is not None:
                self._events.append(Disconnect(peer))

    def _drop(self, peer: Address | None) -> None:
        """End one peer's part, and its stream."""
        if peer is None:
            return
        number = self._peers.pop(peer, None)
        self._events.append(Disconnect(peer))
        meeting = self._numbers.get(number) if number is not None else None
        if number is not None and meeting is not None and meeting.inviter == peer:
            self._close(number)
        elif meeting is not None and meeting.joiner == peer:
            meeting.joiner = None


class _Meeting:
    """One number: who opened it, who joins, and what is left of its time and traffic."""

    __slots__ = ("bytes_left", "heard_us", "inviter", "joiner", "until")

    def __init__(self, inviter: Address, until: int) -> None:
        self.inviter, self.until = inviter, until
        self.joiner: Address | None = None
        self.heard_us = 0
        self.bytes_left = BYTES_MAX


def _body(number: int, place: str, until_us: int) -> bytes:
    return b"".join((number.to_bytes(2, "big"), until_us.to_bytes(8, "big"), place.encode()))


NUMBERS_MAX: Final = 32
LIFE_US: Final = 3_600_000_000
"""Longest time of one invitation, in microseconds."""
BYTES_MAX: Final = 4 << 20
"""Traffic of one number: three times the largest request and reply."""
IDLE_US: Final = 20_000_000
OPEN_EVERY_US: Final = 1_000_000
OPEN_BURST: Final = 16
RUN_EVERY_US: Final = 200_000
RUN_BURST: Final = 32
FRAMES_MAX: Final = 256
PLACE_MAX: Final = 128
MEET_SIZE: Final = 35
_FROM_INVITER: Final = (FrameKind.SHARE, FrameKind.SEALED, FrameKind.REFUSED)
_FROM_JOINER: Final = (FrameKind.CONFIRM, FrameKind.SEALED)
_PURPOSE: Final = b"veilcast/rendezvous"
_DECODER: Final = MsgpackDecoder(Permit, MalformedError, "not a permit", 1024)
