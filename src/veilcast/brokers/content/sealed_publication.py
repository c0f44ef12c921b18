"""Sealed letters: a publication from its publisher to whoever was brought the key of its bulk.

Pure recipes. Who wrote it need not be said inside: the manifest of the content is signed with the certified key of the
advertisement that the routing names, and the content's id, which the manifest and this seal are bound to, is a digest
of that routing. In `hardened` letters are padded to one of a few sizes; brokers see content pass, and its length would
tell them what it is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import decode_publication
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.machine import Entropy
from veilcast.wire.geometry import BODY_CLASSES, BODY_MAX, LENGTH_PREFIX
from veilcast.wire.padding import pad, unpad


def encode_publication(letter: PendingPublication, *, padded: bool) -> bytes:
    """What is to be sealed; `LocalError` if it is too long."""
    plain = _ENCODER.encode(letter.content)
    if len(plain) > BODY_MAX:
        raise LocalError(f"a publication has at most {BODY_MAX} bytes, this one {len(plain)}")
    if not padded:
        return plain
    return pad(plain, next(size for size in BODY_CLASSES if len(plain) <= size - LENGTH_PREFIX))


def seal_publication(key: Secret, spelled: bytes, content: bytes, entropy: Entropy) -> bytes:
    """`content` is the id of the publication's routing."""
    return seal(key, spelled, context=_CONTEXT + content, entropy=entropy)


def open_publication(key: Secret, sealed: bytes, content: bytes, topic: str, *, padded: bool) -> PendingPublication:
    """Raises for whatever was not sealed with this key, for this routing."""
    plain = unseal(key, sealed, context=_CONTEXT + content)
    return PendingPublication(topic, decode_publication(unpad(plain) if padded else plain))


_CONTEXT: Final = b"veilcast/brokers-letter"
_ENCODER: Final = msgspec.msgpack.Encoder()
