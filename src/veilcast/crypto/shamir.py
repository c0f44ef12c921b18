"""Shamir's secret sharing over GF(2^8): any k of n shares give the secret back, and fewer reveal nothing.

The computation is pure; randomness is handed in. Each byte of a secret is the value at 0 of its own polynomial of
degree k - 1, and share x holds the values at x, in the field of AES (x^8 + x^4 + x^3 + x + 1). Any k values determine
such a polynomial, so interpolation is the only operation. To split, the shares 1 to k - 1 are drawn at random, and the
others follow from them and the secret. To reconstruct, the value at 0 follows from k shares.

Interpolation is the product of a small public matrix and secret vectors. A product with a public constant takes only
additions (XOR) and doublings, and a doubling treats every byte of a long vector alike, so no secret indexes a table or
decides a branch. A single vector is a Python integer with a byte a lane; in batches it is a numpy array, worked on in
blocks that stay in cache. (Python drops leading zeros of an integer: the time of a call may tell that whole top bytes
are zero.) Only batches import numpy.

A share proves nothing: a wrong share gives a wrong secret. `verifiable_sharing` has shares that can be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]


class ShamirShare(msgspec.Struct, frozen=True):
    """The values at `index` (1 to 255) of a secret's polynomials: as many bytes as the secret has."""

    index: int
    data: Secret

    def __post_init__(self) -> None:
        check_index(self.index)

    def encode(self) -> Secret:
        """Version, index, data. The threshold is the scheme's, which the holders know."""
        return Secret(bytes((_VERSION, self.index)) + self.data.reveal())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        if not _HEADER < len(data) <= _HEADER + MAX_SIZE or data[0] != _VERSION:
            raise MalformedError("not a share of this version")
        return cls(data[1], Secret(data[_HEADER:]))


def split(secret: Secret, k: int, n: int, entropy: Entropy) -> tuple[ShamirShare, ...]:
    """Shares 1 to n of the secret, any k of which reconstruct it.

    A threshold of one gives a copy to everyone, and is allowed: a broker without replicas (P4) is such a scheme.
    """
    check_threshold(k, n)
    size = len(secret)
    if size > MAX_SIZE:
        raise LocalError(f"a secret to split has at most {MAX_SIZE} bytes")
    drawn = _draw_bytes((k - 1) * size, entropy)
    values = [secret.reveal(), *(drawn[at : at + size] for at in range(0, len(drawn), size))]
    data = drawn + _interpolate(values, tuple(range(k)), tuple(range(k, n + 1)))
    return tuple([ShamirShare(x, Secret(data[(x - 1) * size : x * size])) for x in range(1, n + 1)])


def reconstruct(shares: Sequence[ShamirShare], k: int) -> Secret:
    """The secret, from the first k of the shares. Wrong shares give a wrong secret, not an error."""
    if not 1 <= k <= len(shares):
        raise LocalError(f"{k} shares are needed, {len(shares)} are here")
    values = [share.data.reveal() for share in shares[:k]]
    if any(len(value) != len(values[0]) for value in values):
        raise MalformedError("the shares differ in length")
    indices = tuple([share.index for share in shares[:k]])
    check_distinct(indices)
    return Secret(_value_at_zero(values, indices))


def split_many(secrets: Bytes, k: int, n: int, entropy: Entropy) -> Bytes:
    """Split all rows of `secrets` (count, size): row x - 1 of the result (n, count, size) is shares x."""
    import numpy as np

    check_threshold(k, n)
    if secrets.ndim != 2 or secrets.dtype != np.uint8:
        raise LocalError("secrets to split are the rows of an array (count, size) of bytes")
    shares = np.zeros((n, secrets.size), dtype=np.uint8)
    shares[: k - 1].reshape(-1)[:] = np.frombuffer(_draw_bytes((k - 1) * secrets.size, entropy), dtype=np.uint8)
    known = [secrets.reshape(-1), *shares[: k - 1]]
    _interpolate_many(known, tuple(range(k)), tuple(range(k, n + 1)), shares[k - 1 :])
    return shares.reshape(n, *secrets.shape)


def reconstruct_many(indices: Sequence[int], shares: Bytes) -> Bytes:
    """The secrets (count, size) from shares (k, count, size), row i of which is shares `indices[i]`."""
    import numpy as np

    if shares.ndim != 3 or shares.dtype != np.uint8 or not 1 <= len(shares) == len(indices):
        raise LocalError("shares are an array (k, count, size) of bytes, with an index for each of the k rows")
    for index in indices:
        check_index(index)
    check_distinct(indices)
    secrets = np.zeros((1, shares[0].size), dtype=np.uint8)
    _interpolate_many([row.reshape(-1) for row in shares], tuple(indices), (0,), secrets)
    return secrets.reshape(shares.shape[1:])


def interpolate_many(columns: Sequence[Bytes], known: Sequence[int], wanted: Sequence[int]) -> Bytes:
    """The values at the wanted points, of polynomials with these values (rows of bytes) at the known points.

    Nothing is drawn, so nothing is hidden: with the data at some points, the values at others are a Reed-Solomon code.
    """
    import numpy as np

    points = (*known, *wanted)
    if not 1 <= len(columns) == len(known) or not wanted or any(not 0 <= point <= MAX_SHARES for point in points):
        raise LocalError(f"there is one row for each known point, and points are 0 to {MAX_SHARES}")
    if len({len(column) for column in columns}) != 1 or any(column.dtype != np.uint8 for column in columns):
        raise LocalError("rows are bytes, and equally long")
    check_distinct(points)
    results = np.zeros((len(wanted), len(columns[0])), dtype=np.uint8)
    _interpolate_many(columns, tuple(known), tuple(wanted), results)
    return results


def check_threshold(k: int, n: int) -> None:
    """Raise `LocalError` unless this is a (k, n) scheme.

    This bound and the next two hold for `verifiable_sharing` too.
    """
    if not 1 <= k <= n <= MAX_SHARES:
        raise LocalError(f"a threshold scheme needs 1 <= k <= n <= {MAX_SHARES}, not k = {k} and n = {n}")


def check_index(index: int) -> None:
    if not 1 <= index <= MAX_SHARES:
        raise MalformedError(f"the index of a share is 1 to {MAX_SHARES}")


def check_distinct(indices: Sequence[int]) -> None:
    if len(set(indices)) != len(indices):
        raise MalformedError("two shares have the same index")


def _draw_bytes(size: int, entropy: Entropy) -> bytes:
    """A short draw would be spread over the shares by numpy, or leave some out: neither hides anything."""
    drawn = entropy(size)
    if len(drawn) != size:
        raise LocalError(f"the entropy gave {len(drawn)} bytes instead of {size}")
    return drawn


# --- one secret ---------------------------------------------------------------------------------------------


def _interpolate(values: Sequence[bytes], known: tuple[int, ...], wanted: tuple[int, ...]) -> bytes:
    """From the values at the known points, the values at the wanted points, in a row.

    All wanted values are computed in one integer, going through the bits of the coefficients from the highest: double
    everything, then add each known value wherever its coefficient has the bit.
    """
    masks = _masks(known, wanted, len(values[0]))
    ones, low_bits = masks.ones, masks.low_bits
    columns = [int.from_bytes(value * len(wanted), "little") for value in values]
    total = 0
    for addends in masks.by_bit:
        total = (total & low_bits) << 1 ^ (total >> 7 & ones) * _REDUCED
        for column, mask in addends:
            total ^= columns[column] & mask
    return total.to_bytes(len(values[0]) * len(wanted), "little")


def _value_at_zero(values: Sequence[bytes], known: tuple[int, ...]) -> bytes:
    """The same for the one value at 0, where a bit is in all bytes of a column or in none.

    Nothing is cached: any k of n holders may answer, and there are too many such sets to keep masks for.
    """
    (row,) = _coefficients(known, (0,))
    size = len(values[0])
    ones = int.from_bytes(b"\x01" * size, "little")
    low_bits = ones * 0x7F
    terms = list(zip(row, [int.from_bytes(value, "little") for value in values], strict=True))
    total = 0
    for bit in _bits([row]):
        total = (total & low_bits) << 1 ^ (total >> 7 & ones) * _REDUCED
        for coefficient, column in terms:
            if coefficient >> bit & 1:
                total ^= column
    return total.to_bytes(size, "little")


class _Masks(NamedTuple):
    """`ones` has the lowest bit of every byte, `low_bits` all but the highest; the others select bytes."""

    ones: int
    low_bits: int
    by_bit: tuple[tuple[tuple[int, int], ...], ...]


# By scheme, of which we use few at once; no stranger chooses one. (6, 10) takes some 10 kB, the largest 8 MB.
@lru_cache(maxsize=16)
def _masks(known: tuple[int, ...], wanted: tuple[int, ...], size: int) -> _Masks:
    rows = _coefficients(known, wanted)
    ones = int.from_bytes(b"\x01" * (size * len(wanted)), "little")
    by_bit = []
    for bit in _bits(rows):
        selected = [
            int.from_bytes(b"".join(bytes([0xFF * (row[column] >> bit & 1)]) * size for row in rows), "little")
            for column in range(len(known))
        ]
        by_bit.append(tuple((column, mask) for column, mask in enumerate(selected) if mask))
    return _Masks(ones, ones * 0x7F, tuple(by_bit))


# --- many secrets -------------------------------------------------------------------------------------------


def _interpolate_many(
    columns: Sequence[Bytes], known: tuple[int, ...], wanted: tuple[int, ...], results: Bytes
) -> None:
    """The same on arrays, with one row of the zeroed `results` for each wanted point."""
    import numpy as np

    rows = _coefficients(known, wanted)
    carries = np.empty(_BLOCK, dtype=np.uint8)
    for start in range(0, results.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        parts = [column[block] for column in columns]
        for row, result in zip(rows, results[:, block], strict=True):
            for bit in _bits([row]):
                _double(result, carries[: len(result)])
                for coefficient, part in zip(row, parts, strict=True):
                    if coefficient >> bit & 1:
                        np.bitwise_xor(result, part, out=result)


def _double(values: Bytes, carries: Bytes) -> None:
    """Double every byte in place; the sign bit of a byte is the carry out of it."""
    import numpy as np

    np.less(values.view(np.int8), 0, out=carries.view(np.bool_))
    np.multiply(carries, _REDUCED, out=carries)
    np.add(values, values, out=values)
    np.bitwise_xor(values, carries, out=values)


# --- public coefficients: here tables and branches do no harm -----------------------------------------------


def _coefficients(known: tuple[int, ...], wanted: tuple[int, ...]) -> list[list[int]]:
    """Lagrange's coefficients: for each wanted point t the factors prod (t - o) / (s - o) of the known points s."""
    weights = [-sum(_LOG[s ^ o] for o in known if o != s) for s in known]
    rows = []
    for t in wanted:
        whole = sum(_LOG[t ^ o] for o in known)
        rows.append([_EXP[(whole - _LOG[t ^ s] + w) % 255] for s, w in zip(known, weights, strict=True)])
    return rows


def _bits(rows: Sequence[Sequence[int]]) -> range:
    """The numbers of the bits in use, from the highest."""
    return range(max(map(max, rows)).bit_length() - 1, -1, -1)


def _powers() -> list[int]:
    """The powers of 3, which generates the field's 255 elements other than 0."""
    powers = [1]
    while len(powers) < 255:
        last = powers[-1]
        powers.append(last ^ (last << 1 & 0xFF) ^ (last >> 7) * _REDUCED)
    return powers


MAX_SHARES: Final = 255
"""The elements of the field other than 0, where the secret is."""
MAX_SIZE: Final = 64
"""Bytes of a secret split alone: a key, not a file. Batches are bounded by memory only."""

_VERSION: Final = 1
_HEADER: Final = 2
_REDUCED: Final = 0x1B
"""x^8 reduced by the field's polynomial, 0x11b."""
_EXP: Final = _powers()
_LOG: Final = {power: exponent for exponent, power in enumerate(_EXP)}
_BLOCK: Final = 1 << 16
"""Bytes of a vector worked on at a time: a few of them fit a second-level cache."""
