"""Hiding: a client's elements as points under its key, kept for the next time that it names them.

k_u H takes half of what an upload costs, and is the same whenever the client uploads the element: a publisher names the
same label with every publication, and the short prefixes of its numbers. What leaves is veiled anew each time.


Subjects: what a client wants or publishes on, as tags that the server can compare and nobody else can make.

Pure recipes. An element (`topics.elements`) becomes a point H of the group, and a tag is a name for k_r H.

*Paper* (P2 4.1). The client uploads k_u H(element), the proxy multiplies by t_u = k_r / k_u, the server has k_r H. This
is deterministic in every place: the proxy computes k_r H itself and so links clients by topic, and the server, who
knows k_r, can try any element it thinks of (`tests/papers/test_p2_relay_flaws.py`).

*Hardened*. Three things change, each against one party:

- elements are keyed with the topic's subject key of the epoch (`authority.subjects`): nobody outside the topic can
  name one, and tags of two epochs have nothing in common;
- the upload is veiled: (k_u H + rho G, rho Y) with Y = y G the server's subject key, that is k_u H encrypted to the
  server. The proxy multiplies both parts; what it sees is fresh each time, and rests on the decisional Diffie-Hellman
  assumption even if it has k_u (from a user it bribed) and the topic's key;
- the proxies multiply by a mask xs, too, which all proxies of one server share and the server does not have. The tag is
  k_r xs H, so even a server that has a topic's key cannot try its elements at home. As a user it can send them one by
  one through the proxy, as fast as the proxy's limits let it.

And an upload is bound to the box that it comes with: for Y stands Y over a number, the bond, that is drawn for each
upload and told the server in the box. (Over, not times, so that nobody has to invert it: the client draws sigma, rho is
sigma times the bond, and rho Y over the bond is sigma Y.) What comes with another box has no tag that anybody has.
Otherwise a proxy could send the subjects of a subscription as those of a publication of its own, and see by the
deliveries who wants the same.

A veiled upload is a `Ciphertext` of the group: the same arithmetic moves messages in `paper` (`bodies`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.crypto.derive import digest
from veilcast.crypto.group import Ciphertext, Multiply, Point, Scalar, encrypt, multiply_each
from veilcast.machine import Entropy
from veilcast.relay.enrolment import ServerKeys
from veilcast.wire.geometry import TAG

# --- paper ------------------------------------------------------------------------------------------------------------


def blind_element(element: bytes, key: Scalar) -> Point:
    """The client: k_u H."""
    return _point(element) * key


def move_element(uploaded: Point, transformation: Scalar) -> Point:
    """The proxy: k_r H."""
    return uploaded * transformation


def tag_of(moved: Point) -> bytes:
    """The server: what the index knows the element by."""
    return digest(moved.encode(), purpose=b"vc/relay-tag", size=TAG)


# --- hardened ---------------------------------------------------------------------------------------------------------


def bind_subject_key(subject: Point, bond: Scalar) -> Point:
    """The client: the subject key for what comes with the box that the bond is in."""
    return subject * bond.inverse()


def veil_element(element: bytes, key: Scalar, subject: Point, entropy: Entropy) -> Ciphertext:
    """The client: (k_u H + rho G, rho Y), where Y is bound."""
    return encrypt(_point(element) * key, subject, entropy)


def move_veiled_element(uploaded: Ciphertext, transformation: Scalar, mask: Scalar) -> Ciphertext:
    """The proxy: what is inside becomes k_r xs H."""
    return uploaded * (transformation * mask)


def unveiling_key(keys: ServerKeys, bond: Scalar) -> Scalar:
    """The server: what takes the veil off, if the bond is that of the upload."""
    return keys.unveil * bond


def tag_veiled(moved: Ciphertext, unveil: Scalar) -> bytes:
    """The server: take the veil off."""
    return tag_of(moved.body - moved.key_part * unveil)


def blind_many(elements: Sequence[bytes], key: Scalar, multiply: Multiply = multiply_each) -> list[Point]:
    """The client: k_u H of each, whatever they are uploaded for."""
    return multiply([(_point(element), key) for element in elements])


def veil_many(
    hidden: Sequence[Point], subject: Point, bond: Scalar, entropy: Entropy, multiply: Multiply = multiply_each
) -> list[Ciphertext]:
    """The client: `veil_element` for each, bound, where rho is sigma times the bond."""
    sigmas = [Scalar.draw(entropy) for _ in hidden]
    veils = multiply([(subject, sigma) for sigma in sigmas])
    masks = [(sigma * bond).public() for sigma in sigmas]
    return [Ciphertext(point + mask, veil) for point, mask, veil in zip(hidden, masks, veils, strict=True)]


def move_many(
    uploaded: Sequence[Ciphertext], transformation: Scalar, mask: Scalar, multiply: Multiply = multiply_each
) -> list[Ciphertext]:
    """`move_veiled_element` for each of one client's uploads."""
    factor = transformation * mask
    moved = multiply([(part, factor) for each in uploaded for part in (each.body, each.key_part)])
    return [Ciphertext(body, key_part) for body, key_part in zip(moved[::2], moved[1::2], strict=True)]


def tag_many(moved: Sequence[Ciphertext], unveil: Scalar, multiply: Multiply = multiply_each) -> list[bytes]:
    """`tag_veiled` for each."""
    veils = multiply([(each.key_part, unveil) for each in moved])
    return [tag_of(each.body - veil) for each, veil in zip(moved, veils, strict=True)]


def _point(element: bytes) -> Point:
    return Point.hash(element, _DOMAIN)


_DOMAIN: Final = b"vc/relay-point"


class BlindingCache:
    """Bounded: the last `BLINDED_MAX` elements that were new, under one key."""

    def __init__(self, multiply: Multiply) -> None:
        self._multiply = multiply
        self._key: Scalar | None = None
        self._hidden: dict[bytes, Point] = {}

    def __len__(self) -> int:
        return len(self._hidden)

    def blind(self, key: Scalar, elements: Sequence[bytes]) -> list[Point]:
        """k_u H of each."""
        if self._key is None or self._key != key:
            self._key, self._hidden = key, {}
        new = [element for element in dict.fromkeys(elements) if element not in self._hidden]
        self._hidden.update(zip(new, blind_many(new, key, self._multiply), strict=True))
        points = [self._hidden[element] for element in elements]
        while len(self._hidden) > BLINDED_MAX:
            del self._hidden[next(iter(self._hidden))]
        return points


BLINDED_MAX: Final = 1024
