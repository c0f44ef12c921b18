"""The directory client: keeps this node listed, and downloads the listing of all others.

The client enrols again after a third of its lease, so that the directory may be away for a while. It downloads the
whole listing at intervals, so that nothing shows which nodes it uses. Each download has its own stream and its own
random time: a directory that recognised the node could show it a listing of colluders, and the true one to all others.
A node that has just started downloads soon after it has enrolled under its name, and in a quiet network this may be
noticed.

The client discards a listing that fails any check. It keeps the last valid listing while there is no other: an absent
directory stops no node.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.authority.revocation import RevokedKeys
from veilcast.core.connector import backoff
from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.errors import ForgedError, RemoteError
from veilcast.machine import Address, Entropy
from veilcast.tree.config import TreeConfig
from veilcast.tree.descriptor import build_descriptor
from veilcast.tree.listing import Listing, ListingDownload
from veilcast.tree.membership_proof import MembershipProver
from veilcast.tree.streams import DIRECTORY_STREAM, FETCH_STREAM, Answer, RequestStreams, fresh_purpose
from veilcast.wire.base import Message
from veilcast.wire.tree import FetchListing, ListingHead, ListingPage, NodeEnrolled, RefusalCode, RequestRefused


class DirectoryClient:
    """Bounded: one listing, and one in download, of at most `listed_max` nodes each."""

    def __init__(
        self,
        config: TreeConfig,
        keyring: Keyring,
        directory: Address,
        address: Address,
        streams: RequestStreams,
        on_change: Callable[[int], None],
        rng: Random,
        entropy: Entropy,
        now: int,
        revoked: RevokedKeys | None = None,
    ) -> None:
        self._config, self._keyring, self._streams, self._on_change, self._rng = (
            config,
            keyring,
            streams,
            on_change,
            rng,
        )
        self._directory, self._address, self._entropy = directory, address, entropy
        self._reader, self._prover, self._since_us = StatementReader(keyring, revoked), MembershipProver(keyring), now
        self.home: Final = fingerprint(public_of(keyring.membership.link))
        self.listing = Listing(())
        self.enrolled_until_us = 0
        self.refusal: RefusalCode | None = None
        """Why the directory refused the last enrolment; None if it did not."""
        self._head: ListingHead | None = None
        """Head of the current listing."""
        self._fetching = name_stream(directory, FETCH_STREAM)
        """Stream of the current download."""
        self._download: ListingDownload | None = None
        self._tries = {_ENROL: 0, _FETCH: 0}
        self._unanswered: dict[str, None] = {}
        """Kinds of request that the directory last left unanswered."""
        self._timers: Timers[str] = Timers()
        self._timers.set(_ENROL, now)
        self._timers.set(_FETCH, now + 1 + rng.randrange(config.connect_us))

    def address_of(self, node: bytes) -> Address | None:
        """The address of another node, or None if it is not listed."""
        number = self.listing.index_of(node)
        return None if number is None or node == self.home else self.listing.addresses[number]

    @property
    def is_unanswered(self) -> bool:
        """True if the directory left the last request of either kind unanswered."""
        return bool(self._unanswered)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for due in self._timers.pop_due(now):
            if due == _ENROL:
                peer = name_stream(self._directory, DIRECTORY_STREAM)
                self._request(
                    peer,
                    lambda number: build_descriptor(self._keyring, self._address, number, now, self._since_us),
                    _ENROL,
                    now,
                )
            elif due == _FETCH:
                self._download = None
                self._fetching = name_stream(self._directory, fresh_purpose(FETCH_STREAM, self._entropy))
                self._request(
                    self._fetching, lambda number: self._prover.prove(FetchListing(number, 0, None)), _FETCH, now
                )

    # --- inside

    def _request(self, peer: Address, build: Callable[[int], Message], kind: str, now: int) -> None:
        def on_answer(answer: Answer | None, now: int) -> None:
            self._unanswered = {each: None for each in self._unanswered if each != kind}
            match answer:
                case NodeEnrolled() if kind == _ENROL:
                    self.refusal = None
                    self._enrolled(answer, now)
                case RequestRefused() if kind == _ENROL:
                    self.refusal = RefusalCode(answer.code)
                    self._retry(kind, now)
                case ListingHead() if kind == _FETCH:
                    self._begin_download(answer, now)
                case ListingPage() if kind == _FETCH:
                    self._add_page(answer, now)
                case None:
                    self._unanswered[kind] = None
                    self._retry(kind, now)
                case _:
                    self._retry(kind, now)

        until_us = now + self._streams.patience_us
        if not self._streams.request(peer, build, on_answer, until_us=until_us, linger_us=0, now=now):
            self._retry(kind, now)

    def _retry(self, kind: str, now: int) -> None:
        self._timers.set(kind, now + backoff(self._rng, self._config.connect_us, self._tries[kind]))
        self._tries[kind] += 1

    def _enrolled(self, enrolled: NodeEnrolled, now: int) -> None:
        self.enrolled_until_us, self._tries[_ENROL] = enrolled.until_us, 0
        self._timers.set(_ENROL, now + min(max(_SOON_US, (enrolled.until_us - now) // 3), _LATE_US))

    def _begin_download(self, head: ListingHead, now: int) -> None:
        try:
            self._download = ListingDownload(head, self._reader, self.listing, now, self._config.listed_max)
            if self._head is not None and self._head.version == head.version and self._head.pages != head.pages:
                raise ForgedError("the directory has signed two listings under one name")
        except RemoteError:
            self._retry(_FETCH, now)
            raise
        self._tries[_FETCH] = 0
        self._continue_download(now)

    def _add_page(self, page: ListingPage, now: int) -> None:
        if self._download is None:
            self._retry(_FETCH, now)  # A page in answer to a request for a head.
            return
        try:
            self._download.add_page(page)
        except RemoteError:
            self._retry(_FETCH, now)
            raise
        self._continue_download(now)

    def _continue_download(self, now: int) -> None:
        download = self._download
        if download is None:
            return
        page = download.missing_page()
        if page is not None and download.head.version != self.listing.version:
            version = download.head.version
            fetch = self._prover.prove(FetchListing(0, version, page))
            self._request(self._fetching, lambda number: msgspec.structs.replace(fetch, number=number), _FETCH, now)
            return
        self._download = None
        self._timers.set(_FETCH, now + self._config.fetch_us)
        if download.head.version != self.listing.version:
            self.listing, self._head = download.listing(), download.head
            self._on_change(now)
        # If this node was too early to be listed, others may have been, too.
        soon = self.home not in self.listing
        half = (self._config.connect_us if soon else self._config.fetch_us) // 2
        self._timers.set(_FETCH, now + half + self._rng.randrange(half + 1))


_ENROL: Final = "enrol"
_FETCH: Final = "fetch"
_SOON_US: Final = 1_000_000
_LATE_US: Final = 600_000_000
"""Bounds on the enrolment interval, whatever lease the directory grants: at least `_SOON_US`, at most `_LATE_US`."""
