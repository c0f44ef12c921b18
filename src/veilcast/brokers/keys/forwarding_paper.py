"""Keys through one broker by splitting again (`paper`): every share, for every next node, at once.

Only the names of the shares that came are stored. Each share is split once for each branch, because two splits of one
share under one signature are the mark of a Byzantine replica. A replica that was killed and restarted may have split a
share before. So during the quiet period it ignores every share.
"""

from __future__ import annotations

from typing import TypeAlias

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.bulk import check_key_id
from veilcast.brokers.keys.paper_split import HOPS_MAX, KeyAttempt, SplitShare, TrailVerifier, split_again
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.quota import PendingMessages, PublisherQuota
from veilcast.brokers.routing.view import Outgoing, Peer, RoutingView, all_replicas, is_from
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy
from veilcast.wire import geometry as g
from veilcast.wire.brokers import FirstShare, LastShare, NextShare

SplitShareId: TypeAlias = tuple[KeyAttempt, tuple[int, ...], Scheme]
"""A share by its key, its path to this replica, and the own scheme."""


class PaperKeyForwarder:
    """Bounded by `done_max` shares, a quarter per publisher. Verified statements are kept for the last few
    publishers."""

    def __init__(
        self,
        config: BrokerConfig,
        routes: RoutingView,
        roster: ReplicaKeys,
        signing: SigningKey,
        entropy: Entropy,
        suspicions: FaultEvidence,
    ) -> None:
        self._routes, self._roster, self._signing, self._entropy = routes, roster, signing, entropy
        self._suspicions = suspicions
        self._room: PublisherQuota[SplitShareId] = PublisherQuota(config.keys_max, config.done_max, config.hold_us)
        self._early: PendingMessages[bytes, Peer, NextShare | FirstShare] = PendingMessages(
            count=256, size=1 << 20, senders=512, keep_us=8 * config.bound_us
        )
        self._trails: dict[bytes, TrailVerifier] = {}
        self._trails_max = max(1, config.keys_max // 16)

    def sizes(self) -> dict[str, int]:
        return {"pieces past": self._room.past_count, "trails": len(self._trails), "early": len(self._early)}

    def on_share(self, message: FirstShare | NextShare, source: Peer, now: int, *, quiet: bool) -> list[Outgoing]:
        """A share from the publisher, or from a replica of the previous node."""
        try:
            self._routes.source_of(message.advertisement)
        except StaleError:
            self._early.put(message.advertisement, source, message, len(message.share), now)
            return []
        try:
            parcel = SplitShare.decode(message.share)
            publisher = self._checked(parcel, message, source)
        except (ForgedError, MalformedError):
            if isinstance(source, ReplicaId):
                self._suspicions.record(source, FaultReason.BAD_SPLIT_SHARE)
            raise
        piece: SplitShareId = (parcel.key_attempt, parcel.path, parcel.holder.scheme)
        if quiet:
            self._room.reject(piece, publisher, now)
            raise StaleError("we may have seen this before, in an earlier life")
        self._room.admit(piece, publisher, now)
        self._room.finish(piece, now)
        return self._go_on(parcel, message.advertisement)

    def on_advertisement(self, advertisement: bytes, now: int, *, quiet: bool) -> list[Outgoing]:
        """Handle the shares that came before the advertisement."""
        sent: list[Outgoing] = []
        for source, message in self._early.take(advertisement):
            try:
                sent += self.on_share(message, source, now, quiet=quiet)
            except RemoteError:
                continue
        return sent

    def _checked(self, parcel: SplitShare, message: FirstShare | NextShare, source: Peer) -> bytes:
        """The publisher's key. A valid share for another replica, or another time, is stale."""
        if not is_from(source, self._routes.source_of(message.advertisement)):
            raise StaleError("a piece for an advertisement that came another way")
        publisher = self._routes.publisher_of(message.advertisement)
        check_key_id(parcel.key_attempt.key, publisher)
        if parcel.holder not in self._routes.own_replicas():
            raise StaleError("a piece for another replica, or another scheme")
        if isinstance(source, ReplicaId):
            if parcel.hops < 2:
                raise ForgedError("the publisher's own piece, from a replica")
            splitter = ReplicaId(parcel.trail[-2].to, parcel.trail[-1].path[-1])
            if self._roster.key_of(splitter) != self._roster.key_of(source):
                raise ForgedError("a piece that another replica split")
        elif parcel.hops != 1:
            raise ForgedError("a piece that a replica split, from a client")
        trails = self._trails.pop(publisher, None) or TrailVerifier(publisher, self._roster)
        self._trails[publisher] = trails
        if len(self._trails) > self._trails_max:
            del self._trails[next(iter(self._trails))]
        trails.check(parcel)
        return publisher

    def _go_on(self, parcel: SplitShare, advertisement: bytes) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for branch in self._routes.subscriber_branches(advertisement):
            if not isinstance(branch, Scheme):
                sent.append(Outgoing(branch, LastShare(advertisement, parcel.encode().reveal())))
                continue
            if parcel.hops >= HOPS_MAX:
                raise ExcessError("a key that has come too far")
            for place, part in zip(
                all_replicas(branch), split_again(parcel, branch, self._signing, self._entropy), strict=True
            ):
                data = part.encode().reveal()
                if len(data) > g.SHARING_MAX:
                    raise ExcessError("a trail that has grown too long")
                sent.append(Outgoing(place, NextShare(advertisement, data)))
        return sent
