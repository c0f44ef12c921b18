"""The sealed channel of an invitation: one run of CPace, one confirmation, then numbered sealed pieces.

Property: an adversary without the password reads nothing, and changes nothing unseen.
Assumption: CPace (`veilcast.crypto.cpace`), and the password is used for few runs.
Reason: both keys are derived from the run's key, which depends on the password, on everything else in the code and on
both shares. Every piece is sealed under the key of its direction with its number, so a piece that is dropped, repeated,
moved or sent back does not open.

Property: whoever has the wrong password learns from one run whether one password is right, and nothing else.
Reason: an inviter sends nothing but its share, which does not depend on the password, before it has seen the right
confirmation. A joiner sends its confirmation first: so a false inviter can try one password for each confirmation, and
`joiner` bounds their number.
"""

from __future__ import annotations

from typing import Final, Literal

from veilcast.crypto.cpace import CpaceRun
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import Sealer
from veilcast.crypto.secret import Secret
from veilcast.errors import ExcessError, ForgedError, MalformedError
from veilcast.invitation.code import InvitationCode
from veilcast.invitation.messages import CONTENT_MAX, PIECE, Content, FrameKind, decode_content, encode_content
from veilcast.machine import Entropy

Side = Literal["inviter", "joiner"]


def begin_run(code: InvitationCode, entropy: Entropy) -> CpaceRun:
    return CpaceRun(code.password, channel=_CHANNEL + code.channel, session=b"", entropy=entropy)


class SealedChannel:
    """One side's end. Raises `RemoteError` for every frame that is not the next one of the other side."""

    def __init__(self, run: CpaceRun, theirs: bytes, side: Side, entropy: Entropy) -> None:
        """Finishes the run. Raises `MalformedError` if `theirs` is no share."""
        if side == "joiner":
            key = run.finish_as_initiator(theirs, about=_JOINER, about_them=_INVITER)
        else:
            key = run.finish_as_responder(theirs, about=_INVITER, about_them=_JOINER)
        self.confirmation: Final = derive(key, _PURPOSE, b"confirm")
        """What the joiner shows, and the inviter compares."""
        to_joiner, to_inviter = (Sealer(derive(key, _PURPOSE, name)) for name in (_JOINER, _INVITER))
        self._ours, self._theirs = (to_inviter, to_joiner) if side == "joiner" else (to_joiner, to_inviter)
        self._entropy = entropy
        self._sent = self._received = 0
        self._pieces = bytearray()

    def confirms(self, tag: bytes) -> bool:
        return bool(tag) and self.confirmation == Secret(tag)

    def seal(self, content: Content) -> list[bytes]:
        """The frames that carry a content."""
        data = encode_content(content)
        frames = []
        for start in range(0, len(data), PIECE):
            last = start + PIECE >= len(data)
            plain = bytes((last,)) + data[start : start + PIECE]
            context = self._sent.to_bytes(4, "big")
            frames.append(bytes((FrameKind.SEALED,)) + self._ours.seal(plain, context=context, entropy=self._entropy))
            self._sent += 1
        return frames

    def open(self, sealed: bytes) -> Content | None:
        """The content that this piece completes; None if more pieces follow."""
        plain = self._theirs.unseal(sealed, context=self._received.to_bytes(4, "big"))
        self._received += 1
        if plain[:1] not in (b"\0", b"\1"):
            raise MalformedError("not a piece of a content")
        self._pieces += plain[1:]
        if len(self._pieces) > CONTENT_MAX:
            raise ExcessError("a content of an invitation is too long")
        if plain[:1] == b"\0":
            return None
        data = bytes(self._pieces)
        self._pieces.clear()
        return decode_content(data)


def expect(content: Content, *kinds: type[Content]) -> None:
    """Raise unless the content is of a kind that may come now."""
    if not isinstance(content, kinds):
        raise ForgedError("a content that may not come now")


_PURPOSE: Final = b"vc/invitation"
_CHANNEL: Final = b"veilcast invitation 1"
_JOINER: Final = b"joiner"
_INVITER: Final = b"inviter"
