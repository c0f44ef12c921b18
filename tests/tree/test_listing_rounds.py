"""Several directories that agree on one listing: what a liar among them can do to nodes, and what an absent one can.

The liars hold the keyring of a certified directory and know all that honest directories know.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.listed_nodes import NOW, SECOND, make_listed, make_members
from support.tree_network import START_US, TOPIC, TreeNetwork, keyring_of, name_of
from veilcast.authority.member_statement import StatementReader
from veilcast.errors import ConfigError, ForgedError
from veilcast.machine import Address
from veilcast.topics import Label
from veilcast.tree.config import DirectoryConfig
from veilcast.tree.directory import Directory
from veilcast.tree.listing import Listing, ListingDownload, SignedListing, merge_votes, sign_listing
from veilcast.wire.tree import FetchListing, ListedNode, ListingHead, ListingStage

ROUND_US = 4 * SECOND
LISTING = DirectoryConfig(lease_us=60 * SECOND, round_us=ROUND_US)
VICTIM, GHOST = 2, 40
"""Numbers of a node that a liar leaves out, and of a member that runs no node."""
_, DIRECTORY, (READER,) = make_members(1)
NODES = make_listed(6)


class Omitting(Directory):
    """Leaves the victim out of all that it signs."""

    def _list_nodes(self) -> list[ListedNode]:
        return [node for node in super()._list_nodes() if node.node != name_of(VICTIM, "hardened")]


class Adding(Directory):
    """Lists a member that runs no node, and says of every node that it has been listed for ever."""

    def _list_nodes(self) -> list[ListedNode]:
        box = keyring_of(GHOST, "hardened").membership.certificate.leaf.subject
        ghost = ListedNode("ghost:1", box, 0, START_US + 3_600 * SECOND)
        return [ghost, *(msgspec.structs.replace(node, since_us=0) for node in super()._list_nodes())]


class Serving(Adding):
    """Signs a listing of its own each time that a node asks, and serves it without the others."""

    def _newest(self, now: int) -> SignedListing:
        return sign_listing(Listing(self._list_nodes(), now, now + 60 * SECOND), self._keyring)


class Silent(Directory):
    """Takes streams, and answers nothing."""

    def receive(self, data: bytes, source: Address, now: int) -> None:
        pass


class TwoFaced(Directory):
    """Votes for all nodes to one directory and for none to the others, and signs whatever anybody merged."""

    network: TreeNetwork

    def _find_listing(self, fetch: FetchListing, now: int) -> SignedListing | None:
        if fetch.stage == ListingStage.VOTE:
            nodes = self._list_nodes() if self._asker == "directory:1" else []
            return sign_listing(
                Listing(nodes, fetch.version, fetch.version + LISTING.listing_us), self._keyring, is_vote=True
            )
        if fetch.stage == ListingStage.MERGED:
            theirs = self.network.machine(self._asker)._rounds.own_listing(ListingStage.MERGED, fetch.version)
            return None if theirs is None else self._countersign(theirs)
        return super()._find_listing(fetch, now)

    def _fetch(self, fetch: FetchListing, source: Address, now: int) -> None:
        stream = self.network._inbound.get((Address("directory:3"), source))
        self._asker = "" if stream is None else str(stream.caller)
        super()._fetch(fetch, source, now)

    def _countersign(self, theirs: SignedListing) -> SignedListing:
        nodes = [node for page in theirs.pages for node in page.nodes]
        return sign_listing(Listing(nodes, theirs.head.version, theirs.head.until_us), self._keyring)


def make_network(*third: type[Directory], nodes: int = 6) -> TreeNetwork:
    """Two honest directories and these."""
    return TreeNetwork(nodes, listing=LISTING, directories=dict(enumerate((Directory, Directory, *third))))


def listings(network: TreeNetwork) -> list[Listing]:
    return [network.machine(name)._directory_client.listing for name in network.names]


def everybody(network: TreeNetwork) -> list[bytes]:
    return sorted(name_of(number, "hardened") for number in range(len(network.names)))


def served_heads(network: TreeNetwork) -> list[ListingHead]:
    """All heads that arrived at nodes."""
    return [
        message
        for name, _, message in network.seen
        if isinstance(message, ListingHead) and not name.startswith("directory")
    ]


def test_three_directories_serve_one_listing_that_two_of_them_signed() -> None:
    network = make_network(Directory)
    network.run(30)
    assert all(list(listing.ids) == everybody(network) for listing in listings(network))
    heads = served_heads(network)
    assert {len(head.signatures) for head in heads} == {2}
    contents: dict[int, set[tuple[bytes, ...]]] = {}
    for head in heads:
        contents.setdefault(head.version, set()).add(head.pages)
    assert len(contents) >= 4
    assert all(len(each) == 1 for each in contents.values())


def test_what_is_published_arrives_with_several_directories() -> None:
    network = make_network(Directory)
    network.run(30)
    network.subscribe("n1:1", Label(TOPIC))
    network.until(lambda: network.stands("n1:1"), 60)
    network.publish("n4:1", b"from all")
    network.until(lambda: network.heard_by("n1:1") == [b"from all"], 60)


@pytest.mark.parametrize("liar", [Omitting, Adding, Serving, Silent])
def test_one_liar_of_three_neither_adds_nor_leaves_out_a_node_nor_makes_one_older(liar: type[Directory]) -> None:
    network = make_network(liar)
    network.run(60)
    for listing in listings(network):
        assert list(listing.ids) == everybody(network)
        assert min(listing.since) >= START_US
        assert listing.version > START_US + 30 * SECOND


def test_a_majority_of_liars_can_leave_out_and_add() -> None:
    """The control: these liars lie."""
    omitted, added = make_network(Omitting, Omitting, Omitting), make_network(Adding, Adding, Adding)
    for network in (omitted, added):
        network.run(60)
    assert all(name_of(VICTIM, "hardened") not in listing for listing in listings(omitted))
    assert all(name_of(GHOST, "hardened") in listing and min(listing.since) == 0 for listing in listings(added))


def test_a_node_refuses_the_listing_of_one_directory_where_two_must_sign() -> None:
    network = make_network(Serving)
    network.run(60)
    alone = [head for head in served_heads(network) if len(head.signatures) == 1]
    assert len(alone) > 3
    refused = sum(network.machine(name).refused["ForgedError"] for name in network.names)
    assert refused == len(alone)


def test_a_directory_that_signs_twice_counts_once() -> None:
    edition = sign_listing(Listing(NODES, NOW, NOW + SECOND), DIRECTORY)
    twice = msgspec.structs.replace(edition.head, signatures=edition.head.signatures * 2)
    with pytest.raises(ForgedError, match="too few directories"):
        ListingDownload(twice, StatementReader(READER), None, NOW, 100, needed=2)


def test_a_vote_is_no_listing_and_a_listing_no_vote() -> None:
    listing = Listing(NODES, NOW, NOW + SECOND)
    for is_vote in (False, True):
        head = sign_listing(listing, DIRECTORY, is_vote=is_vote).head
        ListingDownload(head, StatementReader(READER), None, NOW, 100, is_vote=is_vote)
        with pytest.raises(ForgedError):
            ListingDownload(head, StatementReader(READER), None, NOW, 100, is_vote=not is_vote)


def test_two_of_three_go_on_and_one_alone_serves_the_last_listing() -> None:
    network = make_network(Directory)
    network.run(30)
    network.kill("directory:2")
    before = max(listing.version for listing in listings(network))
    network.run(30)
    assert min(listing.version for listing in listings(network)) > before
    network.kill("directory:3")
    network.run(10)
    last = max(listing.version for listing in listings(network))
    network.run(40)
    assert max(listing.version for listing in listings(network)) == last
    assert all(list(listing.ids) == everybody(network) for listing in listings(network))
    network.start("directory:3")
    network.until(lambda: min(listing.version for listing in listings(network)) > last, 60)
    assert all(list(listing.ids) == everybody(network) for listing in listings(network))


@pytest.mark.parametrize(("needed", "liars_gain"), [(3, False), (2, True)])
def test_liars_have_two_listings_signed_in_a_round_only_if_too_few_must_sign(needed: int, liars_gain: bool) -> None:
    """Only the first directory knows one of the nodes. The third one votes for nodes to that one only."""
    config = msgspec.structs.replace(LISTING, needed=needed, others=("a:1", "b:1", "c:1"))
    kinds = dict(enumerate((Directory, Omitting, TwoFaced, Omitting)))
    network = TreeNetwork(4, listing=config, directories=kinds)
    network.machine("directory:3").network = network
    network.run(60)
    contents: dict[int, set[tuple[bytes, ...]]] = {}
    for edition in [each for name in network.directories for each in network.machine(name)._editions]:
        contents.setdefault(edition.head.version, set()).add(edition.head.pages)
    assert any(len(each) > 1 for each in contents.values()) == liars_gain


def test_the_tables_of_a_round_are_bounded() -> None:
    network = make_network(Silent)
    for _ in range(20):
        network.run(4)
        rounds = network.machine("directory:1")._rounds
        assert len(rounds.streams) <= 2
        assert len(rounds._own) <= 4
        assert len(network.machine("directory:1")._editions) <= LISTING.versions


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"others": ("a:1", "a:1")}, "directory.others names a directory twice"),
        ({"others": tuple(f"a:{port}" for port in range(8))}, "at most 8 directories"),
        ({"others": ("a:1",), "needed": 3}, "directory.needed must be from 1 to 2"),
    ],
)
def test_directories_that_could_not_agree_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DirectoryConfig(**fields)


@st.composite
def votes_with_liars(draw: Callable[[Any], Any]) -> tuple[list[Listing], list[Listing], int]:
    """Honest votes, false ones, and how many must agree: more than there are liars."""
    liars = draw(st.integers(0, 3))
    needed = draw(st.integers(liars + 1, liars + 2))
    honest = draw(st.integers(needed, needed + 2))

    def vote(rng: Random) -> Listing:
        chosen = rng.sample(NODES, rng.randrange(len(NODES) + 1))
        return Listing(
            [msgspec.structs.replace(node, since_us=rng.randrange(9), until_us=rng.randrange(9)) for node in chosen]
        )

    rng = Random(draw(st.integers(0, 1 << 32)))
    return [vote(rng) for _ in range(honest)], [vote(rng) for _ in range(liars)], needed


@given(votes_with_liars())
def test_fewer_liars_than_must_agree_change_nothing_that_enough_honest_directories_say(
    case: tuple[list[Listing], list[Listing], int],
) -> None:
    honest, false, needed = case
    merged = merge_votes([*false, *honest], needed, NOW, NOW + SECOND)
    for node in NODES:
        said = [vote.nodes[place] for vote in honest if (place := vote.index_of(node.node)) is not None]
        place = merged.index_of(node.node)
        assert place is not None or len(said) < needed
        if place is not None:
            assert said
            assert merged.since[place] >= min(each.since_us for each in said)
            assert merged.until[place] <= max(each.until_us for each in said)
