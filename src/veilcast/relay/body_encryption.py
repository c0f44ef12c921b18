"""Encryption of publication bodies on the way from a publisher through proxy and server to its subscribers.

Pure recipes.

*Paper* (P2 4.1). A random point M gives the key that seals the body. The publisher encrypts M under its key k_u, the
proxy moves it to k_r, the server re-randomises it, and the proxy moves it to each subscriber's key. The server holds
k_r and can open M. The sealed body itself passes unchanged, so it shows which delivery belongs to which upload.

*Hardened*. Three layers, none of which uses the group: k_r protects no content.

- End to end: the sealed notification (`core.sealed_notification`). The server sees one of a few sizes and nothing else.
- Upstream: a sealed box for the server. The proxy sees fresh bytes, different from the bytes that it will carry
  downstream.
- Downstream: the server seals each copy with a key that the subscriber sent in a box when it subscribed. Copies of one
  notification for two subscribers, and two deliveries to one subscriber, share nothing but their size.

Each layer adds a constant number of bytes, so all messages of one size class have one size.
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
from veilcast.relay.transformation_key import ServerKeys

# --- paper ------------------------------------------------------------------------------------------------------------


def seal_body(body: bytes, key: Scalar, entropy: Entropy) -> tuple[Ciphertext, bytes]:
    """Publisher: returns the encrypted point, and the body sealed under the point's key."""
    point = Point.draw(entropy)
    sealed = seal(point.key(), body, context=_PAPER, entropy=entropy)
    return encrypt(point, key.public(), entropy), sealed


def move_key_up(encrypted: Ciphertext, transformation: Scalar) -> Ciphertext:
    """Proxy: move the point from the publisher's k_u to k_r."""
    return transform(encrypted, transformation)


def rerandomise_key(encrypted: Ciphertext, keys: ServerKeys, entropy: Entropy) -> Ciphertext:
    """Server: the same point, unrecognisable without k_r."""
    return rerandomise(encrypted, keys.route, entropy)


def move_key_down(encrypted: Ciphertext, transformation: Scalar) -> Ciphertext:
    """Proxy: move the point from k_r to the k_u of the subscriber that owns this transformation key."""
    return transform(encrypted, transformation.inverse())


def open_body(encrypted: Ciphertext, sealed: bytes, key: Scalar) -> bytes:
    """Subscriber: `ForgedError` if the point was not moved to this key."""
    return unseal(decrypt(encrypted, key).key(), sealed, context=_PAPER)


# --- hardened ---------------------------------------------------------------------------------------------------------


def seal_note(keys: TopicKeys, content: NumberedPublication, entropy: Entropy) -> bytes:
    """Publisher: the innermost layer, for the topic's subscribers in the epoch of these keys."""
    return sealed_notification.seal_notification(keys, content, "relay", entropy)


def open_note(keys: TopicKeys, sealed: bytes, root: bytes, epoch: int) -> NumberedPublication:
    """Subscriber: raises unless one of the topic's publishers published this on the topic, in this epoch."""
    return note_opener(keys, root, epoch).open(sealed)


def note_opener(keys: TopicKeys, root: bytes, epoch: int) -> sealed_notification.NotificationOpener:
    """`open_note` for many notifications of one topic and epoch."""
    return sealed_notification.NotificationOpener(keys, "relay", root, epoch)


def wrap_for_server(public: bytes, plaintext: bytes, *, purpose: bytes, entropy: Entropy) -> bytes:
    """Client: seal for the server's box key. Each kind of request has its own `purpose`, of at most 16 bytes."""
    return box(public, plaintext, purpose=purpose, entropy=entropy)


def open_at_server(keys: ServerKeys, wrapped: bytes, *, purpose: bytes) -> bytes:
    return unbox(keys.pair, wrapped, purpose=purpose)


def draw_delivery_key(entropy: Entropy) -> Secret:
    """Subscriber: a fresh key for each subscription, sent to the server in a box."""
    return Secret(entropy(KEY))


def wrap_for_subscriber(key: Sealer, plaintext: bytes, entropy: Entropy) -> bytes:
    """Server: seal one copy in the layer that only its subscriber can open."""
    return key.seal(plaintext, context=_DELIVERY, entropy=entropy)


def open_at_subscriber(key: Sealer, wrapped: bytes) -> bytes:
    return key.unseal(wrapped, context=_DELIVERY)


_PAPER: Final = b"veilcast/relay-paper"
_DELIVERY: Final = b"veilcast/relay-delivery"
