"""Enrolment: user, proxy and server create the key t_u = k_r / k_u without revealing their own (P2 4.1).

Pure recipes. t_u is the transformation key of the proxy. The user draws its key k_u and a blind b. The user sends the
proxy the ratio b / k_u and a box with b that only the server opens. The server answers the proxy with k_r / b, and the
proxy multiplies the two:

    user    holds k_u, b            nothing of the others
    server  holds k_r, b            b is uniform and used once: it says nothing about k_u
    proxy   holds b/k_u, k_r/b, t_u ratios of keys, and none of the keys

P2 says once that the *server* learns the transformation key. It must be the proxy: the server knows k_r and could
compute k_u. Ratios are symmetric, so a proxy that learns any one k_u has k_r and with it every other k_u. That is
inherent in the scheme (docs/decisions/0017).

The paper trusts the server to use one k_r for all users. A server that answers one user with a key made for that user
could tell that user's subjects from all others, under any pseudonym, and could still match them. So the user also sends
k_u G, and `check_transformation` compares t_u k_u G with the server's public k_r G. The proxy could compute k_u G from
t_u and k_r G anyway.
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
class ServerPublicKey:
    """The public keys of a server: k_r G, its subject key y G, and its box key."""

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
    """The secrets of a server: k_r, to which the proxy moves subjects; y, which unveils them; and its box key."""

    k_r: Scalar
    y: Scalar
    box: Secret
    unveil: Scalar = field(init=False, compare=False)
    """1 / y, stored because it opens every subject."""
    route: Point = field(init=False, compare=False)
    """k_r G, stored for `body_encryption.rerandomise_key`."""
    pair: Keypair = field(init=False, compare=False)
    """The box key, loaded."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unveil", self.y.inverse())
        object.__setattr__(self, "route", self.k_r.public())
        object.__setattr__(self, "pair", Keypair(self.box))

    @classmethod
    def draw(cls, entropy: Entropy) -> Self:
        return cls(Scalar.draw(entropy), Scalar.draw(entropy), Secret(entropy(KEY_SIZE)))

    def public(self) -> ServerPublicKey:
        return ServerPublicKey(self.route, self.y.public(), self.pair.public)

    def encode(self) -> Secret:
        return Secret(_VERSION + self.k_r.reveal() + self.y.reveal() + self.box.reveal())

    @classmethod
    def decode(cls, data: Secret) -> Self:
        k_r, y, key = _parts(data.reveal(), SCALAR_SIZE)
        return cls(Scalar(k_r), Scalar(y), Secret(key))


@dataclass(frozen=True)
class EnrolmentStart:
    """The user's first step. `key` (k_u) stays with the user. The rest goes to the proxy, which passes `sealed` on
    to the server."""

    key: Scalar
    ratio: Scalar
    """b / k_u"""
    claim: Point
    """k_u G"""
    sealed: bytes
    """b, sealed for the server."""


def begin_enrolment(public: ServerPublicKey, entropy: Entropy) -> EnrolmentStart:
    """User: draw a key and a blind."""
    key, blind = Scalar.draw(entropy), Scalar.draw(entropy)
    return EnrolmentStart(
        key, blind / key, key.public(), box(public.box, blind.reveal(), purpose=_PURPOSE, entropy=entropy)
    )


def answer_enrolment(keys: ServerKeys, sealed: bytes) -> Scalar:
    """Server: k_r / b, for the proxy."""
    return keys.k_r / Scalar(unbox(keys.pair, sealed, purpose=_PURPOSE))


def combine_shares(ratio: Scalar, answered: Scalar) -> Scalar:
    """Proxy: t_u = k_r / k_u."""
    return ratio * answered


def check_transformation(transformation: Scalar, claim: Point, public: ServerPublicKey) -> None:
    """Proxy, in `hardened`: raise unless t_u leads from the user's key to the key that the server uses for all
    users."""
    if claim * transformation != public.route:
        raise ForgedError("the transformation key does not lead to the server's key")


def _parts(data: bytes, size: int) -> tuple[bytes, bytes, bytes]:
    """Two scalars or points of this size and a key, after the version byte."""
    if len(data) != 1 + 2 * size + KEY_SIZE or not data.startswith(_VERSION):
        raise MalformedError("not the keys of a relay's server, of a version known here")
    return data[1 : 1 + size], data[1 + size : 1 + 2 * size], data[1 + 2 * size :]


SEALED_BLIND: Final = SCALAR_SIZE + OVERHEAD
"""Size of `EnrolmentStart.sealed`, in bytes."""

_VERSION: Final = b"\1"
_PURPOSE: Final = b"vc/relay-join"
