"""Events as they travel: candidates that a broker can tell apart by nothing but the values that it filters by.

Pure recipes. A candidate is a topic of MQTT, which has its values (`naming`), and a payload:

    stream (16) | number of the event in its stream (8) | candidates (2) | slot (2) | sealed body

The true one's body is the note as every mode has it (`authority.notes.bare_note`: sealed for the topic, signed with the
publisher's certificate), padded to one of a few sizes, and sealed with the secret of this event (`positions`). A fake's
is as many zeros, sealed with a key that nobody keeps. So both are made by the same hand, and whoever lacks the keys
sees two seals; random bytes in place of one would already lack the first byte that all seals have. The head is bound to
the seal: a body that is moved to another event or slot does not open.

An event is sent again as it was, byte for byte: were fakes drawn anew, the truth would be what is in both. So a fake is
made from a key (`chaff`) that is kept with the event.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from veilcast.crypto.derive import derive
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError
from veilcast.foil.generators.base import FAKES_MAX
from veilcast.machine import Entropy
from veilcast.wire.geometry import BODY_CLASSES, LENGTH_PREFIX
from veilcast.wire.padding import pad, unpad


class CandidateHead(NamedTuple):
    """What everybody sees of a candidate beside its topic. Slots count from 0."""

    stream: bytes
    number: int
    candidates: int
    slot: int

    def encode(self) -> bytes:
        return _HEAD.pack(self.stream, self.number, self.candidates, self.slot)


def split_candidate(payload: bytes) -> tuple[CandidateHead, bytes]:
    """The head and the sealed body; `MalformedError` for what is no candidate."""
    if len(payload) not in PAYLOAD_SIZES:
        raise MalformedError("not of a size that candidates have")
    head = CandidateHead(*_HEAD.unpack_from(payload))
    if not head.slot < head.candidates <= FAKES_MAX + 1 or head.number >= NUMBER_MAX:
        raise MalformedError("a slot or number that no candidate has")
    return head, payload[_HEAD.size :]


def seal_body(head: CandidateHead, secret: Secret, note: bytes, entropy: Entropy) -> bytes:
    """The truth, of one of a few sizes; `LocalError` for a note that is longer than all of them."""
    size = next((size for size in BODY_CLASSES if len(note) <= size - LENGTH_PREFIX), None)
    if size is None:
        raise LocalError("a note is longer than the largest class of bodies")
    return seal(_body_key(secret), pad(note, size), context=head.encode(), entropy=entropy)


def open_body(head: CandidateHead, secret: Secret, sealed: bytes) -> bytes:
    """The note; `ForgedError` for whatever is not the truth of this event."""
    return unpad(unseal(_body_key(secret), sealed, context=head.encode()))


def seal_fake_body(head: CandidateHead, chaff: Secret, size: int) -> bytes:
    """As long as the sealed truth is, and the same each time."""
    slot = head.slot.to_bytes(2, "big")

    def nonce(length: int) -> bytes:
        return derive(chaff, b"vc/foil-nonce", slot, size=length).reveal()

    return seal(derive(chaff, b"vc/foil-chaff", slot), bytes(size - OVERHEAD), context=head.encode(), entropy=nonce)


def _body_key(secret: Secret) -> Secret:
    return derive(secret, b"vc/foil-body")


STREAM_BYTES: Final = 16
_HEAD: Final = struct.Struct(f">{STREAM_BYTES}sQHH")
NUMBER_MAX: Final = 1 << 62
PAYLOAD_SIZES: Final = tuple(_HEAD.size + size + OVERHEAD for size in BODY_CLASSES)
"""All that a payload can be long."""
