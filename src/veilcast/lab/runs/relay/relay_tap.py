"""The tap of a relay on the machines: rows of the tables `server` and `cells` that its parties and wires could write.

It uses nothing that they do not know. The server's tags are computed with its own keys from the subjects that reach it.
The proxy has on its disk the transformation keys of its clients, and the owners of pseudonyms. In the paper's relay it
computes tags with these keys; in the hardened relay a subject is an opaque string to it. A cell is a frame between a
client and a proxy, at the time at which the proxy sends or receives it. On a stream of records at a constant rate, the
proxy's own view is what the records contain.

The proxy's record of pseudonyms, and the sealed parts of publications, which pass the proxy unchanged, are also the
truth that attackers are compared with. Times are relative to the beginning of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veilcast.authority.topic_record import Profile
from veilcast.crypto.group import Point, Scalar, multiply_each
from veilcast.lab.attack.server.server_job import PROXY_NAME
from veilcast.machine import Address, Event, Frame, Record
from veilcast.observe import CellRow, ServerRow
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.pacer import Pacer
from veilcast.relay.paper import PaperServerProfile
from veilcast.relay.profile import ServerProfile
from veilcast.relay.roster import EnrolledClient, HeldDelivery, decode_roster_record
from veilcast.relay.subject_tags import move_element, tag_of
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.checkers import Checker
from veilcast.sim.relay.population import SERVER
from veilcast.sim.rng import derive_rng
from veilcast.sim.world import World
from veilcast.wire import decode
from veilcast.wire.relay import Lease, LeaseAhead, RelayDelivery, Subjects, Submit


class RelayTap(Checker):
    """The tap of one run, in a world with these proxies, to which frames take `latency_us`."""

    def __init__(
        self,
        run: str,
        profile: Profile,
        keys: ServerKeys,
        proxies: Sequence[Address],
        client: RelayClientConfig,
        latency_us: int = 0,
    ) -> None:
        self.rows: list[ServerRow] = []
        self.cells: list[CellRow] = []
        self.client_of: dict[str, Address] = {}
        """The client of each pseudonym."""
        self.sender_of: dict[str, Address] = {}
        """The client of each publication in the server's log."""
        self._run, self._profile, self._proxies, self._latency_us = run, profile, tuple(proxies), latency_us
        # It only reads, and needs no randomness.
        self._server: ServerProfile = (
            PaperServerProfile(keys, bytes) if profile == "paper" else HardenedServerProfile(keys, bytes, multiply_each)
        )
        self._transformations: dict[tuple[Address, Address], Scalar] = {}
        """Keys by proxy and client; a client has another key with each proxy."""
        self._sealed_by: dict[bytes, Address] = {}
        self._records = _RecordReader(client) if client.rate_us else None

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if address not in self._proxies or not isinstance(event, Record):
            return
        entry = decode_roster_record(event.data)
        if isinstance(entry, HeldDelivery):
            return
        if isinstance(entry, EnrolledClient):
            self._transformations[address, Address(entry.client)] = Scalar(entry.transformation)
        if entry.pseudonym:
            self.client_of[entry.pseudonym.hex()] = Address(entry.client)

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._now = world.now - world.start
            if SERVER in (address, frame.destination):
                self._note_server(address, frame, world.epoch_us)
            else:
                self._note_proxy(address, frame, world.epoch_us)

    def _note_server(self, address: Address, frame: Frame, epoch_us: int) -> None:
        match decode(frame.data):
            case Lease() as message:
                self._note(epoch_us, "server:subscribe", message.name.hex(), self._tags(message))
            case Submit() as message:
                name = f"{address}/{message.number:010}"
                self.sender_of[name] = self._sealed_by[message.sealed]
                self._note(epoch_us, "server:publish", name, self._tags(message))
            case RelayDelivery() as message:
                for lease in message.names:
                    self._note(epoch_us, "server:deliver", lease.hex(), [message.sealed])
            case _:
                pass

    def _note_proxy(self, address: Address, frame: Frame, epoch_us: int) -> None:
        client, up = (frame.destination, False) if address in self._proxies else (address, True)
        at_us = self._now + (self._latency_us if up else 0)
        src, dst = (client, PROXY_NAME) if up else (PROXY_NAME, client)
        self.cells.append(CellRow(self._run, at_us // epoch_us, at_us, src, dst, len(frame.data)))
        for data in [frame.data] if self._records is None else self._records.read(address, frame):
            match decode(data):
                case Lease() | LeaseAhead() as message:
                    self._note(
                        epoch_us, "proxy:subscribe", client, self._moved(frame.destination, client, message.subjects)
                    )
                case Submit() as message:
                    self._sealed_by[message.sealed] = client
                    self._note(
                        epoch_us, "proxy:publish", client, self._moved(frame.destination, client, message.subjects)
                    )
                    self._note(epoch_us, "proxy:send", client, [message.sealed])
                case RelayDelivery() as message:
                    self._note(epoch_us, "proxy:deliver", client, [message.sealed])
                case _:
                    pass

    def _note(self, epoch_us: int, role: str, who: str, tags: Sequence[bytes]) -> None:
        epoch = self._now // epoch_us
        self.rows += [ServerRow(self._run, epoch, self._now, role, who, each, len(each)) for each in tags]

    def _tags(self, message: Lease | Submit) -> list[bytes]:
        """Tags as the server has them."""
        bond = (
            self._server.open_lease(message).bond
            if isinstance(message, Lease)
            else self._server.open_submission(message).bond
        )
        return [each for group in self._server.compute_tags(message.subjects, bond) for each in group]

    def _moved(self, proxy: Address, client: Address, subjects: Subjects) -> list[bytes]:
        """Tags as the proxy has them."""
        flat = [subject for group in subjects for subject in group]
        if self._profile == "hardened":
            return flat
        return [tag_of(move_element(Point(subject), self._transformations[proxy, client])) for subject in flat]


class _RecordReader:
    """The messages in records of constant size, on any number of streams."""

    def __init__(self, client: RelayClientConfig) -> None:
        self._pacer = Pacer(derive_rng(0, "tap"), period_us=1, record_bytes=client.record_bytes, backlog_max=0)
        self._open: set[Address] = set()

    def read(self, source: Address, frame: Frame) -> Iterator[bytes]:
        stream = Address(f"{source}>{frame.destination}")
        if stream not in self._open:
            self._open.add(stream)
            self._pacer.stream_up(stream, 0)
        yield from self._pacer.unpack_record(stream, frame.data)
