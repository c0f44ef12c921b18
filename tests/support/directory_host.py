"""A directory with its disk, and requests to it from nodes and outsiders."""

from __future__ import annotations

from random import Random

from support.listed_nodes import NOW, SECOND, address_of, make_members
from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.authority.revocation import RevokedKeys
from veilcast.crypto.derive import fingerprint
from veilcast.machine import Address, Listen, Record, Settled
from veilcast.tree.config import DirectoryConfig
from veilcast.tree.descriptor import build_descriptor
from veilcast.tree.directory import Directory
from veilcast.tree.listing import Listing, ListingDownload
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import LISTED_MAX
from veilcast.wire.tree import FetchListing, ListingHead, ListingPage

STATE, KEYRING, NODES = make_members(6)
ALICE, BOB, CAROL = NODES[:3]
LEASE_US = 60 * SECOND
CONFIG = DirectoryConfig(lease_us=LEASE_US, publish_us=5 * SECOND, listing_us=600 * SECOND)
STREAM, SOMEWHERE = Address("in:1"), address_of(0)


class DirectoryHost:
    """A directory with a disk that writes at once, unless `writes` is False; and its clients."""

    def __init__(self, config: DirectoryConfig = CONFIG, revoked: RevokedKeys | None = None) -> None:
        self.config, self.revoked = config, revoked
        self.disk: dict[int, bytes] = {}
        self.writes = True
        self.directory = self.start(NOW)

    def start(self, now: int) -> Directory:
        self.directory = Directory(self.config, KEYRING, Random(1), now, dict(self.disk), self.revoked)
        assert self.directory.next_event() == Listen("tree")
        return self.directory

    def ask(self, message: Message | bytes, now: int, stream: Address = STREAM) -> list[Message]:
        data = message if isinstance(message, bytes) else encode(message)
        self.directory.receive(data, stream, now)
        return self.turn(now, stream)

    def turn(self, now: int, stream: Address = STREAM) -> list[Message]:
        while (event := self.directory.next_event()) is not None:
            if isinstance(event, Record) and self.writes:
                self.disk[event.record] = event.data
                self.directory.stored(event.record, now)
            elif isinstance(event, Settled):
                del self.disk[event.record]
        frames = self.directory.frames_to_send(now, 64)
        assert all(frame.destination == stream for frame in frames)
        return [decode(frame.data) for frame in frames]

    def wait(self, now: int) -> None:
        due = self.directory.next_timer()
        if due is not None and due <= now:
            self.directory.handle_timer(now)
            self.turn(now)

    def enrol(self, keyring: Keyring, now: int, address: Address = SOMEWHERE) -> list[Message]:
        return self.ask(build_descriptor(keyring, address, 7, now), now)

    def listing(self, now: int) -> Listing:
        """Download the listing as a node does."""
        (head,) = self.ask(fetch(1, 0, None), now)
        assert isinstance(head, ListingHead)
        download = ListingDownload(head, StatementReader(ALICE), None, now, LISTED_MAX)
        while (number := download.missing_page()) is not None:
            (page,) = self.ask(fetch(2, head.version, number), now)
            assert isinstance(page, ListingPage)
            download.add_page(page)
        return download.listing()


def fetch(number: int, version: int, page: int | None) -> FetchListing:
    """A request of a member."""
    return MembershipProver(ALICE).prove(FetchListing(number, version, page))


def name_of(keyring: Keyring) -> bytes:
    return fingerprint(keyring.membership.certificate.leaf.subject)
