"""Hiding: a client's elements as points under its key, kept for the next time that it names them.

k_u H takes half of what an upload costs, and is the same whenever the client uploads the element: a publisher names the
same label with every publication, and the short prefixes of its numbers. What leaves is veiled anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.crypto.bulk import Multiply
from veilcast.crypto.group import Point, Scalar
from veilcast.relay.subjects import hidden_many


class Hiding:
    """Bounded: the last `HIDDEN_MAX` elements that were new, under one key."""

    def __init__(self, multiply: Multiply) -> None:
        self._multiply = multiply
        self._key: Scalar | None = None
        self._hidden: dict[bytes, Point] = {}

    def __len__(self) -> int:
        return len(self._hidden)

    def under(self, key: Scalar, elements: Sequence[bytes]) -> list[Point]:
        """k_u H of each."""
        if self._key is None or self._key != key:
            self._key, self._hidden = key, {}
        new = [element for element in dict.fromkeys(elements) if element not in self._hidden]
        self._hidden.update(zip(new, hidden_many(new, key, self._multiply), strict=True))
        points = [self._hidden[element] for element in elements]
        while len(self._hidden) > HIDDEN_MAX:
            del self._hidden[next(iter(self._hidden))]
        return points


HIDDEN_MAX: Final = 1024
