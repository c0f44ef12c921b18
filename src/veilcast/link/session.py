"""A session: one generation of keys between two peers, which turns bodies into datagrams and back.

A datagram is a header (8) and the ciphertext of the body with its tag (16). The header is the generation (2) and the
counter (6), XORed with a mask made from the first 16 bytes of the ciphertext, so it looks as random as what follows.
It is authentic too: the counter is the nonce that the body is sealed with, the generation is that of the key, and a bit
that is changed anywhere changes one of them, or the mask.

Where datagrams are `uniform` every body fills a cell, and nothing else is taken or given: the size of a datagram can
never tell what is in it, whatever mistake somebody above makes. Elsewhere (the papers' profile) bodies have any size up
to that.

A session is for `REFUSE_US` and no longer. Long before, at `REKEY_US`, peers agree on the next one inside the link. Who
began the handshake cannot know whether its last message arrived, and who answered cannot know whether it answered a
recording, until a cell of the other side has been opened: `confirmed`. Only then may a session take another's place.
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
    """What a finished handshake leaves.

    `newest` is the highest counter that was opened, or -1. At `rekey_us` it is time for the next generation, and at
    `ends_us` it is too late.
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
        """Takes the handshake's keys; it has no others to give."""
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
        """The datagram that carries this body: a cell, where sessions are uniform."""
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
        """The same; None for what is not worth trying, by the header alone. One in 2^40 that is not ours is tried."""
        if not self._least <= len(datagram) <= CELL:
            return None
        counter = self._counter_of(datagram)
        return self._open(counter, datagram, now) if -WINDOW_SIZE < counter - self.newest <= AHEAD else None

    def _open(self, counter: int, datagram: bytes, now: int) -> bytes:
        if now >= self.ends_us:
            raise StaleError("the session is over")
        body = self._receiver.decrypt_at(counter, datagram[LINK_HEADER:])
        if not self._window.take(counter):
            raise StaleError("a cell that was here before, or too late to tell")
        if counter > self.newest:
            self.newest = counter
        return body

    def recognises(self, datagram: bytes) -> bool:
        """Whether `open_own` would try."""
        fits = self._least <= len(datagram) <= CELL
        return fits and -WINDOW_SIZE < self._counter_of(datagram) - self.newest <= AHEAD

    @property
    def is_confirmed(self) -> bool:
        """Whether the peer has shown that it holds these keys."""
        return self.newest >= 0

    @property
    def next_generation(self) -> int:
        return (self.generation + 1) % GENERATIONS

    def _counter_of(self, datagram: bytes) -> int:
        """No counter, but larger than all, if the datagram is of another generation."""
        masked: int = _HEADER.unpack_from(datagram)[0]
        return masked ^ self._inward.mask_for(datagram[LINK_HEADER:_SAMPLE_END]) ^ self._high

    def __repr__(self) -> str:
        return f"<Session of generation {self.generation}, newest {self.newest}>"


def generation_bytes(generation: int) -> bytes:
    """As both sides of a handshake name it; `LocalError` for a number that is none."""
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
"""How far ahead of the newest a counter is believed at sight: far more than can be lost in the life of a session."""
_HEADER: Final = Struct(">Q")
_SAMPLE_END: Final = LINK_HEADER + LINK_SAMPLE
_MASK: Final = b"vc/link-mask"
