"""The subscriber's side: collects contents and keys from the replicas of the edge node until a content can be opened.

A content is accepted if the publisher of a known advertisement signed its manifest and the manifest belongs to its
routing. Blocks are checked with the manifest. So a Byzantine replica can corrupt, repeat or withhold what it should
send, and is recognized by that, while others send the same. It cannot invent anything.

Old content without a key is stored like new content. So a content is charged to the replicas that send a part of it,
each within its own quota (`quota.ReplicaQuota`): what one replica repeats evicts nothing that others send.

Missing blocks are requested from one random replica at a time; a missing key, from all of them. When the application
has acknowledged the publication, all replicas get `ConfirmContent`: all wait for it, also those that left the delivery
to others. A replica that sends it again gets it again. A publication that matches no subscription any more is done,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.content.blocks import ATTEMPTS_MAX, ContentAssembly, ContentBlock, ContentManifest
from veilcast.brokers.content.sealed_publication import open_publication
from veilcast.brokers.edge_links import EdgeLinks
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.reassembly import KeyName, KeyReassembly
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.quota import ReplicaQuota
from veilcast.brokers.routing.subscriber_advertisements import KnownAdvertisement, VerifiedAdvertisements
from veilcast.core.bounded import remember
from veilcast.core.connector import backoff
from veilcast.core.outbox import PendingPublication
from veilcast.core.timers import Timers
from veilcast.errors import ForgedError, MalformedError, RemoteError, StaleError
from veilcast.faults import FaultError, Faults
from veilcast.machine import Address
from veilcast.wire.brokers import ConfirmContent, ForwardContent, LastShare, RequestBlocks, Routing, WantKey
from veilcast.wire.geometry import RELAYED_MAX


class SubscriberCallbacks(NamedTuple):
    """The client's functions that the subscriber's side calls."""

    has_room: Callable[[], bool]
    """True if the inbox takes another notification."""
    deliver: Callable[[PendingPublication, bytes, int], bool]
    """Deliver a publication with the id of its content; True if it is done at once, False if the application must
    acknowledge it."""
    refuse: Callable[[RemoteError], None]
    """Count a rejected message."""


class ContentSubscriber:
    """Bounded: of content that cannot be opened yet, `contents_max` from the replicas of one scheme, an equal part from
    each (and the same from another scheme, while the node changes); twice `unread_max` opened contents that are not
    done; and the last `seen_max` done contents."""

    def __init__(
        self,
        config: BrokerClientConfig,
        advertisements: VerifiedAdvertisements,
        reassembly: KeyReassembly,
        edge: EdgeLinks,
        client: SubscriberCallbacks,
        evidence: FaultEvidence,
        faults: Faults,
        rng: Random,
    ) -> None:
        self._config, self._advertisements, self._reassembly, self._edge = config, advertisements, reassembly, edge
        self._client, self._evidence, self._faults, self._rng = client, evidence, faults, rng
        self._hardened, self._out_of_band = config.profile == "hardened", config.delivery == "repository"
        self._pending: dict[bytes, _PendingContent] = {}
        self._quota = ReplicaQuota(config.contents_max)
        self._opened: dict[bytes, int] = {}
        """Contents that the application has not acknowledged, and the last attempt seen of each."""
        self._done: dict[bytes, int] = {}
        """Done contents, and when all replicas were last told so."""
        self._key_requests: dict[KeyName, int] = {}
        """Missing keys, and the number of requests for each."""
        self._timers: Timers[_TimerName] = Timers()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def opened_count(self) -> int:
        return len(self._opened)

    @property
    def done_count(self) -> int:
        return len(self._done)

    # --- input

    def on_carry(self, carry: ForwardContent, source: Address, sender: ReplicaId, now: int) -> None:
        id_ = carry.routing.content
        if carry.attempt > ATTEMPTS_MAX:
            raise MalformedError("an attempt above the maximum")
        if id_ in self._done:
            self._confirm_again(id_, carry.attempt, source, now)
            return
        if id_ in self._opened:
            self._opened[id_] = max(self._opened[id_], carry.attempt)
            return
        pending = self._pending.get(id_) or self._store_new(id_, carry, now)
        for _, other in self._quota.charge((pending.advertisement.id, id_), sender):
            self._drop(other)
        pending.attempt = max(pending.attempt, carry.attempt)
        if carry.block is None:
            return
        if carry.manifest != pending.manifest:
            # The publisher may have signed two manifests; the sender of the other one has done nothing wrong.
            raise ForgedError("a second manifest of one content")
        was_complete = pending.assembly.is_complete
        try:
            pending.assembly.add(ContentBlock(id_, carry.index, carry.block), sender)
        except ForgedError:
            self._evidence.record(sender, FaultReason.BAD_BLOCK)
            raise
        if pending.assembly.is_complete and not was_complete:
            self._timers.cancel(("missing", id_))
            self._open(id_, now)

    def on_share(self, share: LastShare, senders: Sequence[ReplicaId], now: int) -> None:
        known = self._advertisements.get(share.advertisement)
        name = self._reassembly.add(known, share.share, senders)
        if name is not None:
            self._timers.cancel(("want", name))
            self._key_requests.pop(name, None)
            self.retry_pending(now, name)

    def retry_pending(self, now: int, name: KeyName | None = None) -> None:
        """Try to open complete contents: those of this key, or all."""
        for id_, pending in list(self._pending.items()):
            if pending.assembly.is_complete and name in (None, pending.key_name):
                self._open(id_, now)

    def confirm(self, content: bytes, now: int) -> None:
        """The application has it, or wants it no more."""
        attempt = self._opened.pop(content, 0)
        remember(self._done, content, now, self._config.seen_max)
        self._edge.send_to_all(ConfirmContent(content, attempt))

    def end_advertisement(self, advertisement: bytes) -> None:
        """Drop everything under the advertisement."""
        self._reassembly.end_advertisement(advertisement)
        for id_, pending in list(self._pending.items()):
            if pending.key_name[0] == advertisement:
                self._drop(id_)

    # --- time

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        # One timer may drop the content of another that is due at the same time.
        for due in self._timers.pop_due(now):
            match due:
                case ("missing", bytes(id_)):
                    if id_ in self._pending:
                        self._request_blocks(id_, now)
                case ("hold", bytes(id_)):
                    self._drop(id_)
                case ("want", (advertisement, key)):
                    if (advertisement, key) in self._key_requests:
                        self._request_key((advertisement, key), now)

    # --- internals

    def _store_new(self, id_: bytes, carry: ForwardContent, now: int) -> _PendingContent:
        """A new content: stored if a known publisher signed for it."""
        known = self._advertisements.get(carry.routing.advertisement)
        manifest = ContentManifest.decode(carry.manifest)
        if manifest.id != id_:
            raise ForgedError("a manifest of another content")
        if manifest.size > RELAYED_MAX:
            raise MalformedError("a content that is too long")
        assembly = ContentAssembly(manifest, known.publisher)
        pending = self._pending[id_] = _PendingContent(carry.routing, known, carry.manifest, assembly)
        self._timers.set(("missing", id_), now + self._config.missing_us)
        self._timers.set(("hold", id_), now + self._config.hold_us)
        return pending

    def _open(self, id_: bytes, now: int) -> None:
        """Open a complete content, if its key is known and the inbox has room."""
        pending = self._pending[id_]
        opener = self._reassembly.get(pending.key_name)
        if opener is None:
            if pending.key_name not in self._key_requests:
                self._key_requests[pending.key_name] = 0
                if self._out_of_band:
                    self._request_key(pending.key_name, now)
                else:
                    self._timers.set(("want", pending.key_name), now + self._config.want_us)
            return
        if not self._client.has_room() or len(self._opened) >= 2 * self._config.unread_max:
            return  # The second bound holds where a publisher seals one publication again and again.
        number = pending.routing.number
        try:
            with self._faults.refuse_exceptions():
                key = opener.key(number, pending.advertisement.keys.content if self._hardened else None)
                publication = open_publication(
                    key, pending.assembly.content(), id_, pending.advertisement.topic, padded=self._hardened
                )
        except StaleError as error:
            self._drop(id_)  # Opened before and forgotten, or too far behind in its bulk.
            self._client.refuse(error)
            return
        except RemoteError as error:
            self._client.refuse(error)  # The publisher sealed it so that nobody can open it.
            self._move_to_opened(id_, pending)
            self.confirm(id_, now)
            return
        opener.forget(number)
        self._move_to_opened(id_, pending)
        if publication is None:
            self.confirm(id_, now)
            return
        try:
            with self._faults.refuse_exceptions():
                is_settled = self._client.deliver(publication, id_, now)
        except FaultError as error:
            self._client.refuse(error)
            is_settled = True
        if is_settled:
            self.confirm(id_, now)

    def _confirm_again(self, id_: bytes, attempt: int, source: Address, now: int) -> None:
        """Confirm again to the sender, and from time to time to all replicas: the one that lacks the confirmation may
        be another."""
        if now < self._done[id_] + self._config.want_us:
            self._edge.send_to_peer(source, ConfirmContent(id_, attempt))
        else:
            self._done[id_] = now
            self._edge.send_to_all(ConfirmContent(id_, attempt))

    def _move_to_opened(self, id_: bytes, pending: _PendingContent) -> None:
        self._drop(id_)
        self._opened[id_] = pending.attempt

    def _drop(self, id_: bytes) -> None:
        pending = self._pending.pop(id_, None)
        self._timers.cancel(("missing", id_))
        self._timers.cancel(("hold", id_))
        if pending is None:
            return
        self._quota.release((pending.advertisement.id, id_))
        if all(other.key_name != pending.key_name for other in self._pending.values()):
            self._key_requests.pop(pending.key_name, None)
            self._timers.cancel(("want", pending.key_name))

    def _request_blocks(self, id_: bytes, now: int) -> None:
        pending, replicas = self._pending[id_], self._edge.connected_replicas()
        self._timers.set(("missing", id_), now + self._config.missing_us)
        if replicas:
            self._edge.send_to_peer(self._rng.choice(replicas), RequestBlocks(id_, tuple(pending.assembly.missing())))

    def _request_key(self, name: KeyName, now: int) -> None:
        self._key_requests[name] += 1
        self._timers.set(("want", name), now + backoff(self._rng, self._config.want_us, self._key_requests[name]))
        if self._out_of_band:
            self._edge.pull_key(name, self._advertisements.get(name[0]).keys)
        else:
            self._edge.send_to_all(WantKey(*name))


@dataclass(slots=True)
class _PendingContent:
    routing: Routing
    advertisement: KnownAdvertisement
    manifest: bytes
    assembly: ContentAssembly
    attempt: int = 0

    @property
    def key_name(self) -> KeyName:
        return self.routing.advertisement, self.routing.key


_TimerName: TypeAlias = tuple[Literal["missing", "hold"], bytes] | tuple[Literal["want"], KeyName]
