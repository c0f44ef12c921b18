"""Sealed notifications: a publication from end to end. Forwarders see neither its topic nor its publisher.

The inside is the notification of every mode (`publication`): sealed for the topic, and signed with the publisher's
one-show certificate. It is padded to one of a few sizes and sealed once more for the topic, because token and
certificate would show forwarders which publications have the same topic or publisher. A seal for one mode does not open
in another.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.core.publication import (
    NumberedPublication,
    check_notify,
    decode_publication,
    make_certified_notify,
    open_notify,
)
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import Sealer, seal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy
from veilcast.wire.codec import decode, encode
from veilcast.wire.geometry import BODY_CLASSES, LENGTH_PREFIX
from veilcast.wire.mesh import Notify
from veilcast.wire.padding import pad, unpad

SealingMode: TypeAlias = Literal["relay", "tree"]


def seal_notification(keys: TopicKeys, content: NumberedPublication, mode: SealingMode, entropy: Entropy) -> bytes:
    """The publisher seals for the subscribers of the topic in the epoch of these keys."""
    note = encode_notification(keys, content, entropy)
    size = next((size for size in BODY_CLASSES if len(note) <= size - LENGTH_PREFIX), None)
    if size is None:
        raise LocalError("a note is longer than the largest class of bodies")
    return seal(_key(keys, mode), pad(note, size), context=_context(mode), entropy=entropy)


def open_notification(
    keys: TopicKeys, sealed: bytes, mode: SealingMode, root: bytes, epoch: int
) -> NumberedPublication:
    """The subscriber opens. Raises for anything that a publisher of this topic did not publish in this epoch."""
    return NotificationOpener(keys, mode, root, epoch).open(sealed)


class NotificationOpener:
    """`open_notification` for many notifications of one topic and epoch: the keys are derived once."""

    def __init__(self, keys: TopicKeys, mode: SealingMode, root: bytes, epoch: int) -> None:
        self._keys, self._root, self._epoch = keys, root, epoch
        self._outer, self._context, self._inner = Sealer(_key(keys, mode)), _context(mode), Sealer(keys.content)

    def open(self, sealed: bytes) -> NumberedPublication:
        data = unpad(self._outer.unseal(sealed, context=self._context))
        note = _check_notification(self._keys, data, self._root, self._epoch)
        return decode_publication(self._inner.unseal(note.sealed, context=note.token))


def encode_notification(keys: TopicKeys, content: NumberedPublication, entropy: Entropy) -> bytes:
    """The signed notification without the outer seal, for modes whose forwarders may know topic and publisher."""
    return encode(make_certified_notify(keys, content, entropy))


def decode_notification(keys: TopicKeys, data: bytes, root: bytes, epoch: int) -> NumberedPublication:
    """The subscriber decodes it. Raises as `open_notification` does."""
    return open_notify(keys, _check_notification(keys, data, root, epoch))


def _check_notification(keys: TopicKeys, data: bytes, root: bytes, epoch: int) -> Notify:
    note = decode(data)
    if not isinstance(note, Notify) or note.certificate is None or note.token != keys.token:
        raise ForgedError("not a certified note of this topic and epoch")
    keys.check_publisher(note.certificate, root, epoch)
    check_notify(note, [note.certificate.leaf.subject])
    return note


def _key(keys: TopicKeys, mode: SealingMode) -> Secret:
    return derive(keys.content, b"vc/%s-note" % mode.encode())


def _context(mode: SealingMode) -> bytes:
    return b"veilcast/%s-note" % mode.encode()
