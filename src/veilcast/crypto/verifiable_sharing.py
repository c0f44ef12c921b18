"""Verifiable secret sharing over the scalars of ristretto255, and its redistribution to other holders.

The computation on `group` is pure; randomness is handed in. This is Pedersen's scheme. The dealer of a scalar s draws a
polynomial f with f(0) = s and a second one, g, that only blinds. It publishes the commitments C_j = f_j G + g_j H, and
gives holder x the share (f(x), g(x)). Everybody can compute C(x) = sum x^j C_j, and only the dealer's shares open it.
Nobody knows the logarithm of H to the base G, so the commitments bind every dealer that cannot compute it. As g is
uniform, the commitments reveal nothing about s, today or later, even to an adversary that can compute the logarithm.

Redistribution (Desmedt and Jajodia). Holders of a (k, n) sharing hand it on to holders of a (k', n') sharing, and
nobody learns s:

1. Holder a deals its own share again, value and blinding. The commitment of that dealing to its constant term must be
   C(a), which every receiver knows. So all receivers detect, and can name, a holder that deals another value.
2. The share of receiver c is sum_a L_a f_a(c) over the same set A of k old holders, with L_a Lagrange's coefficients of
   A at 0. The new commitments are the same sum of the old holders' commitments.
3. The new shares are those of a fresh polynomial with the same s, and the commitment to s is the old one.

Claim: honest receivers get shares of one polynomial.
Assumption: all receivers use the same set A and the same commitments.
Reason: without it, a holder could deal its true share twice, and send one dealing to half of the receivers and the
other to the rest. Each receiver's own checks would pass, and the shares would be of no polynomial. So the receivers
(the brokers of the next hop) first agree: each computes `agreement_digest` of its dealings and sends it, signed, to the
others, and `combine_subshares` takes the value that they all have. If the values differ, the receivers show one another
the signed commitments. Two commitments of one holder that differ name that holder, and another holder takes its place.

Checks are linear, so a receiver checks the sum that it computes, once. Only if the sum is wrong is each part checked,
to name the faulty holders. Wrong parts whose errors cancel do no harm and go unnamed.

The shared value is a scalar, and not every 32 bytes are a scalar: deal a drawn scalar, and use `key_of` it as the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache, partial
from math import lcm, prod
from typing import Final, NoReturn, Self, TypeVar

import msgspec

from veilcast.crypto import _primitives
from veilcast.crypto.group import ORDER, POINT_SIZE, SCALAR_SIZE, Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import MAX_SHARES, check_distinct, check_index, check_threshold
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError
from veilcast.machine import Entropy


class FaultyHoldersError(ForgedError):
    """Some values do not hold. `holders` are the indices of the holders that sent them."""

    def __init__(self, liars: Iterable[int]) -> None:
        self.holders = tuple(liars)
        super().__init__(f"what these holders sent does not hold: {', '.join(map(str, self.holders))}")


class VerifiableShare(msgspec.Struct, frozen=True):
    """The values of both polynomials at `index` (1 to 255)."""

    index: int
    value: Scalar
    blinding: Scalar

    def __post_init__(self) -> None:
        check_index(self.index)

    def encode(self) -> Secret:
        return Secret(bytes((_VERSION, self.index)) + self.value.reveal() + self.blinding.reveal())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        if len(data) != SHARE_SIZE or data[0] != _VERSION:
            raise MalformedError("not a share of this version")
        middle = _HEADER + SCALAR_SIZE
        return cls(data[1], Scalar(data[_HEADER:middle]), Scalar(data[middle:]))


class Commitments(msgspec.Struct, frozen=True):
    """The public part of a dealing: k commitments, one to each coefficient, the constant one first."""

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.points) <= MAX_SHARES:
            raise MalformedError(f"a dealing has 1 to {MAX_SHARES} commitments")

    @property
    def threshold(self) -> int:
        return len(self.points)

    def at(self, index: int) -> Point:
        """The commitment to the share of this index."""
        return _evaluate(self.points, index)

    def encode(self) -> bytes:
        return bytes((_VERSION, self.threshold)) + b"".join(point.encode() for point in self.points)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        if len(data) < _HEADER or data[0] != _VERSION or len(data) != _HEADER + POINT_SIZE * data[1]:
            raise MalformedError("not commitments of this version")
        return cls(tuple(Point.decode(data[at : at + POINT_SIZE]) for at in range(_HEADER, len(data), POINT_SIZE)))


class Dealing(msgspec.Struct, frozen=True):
    """Commitments for everyone, and share x for holder x alone."""

    commitments: Commitments
    shares: tuple[VerifiableShare, ...]


class Subshare(msgspec.Struct, frozen=True):
    """A message of an old holder to a new one in a redistribution: its commitments and the receiver's share."""

    holder: int
    commitments: Commitments
    share: VerifiableShare

    def __post_init__(self) -> None:
        check_index(self.holder)


def deal_secret(secret: Scalar, k: int, n: int, entropy: Entropy) -> Dealing:
    """Share a scalar among holders 1 to n. Any k of them can reconstruct it."""
    return _deal(secret, Scalar.draw(entropy), k, n, entropy)


def verify_share(share: VerifiableShare, commitments: Commitments) -> None:
    """Raise `ForgedError` unless the share is the one committed to."""
    if _commit(share.value, share.blinding) != commitments.at(share.index):
        raise ForgedError("the share is not the one committed to")


def reconstruct(shares: Sequence[VerifiableShare], commitments: Commitments) -> Scalar:
    """The secret, from the first k shares.

    If these shares do not give it, `FaultyHoldersError` names all holders of bad shares: leave them out and call again.
    """
    check_distinct([share.index for share in shares])
    chosen = shares[: commitments.threshold]
    _check_enough(len(chosen), commitments)
    try:
        secret = _at_zero({share.index: share.value for share in chosen})
        blinding = _at_zero({share.index: share.blinding for share in chosen})
        if _commit(secret, blinding) != commitments.points[0]:
            raise ForgedError("the secret is not the one committed to")
    except RemoteError as error:
        _blame({share.index: partial(verify_share, share, commitments) for share in shares}, error)
    return secret


def key_of(secret: Scalar) -> Secret:
    """The key of 32 bytes that a shared scalar stands for."""
    return Secret(_primitives.blake2b(secret.reveal(), person=_KEY_DOMAIN))


def redistribute_share(share: VerifiableShare, k: int, n: int, entropy: Entropy) -> Dealing:
    """An old holder's part of a redistribution: it deals its share to the new holders."""
    return _deal(share.value, share.blinding, k, n, entropy)


def verify_redistribution(old: Commitments, holder: int, new: Commitments, k: int) -> None:
    """Raise `ForgedError` unless the holder dealt exactly its share of the old sharing, with threshold k."""
    if new.threshold != k:
        raise ForgedError("the share is dealt again with another threshold")
    if new.points[0] != old.at(holder):
        raise ForgedError("what is dealt again is not the holder's share")


def merge_commitments(old: Commitments, dealings: Mapping[int, Commitments], k: int) -> Commitments:
    """The commitments of the new sharing, computed from the dealings' commitments of k old holders.

    `FaultyHoldersError` names the holders that dealt something other than their share.
    """
    check_threshold(k, MAX_SHARES)
    _check_enough(len(dealings), old)
    try:
        if any(new.threshold != k for new in dealings.values()):
            raise ForgedError("a share is dealt again with another threshold")
        merged = Commitments(tuple(_at_zero({a: new.points[j] for a, new in dealings.items()}) for j in range(k)))
        if merged.points[0] != old.points[0]:
            raise ForgedError("what is dealt again is not the old secret")
    except RemoteError as error:
        _blame({a: partial(verify_redistribution, old, a, new, k) for a, new in dealings.items()}, error)
    return merged


def agreement_digest(dealings: Mapping[int, Commitments]) -> bytes:
    """A digest of all dealings and their holders. All receivers must have the same one before any of them combines."""
    encoded = [bytes((holder,)) + dealings[holder].encode() for holder in sorted(dealings)]
    return _primitives.blake2b(b"".join(encoded), person=_AGREEMENT_DOMAIN)


def combine_subshares(
    portions: Sequence[Subshare], old: Commitments, index: int, k: int, *, agreed: bytes, verified: bool = False
) -> tuple[Commitments, VerifiableShare]:
    """A new holder's part: the new sharing's commitments, and its own share `index` of it.

    `agreed` is the `agreement_digest` of the k old holders' dealings that all receivers have. Subshares of other
    dealings raise `ForgedError`. `FaultyHoldersError` names the holders of bad subshares: all receivers must replace
    these holders and agree again. A caller that has `verified` each subshare need not check the sum.
    """
    check_index(index)
    check_distinct([portion.holder for portion in portions])
    _check_enough(len(portions), old)
    dealings = {portion.holder: portion.commitments for portion in portions}
    if not _primitives.equal(agreement_digest(dealings), agreed):
        raise ForgedError("these are not the commitments that the receivers agreed on")
    try:
        commitments = merge_commitments(old, dealings, k)
        value = _at_zero({portion.holder: portion.share.value for portion in portions})
        blinding = _at_zero({portion.holder: portion.share.blinding for portion in portions})
        share = VerifiableShare(index, value, blinding)
        if not verified:
            verify_share(share, commitments)
    except RemoteError as error:
        _blame({p.holder: partial(_verify_portion, p, old, index, k) for p in portions}, error)
    return commitments, share


def _deal(value: Scalar, blinding: Scalar, k: int, n: int, entropy: Entropy) -> Dealing:
    check_threshold(k, n)
    values = [value, *(Scalar.draw(entropy) for _ in range(k - 1))]
    blindings = [blinding, *(Scalar.draw(entropy) for _ in range(k - 1))]
    commitments = Commitments(tuple(map(_commit, values, blindings)))
    shares = tuple(VerifiableShare(x, _evaluate(values, x), _evaluate(blindings, x)) for x in range(1, n + 1))
    return Dealing(commitments, shares)


def _commit(value: Scalar, blinding: Scalar) -> Point:
    return value.public() + _second_generator() * blinding


@cache
def _second_generator() -> Point:
    """A generator whose logarithm to the base G nobody knows, as it is the hash of a sentence."""
    return Point.hash(b"the second generator of commitments", b"veilcast deal")


def _verify_portion(portion: Subshare, old: Commitments, index: int, k: int) -> None:
    verify_redistribution(old, portion.holder, portion.commitments, k)
    if portion.share.index != index:
        raise ForgedError("the share is another receiver's")
    verify_share(portion.share, portion.commitments)


def _check_enough(count: int, commitments: Commitments) -> None:
    """Exactly k holders take part: more would add nothing."""
    if count != commitments.threshold:
        raise LocalError(f"{commitments.threshold} holders take part, not {count}")


def _blame(checks: Mapping[int, Callable[[], None]], error: RemoteError) -> NoReturn:
    """Raise `FaultyHoldersError` with all holders whose check raises, so that one round names every faulty holder.

    If no check raises, the dealer itself is faulty (it dealt zero, say), and `error` is raised.
    """
    failing = []
    for holder, check in checks.items():
        try:
            check()
        except RemoteError:
            failing.append(holder)
    if not failing:
        raise error
    raise FaultyHoldersError(failing) from error


_Element = TypeVar("_Element", Scalar, Point)
"""Polynomials are evaluated in the field and in the group by the same formulas.

Both evaluations add up terms none of which can be zero. A dealer that knows the indices can choose a polynomial whose
partial sums are zero at one of them, and that must not harm the index's holder. Factors are public and mostly small,
which in the group is much faster (`Point.weighted`).
"""


def _evaluate(coefficients: Sequence[_Element], index: int) -> _Element:
    """The value at an index. The constant coefficient comes first."""
    return _sum_weighted([(pow(index, j), coefficient) for j, coefficient in enumerate(coefficients)])


def _at_zero(values: Mapping[int, _Element]) -> _Element:
    """The value at 0 of the polynomial with these values at these indices (Lagrange)."""
    weights, common = _lagrange(tuple(values))
    total = _sum_weighted(list(zip(weights, values.values(), strict=True)))
    return total if common == 1 else total * Scalar.of(pow(common, -1, ORDER))


@lru_cache(maxsize=1024)
def _lagrange(indices: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Integer weights of the values at these indices, and the common divisor of their sum, which give the
    value at 0.
    """
    weights = [
        prod((Fraction(other, other - a) for other in indices if other != a), start=Fraction(1)) for a in indices
    ]
    common = lcm(*(weight.denominator for weight in weights))
    return tuple(int(weight * common) for weight in weights), common


def _sum_weighted(terms: Sequence[tuple[int, _Element]]) -> _Element:
    _, first = terms[0]
    if isinstance(first, Point):
        return Point.weighted(terms)
    return Scalar.sum([value * Scalar.of(factor % ORDER) for factor, value in terms])


_VERSION: Final = 1
_HEADER: Final = 2
SHARE_SIZE: Final = _HEADER + 2 * SCALAR_SIZE

_KEY_DOMAIN: Final = b"veilcast dealt"
_AGREEMENT_DOMAIN: Final = b"veilcast agreed"
