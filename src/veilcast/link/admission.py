"""Admission: opens links by handshakes with peers that have none, and limits what strangers cost.

    admission.initiate(peer, now)           ->  HELLO    the peer's key is unknown
    admission.initiate(peer, now, static)   ->  RETURN   the peer's key is known
                                            <-  COOKIE   (the same packet again, with the cookie)  ->
                                            <-  ANSWER   RETURN ends here
                                            ->  FINISH   HELLO ends here

Every packet may be lost, duplicated, or replayed. The initiator repeats its last packet (`repeat_last`) until it hears
a cell of the new session; then the machine calls `finish`. The responder answers a known packet with its earlier
answer, so a repetition costs no key operation and makes no second session. The responder remembers a handshake for
longer than the cookie that began it is valid, so a replayed packet makes no second session either.

Both tables of handshakes are bounded and evict their oldest entry.
Claim: eviction does not stop an honest handshake.
Reason: the limits admit few strangers, so an entry stays for two seconds even under attack, and a handshake needs
one round trip.

`AdmissionLimits` has two gates. The first is for packets with a source address that may be forged: the sender gets at
most a cookie, which is one packet for one packet and needs no memory. The second is for senders that return the cookie,
and so receive at their address: these cost a handshake. Each gate has a rate for each host, so that a greedy host
leaves room for others, and one rate for all hosts, which bounds the total cost. An adversary that forges the address of
a host at the first gate takes nothing from that host at the second.

A cookie is always required, and not only under load. It costs one round trip, once, because links renew their keys
inside. In exchange there is no load to measure, no other behaviour under attack, and no state for unproven addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from veilcast.core.bounded import remember
from veilcast.core.rate_limit import PeerRateLimits, Rate, TokenBucket
from veilcast.errors import ExcessError, RemoteError, StaleError
from veilcast.link.address_groups import HostOf, host_of
from veilcast.link.cookies import Cookies
from veilcast.link.envelope import NO_COOKIE, HandshakePacket, HandshakePacketKind, PacketSealer
from veilcast.link.handshake import HandshakeResult, InitiatorHandshake, ResponderHandshake
from veilcast.link.identity import LinkIdentity
from veilcast.machine import Address, Entropy
from veilcast.wire.geometry import HANDSHAKE_ID


class HandshakeStep(msgspec.Struct, frozen=True):
    """The result of a packet: a datagram for its source, a finished handshake, both or neither.

    `own`: the datagram belongs to a handshake that this node began. `repeat_last` would give the same, so it may wait
    for the next slot.
    """

    reply: bytes | None = None
    result: HandshakeResult | None = None
    own: bool = False


class LinkAdmission:
    def __init__(self, identity: LinkIdentity, limits: AdmissionLimits) -> None:
        self._identity, self._limits = identity, limits
        self._sealer = PacketSealer(identity.envelope, identity.entropy)
        self._outbound: dict[Address, _OutboundHandshake] = {}
        self._inbound: dict[tuple[Address, bytes], _InboundHandshake] = {}

    def __len__(self) -> int:
        """Handshakes in progress, in both directions."""
        return len(self._outbound) + len(self._inbound)

    def initiate(self, peer: Address, now: int, remote: bytes | None = None) -> bytes:
        """Begin a handshake, and replace one in progress with this peer. Returns the datagram to send."""
        initiation = InitiatorHandshake(self._identity, now, remote=remote)
        kind = HandshakePacketKind.HELLO if remote is None else HandshakePacketKind.RETURN
        packet = HandshakePacket(kind, self._identity.entropy(HANDSHAKE_ID), initiation.first_message)
        remember(self._outbound, peer, _OutboundHandshake(now, packet, initiation), OUTBOUND_MAX)
        return self._sealer.seal(packet)

    def repeat_last(self, peer: Address, now: int) -> bytes | None:
        """This node's last packet to this peer, sealed again; None without a packet to repeat."""
        _expire(self._outbound, now)
        handshake = self._outbound.get(peer)
        return None if handshake is None else self._sealer.seal(handshake.packet)

    def finish(self, peer: Address) -> None:
        """Stop repeating: the peer has the session, or this node gives the peer up."""
        self._outbound.pop(peer, None)

    def receive(self, datagram: bytes, source: Address, now: int) -> HandshakeStep:
        """Handle a packet. Raises `RemoteError` if it is refused, and `ExpiredError` if this node's membership has
        ended."""
        packet = self._sealer.open(datagram)
        match packet.kind:
            case HandshakePacketKind.HELLO | HandshakePacketKind.RETURN:
                return self._answer_first_message(packet, source, now)
            case HandshakePacketKind.COOKIE:
                return self._return_cookie(packet, source, now)
            case HandshakePacketKind.ANSWER:
                return self._read_answer(packet, source, now)
            case HandshakePacketKind.FINISH:
                return self._read_finish(packet, source, now)

    def _answer_first_message(self, packet: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        if packet.cookie == NO_COOKIE:
            cookie = self._limits.cookie(source, packet.thread, now)
            return HandshakeStep(
                self._sealer.seal(HandshakePacket(HandshakePacketKind.COOKIE, packet.thread, cookie=cookie))
            )
        self._limits.admit(source, packet.thread, packet.cookie, now)
        _expire(self._inbound, now)
        name = (source, packet.thread)
        handshake = self._inbound.get(name)
        if handshake is not None:
            return HandshakeStep(self._sealer.seal(handshake.packet))
        response = ResponderHandshake(
            self._identity, packet.content, now, known=packet.kind is HandshakePacketKind.RETURN
        )
        handshake = _InboundHandshake(
            now, HandshakePacket(HandshakePacketKind.ANSWER, packet.thread, response.answer), response
        )
        if response.result is not None:
            handshake.response = None
        remember(self._inbound, name, handshake, INBOUND_MAX)
        return HandshakeStep(self._sealer.seal(handshake.packet), response.result)

    def _return_cookie(self, packet: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        handshake = self._find_outbound(packet, source, now)
        if handshake.cookies == 0:
            raise StaleError("a peer that asks for too many cookies")
        handshake.cookies -= 1
        handshake.packet = msgspec.structs.replace(handshake.packet, cookie=packet.cookie)
        return HandshakeStep(self._sealer.seal(handshake.packet), own=True)

    def _read_answer(self, packet: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        handshake = self._find_outbound(packet, source, now)
        initiation, handshake.initiation = handshake.initiation, None
        assert initiation is not None
        try:
            result = initiation.read(packet.content, now)
        except RemoteError:
            self.finish(source)
            raise
        if not result.last_message:
            self.finish(source)
            return HandshakeStep(None, result)
        handshake.packet = HandshakePacket(HandshakePacketKind.FINISH, packet.thread, result.last_message)
        return HandshakeStep(self._sealer.seal(handshake.packet), result, own=True)

    def _read_finish(self, packet: HandshakePacket, source: Address, now: int) -> HandshakeStep:
        _expire(self._inbound, now)
        handshake = self._inbound.get((source, packet.thread))
        if handshake is None or handshake.response is None:
            raise StaleError("the last message of an unknown handshake")
        response, handshake.response = handshake.response, None
        return HandshakeStep(None, response.read(packet.content, now))

    def _find_outbound(self, packet: HandshakePacket, source: Address, now: int) -> _OutboundHandshake:
        """The handshake that this packet answers, if it still waits for an answer."""
        _expire(self._outbound, now)
        handshake = self._outbound.get(source)
        if handshake is None or handshake.packet.thread != packet.thread or handshake.initiation is None:
            raise StaleError("an answer without a request")
        return handshake


class AdmissionLimits:
    """Raises `RemoteError` for a source over its limit."""

    def __init__(self, entropy: Entropy, host: HostOf = host_of) -> None:
        self._cookies = Cookies(entropy, COOKIE_US)
        self._host = host
        self._strangers = AdmissionGate(STRANGERS_EVERY_US, STRANGERS_BURST)
        self._proven = AdmissionGate(PROVEN_EVERY_US, PROVEN_BURST)

    def cookie(self, source: Address, thread: bytes, now: int) -> bytes:
        """A cookie for the claimed address `source`. Charges the first gate."""
        self._strangers.charge(self._host(source), now)
        return self._cookies.make(source, thread, now)

    def admit(self, source: Address, thread: bytes, cookie: bytes, now: int) -> None:
        """Raise unless the cookie is valid and `source` may start a handshake now."""
        self._cookies.check(source, thread, cookie, now)
        self._proven.charge(self._host(source), now)


class AdmissionGate:
    """A rate for each host, and one for all hosts."""

    def __init__(self, every_us: int, burst: int) -> None:
        self._by_host = PrefixRateLimit(HOST_EVERY_US, HOST_BURST)
        self._total = TokenBucket(every_us, burst)

    def __len__(self) -> int:
        """Hosts that are remembered."""
        return len(self._by_host)

    def charge(self, host: str, now: int) -> None:
        self._by_host.charge(host, now)
        if not self._total.take(now):
            raise ExcessError("more handshakes than the total rate allows")


class PrefixRateLimit:
    """A rate for each prefix. Bounded: the prefix that was charged longest ago is evicted first."""

    def __init__(self, every_us: int, burst: int) -> None:
        self._limits: PeerRateLimits[str] = PeerRateLimits(PREFIXES_MAX, {_KNOCKS: Rate(every_us, burst)})

    def __len__(self) -> int:
        return len(self._limits)

    def charge(self, prefix: str, now: int) -> None:
        """Raise if this prefix is over its rate."""
        if not self._limits.take(prefix, _KNOCKS, now):
            raise StaleError("this prefix is over its rate")

    def exhaust(self, prefix: str, now: int) -> None:
        """Use up the tokens of this prefix, so that a prefix that has sent a forgery cannot send another at once."""
        self._limits.exhaust(prefix, _KNOCKS, now)


@dataclass(slots=True)
class _OutboundHandshake:
    """A handshake that this node began. Without its `initiation` it waits only for its last packet to arrive."""

    since_us: int
    packet: HandshakePacket
    initiation: InitiatorHandshake | None
    cookies: int = 3
    """Cookies that this node still accepts: one is usual; more if a packet came late or the peer restarted."""


@dataclass(slots=True)
class _InboundHandshake:
    """A handshake that a peer began, with the answer to it. Without its `response` it is finished, and kept to
    recognise repetitions."""

    since_us: int
    packet: HandshakePacket
    response: ResponderHandshake | None


_Name = TypeVar("_Name")
_Entry = TypeVar("_Entry", _OutboundHandshake, _InboundHandshake)


def _expire(table: dict[_Name, _Entry], now: int) -> None:
    """Entries are in the order of time, so the oldest stand first."""
    while table:
        name = next(iter(table))
        if now - table[name].since_us < HANDSHAKE_US:
            return
        del table[name]


COOKIE_US: Final = 10_000_000
HANDSHAKE_US: Final = 2 * COOKIE_US
"""A handshake is forgotten after this time, when no cookie that began it is valid any more."""
PREFIXES_MAX: Final = 1024
_KNOCKS: Final = "knocks"
HOST_EVERY_US: Final = 50_000
HOST_BURST: Final = 5
"""20 handshakes per second from one host, and 5 at once."""
STRANGERS_EVERY_US: Final = 5_000
STRANGERS_BURST: Final = 64
"""Cookies: about 15 microseconds each, which is a third of a percent of the processor time."""
PROVEN_EVERY_US: Final = 20_000
PROVEN_BURST: Final = 32
"""Handshakes: about one millisecond each, which is a twentieth of the processor time."""
OUTBOUND_MAX: Final = 128
INBOUND_MAX: Final = 128
