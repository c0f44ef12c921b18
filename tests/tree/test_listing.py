"""Listings: signing, download, and the rejection of stale, altered and invalid ones."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.listed_nodes import EPOCHS, FIRST, NOW, SECOND, make_listed, make_members
from veilcast.authority import issuer
from veilcast.authority.member_statement import StatementReader
from veilcast.crypto.derive import fingerprint
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.tree.listing import AHEAD_US, Listing, ListingDownload, SignedListing, sign_listing
from veilcast.wire import decode, encode
from veilcast.wire.geometry import LISTED_MAX, PAGE_NODES
from veilcast.wire.tree import DirectorySignature, ListedNode, ListingHead

STATE, DIRECTORY, (NODE,) = make_members(1)
READER = StatementReader(NODE)
NODES = make_listed(2 * PAGE_NODES + 3)
LISTING = Listing(NODES, NOW, NOW + SECOND)
EDITION = sign_listing(LISTING, DIRECTORY)


def gather(edition: SignedListing, known: Listing | None = None, now: int = NOW) -> Listing:
    download = ListingDownload(edition.head, READER, known, now, LISTED_MAX)
    while (number := download.missing_page()) is not None:
        download.add_page(edition.pages[number])
    return download.listing()


@pytest.mark.parametrize("count", [0, 1, PAGE_NODES - 1, PAGE_NODES, PAGE_NODES + 1, 2 * PAGE_NODES])
def test_a_downloaded_listing_equals_the_signed_one(count: int) -> None:
    listing = Listing(NODES[:count], NOW, NOW + SECOND)
    edition = sign_listing(listing, DIRECTORY)
    gathered = gather(edition)
    assert (gathered.nodes, gathered.version, gathered.until_us) == (listing.nodes, NOW, NOW + SECOND)
    for message in (edition.head, *edition.pages):
        assert decode(encode(message)) == message


@given(st.permutations(NODES[:8]))
def test_a_listing_has_one_order_and_aligned_columns(nodes: list[ListedNode]) -> None:
    listing = Listing(nodes)
    assert listing.nodes == Listing(NODES[:8]).nodes
    assert list(listing.ids) == sorted(listing.ids)
    for node in nodes:
        place = listing.index_of(fingerprint(node.box))
        assert place is not None
        assert (listing.ids[place], listing.addresses[place], listing.boxes[place]) == (
            fingerprint(node.box),
            node.address,
            node.box,
        )
        assert (listing.since[place], listing.until[place]) == (node.since_us, node.until_us)


def test_an_unlisted_node_has_no_index() -> None:
    assert LISTING.index_of(bytes(16)) is None
    assert bytes(16) not in LISTING
    assert LISTING.ids[0] in LISTING


def test_a_node_is_listed_once() -> None:
    with pytest.raises(MalformedError):
        Listing([NODES[0], msgspec.structs.replace(NODES[0], address="elsewhere")])


@pytest.mark.parametrize(
    "change",
    [
        {"version": NOW + 1},
        {"until_us": NOW + 2 * SECOND},
        {"count": len(NODES) - 1},
        {"pages": EDITION.head.pages[::-1]},
        {"signatures": (DirectorySignature(EDITION.head.signatures[0].certificates, bytes(64)),)},
    ],
    ids=str,
)
def test_no_field_of_a_head_can_be_changed(change: dict[str, object]) -> None:
    with pytest.raises(ForgedError):
        ListingDownload(msgspec.structs.replace(EDITION.head, **change), READER, None, NOW, LISTED_MAX)


def test_only_a_directory_of_the_same_authority_can_sign_a_listing() -> None:
    member = sign_listing(LISTING, NODE).head
    with pytest.raises(ForgedError, match="role"):
        ListingDownload(member, READER, None, NOW, LISTED_MAX)
    entropy = random.Random(5).randbytes
    _, other = issuer.grant_ready(
        issuer.create(3_600_000_000, entropy), "other", [], FIRST, EPOCHS, entropy, "directory"
    )
    with pytest.raises(ForgedError):
        ListingDownload(sign_listing(LISTING, other).head, READER, None, NOW, LISTED_MAX)


def test_an_expired_stale_or_future_listing_is_refused() -> None:
    with pytest.raises(StaleError, match="expired"):
        gather(EDITION, now=NOW + SECOND)
    with pytest.raises(StaleError, match="older"):
        gather(EDITION, known=Listing([], NOW + 1, NOW + SECOND))
    assert gather(EDITION, known=LISTING).nodes == LISTING.nodes
    with pytest.raises(StaleError, match="future"):
        gather(sign_listing(Listing([], NOW + AHEAD_US + 1, NOW + 2 * AHEAD_US), DIRECTORY))


def test_foreign_and_altered_pages_are_refused() -> None:
    download = ListingDownload(EDITION.head, READER, None, NOW, LISTED_MAX)
    first, second, last = EDITION.pages
    for page, error in (
        (msgspec.structs.replace(first, version=NOW + 1), StaleError),
        (msgspec.structs.replace(first, page=9), StaleError),
        (msgspec.structs.replace(first, page=1), ForgedError),
        (msgspec.structs.replace(first, nodes=second.nodes), ForgedError),
        (msgspec.structs.replace(last, nodes=last.nodes[:-1]), ForgedError),
    ):
        with pytest.raises(error):
            download.add_page(page)
    assert download.missing_page() == 0


def test_a_signed_but_invalid_listing_is_refused() -> None:
    """A foreign directory with a valid certificate can sign a listing that is out of order."""
    backward = Listing(NODES[:4], NOW, NOW + SECOND)
    backward.nodes = backward.nodes[::-1]
    with pytest.raises(MalformedError, match="order"):
        gather(sign_listing(backward, DIRECTORY))


def test_a_listing_beyond_the_configured_size_is_not_downloaded() -> None:
    with pytest.raises(MalformedError):
        ListingDownload(EDITION.head, READER, None, NOW, len(LISTING) - 1)


def test_a_listing_is_bounded_by_the_wire_format() -> None:
    class Endless(Listing):
        def __len__(self) -> int:
            return LISTED_MAX + 1

    with pytest.raises(LocalError):
        sign_listing(Endless([]), DIRECTORY)


@given(st.binary(max_size=400))
def test_foreign_certificates_are_refused_and_valid_ones_accepted(data: bytes) -> None:
    signed = DirectorySignature((data,), EDITION.head.signatures[0].signature)
    head: ListingHead = msgspec.structs.replace(EDITION.head, signatures=(signed,))
    with pytest.raises(RemoteError):
        ListingDownload(head, READER, None, NOW, LISTED_MAX)
