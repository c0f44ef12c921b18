"""Subjects: elements as tags that the server can compare and no other party can make.

Pure recipes, and a cache. A subject is an element that a client subscribes to or publishes. An element
(`topics.elements`) becomes a point H of the group, and a tag is a name for k_r H.

*Paper* (P2 4.1). The client uploads k_u H(element), the proxy multiplies by t_u = k_r / k_u, and the server has k_r H.
Every step is deterministic. The proxy computes k_r H itself and so links clients by topic. The server knows k_r and can
try any element it thinks of (`tests/papers/test_p2_relay_flaws.py`).

*Hardened*. Three changes, each against one party:

- Elements are keyed with the topic's subject key of the epoch (`core.match_elements`). No party outside the topic can
  name an element, and the tags of two epochs have nothing in common.
- The upload is veiled: (k_u H + rho G, rho Y), where Y = y G is the server's subject key. That is k_u H encrypted to
  the server. The proxy multiplies both parts. The proxy sees fresh bytes each time. This rests on the decisional
  Diffie-Hellman assumption, even if the proxy has k_u (from a bribed user) and the topic's key.
- The proxies also multiply by a mask xs, which all proxies of one server share and the server does not have. The tag is
  k_r xs H. So even a server with a topic's key cannot try its elements offline. As a user, it can send them one by one
  through the proxy, at the rate that the proxy's limits allow.

An upload is also bound to the box that it arrives with. Y is replaced by Y divided by a number, the bond. The bond is
drawn for each upload and sent to the server in the box. (Division rather than multiplication saves an inversion: the
client draws sigma, rho is sigma times the bond, and rho Y over the bond is sigma Y.) An upload that arrives with
another box has a tag that nobody has. Without the bond, a proxy could send the subjects of a subscription as those of
its own publication, and see from the deliveries which clients subscribe to the same.

A veiled upload is a `Ciphertext` of the group: the same arithmetic moves messages in `paper` (`body_encryption`).

`BlindingCache` stores a client's elements as points under its key. Computing k_u H is half the cost of an upload, and
the result is the same for each upload of the element: a publisher names the same label, and the short prefixes of its
numbers, with every publication. The veil is fresh for each upload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.crypto.derive import digest
from veilcast.crypto.group import Ciphertext, Multiply, Point, Scalar, encrypt, multiply_each
from veilcast.machine import Entropy
from veilcast.relay.transformation_key import ServerKeys
from veilcast.wire.geometry import TAG

# --- paper ------------------------------------------------------------------------------------------------------------


def blind_element(element: bytes, key: Scalar) -> Point:
    """Client: k_u H."""
    return _point(element) * key


def move_element(uploaded: Point, transformation: Scalar) -> Point:
    """Proxy: k_r H."""
    return uploaded * transformation


def tag_of(moved: Point) -> bytes:
    """Server: the name of the element in the index."""
    return digest(moved.encode(), purpose=b"vc/relay-tag", size=TAG)


# --- hardened ---------------------------------------------------------------------------------------------------------


def bind_subject_key(subject: Point, bond: Scalar) -> Point:
    """Client: the subject key for an upload whose box holds this bond."""
    return subject * bond.inverse()


def veil_element(element: bytes, key: Scalar, subject: Point, entropy: Entropy) -> Ciphertext:
    """Client: (k_u H + rho G, rho Y), where Y is bound."""
    return encrypt(_point(element) * key, subject, entropy)


def move_veiled_element(uploaded: Ciphertext, transformation: Scalar, mask: Scalar) -> Ciphertext:
    """Proxy: the content becomes k_r xs H."""
    return uploaded * (transformation * mask)


def unveiling_key(keys: ServerKeys, bond: Scalar) -> Scalar:
    """Server: the key that removes the veil, if the bond is that of the upload."""
    return keys.unveil * bond


def tag_veiled(moved: Ciphertext, unveil: Scalar) -> bytes:
    """Server: remove the veil and compute the tag."""
    return tag_of(moved.body - moved.key_part * unveil)


def blind_many(elements: Sequence[bytes], key: Scalar, multiply: Multiply = multiply_each) -> list[Point]:
    """Client: k_u H of each element."""
    return multiply([(_point(element), key) for element in elements])


def veil_many(
    hidden: Sequence[Point], subject: Point, bond: Scalar, entropy: Entropy, multiply: Multiply = multiply_each
) -> list[Ciphertext]:
    """Client: `veil_element` for each, bound, where rho is sigma times the bond."""
    sigmas = [Scalar.draw(entropy) for _ in hidden]
    veils = multiply([(subject, sigma) for sigma in sigmas])
    masks = [(sigma * bond).public() for sigma in sigmas]
    return [Ciphertext(point + mask, veil) for point, mask, veil in zip(hidden, masks, veils, strict=True)]


def move_many(
    uploaded: Sequence[Ciphertext], transformation: Scalar, mask: Scalar, multiply: Multiply = multiply_each
) -> list[Ciphertext]:
    """`move_veiled_element` for each upload of one client."""
    factor = transformation * mask
    moved = multiply([(part, factor) for each in uploaded for part in (each.body, each.key_part)])
    return [Ciphertext(body, key_part) for body, key_part in zip(moved[::2], moved[1::2], strict=True)]


def tag_many(moved: Sequence[Ciphertext], unveil: Scalar, multiply: Multiply = multiply_each) -> list[bytes]:
    """`tag_veiled` for each."""
    veils = multiply([(each.key_part, unveil) for each in moved])
    return [tag_of(each.body - veil) for each, veil in zip(moved, veils, strict=True)]


class BlindingCache:
    """Bounded: the last `BLINDED_MAX` new elements, under one key."""

    def __init__(self, multiply: Multiply) -> None:
        self._multiply = multiply
        self._key: Scalar | None = None
        self._hidden: dict[bytes, Point] = {}

    def __len__(self) -> int:
        return len(self._hidden)

    def blind(self, key: Scalar, elements: Sequence[bytes]) -> list[Point]:
        """k_u H of each element."""
        if self._key is None or self._key != key:
            self._key, self._hidden = key, {}
        new = [element for element in dict.fromkeys(elements) if element not in self._hidden]
        self._hidden.update(zip(new, blind_many(new, key, self._multiply), strict=True))
        points = [self._hidden[element] for element in elements]
        while len(self._hidden) > BLINDED_MAX:
            del self._hidden[next(iter(self._hidden))]
        return points


def _point(element: bytes) -> Point:
    return Point.hash(element, _DOMAIN)


BLINDED_MAX: Final = 1024
_DOMAIN: Final = b"vc/relay-point"
