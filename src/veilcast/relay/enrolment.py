"""Joining: user, proxy and server make the proxy's transformation key t_u = k_r / k_u, and none shows its own (P2 4.1).

Pure recipes. The user draws its key k_u and a blind b, and sends the proxy the ratio b / k_u and a box with b that only
the server opens. The server answers the proxy with k_r / b, and the proxy multiplies the two:

    user    holds k_u, b            nothing of others
    server  holds k_r, b            b is uniform and used once: it says nothing of k_u
    proxy   holds b/k_u, k_r/b, t_u ratios of keys it has none of

P2 says once that the *server* learns the transformation key. It must be the proxy: the server knows k_r and would have
k_u. Ratios are symmetric, so a proxy that learns any one k_u has k_r and with it every other. That is inherent in the
scheme (docs/decisions/0017).

The paper trusts the server to use one k_r for all. One that answers a user with a key made for that user would know its
subjects from all others, whatever pseudonym they come under, and could still match them. So the user also sends k_u G,
and `check_transformation` compares t_u k_u G with the server's public k_r G; the proxy could compute k_u G from that
and t_u anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from veilcast.crypto.group import POINT_SIZE, SCALAR_SIZE, Point, Scalar
from veilcast.crypto.noise import Keypair
from veilcast.crypto.noise_patterns import KEY_SIZE
from veilcast.crypto.sealed_box import OVERHEAD, box, unbox
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy


@dataclass(frozen=True)
class ServerPublic:
    """What everybody knows of a server: k_r G, its subject key y G, and the key of its boxes."""

    route: Point
    subject: Point
    box: bytes

    def __post_init__(self) -> None:
        if len(self.box) != KEY_SIZE:
            raise MalformedError("the key of a server's boxes has the wrong size")

    def encode(self) -> bytes:
        return _VERSION + self.route.encode() + self.subject.encode() + self.box

    @classmethod
    def decode(cls, data: bytes) -> Self:
        route, subject, key = _parts(data, POINT_SIZE)
        return cls(Point(route), Point(subject), key)


@dataclass(frozen=True)
class ServerKeys:
    """A server's secrets: k_r, which subjects are moved to; y, which takes their veil off; and the key of its boxes."""

    k_r: Scalar
    y: Scalar
    box: Secret
    unveil: Scalar = field(init=False, compare=False)
    """1 / y, kept because every subject is opened with it."""
    route: Point = field(init=False, compare=False)
    """k_r G, kept for `bodies.refresh`."""
    pair: Keypair = field(init=False, compare=False)
    """The key of the boxes, loaded."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unveil", self.y.inverse())
        object.__setattr__(self, "route", self.k_r.public())
        object.__setattr__(self, "pair", Keypair(self.box))

    @classmethod
    def draw(cls, entropy: Entropy) -> Self:
        return cls(Scalar.draw(entropy), Scalar.draw(entropy), Secret(entropy(KEY_SIZE)))

    def public(self) -> ServerPublic:
        return ServerPublic(self.route, self.y.public(), self.pair.public)

    def encode(self) -> Secret:
        return Secret(_VERSION + self.k_r.reveal() + self.y.reveal() + self.box.reveal())

    @classmethod
    def decode(cls, data: Secret) -> Self:
        k_r, y, key = _parts(data.reveal(), SCALAR_SIZE)
        return cls(Scalar(k_r), Scalar(y), Secret(key))


@dataclass(frozen=True)
class EnrolmentStart:
    """The user's first step. `key` (k_u) stays; the rest goes to the proxy, which hands `sealed` on to the server."""

    key: Scalar
    ratio: Scalar
    """b / k_u"""
    claim: Point
    """k_u G"""
    sealed: bytes
    """b, for the server alone."""


def begin_enrolment(public: ServerPublic, entropy: Entropy) -> EnrolmentStart:
    """The user: draw a key and a blind."""
    key, blind = Scalar.draw(entropy), Scalar.draw(entropy)
    return EnrolmentStart(
        key, blind / key, key.public(), box(public.box, blind.reveal(), purpose=_PURPOSE, entropy=entropy)
    )


def answer_enrolment(keys: ServerKeys, sealed: bytes) -> Scalar:
    """The server: k_r / b, for the proxy."""
    return keys.k_r / Scalar(unbox(keys.pair, sealed, purpose=_PURPOSE))


def combine_shares(ratio: Scalar, answered: Scalar) -> Scalar:
    """The proxy: t_u = k_r / k_u."""
    return ratio * answered


def check_transformation(transformation: Scalar, claim: Point, public: ServerPublic) -> None:
    """The proxy, in `hardened`: raise unless t_u leads from the user's key to the one that the server has for all."""
    if claim * transformation != public.route:
        raise ForgedError("the transformation key does not lead to the server's key")


def _parts(data: bytes, size: int) -> tuple[bytes, bytes, bytes]:
    """Two numbers or points of this size and a key, behind the version."""
    if len(data) != 1 + 2 * size + KEY_SIZE or not data.startswith(_VERSION):
        raise MalformedError("not the keys of a relay's server, of a version known here")
    return data[1 : 1 + size], data[1 + size : 1 + 2 * size], data[1 + 2 * size :]


SEALED_BLIND: Final = SCALAR_SIZE + OVERHEAD
"""The size of `EnrolmentStart.sealed`."""

_VERSION: Final = b"\1"
_PURPOSE: Final = b"vc/relay-join"
