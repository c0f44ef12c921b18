"""Letters: the messages of a handshake between peers without a link, each in an envelope of one cell.

An envelope is sealed under a key that all members have. To anybody else it is 1,200 random bytes, as every cell is: the
X25519 points of Noise, which can be told from random bytes, do not show, nor does the length of a certificate. To open
one costs a cipher and no operation on a curve, so what strangers make up gets no further than that. Mostly not even so
far: in front, where a cell has its header, stands a stamp (8), which is the mask that the network has for the bytes
behind it. One block of a cipher tells a wrong one.

A member who watches the wire can open the envelopes of others: it sees that two addresses meet, and the fresh keys;
certificates are encrypted once more, inside.

Inside: kind (1) | thread (8) | cookie (16) | length (2) | content | zeros. The thread names the handshake, so that
answers find it; the cookie is zeros in a letter that has none.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.crypto.veil import Mask, Veil
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.machine import Entropy
from veilcast.wire.geometry import CELL, COOKIE, LETTER_HEAD, LETTER_ROOM, LINK_HEADER, LINK_SAMPLE, THREAD

NO_COOKIE: Final = bytes(COOKIE)


class Kind(enum.IntEnum):
    """What a letter is. Append only: the numbers are on the wire."""

    HELLO = 1
    """The first message to a peer whose key we do not know (XX)."""
    RETURN = 2
    """The first message to a peer whose key we know (IK)."""
    COOKIE = 3
    """Brings a cookie, to be shown with the first message again."""
    ANSWER = 4
    FINISH = 5
    """The third message of XX."""


class Letter(msgspec.Struct, frozen=True):
    kind: Kind
    thread: bytes
    content: bytes = b""
    cookie: bytes = NO_COOKIE

    def __post_init__(self) -> None:
        if len(self.thread) != THREAD or len(self.cookie) != COOKIE or len(self.content) > LETTER_ROOM:
            raise LocalError("a part of a letter has the wrong size")


class Envelopes:
    """All of one network, by the key that its members derive."""

    def __init__(self, key: Secret, entropy: Entropy) -> None:
        self._veil, self._entropy = Veil(derive(key, b"vc/letter")), entropy
        self._stamps = Mask(derive(key, b"vc/stamp"))

    def seal(self, letter: Letter) -> bytes:
        """A cell. The same letter is another cell each time."""
        head = bytes((letter.kind,)) + letter.thread + letter.cookie + len(letter.content).to_bytes(2, "big")
        padding = bytes(LETTER_ROOM - len(letter.content))
        sealed = self._veil.seal(head + letter.content + padding, entropy=self._entropy)
        return self._stamp_of(sealed) + sealed

    def open(self, datagram: bytes) -> Letter:
        """The letter inside; `RemoteError` for what is none of this network."""
        if len(datagram) != CELL:
            raise MalformedError(f"an envelope of {len(datagram)} bytes")
        sealed = datagram[LINK_HEADER:]
        if datagram[:LINK_HEADER] != self._stamp_of(sealed):
            raise ForgedError("not a letter of this network")
        plain = self._veil.open(sealed)
        kind, length = plain[0], int.from_bytes(plain[LETTER_HEAD - 2 : LETTER_HEAD], "big")
        content, padding = plain[LETTER_HEAD : LETTER_HEAD + length], plain[LETTER_HEAD + length :]
        if kind not in _KINDS or length > LETTER_ROOM or padding.strip(b"\0"):
            raise MalformedError("not a letter")
        return Letter(Kind(kind), plain[1 : 1 + THREAD], content, plain[1 + THREAD : LETTER_HEAD - 2])

    def _stamp_of(self, sealed: bytes) -> bytes:
        return self._stamps.of(sealed[:LINK_SAMPLE]).to_bytes(LINK_HEADER, "big")


_KINDS: Final = frozenset(Kind)
