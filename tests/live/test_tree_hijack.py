"""A plain forwarder of a live tree tries to move all other nodes to its own address: every note still arrives."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.forged_certificates import forge_descriptor
from support.live_tree import LiveTree, run_with_tree
from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.authority.secret_file import read_secret
from veilcast.cli.local.network import NetworkPlan
from veilcast.machine import Address
from veilcast.tree.descriptor import AHEAD_US
from veilcast.tree.listing import Listing, ListingDownload
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import LISTED_MAX
from veilcast.wire.tree import FetchListing, ListingHead, ListingPage, RefusalCode, RequestRefused

PLAN = NetworkPlan(nodes=6, mode="tree", publishers=1, subscribers=2, tor=False)
NOTES = 8


class Adversary:
    """One member with its own keyring, on one stream to the directory. It accepts streams at `address`."""

    def __init__(self, keyring: Keyring, directory: Address, address: Address) -> None:
        self.keyring, self.directory, self.address = keyring, directory, address
        self.prover = MembershipProver(keyring)

    async def ask(self, message: Message) -> Message:
        host, _, port = self.directory.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        data = encode(message)
        writer.write(struct.pack(">I", len(data)) + data)
        answer = b""
        while not answer:  # The first record is empty: it says that the caller is let in.
            (size,) = struct.unpack(">I", await reader.readexactly(4))
            answer = await reader.readexactly(size)
        writer.close()
        return decode(answer)

    async def listing(self) -> Listing:
        head = await self.ask(self.prover.prove(FetchListing(1, 0, None)))
        assert isinstance(head, ListingHead)
        gathering = ListingDownload(head, StatementReader(self.keyring), None, now_us(), LISTED_MAX)
        while (number := gathering.missing_page()) is not None:
            page = await self.ask(self.prover.prove(FetchListing(2, head.version, number)))
            assert isinstance(page, ListingPage)
            gathering.add_page(page)
        return gathering.listing()

    async def take_over(self) -> list[Message]:
        """Enrol in the name of every listed node, with the latest time that the directory accepts."""
        nodes = (await self.listing()).nodes
        late = now_us() + AHEAD_US - 1_000_000
        return [
            await self.ask(forge_descriptor(self.keyring, node.node, node.box, self.address, late)) for node in nodes
        ]


@asynccontextmanager
async def adversary(house: LiveTree, name: str) -> AsyncIterator[Adversary]:
    """An adversary with the keyring of this member, and a socket that accepts all streams and answers nothing."""
    config, passphrase = house.member(name)
    keyring = read_secret(Path(config.keyring), Keyring, passphrase)
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Adversary(keyring, Address(house.net.hosts[0]), Address(f"127.0.0.1:{port}"))


def now_us() -> int:
    return time.time_ns() // 1_000


@pytest.mark.all_only
def test_a_forwarder_that_signs_certificates_itself_takes_over_no_node(disk: Path) -> None:
    async def test(house: LiveTree) -> None:
        await house.start(*house.names())
        await house.wait_until_acquainted()
        async with adversary(house, house.others[0]) as mallory:
            before = (await mallory.listing()).addresses
            answers = await mallory.take_over()
            assert [answer == RequestRefused(1, RefusalCode.MALFORMED) for answer in answers] == [True] * PLAN.nodes
            assert (await mallory.listing()).addresses == before
            members = [house.publisher, *house.subscribers]
            await house.stop(*members)
            await house.start(*members)  # They know nobody, and fetch the listing as it is after the attack.
            await house.wait_until_acquainted()
            for reader in house.subscribers:
                await house.subscribe(reader)
            bodies = [f"note {number}" for number in range(NOTES)]
            await house.publish(*bodies)
            for reader in house.subscribers:
                assert await house.read(reader, NOTES) == bodies

    run_with_tree(disk, PLAN, test)
