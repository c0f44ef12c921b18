"""Events on the wire: candidates that a broker can tell apart only by the values that it filters by.

Pure recipes. A candidate is an MQTT topic, which holds its values (`topic_names`), and a payload:

    stream (16) | number of the event in its stream (8) | candidates (2) | slot (2) | sealed body

The true body is the notification as in every mode (`core.sealed_notification.encode_notification`: sealed for the
topic, signed with the publisher's certificate), padded to one of a few sizes, and sealed with the secret of this event
(`positions`). A fake body is as many zeros, sealed with a key that nobody keeps. So both are made in the same way, and
without the keys both are seals; random bytes in place of a seal would lack the first byte that all seals have. The head
is bound to the seal: a body that is moved to another event or slot does not open.

An event is repeated byte for byte: with fresh fakes, the truth would be the intersection. So a fake is made from a key
(`chaff`) that is stored with the event.
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
    """The public part of a candidate beside its topic. Slots count from 0."""

    stream: bytes
    number: int
    candidates: int
    slot: int

    def encode(self) -> bytes:
        return _HEAD.pack(self.stream, self.number, self.candidates, self.slot)


def split_candidate(payload: bytes) -> tuple[CandidateHead, bytes]:
    """The head and the sealed body; `MalformedError` for an invalid candidate."""
    if len(payload) not in PAYLOAD_SIZES:
        raise MalformedError("not of a size that candidates have")
    head = CandidateHead(*_HEAD.unpack_from(payload))
    if not head.slot < head.candidates <= FAKES_MAX + 1 or head.number >= NUMBER_MAX:
        raise MalformedError("a slot or number that no candidate has")
    return head, payload[_HEAD.size :]


def seal_body(head: CandidateHead, secret: Secret, notification: bytes, entropy: Entropy) -> bytes:
    """The true body, of one of a few sizes; `LocalError` for a notification that is longer than all of them."""
    size = next((size for size in BODY_CLASSES if len(notification) <= size - LENGTH_PREFIX), None)
    if size is None:
        raise LocalError("a notification is longer than the largest size class")
    return seal(_derive_body_key(secret), pad(notification, size), context=head.encode(), entropy=entropy)


def open_body(head: CandidateHead, secret: Secret, sealed: bytes) -> bytes:
    """The notification; `ForgedError` for anything but the true body of this event."""
    return unpad(unseal(_derive_body_key(secret), sealed, context=head.encode()))


def seal_fake_body(head: CandidateHead, chaff: Secret, size: int) -> bytes:
    """Has the length of the sealed truth, and is the same each time."""
    slot = head.slot.to_bytes(2, "big")

    def nonce(length: int) -> bytes:
        return derive(chaff, b"vc/foil-nonce", slot, size=length).reveal()

    return seal(derive(chaff, b"vc/foil-chaff", slot), bytes(size - OVERHEAD), context=head.encode(), entropy=nonce)


def _derive_body_key(secret: Secret) -> Secret:
    return derive(secret, b"vc/foil-body")


STREAM_BYTES: Final = 16
_HEAD: Final = struct.Struct(f">{STREAM_BYTES}sQHH")
NUMBER_MAX: Final = 1 << 62
PAYLOAD_SIZES: Final = tuple(_HEAD.size + size + OVERHEAD for size in BODY_CLASSES)
"""All possible payload sizes, in bytes."""
