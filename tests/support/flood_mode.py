"""A sixth mode, from outside the package and on one screen: every member sends every publication to all its peers.

It hides nothing. It shows all that a mode is: settings, a machine, and the files of a local network. An installed
package adds it by one entry point of the group `veilcast.modes`:

    [project.entry-points."veilcast.modes"]
    flood = "support.flood_mode:ENTRY"
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from veilcast.cli.context import Context
from veilcast.cli.local.mode import LocalMode, Table
from veilcast.cli.local.network import LocalNetwork
from veilcast.machine import Address, Delay, Delivered, Event, Frame, Interest, Note, Publication, Record, Settled
from veilcast.node.modes import MachineInputs, Mode, ModeEntry

OWN = Address("")
"""The source of our own publications."""


class FloodSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memory: int = 1024
    """The number of publication ids that a member remembers."""


class FloodMember:
    def __init__(self, inputs: MachineInputs) -> None:
        self._memory, self._entropy = inputs.settings.memory, inputs.entropy
        self._events: list[Event] = []
        self._frames: list[Frame] = []
        self._peers = dict.fromkeys(inputs.peers)
        self._seen: dict[bytes, None] = {}
        self._interests: dict[int, Interest] = {}
        self._records = dict(inputs.records)
        self._last = max(self._records, default=0)
        for record in list(self._records):
            self.stored(record, inputs.now)

    # What the owner calls.

    def publish(self, publication: Publication, now: int) -> int:
        self._last += 1
        self._records[self._last] = data = self._entropy(16) + msgspec.msgpack.encode(publication)
        self._events.append(Record(self._last, data))
        return self._last

    def stored(self, record: int, now: int) -> None:
        self.receive(self._records.pop(record), OWN, now)
        self._events.append(Settled(record))

    def withdraw(self, record: int, now: int) -> None: ...

    def subscribe(self, interest: Interest, now: int) -> int:
        number = max(self._interests, default=0) + 1
        self._interests[number] = interest
        return number

    def unsubscribe(self, number: int, now: int) -> None:
        del self._interests[number]

    def acknowledge(self, note: bytes, now: int) -> None: ...

    def group_size(self) -> int:
        return 1 + len(self._peers)

    def swaps_played(self) -> int:
        return 0

    def delay(self, now: int) -> Delay | None:
        return None

    # What the driver calls.

    def receive(self, data: bytes, source: Address, now: int) -> None:
        name = data[:16]
        if name in self._seen:
            return
        try:
            publication = msgspec.msgpack.decode(data[16:], type=Publication)
        except msgspec.DecodeError:
            return
        if len(self._seen) >= self._memory:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = None
        self._frames += [Frame(peer, data) for peer in self._peers if peer != source]
        found = [number for number, interest in self._interests.items() if interest.matches(publication)]
        self._events += [Delivered(number, Note(name, publication)) for number in found]

    def handle_timer(self, now: int) -> None: ...

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return self._events.pop(0) if self._events else None

    def peer_up(self, peer: Address, now: int) -> None:
        self._peers[peer] = None

    def peer_lost(self, peer: Address, now: int) -> None:
        """The link opens again with the next frame for this peer."""


class LocalFlood(LocalMode):
    members_listen = True

    def write_hosts(
        self, directory: Path, network: LocalNetwork, common: Table, context: Context
    ) -> Callable[[int], Table]:
        def node_table(number: int) -> dict[str, Any]:
            own = network.addresses[number]
            return {"mode": "flood", "listen": own, "peers": [each for each in network.addresses if each != own]}

        return node_table


MODE = Mode(lambda profile, table: msgspec.convert(table, FloodSettings), FloodMember, "udp")
LOCAL = LocalFlood()
ENTRY = ModeEntry(member=__name__, local=__name__)
