"""Dyadic covers: a range of integers as few binary prefixes, a value as the prefixes it starts with.

Pure arithmetic; imports nothing. A node `(level, prefix)` of the binary tree over `bits`-bit values stands for all
values whose first `level` bits are `prefix`: the root `(0, 0)` for every value, `(bits, v)` for v alone. A range is cut
into the largest nodes that fit; it holds exactly the values that have one of their `bits + 1` prefixes among them. So
"is v in the range?" becomes "do two sets share an element?", which a hash table, a Bloom filter or a keyed token can
answer without knowing the order of values.

The cover takes at most two nodes a level, one at each ragged end. Level 0 is the whole domain, and a node of level 1
leaves only one end ragged. So the worst range has two nodes on each of the levels 2 to `bits`, which is 2 * bits - 2 in
all; [1, 2**bits - 2] is such a range. A cover over one bit is always one node.
"""

from __future__ import annotations

from typing import TypeAlias

DyadicNode: TypeAlias = tuple[int, int]
"""(level, prefix): the number of fixed leading bits, and their value."""


def cover_range(low: int, high: int, bits: int) -> list[DyadicNode]:
    """The fewest nodes that hold exactly the values low..high, ends included, in ascending order."""
    assert 0 <= low <= high < 1 << bits, "the domain hands over cells inside its own resolution"
    rising: list[DyadicNode] = []
    falling: list[DyadicNode] = []
    end = high + 1
    level = bits
    # Climb from the leaves. An odd left end is a right child, whose parent would reach too far left: it must
    # stand for itself. An odd (exclusive) right end leaves a left child over, for the same reason. What
    # remains is even at both ends, hence a range of whole parents.
    while low < end:
        if low & 1:
            rising.append((level, low))
            low += 1
        if end & 1:
            end -= 1
            falling.append((level, end))
        low >>= 1
        end >>= 1
        level -= 1
    falling.reverse()
    return rising + falling


def prefixes_of(value: int, bits: int) -> list[DyadicNode]:
    """The bits + 1 nodes above a value, from the root down to the value itself."""
    assert 0 <= value < 1 << bits, "the domain hands over cells inside its own resolution"
    return [(level, value >> (bits - level)) for level in range(bits + 1)]


def largest_cover(bits: int) -> int:
    """The number of nodes that the worst range needs."""
    return max(1, 2 * bits - 2)
