"""The shape of a balanced tree: places in breadth-first order, so that arithmetic gives parents and children.

Pure. Place 0 is the root; the children of place p are b p + 1 to b p + b, as far as there are places. The layers fill
up one after the other, so nearly all places are in the last two, and the tree is as flat as possible.
"""

from __future__ import annotations

from veilcast.errors import LocalError


def branching_factor(n: int, r: int) -> int:
    """The smallest b for which a tree of depth r has room for n: 1 + b + ... + b^r >= n."""
    if n < 1 or r < 1:
        raise LocalError("a tree has at least one node and one layer below it")
    b = 1
    while sum(b**layer for layer in range(r + 1)) < n:
        b += 1
    return b


def parent_place(place: int, b: int) -> int:
    if place < 1:
        raise LocalError("the root has no parent")
    return (place - 1) // b


def child_places(place: int, b: int, n: int) -> range:
    return range(min(b * place + 1, n), min(b * place + b + 1, n))


def path_to_root(place: int, b: int) -> tuple[int, ...]:
    """The places from this one, which is first, to the root, which is last."""
    places = [place]
    while places[-1]:
        places.append(parent_place(places[-1], b))
    return tuple(places)


def place_depth(place: int, b: int) -> int:
    return len(path_to_root(place, b)) - 1
