"""The directory client: keeps this node listed, and downloads the listing of all others.

The client enrols again after a third of its lease, so that a directory may be away for a while. It downloads the whole
listing at intervals, so that nothing shows which nodes it uses. Each download has its own stream and its own random
time: a directory that recognised the node could show it a listing of colluders, and the true one to all others. A node
that has just started downloads soon after it has enrolled under its name, and in a quiet network this may be noticed.

A tree may have several directories. The node enrols with each, and takes each listing from one that it draws: a listing
counts only with the signatures of as many as are needed.

The client discards a listing that fails any check. It keeps the last valid listing while there is no other: absent
directories stop no node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.authority.revocation import RevokedKeys
from veilcast.core.connector import backoff
from veilcast.core.stream_purpose import name_stream, split_stream_name
from veilcast.core.timers import Timers
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.errors import ForgedError, RemoteError
from veilcast.machine import Address, Entropy
from veilcast.tree.config import TreeConfig, majority_of
from veilcast.tree.descriptor import build_descriptor
from veilcast.tree.listing import Listing, ListingDownload, have_equal_content
from veilcast.tree.membership_proof import MembershipProver
from veilcast.tree.streams import (
    DIRECTORY_STREAM,
    FETCH_STREAM,
    Answer,
    BuildRequest,
    OnAnswer,
    RequestStreams,
    fresh_purpose,
)
from veilcast.wire.tree import FetchListing, ListingHead, ListingPage, NodeEnrolled, RefusalCode, RequestRefused


class DirectoryClient:
    """Bounded: one listing, and one in download, of at most `listed_max` nodes each."""

    def __init__(
        self,
        config: TreeConfig,
        keyring: Keyring,
        directories: Sequence[Address],
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
        self._directories, self._address, self._entropy = tuple(directories), address, entropy
        self._needed = majority_of(len(directories)) if config.needed is None else config.needed
        self._reader, self._prover, self._since_us = StatementReader(keyring, revoked), MembershipProver(keyring), now
        self.home: Final = fingerprint(public_of(keyring.membership.link))
        self.listing = Listing(())
        self._refusals: dict[Address, RefusalCode] = {}
        """Why directories refused the last enrolment, where they did."""
        self._head: ListingHead | None = None
        """Head of the current listing."""
        self._fetching = name_stream(self._directories[0], FETCH_STREAM)
        """Stream of the current download."""
        self._download: ListingDownload | None = None
        self._tries: dict[Address | None, int] = dict.fromkeys((*self._directories, None), 0)
        """Vain tries: to enrol, by directory; under None, to fetch the listing."""
        self._unanswered: set[Address] = set()
        """Directories that left the last request unanswered."""
        self._timers: Timers[Address | None] = Timers()
        """When to enrol with each directory; under None, when to fetch the listing."""
        for directory in self._directories:
            self._timers.set(directory, now)
        self._timers.set(None, now + 1 + rng.randrange(config.connect_us))

    def address_of(self, node: bytes) -> Address | None:
        """The address of another node, or None if it is not listed."""
        number = self.listing.index_of(node)
        return None if number is None or node == self.home else self.listing.addresses[number]

    def silent_directories(self) -> list[Address]:
        """The directories that cannot be reached, or left the last request unanswered."""
        return [
            each
            for each in self._directories
            if each in self._unanswered or self._streams.is_unreachable(name_stream(each, DIRECTORY_STREAM))
        ]

    @property
    def refusal(self) -> RefusalCode | None:
        """Why so many directories refuse this node that it cannot be listed; None if they do not."""
        if len(self._directories) - len(self._refusals) >= self._needed:
            return None
        return next(iter(self._refusals.values()))

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for due in self._timers.pop_due(now):
            if due is None:
                self._fetch(now)
            else:
                self._enrol(due, now)

    # --- inside

    def _enrol(self, directory: Address, now: int) -> None:
        def on_answer(answer: Answer | None, now: int) -> None:
            self._note_answer(directory, answer)
            self._refusals.pop(directory, None)
            if isinstance(answer, NodeEnrolled):
                self._tries[directory] = 0
                third_us = (answer.until_us - now) // 3
                self._timers.set(directory, now + min(max(_SOON_US, third_us), _LATE_US))
                return
            if isinstance(answer, RequestRefused):
                self._refusals[directory] = RefusalCode(answer.code)
            self._retry(directory, now)

        self._request(
            name_stream(directory, DIRECTORY_STREAM),
            lambda number: build_descriptor(self._keyring, self._address, number, now, self._since_us),
            on_answer,
            directory,
            now,
        )

    def _fetch(self, now: int) -> None:
        """Begin a download, from a directory that may be another than the last."""
        directory = self._rng.choice(self._directories) if len(self._directories) > 1 else self._directories[0]
        self._download = None
        self._fetching = name_stream(directory, fresh_purpose(FETCH_STREAM, self._entropy))
        self._ask_for_listing(self._prover.prove(FetchListing(0, 0, None)), now)

    def _ask_for_listing(self, fetch: FetchListing, now: int) -> None:
        directory = split_stream_name(self._fetching)[1]

        def on_answer(answer: Answer | None, now: int) -> None:
            self._note_answer(directory, answer)
            match answer:
                case ListingHead():
                    self._begin_download(answer, now)
                case ListingPage():
                    self._add_page(answer, now)
                case _:
                    self._retry(None, now)

        self._request(
            self._fetching, lambda number: msgspec.structs.replace(fetch, number=number), on_answer, None, now
        )

    def _request(self, peer: Address, build: BuildRequest, on_answer: OnAnswer, kind: Address | None, now: int) -> None:
        until_us = now + self._streams.patience_us
        if not self._streams.request(peer, build, on_answer, until_us=until_us, linger_us=0, now=now):
            self._retry(kind, now)

    def _note_answer(self, directory: Address, answer: Answer | None) -> None:
        if answer is None:
            self._unanswered.add(directory)
        else:
            self._unanswered.discard(directory)

    def _retry(self, kind: Address | None, now: int) -> None:
        self._timers.set(kind, now + backoff(self._rng, self._config.connect_us, self._tries[kind]))
        self._tries[kind] += 1

    def _begin_download(self, head: ListingHead, now: int) -> None:
        try:
            most = self._config.listed_max
            self._download = ListingDownload(head, self._reader, self.listing, now, most, needed=self._needed)
            known = self._head
            if known is not None and known.version == head.version and not have_equal_content(known, head):
                raise ForgedError("a directory has signed two listings under one name")
        except RemoteError:
            self._retry(None, now)
            raise
        self._tries[None] = 0
        self._continue_download(now)

    def _add_page(self, page: ListingPage, now: int) -> None:
        if self._download is None:
            self._retry(None, now)  # A page in answer to a request for a head.
            return
        try:
            self._download.add_page(page)
        except RemoteError:
            self._retry(None, now)
            raise
        self._continue_download(now)

    def _continue_download(self, now: int) -> None:
        download = self._download
        if download is None:
            return
        page = download.missing_page()
        if page is not None and download.head.version != self.listing.version:
            version = download.head.version
            self._ask_for_listing(self._prover.prove(FetchListing(0, version, page)), now)
            return
        self._download = None
        self._timers.set(None, now + self._config.fetch_us)
        if download.head.version != self.listing.version:
            self.listing, self._head = download.listing(), download.head
            self._on_change(now)
        # If this node was too early to be listed, others may have been, too.
        soon = self.home not in self.listing
        half = (self._config.connect_us if soon else self._config.fetch_us) // 2
        self._timers.set(None, now + half + self._rng.randrange(half + 1))


_SOON_US: Final = 1_000_000
_LATE_US: Final = 600_000_000
"""Bounds on the enrolment interval, whatever lease the directory grants: at least `_SOON_US`, at most `_LATE_US`."""
