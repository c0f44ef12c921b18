"""Guards: the few nodes that stand between a subscriber and all its trees, for as long as they live.

A tree is drawn anew in every epoch, and whoever has a subscriber for a parent has it in every one; the more nodes ever
stand next to it, the likelier one of them counts. So these are drawn once and kept over restarts. Who is away, or is to
be avoided, has a deputy, who is drawn as rarely, and gives the place back when the first can have it again: a directory
that leaves somebody out for a while, or a guard that is made unreachable, moves nobody for good. All subscriptions of a
node have the same guards: with some of its own, each would be another draw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from random import Random
from typing import Final

import msgspec

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError
from veilcast.machine import Event, Record
from veilcast.tree.listing import Listing
from veilcast.wire.geometry import NODE


class Guards:
    """Bounded: `most` places, and `DEPUTIES_MAX` for each. `kept` is what an earlier life had written down."""

    def __init__(self, most: int, home: bytes, rng: Random, kept: bytes | None) -> None:
        self._home, self._rng = home, rng
        self._places = _read(kept)[:most] if kept is not None else []
        self._places += [[] for _ in range(most - len(self._places))]
        self._chain: tuple[bytes, ...] = ()
        self._events: deque[Event] = deque()

    def __contains__(self, node: bytes) -> bool:
        """Whether it stands guard now."""
        return node in self._chain

    def chain(self, listing: Listing, avoided: Container[bytes], doubted: Container[bytes] = ()) -> tuple[bytes, ...]:
        """From the one next to home on; fewer where there are not so many others.

        Who is doubted keeps its place, and gets none that another can have."""
        fit = [node for node in listing.ids if node != self._home and node not in avoided]
        self._rng.shuffle(fit)
        known = {node for place in self._places for node in place}
        fit.sort(key=lambda node: (node in doubted, node in known))
        able = {node for node in fit if node in self._chain or node not in doubted}
        chain: list[bytes | None] = []
        for place in self._places:
            chain.append(next((node for node in place if node in able and node not in chain), None))
        drawn = False
        for at, place in enumerate(self._places):
            if chain[at] is None and (guard := next((node for node in fit if node not in chain), None)) is not None:
                chain[at] = guard
                if guard not in place:
                    place[DEPUTIES_MAX:] = [guard]
                    drawn = True
        if drawn:
            self._events.append(Record(GUARDS_RECORD, _ENCODER.encode(self._places)))
        self._chain = tuple(guard for guard in chain if guard is not None)
        return self._chain

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None


def _read(kept: bytes) -> list[list[bytes]]:
    places = _DECODER.decode(kept)
    if any(len(guard) != NODE for place in places for guard in place):
        raise TamperedError(_DAMAGED)
    return places


_DAMAGED: Final = "the record of the guards is damaged"
_DECODER: Final = MsgpackDecoder(list[list[bytes]], TamperedError, _DAMAGED)
GUARDS_RECORD: Final = 1
"""The number of the record that they stand in."""
DEPUTIES_MAX: Final = 3
"""For each place; the last drawn gives way to another."""
_ENCODER: Final = msgspec.msgpack.Encoder()
