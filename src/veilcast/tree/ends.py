"""Ends: the names under which things come to a subscriber, when they have come all the way.

The end of a wish's trees in an epoch comes from the secret of the membership. So it is the same in all lives of a node:
one that starts anew gets what its earlier life planted, before it has planted anything itself, and its guards find no
difference. An end outlasts the wish, too: what still comes for one that was given up is taken and dropped, as from the
outside it is for everything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.link.recent import remember
from veilcast.parts.alarms import Alarms
from veilcast.tree.entries import entry_name
from veilcast.tree.profile import Wish
from veilcast.wire.geometry import ENTRY


class End(NamedTuple):
    wish: Wish
    epoch: int


class Ends:
    """Bounded: the last `most`."""

    def __init__(self, link: Secret, epoch_us: int, most: int) -> None:
        self._key, self._epoch_us, self._most = derive(link, b"vc/tree-ends"), epoch_us, most
        self._ends: dict[bytes, End] = {}
        self._alarms: Alarms[bytes] = Alarms()

    def __len__(self) -> int:
        return len(self._ends)

    def open(self, wish: Wish, epoch: int) -> bytes:
        """The end of this wish's trees in this epoch; what comes there is taken from now on, until they are over."""
        token = derive(self._key, b"vc/tree-end", wish.spelled, epoch.to_bytes(8, "big"), size=ENTRY)
        name = entry_name(token.reveal())
        remember(self._ends, name, End(wish, epoch), self._most)
        self._alarms.set(name, (epoch + 2) * self._epoch_us + GRACE_US)
        return name

    def get(self, name: bytes) -> End | None:
        return self._ends.get(name)

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for name in self._alarms.due(now):
            self._ends.pop(name, None)


GRACE_US: Final = 60_000_000
"""For what was on its way when the last entries ended."""
