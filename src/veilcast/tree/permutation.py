"""A keyed permutation: assigns places to any number of nodes, from one secret and without a list.

Pure. A Feistel network over pairs (Black and Rogaway, 2002): the numbers below n are written as (left, right) with left
below a and right below b, where a b is at least n and exceeds it by less than a. Each round adds to one half, modulo
its size, a keyed function of the other half, in turn. A result of n or above is permuted again until it is below n
("cycle walking"), which happens once in a thousand times for n = 100,000. Both directions cost the same.

Halves are small (317 for n = 100,000), so a round's function is a table of truly independent entries, drawn once from
the key. A place costs a few look-ups, alone or in arrays, and the lab's models read the same tables.

Why ten rounds. Four rounds make a permutation look random to an observer of few places, and suffice for a simulation.
But colluding nodes that pool their instructions see a large part of a tree, and four rounds on a small domain can be
broken from that (Durak and Vaudenay, 2017: in time n^1.5). The standards for such domains have eight or ten (NIST SP
800-38G).
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError

Numbers: TypeAlias = npt.NDArray[np.int64]


class Permutation:
    """A permutation of the numbers 0 to n - 1: `place` maps forward, `node` back."""

    def __init__(self, key: Secret, n: int, rounds: int = 10) -> None:
        if not 1 <= n <= NODES_MAX:
            raise LocalError(f"a permutation has 1 to {NODES_MAX} numbers")
        if not 2 <= rounds <= 64 or rounds % 2:
            raise LocalError("a permutation has an even number of rounds, 2 to 64")
        self.n: Final = n
        self.left: Final = math.isqrt(n - 1) + 1
        self.right: Final = -(-n // self.left)
        self.tables: Final = [self._table(key, number) for number in range(rounds)]
        """For each round, the summand for each value of the other half; even rounds change the left half."""
        self._plain = [table.tolist() for table in self.tables]

    def place(self, node: int) -> int:
        self._check(node, node)
        while True:
            node = self._forth(node)
            if node < self.n:
                return node

    def node(self, place: int) -> int:
        self._check(place, place)
        while True:
            place = self._back(place)
            if place < self.n:
                return place

    def places(self, nodes: Numbers) -> Numbers:
        """`place` of each number."""
        return self._each(nodes, forth=True)

    def nodes(self, places: Numbers) -> Numbers:
        """`node` of each number."""
        return self._each(places, forth=False)

    def _each(self, numbers: Numbers, *, forth: bool) -> Numbers:
        if not len(numbers):
            return np.zeros(0, dtype=np.int64)
        self._check(int(numbers.min()), int(numbers.max()))
        moved = self._moved(numbers, forth=forth)
        while len(outside := np.flatnonzero(moved >= self.n)):
            moved[outside] = self._moved(moved[outside], forth=forth)
        return moved

    def _moved(self, numbers: Numbers, *, forth: bool) -> Numbers:
        left, right = np.divmod(numbers.astype(np.int64), self.right)
        for number in range(len(self.tables)) if forth else reversed(range(len(self.tables))):
            table = self.tables[number] if forth else -self.tables[number]
            if number % 2 == 0:
                left = (left + table[right]) % self.left
            else:
                right = (right + table[left]) % self.right
        return left * self.right + right

    def _forth(self, number: int) -> int:
        left, right = divmod(number, self.right)
        for even, odd in zip(self._plain[::2], self._plain[1::2], strict=True):
            left = (left + even[right]) % self.left
            right = (right + odd[left]) % self.right
        return left * self.right + right

    def _back(self, number: int) -> int:
        left, right = divmod(number, self.right)
        for even, odd in zip(self._plain[-2::-2], self._plain[::-2], strict=True):
            right = (right - odd[left]) % self.right
            left = (left - even[right]) % self.left
        return left * self.right + right

    def _table(self, key: Secret, number: int) -> Numbers:
        size, modulus = (self.right, self.left) if number % 2 == 0 else (self.left, self.right)
        blocks = range(-(-size * _WORD // _BLOCK))
        head = number.to_bytes(1, "big")
        drawn = b"".join(
            derive(key, _PURPOSE, head + block.to_bytes(4, "big"), size=_BLOCK).reveal() for block in blocks
        )
        words = np.frombuffer(drawn, dtype="<u8")[:size]
        return (words % np.uint64(modulus)).astype(np.int64)

    def _check(self, least: int, greatest: int) -> None:
        if not 0 <= least <= greatest < self.n:
            raise LocalError(f"a number of this permutation is below {self.n}")


NODES_MAX: Final = 1 << 24
"""Tables then have 4,096 entries; a listing is far smaller."""

_PURPOSE: Final = b"vc/tree-places"

_WORD: Final = 8
"""Bytes for each entry: reduced modulo its half, no value is more likely than another by more than 2^-52."""

_BLOCK: Final = 64
