"""Taps on the real machines of a relay: the rows of the table `server` that its server and its proxy could write.

Neither is asked anything that it does not know. The server's tags are what its own keys make of the subjects that reach
it. The proxy has on its disk the transformation keys of its clients, and which pseudonym is whose; in the paper's relay
it computes tags with the former, in the hardened one a subject is to it whatever bytes came. What it wrote down of
pseudonyms is also the truth that the server's attackers are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.authority.record import Profile
from veilcast.crypto.bulk import one_by_one
from veilcast.crypto.group import Point, Scalar
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import TamperedError
from veilcast.machine import Address, Event, Frame, Record
from veilcast.observe import Server
from veilcast.relay.hardened import HardenedServer
from veilcast.relay.joining import ServerKeys
from veilcast.relay.paper import PaperServer
from veilcast.relay.profile import ServerPart
from veilcast.relay.roster import Alias, Enrolled
from veilcast.relay.subjects import move, tag
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
        self._run, self._profile, self._proxies = run, profile, tuple(proxies)
        # It only reads, and so needs no chance.
        self._server: ServerPart = (
            PaperServer(keys, bytes) if profile == "paper" else HardenedServer(keys, bytes, one_by_one)
        )
        self._transformations: dict[tuple[Address, Address], Scalar] = {}
        """By proxy and client, who has another key with each."""

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if address not in self._proxies or not isinstance(event, Record):
            return
        entry = _DECODER.decode(event.data)
        if isinstance(entry, Enrolled):
            self._transformations[address, Address(entry.client)] = Scalar(entry.transformation)
        if entry.pseudonym:
            self.owner[entry.pseudonym.hex()] = Address(entry.client)

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            at_server = SERVER in (address, frame.destination)
            message, now = decode(frame.data), world.clock(SERVER)
            match message:
                case Lease() if at_server:
                    self._note(world, now, "server:subscribe", message.name.hex(), self._tags(message))
                case Submit() if at_server:
                    self._note(world, now, "server:publish", f"{address}/{message.number}", self._tags(message))
                case Delivery() if at_server:
                    for name in message.names:
                        self._note(world, now, "server:deliver", name.hex(), [message.sealed])
                case Lease():
                    seen = self._moved(frame.destination, address, message.subjects)
                    self._note(world, now, "proxy:subscribe", address, seen)
                case Submit():
                    seen = self._moved(frame.destination, address, message.subjects)
                    self._note(world, now, "proxy:publish", address, seen)
                    self._note(world, now, "proxy:send", address, [message.sealed])
                case Delivery():
                    self._note(world, now, "proxy:deliver", frame.destination, [message.sealed])
                case _:
                    pass

    def _note(self, world: World, now: int, role: str, who: str, tags: Sequence[bytes]) -> None:
        epoch = now // world.epoch_us
        self.rows += [Server(self._run, epoch, now, role, who, each, len(each)) for each in tags]

    def _tags(self, message: Lease | Submit) -> list[bytes]:
        """As the server has them."""
        bond = self._server.open_lease(message).bond if isinstance(message, Lease) else self._server.take(message).bond
        return [each for group in self._server.tags(message.subjects, bond) for each in group]

    def _moved(self, proxy: Address, client: Address, subjects: Subjects) -> list[bytes]:
        """As the proxy has them."""
        flat = [subject for group in subjects for subject in group]
        if self._profile == "hardened":
            return flat
        return [tag(move(Point(subject), self._transformations[proxy, client])) for subject in flat]


_DECODER: Final = MsgpackDecoder(_Entry, TamperedError, "not a record of a proxy")
