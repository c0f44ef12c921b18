"""All randomness of a world, derived from its seed by name.

Every stream is a keyed hash of (seed, names), where the names say who draws, and for what. A node's stream depends on
the seed, its address and its incarnation, and a link's stream on its two ends. So an added node or link leaves every
other stream unchanged, and a run can be cut down to the nodes that matter. BLAKE2b and the Mersenne Twister give the
same numbers on every platform.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Final

from veilcast.errors import ConfigError


def derive_bytes(seed: int, *names: str) -> bytes:
    """32 bytes for these names under this seed."""
    digest = blake2b(digest_size=32, key=seed.to_bytes(8, "little"), person=_PERSON)
    for name in names:
        raw = name.encode()
        digest.update(len(raw).to_bytes(4, "little"))
        digest.update(raw)
    return digest.digest()


def derive_rng(seed: int, *names: str) -> Random:
    return Random(derive_bytes(seed, *names))  # noqa: S311 - a simulator wants a replayable generator


class SeededEntropy:
    """Replaces the system's generator: `entropy(n)` gives n bytes that look random and are the same in each run."""

    __slots__ = ("_blocks", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._blocks = 0

    def __call__(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            out += blake2b(self._blocks.to_bytes(8, "little"), key=self._key).digest()
            self._blocks += 1
        return bytes(out[:size])


def check_seed(seed: int) -> int:
    """Return the seed, if it has 64 bits and is not negative."""
    if not 0 <= seed < 1 << 64:
        raise ConfigError(f"seed must be between 0 and 2^64 - 1, not {seed}")
    return seed


def draw_quantile(points: tuple[int, ...], word: int) -> int:
    """The value at `word / 2^64` of a distribution given by evenly spaced quantiles, in integer arithmetic.

    One point is a constant, two are the uniform distribution between them, and more give any shape, also with long
    tails.
    """
    place = word * (len(points) - 1)
    index = place >> 64
    low = points[index]
    if index + 1 == len(points):
        return low
    return low + ((points[index + 1] - low) * (place & _MASK) >> 64)


def happens(ppm: int, word: int) -> bool:
    """True if an event of this rate, in parts per million, happens, for 64 random bits in `word`."""
    return word * 1_000_000 >> 64 < ppm


_MASK: Final = (1 << 64) - 1
_PERSON: Final = b"veilcast.sim"
