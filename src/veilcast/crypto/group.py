"""The group ristretto255 (RFC 9496): points, secret scalars, encryption that moves from key to key, and batches.

The computation is pure; randomness is handed in. The group has prime order and no cofactor, so the only bad values are
bytes that encode no point, the identity, and zero. `Point` and `Scalar` reject them on decoding, and arithmetic that
would end in one raises `MalformedError`: honest inputs get there with probability 2^-252, and crafted inputs of an
adversary do in practice.

Two constructions are for the relay (P2, section 4.1). There a proxy moves what users send from each user's key to one
common key, and holds only the ratio of the two keys.

- A deterministic tag of a subject s under a key k is the point k H(s): `Point.hash(s) * k`. The proxy multiplies it by
  the ratio k_r / k_u, and has the tag under k_r. To blind a point is to multiply it by a scalar; to unblind it is to
  divide.
- A message M is a random point from which a content key is derived. It is encrypted as (M + r G, r K) with K = k G
  (Blaze, Bleumer and Strauss). `transform` multiplies the second part by the ratio. `rerandomise` adds a fresh
  encryption of nothing under K, so that input and output cannot be linked without the key. Multiplying both parts by a
  scalar multiplies the message.

The ratio is symmetric: the holder of the ratio and of one key has the other key. `docs/decisions/0006` states the
consequences.

A proxy moves, and a server opens, thousands of points a second, and each takes a tenth of a millisecond. Recipes that
handle many points therefore take a `Multiply`: `multiply_each`, or a pool of workers that the caller hands in
(`veilcast.node.workers`). All of them return the same results in the order asked for, so a run still depends on its
seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Final, Self, TypeAlias

import msgspec

from veilcast.crypto import _primitives
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy


class Scalar(Secret):
    """A secret number modulo the group's order, never zero; like every `Secret` it does not print."""

    __slots__ = ("_inverse",)
    _inverse: Scalar | None

    def __init__(self, data: bytes) -> None:
        if len(data) != SCALAR_SIZE or not 0 < int.from_bytes(data, "little") < ORDER:
            raise MalformedError("not a canonical scalar other than zero")
        super().__init__(data)
        self._inverse = None

    @classmethod
    def draw(cls, entropy: Entropy) -> Self:
        """A uniform scalar."""
        return cls.reduce(entropy(WIDE_SIZE))

    @classmethod
    def reduce(cls, wide: bytes) -> Self:
        """Reduce 64 bytes to a scalar. If the bytes are uniform, so is the scalar, with a bias below 2^-250."""
        return cls(_primitives.scalar_reduce(wide))

    @classmethod
    def of(cls, number: int) -> Self:
        """A public number as a scalar, such as an index or an interpolation coefficient."""
        return cls((number % ORDER).to_bytes(SCALAR_SIZE, "little"))

    def public(self) -> Point:
        """This scalar times the generator: the public key of this private key."""
        return Point._trusted(_primitives.ristretto_multiply_base(self._data))

    def inverse(self) -> Scalar:
        """The inverse, computed once.

        It takes half as long as a multiplication of a point, and a key that divides once divides often.
        """
        if self._inverse is None:
            self._inverse = Scalar(_primitives.scalar_invert(self._data))
        return self._inverse

    @classmethod
    def sum(cls, terms: Iterable[Scalar]) -> Self:
        """The sum of at least one term. A partial sum may be zero, which a dealer can arrange; the sum may not."""
        return cls(reduce(_primitives.scalar_add, (term._data for term in terms)))

    # Only scalars: a point or any other secret of 32 bytes would go through the arithmetic and mean nothing.

    def __add__(self, other: Scalar) -> Scalar:
        if not isinstance(other, Scalar):
            return NotImplemented
        return Scalar(_primitives.scalar_add(self._data, other._data))

    def __mul__(self, other: Scalar) -> Scalar:
        if not isinstance(other, Scalar):
            return NotImplemented
        return Scalar(_primitives.scalar_multiply(self._data, other._data))

    def __truediv__(self, other: Scalar) -> Scalar:
        """The ratio of two keys, which moves a point or ciphertext from under `other` to under `self`."""
        if not isinstance(other, Scalar):
            return NotImplemented
        return self * other.inverse()


class Point:
    """An element of the group other than the identity. It may be a plaintext, so it does not print either."""

    __slots__ = ("_data",)
    _data: bytes

    def __init__(self, data: bytes) -> None:
        if len(data) != POINT_SIZE or not _primitives.ristretto_is_point(data) or data == _IDENTITY:
            raise MalformedError("not a canonical point other than the identity")
        object.__setattr__(self, "_data", bytes(data))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(data)

    def encode(self) -> bytes:
        return self._data

    @classmethod
    def hash(cls, message: bytes, domain: bytes) -> Self:
        """A point whose logarithm nobody knows, to any base. `domain` (1 to 16 bytes) names the use.

        BLAKE2b pads the domain with zeros. A domain that ends in a zero would equal another one, and is refused.
        """
        if not 1 <= len(domain) <= _DOMAIN_LIMIT or domain.endswith(b"\0"):
            raise LocalError(f"a domain of the hash to the group has 1 to {_DOMAIN_LIMIT} bytes, the last not zero")
        return cls._trusted(_primitives.ristretto_map(_primitives.blake2b(message, size=WIDE_SIZE, person=domain)))

    @classmethod
    def draw(cls, entropy: Entropy) -> Self:
        """A uniform point: a message whose only content is the key derived from it."""
        return cls.map(entropy(WIDE_SIZE))

    @classmethod
    def map(cls, wide: bytes) -> Self:
        """The one-way map of RFC 9496 (section 4.3.4), from 64 bytes. If the bytes are uniform, so is the point."""
        return cls._trusted(_primitives.ristretto_map(wide))

    def key(self) -> Secret:
        """The content key, of 32 bytes, that this point stands for."""
        return Secret(_primitives.blake2b(self._data, person=_KEY_DOMAIN))

    @classmethod
    def sum(cls, terms: Iterable[Point]) -> Self:
        """The sum of at least one term. A partial sum may be the identity; the sum may not."""
        return cls._trusted(reduce(_primitives.ristretto_add, (term._data for term in terms)))

    @classmethod
    def weighted(cls, terms: Iterable[tuple[int, Point]]) -> Self:
        """The sum of points times public factors.

        Small factors, of either sign, are added up, so the time tells which they are.
        """
        total = _IDENTITY
        for factor, point in terms:
            small = min(factor % ORDER, -factor % ORDER)
            if small.bit_length() + small.bit_count() > _ADDITIONS:
                total = _sum(total, (point * Scalar.of(factor % ORDER))._data)
            elif small == factor % ORDER:
                total = _sum(total, _multiple(point._data, small))
            else:
                total = _primitives.ristretto_subtract(total, _multiple(point._data, small))
        return cls._trusted(total)

    def __add__(self, other: Point) -> Point:
        if not isinstance(other, Point):
            return NotImplemented
        return Point._trusted(_primitives.ristretto_add(self._data, other._data))

    def __sub__(self, other: Point) -> Point:
        if not isinstance(other, Point):
            return NotImplemented
        return Point._trusted(_primitives.ristretto_subtract(self._data, other._data))

    def __mul__(self, scalar: Scalar) -> Point:
        """Blind by a scalar, or move a tag by the ratio of two keys."""
        if not isinstance(scalar, Scalar):
            return NotImplemented
        return Point._trusted(_primitives.ristretto_multiply(scalar.reveal(), self._data))

    def __truediv__(self, scalar: Scalar) -> Point:
        """Unblind: undo the multiplication."""
        if not isinstance(scalar, Scalar):
            return NotImplemented
        return self * scalar.inverse()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return _primitives.equal(self._data, other._data)

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return "<Point>"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a point does not change")

    @classmethod
    def _trusted(cls, data: bytes) -> Self:
        """A point from a primitive's output: canonical by construction, but it may be the identity."""
        if data == _IDENTITY:
            raise MalformedError("the result is the identity")
        point = cls.__new__(cls)
        object.__setattr__(point, "_data", data)
        return point


def _sum(one: bytes, other: bytes) -> bytes:
    return other if one == _IDENTITY else _primitives.ristretto_add(one, other)


def _multiple(data: bytes, factor: int) -> bytes:
    """A point times a factor of a few bits, by doubling and adding."""
    total = data if factor else _IDENTITY
    for bit in bin(factor)[3:]:
        total = _primitives.ristretto_add(total, total)
        if bit == "1":
            total = _primitives.ristretto_add(total, data)
    return total


class Ciphertext(msgspec.Struct, frozen=True):
    """A point under a key: `body` = M + r G, `key_part` = r K."""

    body: Point
    key_part: Point

    def encode(self) -> bytes:
        return self.body.encode() + self.key_part.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        if len(data) != CIPHERTEXT_SIZE:
            raise MalformedError("a ciphertext of the group has 64 bytes")
        return cls(Point(data[:POINT_SIZE]), Point(data[POINT_SIZE:]))

    def __mul__(self, scalar: Scalar) -> Ciphertext:
        """The encryption of the message times the scalar, under the same key."""
        if not isinstance(scalar, Scalar):
            return NotImplemented
        return Ciphertext(self.body * scalar, self.key_part * scalar)


def encrypt(message: Point, public: Point, entropy: Entropy) -> Ciphertext:
    """Encrypt under the key whose public key is given."""
    r = Scalar.draw(entropy)
    return Ciphertext(message + r.public(), public * r)


def transform(ciphertext: Ciphertext, ratio: Scalar) -> Ciphertext:
    """Move a ciphertext from under one key to under another, given new key / old key. Nothing is decrypted."""
    return Ciphertext(ciphertext.body, ciphertext.key_part * ratio)


def rerandomise(ciphertext: Ciphertext, public: Point, entropy: Entropy) -> Ciphertext:
    """Another encryption of the same message under the same key.

    Without the key, nobody can tell that the message is the same.
    """
    r = Scalar.draw(entropy)
    return Ciphertext(ciphertext.body + r.public(), ciphertext.key_part + public * r)


def decrypt(ciphertext: Ciphertext, key: Scalar) -> Point:
    """Any key gives some point. Whether the key was right shows when the content key opens its box."""
    return ciphertext.body - ciphertext.key_part / key


Multiply: TypeAlias = Callable[[Sequence[tuple[Point, Scalar]]], list[Point]]
"""Multiplies each point by its scalar. Raises `MalformedError` if one of the products is the identity."""


def multiply_each(pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
    return [point * scalar for point, scalar in pairs]


ORDER: Final = 2**252 + 27742317777372353535851937790883648493
POINT_SIZE: Final = 32
SCALAR_SIZE: Final = 32
CIPHERTEXT_SIZE: Final = 2 * POINT_SIZE
WIDE_SIZE: Final = 64
"""Bytes of entropy behind a drawn scalar or point."""

_IDENTITY: Final = bytes(POINT_SIZE)
_DOMAIN_LIMIT: Final = 16
_ADDITIONS: Final = 8
"""Up to this many bits and ones together, adding is faster than multiplying: an addition takes a seventh of
the time.
"""
_KEY_DOMAIN: Final = b"veilcast point"
