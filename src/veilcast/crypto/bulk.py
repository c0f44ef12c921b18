"""Many multiplications in the group at once, by whoever is best at it.

A proxy moves, and a server opens, thousands of points a second, and each takes a tenth of a millisecond. The recipes
that handle many points take a `Multiply`: `one_by_one` here, or a pool of workers that the outside hands in
(`veilcast.node.workers`). Whoever does it, results come in the order asked for and are the same, so a run is still
decided by its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from veilcast.crypto.group import Point, Scalar

Multiply: TypeAlias = Callable[[Sequence[tuple[Point, Scalar]]], list[Point]]
"""Each point times its scalar; `MalformedError` if one of the products is the identity."""


def one_by_one(pairs: Sequence[tuple[Point, Scalar]]) -> list[Point]:
    return [point * scalar for point, scalar in pairs]
