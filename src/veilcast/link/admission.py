"""The door: links are opened here, by us and by others, in letters.

    door.knock(peer, now)           ->  HELLO           a peer whose key we do not know
    door.knock(peer, now, static)   ->  RETURN          a peer whose key we know
                                    <-  COOKIE          (the same letter again, with the cookie)  ->
                                    <-  ANSWER          RETURN ends here
                                    ->  FINISH          HELLO ends here

Every letter may be lost, come twice, or be a recording. The one who knocked repeats its last letter (`again`) until it
hears a cell of the new session, and then lets go (`settle`). The other side answers a letter that it knows with what it
answered before, so repeating costs no key and makes no second session; what it remembers of a handshake outlives the
cookie that the handshake began with, so a recording has none.

Both tables are bounded, and when full the oldest goes. That harms nobody: the doorkeeper lets in so few that even while
others try hard an entry stays for two seconds, and a handshake needs one round trip.


Doorbells: how often strangers of one prefix may ring, so that a flood from a few leaves room for all others.

The doorkeeper: what those who want a link may cost us, before any operation on a curve.

Two gates. The first is for letters from addresses that anybody may have written on them: they get a cookie at most,
which is one letter for one letter and leaves nothing behind. The second is for those who bring a cookie back, and so
receive where they send from: these cost a handshake. Each gate has a rate for every host, so that one who asks too
often leaves room for others, and one for all together, so that many cannot take more of us than we can spare. Whose
address others write on letters to the first gate loses nothing at the second.

A cookie is asked for always, not only under load: it takes one round trip, once, as links renew their keys inside. In
exchange there is no load to measure, no other behaviour under attack, and nothing to remember of anybody unproven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from veilcast.core.bounded import remember
from veilcast.core.rate_limit import TokenBucket
from veilcast.errors import ExcessError, RemoteError, StaleError
from veilcast.link.address_groups import HostOf, host_of
from veilcast.link.cookies import Cookies
from veilcast.link.envelope import NO_COOKIE, HandshakePacket, HandshakePacketKind, PacketSealer
from veilcast.link.handshake import HandshakeResult, InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.machine import Address, Entropy
from veilcast.wire.geometry import HANDSHAKE_ID


class PrefixRateLimit:
    """One bucket for each prefix that rang lately. Bounded: the prefix that rang longest ago is forgotten first."""

    def __init__(self, every_us: int, burst: int) -> None:
        self._every_us, self._burst = every_us, burst
        self._buckets: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, prefix: str, now: int) -> None:
        """Raise if this prefix has rung too often."""
        bucket = self._buckets.pop(prefix, None)
        if bucket is None:
            bucket = TokenBucket(self._every_us, self._burst)
            if len(self._buckets) >= PREFIXES_MAX:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[prefix] = bucket
        if not bucket.take(now):
            raise StaleError("this prefix rings too often")

    def exhaust(self, prefix: str, now: int) -> None:
        """Let it ring no more for a while, as if it had used all it may: one that lied is not to lie again at once."""
        bucket = self._buckets.get(prefix)
        while bucket is not None and bucket.take(now):
            pass


PREFIXES_MAX: Final = 1024


class AdmissionLimits:
    """Raises `RemoteError` for whom it turns away."""

    def __init__(self, entropy: Entropy, host: HostOf = host_of) -> None:
        self._cookies = Cookies(entropy, COOKIE_US)
        self._host = host
        self._strangers = AdmissionGate(STRANGERS_EVERY_US, STRANGERS_BURST)
        self._proven = AdmissionGate(PROVEN_EVERY_US, PROVEN_BURST)

    def cookie(self, source: Address, thread: bytes, now: int) -> bytes:
        """A cookie for who says it is at `source`, and how often it may ask for one."""
        self._strangers.charge(self._host(source), now)
        return self._cookies.make(source, thread, now)

    def admit(self, source: Address, thread: bytes, cookie: bytes, now: int) -> None:
        """Raise unless this is our cookie, and the source may have a handshake now."""
        self._cookies.check(source, thread, cookie, now)
        self._proven.charge(self._host(source), now)


class AdmissionGate:
    """A rate for each host, and one for all."""

    def __init__(self, every_us: int, burst: int) -> None:
        self._each = PrefixRateLimit(HOST_EVERY_US, HOST_BURST)
        self._all = TokenBucket(every_us, burst)

    def __len__(self) -> int:
        """Hosts that are remembered."""
        return len(self._each)

    def charge(self, host: str, now: int) -> None:
        self._each.charge(host, now)
        if not self._all.take(now):
            raise ExcessError("more want a link than we can spare the time for")


HOST_EVERY_US: Final = 50_000
HOST_BURST: Final = 5
"""20 handshakes a second from one host, and 5 at once."""

STRANGERS_EVERY_US: Final = 5_000
STRANGERS_BURST: Final = 64
"""Cookies: some 15 microseconds each, so a third of a percent of our time."""

PROVEN_EVERY_US: Final = 20_000
PROVEN_BURST: Final = 32
"""Handshakes: about a millisecond each, so a twentieth of our time."""

COOKIE_US: Final = 10_000_000


class HandshakeStep(msgspec.Struct, frozen=True):
    """What a letter led to: a datagram to send back to where it came from, a contact made, both or neither.

    `own`: the datagram is what `again` would give, of a handshake that we began; it may wait for our time to send.
    """

    reply: bytes | None = None
    contact: HandshakeResult | None = None
    own: bool = False


class LinkAdmission:
    """Of one node, for as long as it runs."""

    def __init__(self, party: LinkIdentity, doorkeeper: AdmissionLimits) -> None:
        self._party, self._doorkeeper = party, doorkeeper
        self._envelopes = PacketSealer(party.envelope, party.entropy)
        self._knocks: dict[Address, _OutboundHandshake] = {}
        self._guests: dict[tuple[Address, bytes], _InboundHandshake] = {}

    def __len__(self) -> int:
        """Handshakes under way, in both directions."""
        return len(self._knocks) + len(self._guests)

    def initiate(self, peer: Address, now: int, remote: bytes | None = None) -> bytes:
        """Begin a handshake, in place of one under way with this peer: the datagram to send."""
        initiation = InitiatorHandshake(self._party, now, remote=remote)
        kind = HandshakePacketKind.HELLO if remote is None else HandshakePacketKind.RETURN
        letter = HandshakePacket(kind, self._party.entropy(HANDSHAKE_ID), initiation.first_message)
        remember(self._knocks, peer, _OutboundHandshake(now, letter, initiation), OUTBOUND_MAX)
        return self._envelopes.seal(letter)

    def repeat_last(self, peer: Address, now: int) -> bytes | None:
        """Our last letter to this peer in another envelope; None if there is nothing to repeat."""
        _expire(self._knocks, now)
        knock = self._knocks.get(peer)
        return None if knock is None else self._envelopes.seal(knock.letter)

    def finish(self, peer: Address) -> None:
        """The peer has the session, or is given up: there is nothing to repeat."""
        self._knocks.pop(peer, None)

    def receive(self, datagram: bytes, source: Address, now: int) -> HandshakeStep:
        """Take a letter. `RemoteError` for what is refused; `ExpiredError` if our own membership is over."""
        letter = self._envelopes.open(datagram)
        match letter.kind:
            case HandshakePacketKind.HELLO | HandshakePacketKind.RETURN:
                return self._greet(letter, source, now)
            case HandshakePacketKind.COOKIE:
                return self._show_cookie(letter, source, now)
            case HandshakePacketKind.ANSWER:
                return self._read_answer(letter, source, now)
            case HandshakePacketKind.FINISH:
                return self._read_finish(letter, source, now)

    def _greet(self, letter: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        if letter.cookie == NO_COOKIE:
            cookie = self._doorkeeper.cookie(source, letter.thread, now)
            return HandshakeStep(
                self._envelopes.seal(HandshakePacket(HandshakePacketKind.COOKIE, letter.thread, cookie=cookie))
            )
        self._doorkeeper.admit(source, letter.thread, letter.cookie, now)
        _expire(self._guests, now)
        name = (source, letter.thread)
        guest = self._guests.get(name)
        if guest is not None:
            return HandshakeStep(self._envelopes.seal(guest.letter))
        response = ResponderHandshake(self._party, letter.content, now, known=letter.kind is HandshakePacketKind.RETURN)
        guest = _InboundHandshake(
            now, HandshakePacket(HandshakePacketKind.ANSWER, letter.thread, response.answer), response
        )
        if response.result is not None:
            guest.response = None
        remember(self._guests, name, guest, INBOUND_MAX)
        return HandshakeStep(self._envelopes.seal(guest.letter), response.result)

    def _show_cookie(self, letter: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        knock = self._knock_of(letter, source, now)
        if knock.cookies == 0:
            raise StaleError("a peer that asks for cookies without end")
        knock.cookies -= 1
        knock.letter = msgspec.structs.replace(knock.letter, cookie=letter.cookie)
        return HandshakeStep(self._envelopes.seal(knock.letter), own=True)

    def _read_answer(self, letter: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        knock = self._knock_of(letter, source, now)
        initiation, knock.initiation = knock.initiation, None
        assert initiation is not None
        try:
            contact = initiation.read(letter.content, now)
        except RemoteError:
            self.finish(source)
            raise
        if not contact.last_message:
            self.finish(source)
            return HandshakeStep(None, contact)
        knock.letter = HandshakePacket(HandshakePacketKind.FINISH, letter.thread, contact.last_message)
        return HandshakeStep(self._envelopes.seal(knock.letter), contact, own=True)

    def _read_finish(self, letter: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        _expire(self._guests, now)
        guest = self._guests.get((source, letter.thread))
        if guest is None or guest.response is None:
            raise StaleError("the end of a handshake that we do not know")
        response, guest.response = guest.response, None
        return HandshakeStep(None, response.read(letter.content, now))

    def _knock_of(self, letter: HandshakePacket, source: Address, now: int) -> _OutboundHandshake:
        """The handshake that this answers, if it still waits for one."""
        _expire(self._knocks, now)
        knock = self._knocks.get(source)
        if knock is None or knock.letter.thread != letter.thread or knock.initiation is None:
            raise StaleError("an answer to nothing that we asked")
        return knock


@dataclass(slots=True)
class _OutboundHandshake:
    """One that we began. Without its initiation it waits for nothing, but for our last letter to arrive."""

    since_us: int
    letter: HandshakePacket
    initiation: InitiatorHandshake | None
    cookies: int = 3
    """How many more we show: one, unless it came late or the peer began anew meanwhile."""


@dataclass(slots=True)
class _InboundHandshake:
    """One that another began, with our answer. Without its response it is over, and known again if repeated."""

    since_us: int
    letter: HandshakePacket
    response: ResponderHandshake | None


_Name = TypeVar("_Name")
_Entry = TypeVar("_Entry", _OutboundHandshake, _InboundHandshake)


def _expire(table: dict[_Name, _Entry], now: int) -> None:
    """Tables are in the order of time, so the old ones are in front."""
    while table:
        name = next(iter(table))
        if now - table[name].since_us < HANDSHAKE_US:
            return
        del table[name]


HANDSHAKE_US: Final = 2 * COOKIE_US
"""After this long a handshake is forgotten, and no cookie that it began with is good any more."""

OUTBOUND_MAX: Final = 128
INBOUND_MAX: Final = 128
