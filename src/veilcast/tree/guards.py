"""Guards: the few nodes that stand between a subscriber and all its trees, for as long as they live.

A tree is drawn anew in every epoch, and whoever has a subscriber for a parent has it in every one; the more nodes ever
stand next to it, the likelier one of them counts. So these are drawn once, kept over restarts, and replaced only when
they are listed no more or have been found to lose what they should pass on. All subscriptions of a node have the same:
with guards of its own, each would be another draw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec

from veilcast.errors import TamperedError
from veilcast.machine import Event, Record
from veilcast.tree.listing import Listing
from veilcast.wire.geometry import NODE


class Guards:
    """Bounded: `most` of them. `kept` is what an earlier life had written down."""

    def __init__(self, most: int, home: bytes, rng: Random, kept: bytes | None) -> None:
        self._most, self._home, self._rng = most, home, rng
        self._chain = list(_read(kept))[:most] if kept is not None else []
        self._events: deque[Event] = deque()

    def __contains__(self, node: bytes) -> bool:
        return node in self._chain

    def chain(self, listing: Listing, avoided: Iterable[bytes]) -> tuple[bytes, ...]:
        """From the one next to home on, all of them listed; fewer where there are not so many others."""
        before, avoided = tuple(self._chain), set(avoided)
        others = [node for node in listing.ids if node != self._home]
        fit = [node for node in others if node not in avoided and node not in self._chain]
        self._rng.shuffle(fit)
        for place, guard in enumerate(self._chain):
            if (guard not in listing or guard in avoided) and fit:
                self._chain[place] = fit.pop()
        self._chain = [guard for guard in self._chain if guard in listing]
        while fit and len(self._chain) < self._most:
            self._chain.append(fit.pop())
        if tuple(self._chain) != before:
            self._events.append(Record(GUARDS, _ENCODER.encode(self._chain)))
        return tuple(self._chain)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None


def _read(kept: bytes) -> list[bytes]:
    try:
        chain = msgspec.msgpack.decode(kept, type=list[bytes])
    except msgspec.DecodeError as error:
        raise TamperedError("the record of the guards is damaged") from error
    if any(len(guard) != NODE for guard in chain):
        raise TamperedError("the record of the guards is damaged")
    return chain


GUARDS: Final = 1
"""The number of the record that they stand in."""
_ENCODER: Final = msgspec.msgpack.Encoder()
