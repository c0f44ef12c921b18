"""Bodies: what a publisher says, on its way through proxy and server to its readers.

Pure recipes.

*Paper* (P2 4.1). A random point M gives the key that the body is sealed with; M is encrypted under the publisher's k_u,
moved to k_r by the proxy, re-randomised by the server, and moved to each reader's key by the proxy. The server holds
k_r and opens M, and the sealed body itself passes unchanged, so it tells which delivery was which upload.

*Hardened*. Three layers, and no part of the group: k_r protects no content.

- From end to end: the sealed note (`authority.notes`), of which the server sees one of a few sizes, and nothing else.
- Upstream: a box for the server, so that the proxy sees fresh bytes and not what it will carry downstream.
- Downstream: sealed by the server with a key that the reader sent in a box when it subscribed. Copies of one note to
  two readers, and two deliveries of it to one, have nothing in common but their size.

The layers of a class of size have one size, too: each adds a constant.
"""

from __future__ import annotations

from typing import Final

from veilcast.authority.keyring import TopicKeys
from veilcast.core import sealed_notification
from veilcast.core.publication import NumberedPublication
from veilcast.crypto.group import Ciphertext, Point, Scalar, decrypt, encrypt, rerandomise, transform
from veilcast.crypto.seal import KEY, Sealer, seal, unseal
from veilcast.crypto.sealed_box import box, unbox
from veilcast.crypto.secret import Secret
from veilcast.machine import Entropy
from veilcast.relay.enrolment import ServerKeys

# --- paper ------------------------------------------------------------------------------------------------------------


def seal_body(body: bytes, key: Scalar, entropy: Entropy) -> tuple[Ciphertext, bytes]:
    """The publisher: the encrypted point, and the body sealed under it."""
    point = Point.draw(entropy)
    sealed = seal(point.key(), body, context=_PAPER, entropy=entropy)
    return encrypt(point, key.public(), entropy), sealed


def move_key_up(encrypted: Ciphertext, transformation: Scalar) -> Ciphertext:
    """The proxy: from the publisher's k_u to k_r."""
    return transform(encrypted, transformation)


def rerandomise_key(encrypted: Ciphertext, keys: ServerKeys, entropy: Entropy) -> Ciphertext:
    """The server: the same point, unrecognisable to who lacks k_r."""
    return rerandomise(encrypted, keys.route, entropy)


def move_key_down(encrypted: Ciphertext, transformation: Scalar) -> Ciphertext:
    """The proxy: from k_r to the k_u of the reader whose transformation key this is."""
    return transform(encrypted, transformation.inverse())


def open_body(encrypted: Ciphertext, sealed: bytes, key: Scalar) -> bytes:
    """The reader; `ForgedError` if it was not moved to this key."""
    return unseal(decrypt(encrypted, key).key(), sealed, context=_PAPER)


# --- hardened ---------------------------------------------------------------------------------------------------------


def seal_note(keys: TopicKeys, content: NumberedPublication, entropy: Entropy) -> bytes:
    """The publisher: the innermost layer, for the readers of the topic in the epoch of these keys."""
    return sealed_notification.seal_notification(keys, content, "relay", entropy)


def open_note(keys: TopicKeys, sealed: bytes, root: bytes, epoch: int) -> NumberedPublication:
    """The reader: raises for whatever was not published on this topic, in this epoch, by one of its publishers."""
    return note_opener(keys, root, epoch).open(sealed)


def note_opener(keys: TopicKeys, root: bytes, epoch: int) -> sealed_notification.NotificationOpener:
    """The same for many."""
    return sealed_notification.NotificationOpener(keys, "relay", root, epoch)


def wrap_for_server(public: bytes, plaintext: bytes, *, purpose: bytes, entropy: Entropy) -> bytes:
    """A client: for the server's key of boxes. Give each kind of request a `purpose` of its own, of up to 16 bytes."""
    return box(public, plaintext, purpose=purpose, entropy=entropy)


def open_at_server(keys: ServerKeys, wrapped: bytes, *, purpose: bytes) -> bytes:
    return unbox(keys.pair, wrapped, purpose=purpose)


def draw_delivery_key(entropy: Entropy) -> Secret:
    """A reader: drawn for each subscription, and sent to the server in a box."""
    return Secret(entropy(KEY))


def wrap_for_subscriber(key: Sealer, plaintext: bytes, entropy: Entropy) -> bytes:
    """The server: one of many copies, in a layer that only this one has."""
    return key.seal(plaintext, context=_DELIVERY, entropy=entropy)


def open_at_subscriber(key: Sealer, wrapped: bytes) -> bytes:
    return key.unseal(wrapped, context=_DELIVERY)


_PAPER: Final = b"veilcast/relay-paper"
_DELIVERY: Final = b"veilcast/relay-delivery"
