"""A session: one generation of keys between two peers, which turns bodies into datagrams and back.

A datagram is a header (8 bytes) and the ciphertext of the body with its tag (16). The header is the generation (2) and
the counter (6), XORed with a mask made from the first 16 bytes of the ciphertext, so it looks random too. It is also
authentic: the counter is the nonce that seals the body, the generation is that of the key, and any changed bit changes
one of them, or the mask.

If datagrams are `uniform`, every body fills a cell, and no other size is accepted or produced. So the size of a
datagram cannot reveal its content, even if the code above has a fault. Otherwise (paper profile) bodies have any size
up to that.

A session lasts for `REFUSE_US`. Long before its end, at `REKEY_US`, the peers agree on the next one inside the link.
The initiator cannot know whether its last message arrived, and the responder cannot know whether it answered a
recording, until a cell of the other side has been opened (`is_confirmed`). Only then may a session replace another.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from veilcast.crypto.derive import derive
from veilcast.crypto.noise import Handshake, HandshakeRole
from veilcast.crypto.uniform_seal import HeaderMask
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.link.replay_window import WINDOW_SIZE, ReplayWindow
from veilcast.wire.geometry import CELL, DATAGRAM_MIN, LINK_HEADER, LINK_SAMPLE


class LinkSession:
    """The keys of a finished handshake.

    `newest` is the highest counter that was opened, or -1. The next generation is due at `rekey_us`. The session is
    refused from `ends_us` on.
    """

    __slots__ = (
        "_high",
        "_inward",
        "_least",
        "_outward",
        "_receiver",
        "_sender",
        "_window",
        "born_us",
        "ends_us",
        "generation",
        "newest",
        "rekey_us",
        "uniform",
    )

    def __init__(self, handshake: Handshake, *, generation: int, born_us: int, uniform: bool = True) -> None:
        """Takes the handshake's keys. The handshake cannot give them again."""
        self._high = int.from_bytes(generation_bytes(generation), "big") << _COUNTER_BITS
        exported = handshake.export()
        masks = [
            HeaderMask(derive(exported, _MASK, role.value.encode()))
            for role in (HandshakeRole.INITIATOR, HandshakeRole.RESPONDER)
        ]
        self._outward, self._inward = masks if handshake.role is HandshakeRole.INITIATOR else reversed(masks)
        self._sender, self._receiver = handshake.split()
        self._window = ReplayWindow()
        self._least = CELL if uniform else DATAGRAM_MIN
        self.generation: Final = generation
        self.born_us: Final = born_us
        self.rekey_us: Final = born_us + REKEY_US
        self.ends_us: Final = born_us + REFUSE_US
        self.uniform: Final = uniform
        self.newest = -1

    def seal(self, body: bytes, now: int) -> bytes:
        """The datagram that carries this body: a cell, if the session is uniform."""
        if not self._least <= len(body) + DATAGRAM_MIN <= CELL:
            raise LocalError(f"a body of {len(body)} bytes does not fit this session")
        if now >= self.ends_us:
            raise LocalError("the session is over; only a new handshake helps")
        counter = self._sender.next_nonce
        if counter >= COUNTERS:
            raise LocalError("the session has no counter left; only a new handshake helps")
        sealed = self._sender.encrypt(body)
        return _HEADER.pack((self._high | counter) ^ self._outward.mask_for(sealed[:LINK_SAMPLE])) + sealed

    def open(self, datagram: bytes, now: int) -> bytes:
        """The body, once. A refused datagram changes nothing."""
        if not self._least <= len(datagram) <= CELL:
            raise MalformedError(f"a datagram of {len(datagram)} bytes")
        counter = self._counter_of(datagram)
        if counter >= COUNTERS:
            raise ForgedError("not a cell of this generation")
        return self._open(counter, datagram, now)

    def open_own(self, datagram: bytes, now: int) -> bytes | None:
        """Like `open`; None if the header shows that the datagram is not of this session. One foreign datagram in 2^40
        is tried."""
        if not self._least <= len(datagram) <= CELL:
            return None
        counter = self._counter_of(datagram)
        return self._open(counter, datagram, now) if -WINDOW_SIZE < counter - self.newest <= AHEAD else None

    def _open(self, counter: int, datagram: bytes, now: int) -> bytes:
        if now >= self.ends_us:
            raise StaleError("the session is over")
        body = self._receiver.decrypt_at(counter, datagram[LINK_HEADER:])
        if not self._window.take(counter):
            raise StaleError("a repeated cell, or one behind the replay window")
        if counter > self.newest:
            self.newest = counter
        return body

    def recognises(self, datagram: bytes) -> bool:
        """True if `open_own` would try to open the datagram."""
        fits = self._least <= len(datagram) <= CELL
        return fits and -WINDOW_SIZE < self._counter_of(datagram) - self.newest <= AHEAD

    @property
    def is_confirmed(self) -> bool:
        """True if the peer has shown that it holds these keys."""
        return self.newest >= 0

    @property
    def next_generation(self) -> int:
        return (self.generation + 1) % GENERATIONS

    def _counter_of(self, datagram: bytes) -> int:
        """The counter; larger than all counters if the datagram is of another generation."""
        masked: int = _HEADER.unpack_from(datagram)[0]
        return masked ^ self._inward.mask_for(datagram[LINK_HEADER:_SAMPLE_END]) ^ self._high

    def __repr__(self) -> str:
        return f"<Session of generation {self.generation}, newest {self.newest}>"


def generation_bytes(generation: int) -> bytes:
    """The generation as both sides encode it; raises `LocalError` if it is out of range."""
    if not 0 <= generation < GENERATIONS:
        raise LocalError(f"a generation is a number below {GENERATIONS}, not {generation}")
    return generation.to_bytes(2, "big")


SECOND_US: Final = 1_000_000
REKEY_US: Final = 120 * SECOND_US
REFUSE_US: Final = 180 * SECOND_US

_COUNTER_BITS: Final = 48
COUNTERS: Final = 1 << _COUNTER_BITS
GENERATIONS: Final = 1 << 16
AHEAD: Final = 1 << 24
"""How far ahead of the newest a counter is tried: far more than can be lost in the life of a session."""
_HEADER: Final = Struct(">Q")
_SAMPLE_END: Final = LINK_HEADER + LINK_SAMPLE
_MASK: Final = b"vc/link-mask"
