"""Loop labels: a header in which every node that a message passed has left a mark, so that none passes it on twice.

Pure. P2: "each message will carry a header with a Bloom Filter storing unique labels that nodes can check to see if
they have already forwarded the same message", and labels are random and change at intervals. A label here is `hashes`
different bits of `bits`, drawn anew every `every_us`; the one before still counts, as a message may come round just
after the change.

What it costs. A node may find its label's bits set by others, and drop a message that it never saw. A header of which u
bits are set has this happen with C(u, k) / C(m, k), and each node that passes the message on sets as many new bits as
the draw gives; so the chance to be lost on a path is a sum over the number of bits set, and exact (`lost`). With k = 4,
a message that passes 10 nodes is lost with .81 % in 128 bits, and with .061 % in 256. (Bits drawn one by one, as hashes
give them, can fall together: the usual formula then says .9 % and .07 %.)

What it tells. The number of bits set is about k times the number of nodes passed, and none is set at the first. And it
stops cycles, not copies: a message that comes by two ways has two headers (`tests/papers/test_p2_tree_flaws.py`).
"""

from __future__ import annotations

from math import comb
from random import Random
from typing import Final

import msgspec

from veilcast.errors import ConfigError, MalformedError


class Headers(msgspec.Struct, frozen=True):
    """The size of a header, and how many bits of it a label has."""

    bits: int = 128
    hashes: int = 4

    def __post_init__(self) -> None:
        if not (8 <= self.bits <= BITS_MAX and self.bits % 8 == 0):
            raise ConfigError(f"a header has 8 to {BITS_MAX} bits, in whole bytes")
        if not 1 <= self.hashes < self.bits:
            raise ConfigError("a label has at least one bit, and not all")

    def empty(self) -> bytes:
        return bytes(self.bits // 8)

    def draw(self, rng: Random) -> int:
        """A label, as a number with its bits set."""
        return sum(1 << bit for bit in rng.sample(range(self.bits), self.hashes))

    def read(self, header: bytes) -> int:
        if len(header) != self.bits // 8:
            raise MalformedError("a header of another size")
        return int.from_bytes(header, "big")

    def lost(self, path: int) -> float:
        """The chance that one of `path` different nodes in a row takes the message for one it has passed on."""
        survives = {0: 1.0}
        for _ in range(path):
            after: dict[int, float] = {}
            for filled, chance in survives.items():
                for new in range(1, min(self.hashes, self.bits - filled) + 1):
                    draws = comb(self.bits - filled, new) * comb(filled, self.hashes - new)
                    after[filled + new] = after.get(filled + new, 0.0) + chance * draws / comb(self.bits, self.hashes)
            survives = after
        return 1.0 - sum(survives.values())


class Labels:
    """One node's."""

    def __init__(self, headers: Headers, *, every_us: int, rng: Random, now: int) -> None:
        if every_us < 1:
            raise ConfigError("labels change at intervals of at least a microsecond")
        self._headers = headers
        self._every_us = every_us
        self._rng = rng
        self._label = self._before = headers.draw(rng)
        self._until_us = now + every_us

    def mark(self, header: bytes, now: int) -> bytes | None:
        """The header with this node's label in it; None if it is there already. `MalformedError` for what is none."""
        self._change(now)
        marks = self._headers.read(header)
        if any(marks & label == label for label in (self._label, self._before)):
            return None
        return (marks | self._label).to_bytes(len(header), "big")

    def _change(self, now: int) -> None:
        if now < self._until_us:
            return
        # After more than one interval without a message, nothing can still be under way with the label before.
        self._before = self._label if now < self._until_us + self._every_us else self._headers.draw(self._rng)
        self._label = self._headers.draw(self._rng)
        self._until_us = now + self._every_us


BITS_MAX: Final = 1024
