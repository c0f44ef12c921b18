"""Sealed publications: from the publisher to every subscriber that has the key of the bulk.

The author need not be named inside. The manifest of the content is signed with the certified key of the advertisement
that the routing names. The content's id, to which the manifest and this seal are bound, is a digest of that routing. In
`hardened` publications are padded to one of a few sizes: brokers see the content pass, and its length would reveal what
it is.

A trial is a sealed publication without content. A subscriber confirms it when it has opened it, and so has the key.
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


def encode_publication(pending: PendingPublication, *, padded: bool) -> bytes:
    """The plaintext to seal; `LocalError` if it is too long."""
    plain = _ENCODER.encode(pending.content)
    if len(plain) > BODY_MAX:
        raise LocalError(f"a publication has at most {BODY_MAX} bytes, this one {len(plain)}")
    if not padded:
        return plain
    return pad(plain, next(size for size in BODY_CLASSES if len(plain) <= size - LENGTH_PREFIX))


def encode_trial(*, padded: bool) -> bytes:
    """The plaintext of a trial."""
    return pad(b"", BODY_CLASSES[0]) if padded else b""


def seal_publication(key: Secret, spelled: bytes, content: bytes, entropy: Entropy) -> bytes:
    """`content` is the id of the publication's routing."""
    return seal(key, spelled, context=_CONTEXT + content, entropy=entropy)


def open_publication(
    key: Secret, sealed: bytes, content: bytes, topic: str, *, padded: bool
) -> PendingPublication | None:
    """The publication; None for a trial. Raises for anything that was not sealed with this key for this routing."""
    plain = unseal(key, sealed, context=_CONTEXT + content)
    if padded:
        plain = unpad(plain)
    return PendingPublication(topic, decode_publication(plain)) if plain else None


_CONTEXT: Final = b"veilcast/brokers-letter"
_ENCODER: Final = msgspec.msgpack.Encoder()
