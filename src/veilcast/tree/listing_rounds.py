"""Rounds of several directories that agree on one listing, so that nodes need not trust any one of them.

All directories know each other's addresses, and all nodes enrol with each. Time is cut into rounds of one length, which
begin at the same moments everywhere.

1. At the beginning of a round each directory signs its vote: the nodes that it lists itself, as of that moment.
2. Each asks all others for their votes. When it has them all, or half the round is over, it merges them: a node counts
   if `needed` directories list it (`tree.listing.merge_votes`).
3. Each signs what it merged, once in a round, and asks the others for their signatures on the same listing. With
   `needed` signatures it serves the listing until the next one. A node takes no listing with fewer.

So, with up to `needed - 1` liars among them:

- No node is listed that no honest directory admitted, and none that `needed` honest ones list is left out.
- Of n directories, `needed` > (n + liars) / 2 also means one listing a round: two would share an honest signer, which
  signs one. With fewer, liars can have two listings signed in one round. They differ in nodes only that fewer than
  `needed` honest directories list: those that have just come or gone.
- If fewer than `needed` directories answer one another, or merge the same, the last listing serves until its end.

Directories ask one another as nodes ask them: requests on streams through the anonymous network, with the proof of the
network key. Each answers from what it has; nothing is pushed, and a directory that lies or hangs delays nobody else
beyond half a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.errors import ForgedError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.tree.config import DirectoryConfig, TreeConfig
from veilcast.tree.listing import (
    Listing,
    ListingDownload,
    SignedListing,
    have_equal_content,
    merge_votes,
    read_authors,
    sign_listing,
)
from veilcast.tree.membership_proof import MembershipProver
from veilcast.tree.streams import Answer, RequestStreams, SendMessage
from veilcast.wire.tree import DirectorySignature, FetchListing, ListedNode, ListingHead, ListingPage, ListingStage


class ListingRounds:
    """Bounded: the votes of one round, and this directory's own of two; one stream to each other directory."""

    def __init__(
        self,
        config: DirectoryConfig,
        keyring: Keyring,
        reader: StatementReader,
        prover: MembershipProver,
        list_nodes: Callable[[], Iterable[ListedNode]],
        serve: Callable[[SignedListing], None],
        post: SendMessage,
        rng: Random,
        now: int,
    ) -> None:
        """`list_nodes` lists what this directory knows; `serve` takes each listing that enough directories signed."""
        self._config, self._keyring, self._reader, self._prover = config, keyring, reader, prover
        self._list_nodes, self._serve = list_nodes, serve
        self._home: Final = fingerprint(public_of(keyring.membership.link))
        waits = TreeConfig(retry_us=max(1, config.round_us // 8), connect_us=max(1, config.round_us // 32))
        self.streams: Final = RequestStreams(waits, rng, post)
        self._others = tuple(name_stream(Address(other), _ROUND_STREAM) for other in config.others)
        self._round: _Round | None = None
        self._own: dict[tuple[ListingStage, int], SignedListing] = {}
        """This directory's votes and merged listings, of this round and the last."""
        self._steps: Timers[Address | None] = Timers()
        """When to ask each of the others again; under None, this directory's own next step."""
        self._steps.set(None, self._start_of_round(now) + config.round_us)

    def own_listing(self, stage: ListingStage, version: int) -> SignedListing | None:
        """What this directory itself signed at this stage of that round; None if it did not, or long ago."""
        return self._own.get((stage, version))

    def next_us(self) -> int | None:
        return earliest(self.streams.next_us(), self._steps.next_us())

    def handle(self, now: int) -> None:
        self.streams.handle(now)
        for due in self._steps.pop_due(now):
            if due is None:
                self._advance(now)
            elif self._round is not None:
                self._ask(self._round, due, now)

    # --- inside

    def _start_of_round(self, now: int) -> int:
        return now - now % self._config.round_us

    def _advance(self, now: int) -> None:
        """Merge the votes if this round is half over and they are not merged; begin the next round if it is over."""
        start = self._start_of_round(now)
        if self._round is None or self._round.start < start:
            self._begin(start, now)
        elif self._round.merged is None:
            self._merge(self._round, now)

    def _begin(self, start: int, now: int) -> None:
        listing = Listing(self._list_nodes(), start, start + self._config.listing_us)
        current = self._round = _Round(start, {self._home: listing})
        kept = {key: made for key, made in self._own.items() if key[1] >= start - self._config.round_us}
        self._own = {**kept, (ListingStage.VOTE, start): sign_listing(listing, self._keyring, is_vote=True)}
        self._steps.set(None, start + max(1, self._config.round_us // 2))
        for other in self._others:
            self._ask(current, other, now)

    def _merge(self, current: _Round, now: int) -> None:
        self._steps.set(None, current.start + self._config.round_us)
        needed = self._config.signers_needed
        if len(current.votes) < needed:
            return
        until_us = current.start + self._config.listing_us
        listing = merge_votes(tuple(current.votes.values()), needed, current.start, until_us)
        merged = current.merged = sign_listing(listing, self._keyring)
        self._own[ListingStage.MERGED, current.start] = merged
        current.signatures[self._home] = merged.head.signatures[0]
        self._serve_if_signed(current, merged)
        for other in self._others:
            self._ask(current, other, now)

    def _ask(self, current: _Round, other: Address, now: int) -> None:
        """Ask for what is missing of this directory: its vote until votes are merged, then its signature."""
        stage, page = ListingStage.MERGED, None
        is_done = current.is_served or other in current.dissenting
        if current.merged is None:
            stage, download = ListingStage.VOTE, current.downloads.get(other)
            page = None if download is None else download.missing_page()
            is_done = download is not None and page is None
        end_us = current.start + self._config.round_us
        if is_done or now >= end_us:
            return
        fetch = self._prover.prove(FetchListing(0, current.start, page, None, stage))

        def on_answer(answer: Answer | None, now: int) -> None:
            if current is self._round:
                self._hear(current, other, stage, answer, now)

        asked = self.streams.request(
            other,
            lambda number: msgspec.structs.replace(fetch, number=number),
            on_answer,
            until_us=end_us,
            linger_us=self._config.round_us,
            now=now,
        )
        if not asked:
            self._ask_later(other, now)

    def _ask_later(self, other: Address, now: int) -> None:
        self._steps.set(other, now + max(1, self._config.round_us // _TRIES))

    def _hear(self, current: _Round, other: Address, stage: ListingStage, answer: Answer | None, now: int) -> None:
        if not isinstance(answer, ListingHead | ListingPage):
            self._ask_later(other, now)  # It is not as far, or it is away.
        elif stage is ListingStage.MERGED:
            self._hear_merged(current, other, answer, now)
        else:
            self._hear_vote(current, other, answer, now)

    def _hear_vote(self, current: _Round, other: Address, answer: ListingHead | ListingPage, now: int) -> None:
        """A directory has one vote, at however many addresses it answers. A vote that fails a check does not count."""
        download = current.downloads.get(other)
        if isinstance(answer, ListingPage):
            if download is None:
                raise MalformedError("a page in answer to a request for a head")
            download.add_page(answer)
        elif download is None:
            if answer.version != current.start:
                raise StaleError("a vote of another round")
            most = self._config.nodes_max
            download = ListingDownload(answer, self._reader, None, now, most, is_vote=True)
            current.downloads[other] = download
        if download.missing_page() is not None:
            self._ask(current, other, now)
            return
        author, listing = download.authors[0], download.listing()
        if author in current.votes:
            raise ForgedError("a second vote of one directory")
        current.votes[author] = listing
        if current.merged is None and len(current.votes) > len(self._others):
            self._merge(current, now)

    def _hear_merged(self, current: _Round, other: Address, answer: ListingHead | ListingPage, now: int) -> None:
        merged = current.merged
        if merged is None or not isinstance(answer, ListingHead):
            raise MalformedError("not the head of a merged listing")
        if not have_equal_content(answer, merged.head):
            current.dissenting.add(other)
            return
        current.signatures.update(read_authors(answer, self._reader, now))
        self._serve_if_signed(current, merged)

    def _serve_if_signed(self, current: _Round, merged: SignedListing) -> None:
        needed = self._config.signers_needed
        if current.is_served or len(current.signatures) < needed:
            return
        current.is_served = True
        signatures = tuple(each for _, each in sorted(current.signatures.items())[:needed])
        self._serve(SignedListing(msgspec.structs.replace(merged.head, signatures=signatures), merged.pages))


@dataclass(slots=True, eq=False)
class _Round:
    """One round, as far as this directory has come."""

    start: int
    """Its beginning, which is the version of its listings."""
    votes: dict[bytes, Listing]
    """Complete votes by the names of their authors; this directory's own is the first."""
    downloads: dict[Address, ListingDownload] = field(default_factory=dict)
    """Votes of the others, in download or complete."""
    merged: SignedListing | None = None
    signatures: dict[bytes, DirectorySignature] = field(default_factory=dict)
    """Signatures on the merged listing, by the names of their authors."""
    dissenting: set[Address] = field(default_factory=set)
    """Directories that merged something else: they saw other votes, or they lie."""
    is_served: bool = False


_ROUND_STREAM: Final = "round"
"""One stream to each of the other directories: they know one another, so nothing is hidden by several."""
_TRIES: Final = 16
"""How often in a round a directory asks another one that is not as far."""
