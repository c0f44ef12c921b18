"""Listings: all nodes of the tree, in one order, as a directory signs and serves them.

Pure. A node knows the others through a `Listing` and nothing else. Another source of listings (P2 names a distributed
hash table for large networks) would not touch the rest.

Every node downloads the whole listing, so that its requests do not show which nodes it uses. A listing has a signed
head, and pages whose digests are in the head. A head is valid for a limited time, and a node accepts no head older than
its current one. So a directory, or an impostor, cannot bring back departed nodes. The exception is a node that has just
restarted, for no longer than a head is valid.

A directory can still omit nodes, list members that do not run a node, and show different listings to different nodes if
it can tell them apart; nodes ask through an anonymous network. The directory is trusted to that extent.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader, StatementSignature, sign_statement
from veilcast.crypto.derive import digest
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.wire.geometry import DIGEST, LISTED_MAX, PAGE_NODES
from veilcast.wire.tree import ListedNode, ListingHead, ListingPage


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


def sign_listing(listing: Listing, keyring: Keyring) -> SignedListing:
    """Sign a listing as the directory with this keyring."""
    if len(listing) > LISTED_MAX:
        raise LocalError(f"a listing has at most {LISTED_MAX} nodes")
    cuts = range(0, len(listing), PAGE_NODES)
    pages = tuple(
        ListingPage(0, listing.version, number, listing.nodes[start : start + PAGE_NODES])
        for number, start in enumerate(cuts)
    )
    digests = tuple(_digest(page) for page in pages)
    signed = sign_statement(keyring, _body(listing.version, listing.until_us, len(listing), digests), purpose=_PURPOSE)
    return SignedListing(ListingHead(0, listing.version, listing.until_us, len(listing), digests, *signed), pages)


class ListingDownload:
    """A listing in download: a checked head, and the pages received so far."""

    def __init__(
        self, head: ListingHead, reader: StatementReader, known: Listing | None, now: int, nodes_max: int
    ) -> None:
        """Raises `RemoteError` for a head that no known directory signed, or that is expired or stale."""
        body, signed = (
            _body(head.version, head.until_us, head.count, head.pages),
            StatementSignature(head.certificates, head.signature),
        )
        reader.verify_author(body, signed, "directory", now, purpose=_PURPOSE)
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
