"""Listings: all nodes of the tree, in one order, as directories sign and serve them.

Pure. A node knows the others through a `Listing` and nothing else. Another source of listings (P2 names a distributed
hash table for large networks) would not touch the rest.

Every node downloads the whole listing, so that its requests do not show which nodes it uses. A listing has a signed
head, and pages whose digests are in the head. A head is valid for a limited time, and a node accepts no head older than
its current one. So a directory, or an impostor, cannot bring back departed nodes. The exception is a node that has just
restarted, for no longer than a head is valid.

A single directory can still omit nodes, list members that do not run a node, and show different listings to different
nodes if it can tell them apart; nodes ask through an anonymous network. It is trusted to that extent. Several
directories need not be: `merge_votes` lists what enough of them vouch for, and a head counts with the signatures of
enough of them (`tree.listing_rounds`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader, StatementSignature, sign_statement
from veilcast.crypto.derive import digest
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.wire.geometry import DIGEST, LISTED_MAX, PAGE_NODES
from veilcast.wire.tree import DirectorySignature, ListedNode, ListingHead, ListingPage


class Listing:
    """Nodes in the order of their names; all columns have the same order. `version` is the time it was made."""

    __slots__ = ("_places", "addresses", "boxes", "ids", "nodes", "since", "until", "until_us", "version")

    def __init__(self, nodes: Iterable[ListedNode], version: int = 0, until_us: int = 0) -> None:
        named = sorted(((node.node, node) for node in nodes), key=itemgetter(0))
        self.nodes = tuple(node for _, node in named)
        self.ids = tuple(name for name, _ in named)
        self.addresses = tuple(Address(node.address) for node in self.nodes)
        self.boxes = tuple(node.box for node in self.nodes)
        self.since = tuple(node.since_us for node in self.nodes)
        self.until = tuple(node.until_us for node in self.nodes)
        self.version, self.until_us = version, until_us
        self._places = {name: place for place, name in enumerate(self.ids)}
        if len(self._places) != len(self.ids):
            raise MalformedError("a node is listed twice")

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, node: bytes) -> bool:
        return node in self._places

    def index_of(self, node: bytes) -> int | None:
        """Index of a node in every column; None if it is not listed."""
        return self._places.get(node)


class SignedListing(NamedTuple):
    """A listing as it is served; the request numbers are filled in with each answer."""

    head: ListingHead
    pages: tuple[ListingPage, ...]


def merge_votes(votes: Sequence[Listing], needed: int, version: int, until_us: int) -> Listing:
    """What at least `needed` of these listings say: a node counts if so many list it at one address.

    A node is as old, and listed as long, as `needed` of them say. So fewer directories can neither add a node, nor
    make one older than it is, nor keep it listed for longer.
    """
    entries: defaultdict[tuple[bytes, Address], list[ListedNode]] = defaultdict(list)
    for vote in votes:
        for name, node in zip(vote.ids, vote.nodes, strict=True):
            entries[name, Address(node.address)].append(node)
    merged: dict[bytes, ListedNode] = {}
    for (name, _), nodes in sorted(entries.items()):
        if len(nodes) >= needed:
            since_us = sorted(node.since_us for node in nodes)[needed - 1]
            end_us = sorted((node.until_us for node in nodes), reverse=True)[needed - 1]
            merged[name] = msgspec.structs.replace(nodes[0], since_us=since_us, until_us=end_us)
    return Listing(merged.values(), version, until_us)


def sign_listing(listing: Listing, keyring: Keyring, *, is_vote: bool = False) -> SignedListing:
    """Sign a listing as the directory with this keyring: for nodes, or as a vote for the other directories."""
    if len(listing) > LISTED_MAX:
        raise LocalError(f"a listing has at most {LISTED_MAX} nodes")
    cuts = range(0, len(listing), PAGE_NODES)
    pages = tuple(
        ListingPage(0, listing.version, number, listing.nodes[start : start + PAGE_NODES])
        for number, start in enumerate(cuts)
    )
    digests = tuple(_digest(page) for page in pages)
    body = _body(listing.version, listing.until_us, len(listing), digests)
    signed = DirectorySignature(*sign_statement(keyring, body, purpose=_VOTE if is_vote else _PURPOSE))
    return SignedListing(ListingHead(0, listing.version, listing.until_us, len(listing), digests, (signed,)), pages)


def read_authors(
    head: ListingHead, reader: StatementReader, now: int, *, is_vote: bool = False
) -> dict[bytes, DirectorySignature]:
    """The directories that signed this head, by name, with their signatures.

    Raises `RemoteError` if one signature is not of a directory that is valid now. Only the root certifies directories,
    so a name stands for one of them.
    """
    body = _body(head.version, head.until_us, head.count, head.pages)
    purpose = _VOTE if is_vote else _PURPOSE
    signed = {}
    for each in head.signatures:
        statement = StatementSignature(each.certificates, each.signature)
        signed[reader.verify_author(body, statement, "directory", now, purpose=purpose).name] = each
    return signed


def have_equal_content(one: ListingHead, other: ListingHead) -> bool:
    """True if both heads are of one listing, whoever signed them."""
    return (one.version, one.until_us, one.count, one.pages) == (
        other.version,
        other.until_us,
        other.count,
        other.pages,
    )


class ListingDownload:
    """A listing in download: a checked head, and the pages received so far."""

    def __init__(
        self,
        head: ListingHead,
        reader: StatementReader,
        known: Listing | None,
        now: int,
        nodes_max: int,
        *,
        needed: int = 1,
        is_vote: bool = False,
    ) -> None:
        """Raises `RemoteError` for a head that fewer than `needed` directories signed, or that is expired or stale."""
        self.authors: Final = tuple(read_authors(head, reader, now, is_vote=is_vote))
        if len(self.authors) < needed:
            raise ForgedError("the listing has the signatures of too few directories")
        if head.until_us <= now:
            raise StaleError("the listing has expired")
        if head.version > now + AHEAD_US:
            raise StaleError("the listing is from the future")
        if known is not None and head.version < known.version:
            raise StaleError("the listing is older than the current one")
        if head.count > nodes_max or len(head.pages) != -(-head.count // PAGE_NODES):
            raise MalformedError("the number of pages does not fit the number of nodes")
        self.head: Final = head
        self._pages: dict[int, ListingPage] = {}

    def missing_page(self) -> int | None:
        """The number of a missing page; None when the download is complete."""
        return next((number for number in range(len(self.head.pages)) if number not in self._pages), None)

    def add_page(self, page: ListingPage) -> None:
        """Add a page of this listing; `RemoteError` for any other."""
        if page.version != self.head.version or page.page >= len(self.head.pages):
            raise StaleError("a page of another listing")
        if _digest(page) != self.head.pages[page.page]:
            raise ForgedError("a page that the directory did not sign")
        self._pages[page.page] = page

    def listing(self) -> Listing:
        """The complete listing; raises `RemoteError` if the directory signed an invalid one."""
        nodes = [node for number in range(len(self.head.pages)) for node in self._pages[number].nodes]
        listing = Listing(nodes, self.head.version, self.head.until_us)
        if len(nodes) != self.head.count or list(listing.nodes) != nodes:
            raise MalformedError("a listing that is out of order")
        return listing


def _digest(page: ListingPage) -> bytes:
    return digest(_ENCODER.encode((page.version, page.page, page.nodes)), purpose=b"vc/tree-page", size=DIGEST)


def _body(version: int, until_us: int, count: int, digests: tuple[bytes, ...]) -> bytes:
    return _ENCODER.encode((version, until_us, count, digests))


AHEAD_US: Final = 120_000_000
"""How far a directory's clock may be ahead of a node's. A version far in the future would shut out all later ones."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_PURPOSE: Final = b"veilcast/tree-listing"
_VOTE: Final = b"veilcast/tree-vote"
"""Otherwise a vote could be served as the listing of one directory, or the other way round."""
