"""Guards: the few nodes that stand between a subscriber and all its trees, for as long as they live.

A tree is redrawn in every epoch. A node next to the subscriber would have it as a parent in each of them. The more
nodes are ever next to the subscriber, the likelier it is that one of them counts. So guards are drawn once and kept
over restarts. An absent or avoided guard has a deputy, which is drawn as rarely and gives the place back when the guard
is fit again. So a directory that omits a node for a while, or an adversary that makes a guard unreachable, moves no
guard permanently. All subscriptions of a node share the same guards: separate guards would be further draws.
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
    """Bounded: `most` places, with `DEPUTIES_MAX` deputies each. `kept` is the record of an earlier run."""

    def __init__(self, most: int, home: bytes, rng: Random, kept: bytes | None) -> None:
        self.most, self._home, self._rng = most, home, rng
        self._places = _read(kept)[:most] if kept is not None else []
        self._places += [[] for _ in range(most - len(self._places))]
        self._chain: tuple[bytes, ...] = ()
        self._events: deque[Event] = deque()

    def __contains__(self, node: bytes) -> bool:
        """True if the node is a guard now."""
        return node in self._chain

    def chain(self, listing: Listing, avoided: Container[bytes], doubted: Container[bytes] = ()) -> tuple[bytes, ...]:
        """The current guards, from the one next to home on; fewer if there are too few other nodes.

        A doubted node keeps its place, and gets none that another node can have.
        """
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
"""The number of the guards' record."""
DEPUTIES_MAX: Final = 3
"""Deputies of each place; a new one replaces the one drawn last."""
_ENCODER: Final = msgspec.msgpack.Encoder()
