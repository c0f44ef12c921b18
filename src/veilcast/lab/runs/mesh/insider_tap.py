"""Records what a coalition of real machines sees on its own links, as rows of the table `insiders`.

Insiders follow the protocol and record what a neighbour sends and what they send to a neighbour: subscriptions, which
ride in heartbeats, and stems and notifications, which travel alone. The epoch of a row is that of the mesh it is about,
which forms before its epoch begins. Times count from the beginning of the simulation.

Calls for roots also travel by stems, by the same ones as notifications. They are not recorded, because they leave in
the same epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veilcast.core.publication import notification_id
from veilcast.errors import RemoteError
from veilcast.lab.attack.insider.coalition_tables import CLIMBS
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
                    self._write(message, address, frame.destination, world.now - world.start)

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
            note, about = decode(message.cargo), CLIMBS if message.climbing else ""
        if not isinstance(note, (Subscribe, Unsubscribe, Notify)) or note.token not in self.epoch_of_token:
            return
        name = notification_id(note) if isinstance(note, Notify) else b""
        kind, epoch = type(message).__name__, self.epoch_of_token[note.token]
        for way, observer, peer in (("out", source, target), ("in", target, source)):
            if observer in self._insiders:
                row = (self._run, epoch, now, observer, peer, f"{way}:{kind}", name, note.token, b"", about)
                self.rows.append(InsiderRow(*row))
