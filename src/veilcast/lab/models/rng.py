"""Random numbers of models: streams of 64-bit words, each derived from a run's seed and the names of its purpose.

A stream is splitmix64 (Steele, Lea, Flood 2014): a counter that advances by the golden ratio, with its bits mixed. Its
state is an array of one word, which a model receives and advances. The first state is a hash of (seed, names). So the
draws of a model depend on these alone: neither on the partition of a run, nor on the runs before it.
"""

from __future__ import annotations

from hashlib import blake2b
from math import log
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.numba_cache import jit

Stream: TypeAlias = NDArray[np.uint64]


def stream(seed: int, *names: str | int) -> Stream:
    """The stream of this name under this seed."""
    if not 0 <= seed < 1 << 64:
        raise ConfigError(f"seed must be between 0 and 2^64 - 1, not {seed}")
    digest = blake2b(digest_size=8, key=seed.to_bytes(8, "little"), person=_PERSON)
    for name in names:
        raw = str(name).encode()
        digest.update(len(raw).to_bytes(4, "little") + raw)
    return np.frombuffer(digest.digest(), dtype=np.uint64).copy()


@jit
def draw_word(state: Stream) -> np.uint64:
    """The next 64 bits."""
    state[0] += GOLDEN
    return mix_bits(state[0])


@jit
def mix_bits(bits: np.uint64) -> np.uint64:
    """A permutation of 64-bit words in which every input bit affects every output bit."""
    bits = (bits ^ (bits >> _30)) * _MIX_1
    bits = (bits ^ (bits >> _27)) * _MIX_2
    return bits ^ (bits >> _31)


@jit
def draw_below(state: Stream, n: int) -> int:
    """A uniform number from 0 to n - 1; n is at most 2^32.

    It is the upper half of (32 random bits) x n, unless the lower half is one of the few that would favour some numbers
    (Lemire 2019).
    """
    bound = np.uint64(n)
    product = (draw_word(state) >> _32) * bound
    if product & _LOW < bound:
        least = (_2_32 - bound) % bound
        while product & _LOW < least:
            product = (draw_word(state) >> _32) * bound
    return np.int64(product >> _32)  # type: ignore[return-value]


@jit
def draw_unit(state: Stream) -> float:
    """A number from 0 to 1, without 1."""
    return to_fraction(draw_word(state))


@jit
def to_fraction(bits: np.uint64) -> float:
    """These 64 bits as a number from 0 to 1, without 1."""
    return (bits >> _11) * _2_TO_MINUS_53


@jit
def draw_exponential(state: Stream) -> float:
    """A wait of mean 1."""
    return -log(1.0 - draw_unit(state))


@jit
def shuffle(state: Stream, items: NDArray[np.int32]) -> None:
    """Shuffle in place; every order is equally likely."""
    for last in range(len(items) - 1, 0, -1):
        other = draw_below(state, last + 1)
        items[last], items[other] = items[other], items[last]


_PERSON: Final = b"veilcast.lab"
# In numba, a 64-bit word and a Python integer make a float: so all constants are words.
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_11: Final = np.uint64(11)
_27: Final = np.uint64(27)
_30: Final = np.uint64(30)
_31: Final = np.uint64(31)
_32: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_2_32: Final = np.uint64(1 << 32)
_2_TO_MINUS_53: Final = 2.0**-53
