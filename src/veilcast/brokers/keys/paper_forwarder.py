"""Keys through one broker by splitting again (`paper`): every share, for every next node, at once.

Only the names of the shares that came are stored. Each share is split once for each branch, because two splits of one
share under one signature are the mark of a Byzantine replica. A replica that was killed and restarted may have split a
share before. So during the quiet period it ignores every share.
"""

from __future__ import annotations

from typing import TypeAlias

from veilcast.brokers.evidence import FaultReason
from veilcast.brokers.keys.bulk_key import check_key_id
from veilcast.brokers.keys.forwarder_base import ForwarderInputs, KeyForwarder
from veilcast.brokers.keys.paper_split import HOPS_MAX, SplitShare, TrailVerifier, split_again
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, Scheme
from veilcast.brokers.quota import PendingMessages, PublisherQuota
from veilcast.brokers.routing.view import Outgoing, Peer, all_replicas, is_from
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.wire import geometry as g
from veilcast.wire.base import Message
from veilcast.wire.brokers import FirstShare, LastShare, NextShare

SplitShareId: TypeAlias = tuple[KeyAttempt, tuple[int, ...], Scheme]
"""A share by its key, its path to this replica, and the own scheme."""


class PaperKeyForwarder(KeyForwarder):
    """Bounded by `done_max` shares, a quarter per publisher. Verified statements are kept for the last few
    publishers."""

    def __init__(self, inputs: ForwarderInputs, now: int) -> None:
        super().__init__(inputs, now)
        config = inputs.config
        self._quota: PublisherQuota[SplitShareId] = PublisherQuota(config.keys_max, config.done_max, config.hold_us)
        self._early_shares: PendingMessages[bytes, Peer, NextShare | FirstShare] = PendingMessages(
            count=256, size=1 << 20, senders=512, keep_us=8 * config.bound_us
        )
        self._verifiers: dict[bytes, TrailVerifier] = {}
        self._verifiers_max = max(1, config.keys_max // 16)

    def sizes(self) -> dict[str, int]:
        return {
            "pieces past": self._quota.past_count,
            "trails": len(self._verifiers),
            "early": len(self._early_shares),
            **super().sizes(),
        }

    def handle(self, now: int) -> None:
        """Nothing is ever due."""

    def next_us(self) -> int | None:
        return None

    def _on_message(self, message: Message, source: Peer, now: int) -> list[Outgoing]:
        if not isinstance(message, FirstShare | NextShare):
            raise ForgedError("not a message of this profile")
        return self._on_share(message, source, now)

    def _on_share(self, message: FirstShare | NextShare, source: Peer, now: int) -> list[Outgoing]:
        """A share from the publisher, or from a replica of the previous node."""
        try:
            self._routes.source_of(message.advertisement)
        except StaleError:
            self._early_shares.put(message.advertisement, source, message, len(message.share), now)
            return []
        try:
            share = SplitShare.decode(message.share)
            publisher = self._check(share, message, source)
        except (ForgedError, MalformedError):
            if isinstance(source, ReplicaId):
                self._evidence.record(source, FaultReason.BAD_SPLIT_SHARE)
            raise
        share_id: SplitShareId = (share.key_attempt, share.path, share.holder.scheme)
        if self.is_quiet(now):
            self._quota.reject(share_id, publisher, now)
            raise StaleError("this may have been seen before, in an earlier run")
        self._quota.admit(share_id, publisher, now)
        self._quota.finish(share_id, now)
        return self._split_to_branches(share, message.advertisement)

    def _on_early_shares(self, advertisement: bytes, now: int) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for source, message in self._early_shares.take(advertisement):
            try:
                sent += self._on_share(message, source, now)
            except RemoteError:
                continue
        return sent

    def _check(self, share: SplitShare, message: FirstShare | NextShare, source: Peer) -> bytes:
        """The publisher's key. A valid share for another replica, or another time, is stale."""
        if not is_from(source, self._routes.source_of(message.advertisement)):
            raise StaleError("a share from another hop than its advertisement")
        publisher = self._routes.publisher_of(message.advertisement)
        check_key_id(share.key_attempt.key, publisher)
        if share.holder not in self._routes.own_replicas():
            raise StaleError("a share for another replica, or another scheme")
        if isinstance(source, ReplicaId):
            if share.hops < 2:
                raise ForgedError("the publisher's own share, from a replica")
            splitter = ReplicaId(share.trail[-2].to, share.trail[-1].path[-1])
            if self._replica_keys.key_of(splitter) != self._replica_keys.key_of(source):
                raise ForgedError("a share that another replica split")
        elif share.hops != 1:
            raise ForgedError("a share that a replica split, from a client")
        verifier = self._verifiers.pop(publisher, None) or TrailVerifier(publisher, self._replica_keys)
        self._verifiers[publisher] = verifier
        if len(self._verifiers) > self._verifiers_max:
            del self._verifiers[next(iter(self._verifiers))]
        verifier.check(share)
        return publisher

    def _split_to_branches(self, share: SplitShare, advertisement: bytes) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for branch in self._routes.subscriber_branches(advertisement):
            if not isinstance(branch, Scheme):
                sent.append(Outgoing(branch, LastShare(advertisement, share.encode().reveal())))
                continue
            if share.hops >= HOPS_MAX:
                raise ExcessError("a key that has come too far")
            for replica, part in zip(
                all_replicas(branch), split_again(share, branch, self._signing, self._entropy), strict=True
            ):
                data = part.encode().reveal()
                if len(data) > g.SHARING_MAX:
                    raise ExcessError("a trail that has grown too long")
                sent.append(Outgoing(replica, NextShare(advertisement, data)))
        return sent
