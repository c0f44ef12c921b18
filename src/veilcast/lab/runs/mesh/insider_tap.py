"""Records what a coalition of real machines sees on its own links, as the arrays that its attackers read.

Insiders follow the protocol and record what a neighbour sends and what they send to a neighbour: subscriptions, which
ride in heartbeats, and stems and notifications, which travel alone. These are the rows of the `insiders` table. The
epoch of a row is that of the mesh it is about, which forms before its epoch begins. The state of a link is the last
message on it.

Calls for roots also travel by stems, by the same ones as notifications. They are not recorded, because they leave in
the same epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.core.publication import notification_id
from veilcast.errors import RemoteError
from veilcast.lab.models.coalition_view import CoalitionView, insider_links
from veilcast.lab.models.epochs import Population
from veilcast.lab.models.link_observations import ASKED, AWAY, FOLLOWED, SILENT
from veilcast.machine import Address, Frame
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.observe import InsiderRow
from veilcast.sim.checkers import Checker
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Notify, Stem, Subscribe, Unsubscribe


class InsiderTap(Checker):
    """The tap of these insiders; `rows` are their records, in order."""

    def __init__(self, insiders: Iterable[Address], heartbeat_bytes: int, run: str = "") -> None:
        self._insiders, self._size, self._run = frozenset(insiders), heartbeat_bytes, run
        self.epoch_of_token: dict[bytes, int] = {}
        """The tokens of the topic and their epochs, which a holder of its key must supply."""
        self.rows: list[InsiderRow] = []

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if address in self._insiders or frame.destination in self._insiders:
                for message in self._said(frame.data):
                    self._write(message, address, frame.destination, world.now)

    def _said(self, data: bytes) -> list[Message]:
        try:
            if data[:1] == b"\0":
                return [decode(rider) for rider in read_heartbeat(data, self._size).riders]
            return [decode(data)]
        except RemoteError:
            return []

    def _write(self, message: Message, source: Address, target: Address, now: int) -> None:
        about = ""
        note: Message = message
        if isinstance(message, Stem):
            note, about = decode(message.cargo), CLIMBING if message.climbing else ""
        if not isinstance(note, (Subscribe, Unsubscribe, Notify)) or note.token not in self.epoch_of_token:
            return
        name = notification_id(note) if isinstance(note, Notify) else b""
        kind, epoch = type(message).__name__, self.epoch_of_token[note.token]
        for way, observer, peer in (("out", source, target), ("in", target, source)):
            if observer in self._insiders:
                row = (self._run, epoch, now, observer, peer, f"{way}:{kind}", name, note.token, b"", about)
                self.rows.append(InsiderRow(*row))


def build_view(
    rows: Iterable[InsiderRow],
    people: Population,
    places: Mapping[Address, int],
    present: NDArray[np.bool_],
    origin: NDArray[np.int32],
) -> CoalitionView:
    """The coalition's view of these epochs, counted from 0. `places` are the nodes' numbers by name."""
    observer, peer = insider_links(people)
    at = {pair: place for place, pair in enumerate(zip(observer.tolist(), peer.tolist(), strict=True))}
    seen = np.where(present[:, peer], SILENT, AWAY).astype(np.int8)
    read: list[set[bytes]] = [set() for _ in present]
    passed: list[tuple[int, ...]] = []
    gone: dict[tuple[int, int, bytes], int] = {}
    for row in rows:
        here, near = places[Address(row.observer)], places[Address(row.peer)]
        if not 0 <= row.epoch < len(present):
            continue
        if (code := _CODES.get(row.kind)) is not None and (link := at.get((here, near))) is not None:
            if seen[row.epoch, link] != AWAY:
                seen[row.epoch, link] = code
        elif row.kind == "in:Notify":
            read[row.epoch].add(row.message)
        elif row.kind == "in:Stem":
            gone[row.epoch, here, row.message] = len(passed)
            passed.append((row.epoch, here, near, here, row.about == CLIMBING))
        elif row.kind == "out:Stem" and (place := gone.get((row.epoch, here, row.message))) is not None:
            passed[place] = (*passed[place][:3], near, passed[place][4])
    return CoalitionView(
        observer,
        peer,
        origin,
        present,
        seen,
        np.full(seen.shape, -1, np.int16),
        np.empty((0, 6), np.int32),
        np.array(passed, np.int32).reshape(-1, 5),
        np.array([len(notes) for notes in read], np.int32),
    )


CLIMBING: Final = "climbs"
_CODES: Final = {"in:Subscribe": ASKED, "in:Unsubscribe": SILENT, "out:Subscribe": FOLLOWED, "out:Unsubscribe": SILENT}
