"""Taps on the real machines of a relay: the rows of the table `server` that its server and its proxy could write.

Neither is asked anything that it does not know. The server's tags are what its own keys make of the subjects that reach
it. The proxy has on its disk the transformation keys of its clients, and which pseudonym is whose; in the paper's relay
it computes tags with the former, in the hardened one a subject is to it whatever bytes came. What it wrote down of
pseudonyms is also the truth that the server's attackers are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from veilcast.authority.record import Profile
from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.machine import Address, Event, Frame, Record
from veilcast.observe import Server
from veilcast.relay.joining import ServerKeys
from veilcast.relay.roster import Alias, Enrolled
from veilcast.relay.subjects import move, tag, tag_veiled
from veilcast.sim.checkers import Checker
from veilcast.sim.relay import SERVER
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.relay import Delivery, Lease, Subjects, Submit

_Entry: TypeAlias = Enrolled | Alias


class Taps(Checker):
    """Of one run, in a world with these proxies."""

    def __init__(self, run: str, profile: Profile, keys: ServerKeys, proxies: Sequence[Address]) -> None:
        self.rows: list[Server] = []
        self.owner: dict[str, Address] = {}
        """By pseudonym."""
        self._run, self._profile, self._keys, self._proxies = run, profile, keys, tuple(proxies)
        self._transformations: dict[Address, Scalar] = {}

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if address not in self._proxies or not isinstance(event, Record):
            return
        entry = _DECODER.decode(event.data)
        if isinstance(entry, Enrolled):
            self._transformations[Address(entry.client)] = Scalar(entry.transformation)
        if entry.pseudonym:
            self.owner[entry.pseudonym.hex()] = Address(entry.client)

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            at_server = SERVER in (address, frame.destination)
            message, now = decode(frame.data), world.clock(SERVER)
            match message:
                case Lease() if at_server:
                    self._note(world, now, "server:subscribe", message.name.hex(), self._tags(message.subjects))
                case Submit() if at_server:
                    self._note(
                        world, now, "server:publish", f"{address}/{message.number}", self._tags(message.subjects)
                    )
                case Delivery() if at_server:
                    for name in message.names:
                        self._note(world, now, "server:deliver", name.hex(), [message.sealed])
                case Lease():
                    self._note(world, now, "proxy:subscribe", address, self._moved(address, message.subjects))
                case Submit():
                    self._note(world, now, "proxy:publish", address, self._moved(address, message.subjects))
                    self._note(world, now, "proxy:send", address, [message.sealed])
                case Delivery():
                    self._note(world, now, "proxy:deliver", frame.destination, [message.sealed])
                case _:
                    pass

    def _note(self, world: World, now: int, role: str, who: str, tags: Sequence[bytes]) -> None:
        epoch = now // world.epoch_us
        self.rows += [Server(self._run, epoch, now, role, who, each, len(each)) for each in tags]

    def _tags(self, subjects: Subjects) -> list[bytes]:
        """As the server has them."""
        flat = [subject for group in subjects for subject in group]
        if self._profile == "paper":
            return [tag(Point(subject)) for subject in flat]
        return [tag_veiled(Ciphertext.decode(subject), self._keys) for subject in flat]

    def _moved(self, client: Address, subjects: Subjects) -> list[bytes]:
        """As the proxy has them."""
        flat = [subject for group in subjects for subject in group]
        if self._profile == "hardened":
            return flat
        return [tag(move(Point(subject), self._transformations[client])) for subject in flat]


_DECODER: Final = msgspec.msgpack.Decoder(_Entry)
