"""The holder's side of a hop, once for each next node: it deals, shows disputed shares, and erases.

1. Property: no two branches, and no two attempts, together have enough shares of one polynomial.
   Reason: a share is dealt once to each branch, with fresh randomness for each, and is erased in the same step. If it
   is needed again, the publisher makes another attempt.

2. Property: Byzantine replicas learn no share of an honest replica from an honest holder that is asked to show it.
   Assumption: the bound on delay.
   Reason: a share is shown only if more than f replicas ask for it. One of these is honest, so it has seen a signed
   roll of the replica in question that lacks the dealing. An honest replica's roll lists every honest dealing
   (`transfer_receiver`, property 3). So the replica is Byzantine, and the coalition has its share anyway.
   If f were enough to ask, Byzantine replicas could have any share shown.

3. Property: where the bound on delay was exceeded, at most f shares of a dealing are shown.
   Reason: if more than f replicas lack theirs, some of those are honest. Then another attempt is better than showing
   their shares. This limits the damage and does not prevent it: with one honest share beside their own f, Byzantine
   replicas have f + 1 shares of this dealing (docs/limitations.md, "A bound on delay").

4. Property: a stalled link of an honest replica does not have its share shown, unless it stalls again and again.
   Reason: an honest replica acknowledges a share within 2 u and the acknowledgement delay of the queues: 1 u for the
   share and 1 u for the acknowledgement (`_ACKNOWLEDGE_BOUNDS` = 2). One that has acknowledged by then has the share,
   and its denial is Byzantine: the share is shown. One that has not may be honest with a stalled link, or Byzantine.
   Its share is not shown, the dealing is excluded, and the publisher tries again, for the first 2 times in a period
   (`ExcuseQuota`, `_EXCUSES_MAX` = 2). After that it is shown, or a Byzantine replica could stop every key so.
   Constants: with `_ACKNOWLEDGE_BOUNDS` = 1, a prompt Byzantine replica counts as late and is excused. From 4 on, a
   replica that has announced that it lacks the share could acknowledge it before the check.
   `_EXCUSES_MAX` weighs the two risks, and no proof relies on it: with 1, a link that stalls while two keys pass has
   the second share shown; each further excuse lets a Byzantine replica stop one more attempt in the period.

5. Property: the dealing is kept as long as it can be asked for, and no longer.
   Reason: it is kept for `transfer_receiver.dispute_window_us`, or until all replicas of the branch confirm that they
   have their share: then no honest one asks, and f are too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.brokers.keys.redistribution import HeldShare, IssuedDealing, redistribute_share
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.transfer_receiver import dispute_window_us
from veilcast.brokers.peer_sessions import ACKNOWLEDGE_US
from veilcast.brokers.routing.view import Branch, Outgoing, RoutingView, all_replicas
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError
from veilcast.machine import Address, Entropy
from veilcast.wire.brokers import DisputeDealing, LastShare, NextShare, ShareReceived


class TransferSender:
    """The sender of one key. Bounded by the branches, which are claims, and their sizes."""

    def __init__(
        self, advertisement: bytes, routes: RoutingView, replica_keys: ReplicaKeys, excuses: ExcuseQuota, bound_us: int
    ) -> None:
        self._advertisement, self._routes, self._replica_keys = advertisement, routes, replica_keys
        self._excuses, self._bound_us = excuses, bound_us
        self._dealings: dict[Scheme, _SentDealing] = {}

    def __len__(self) -> int:
        return len(self._dealings)

    def send(
        self, held: HeldShare, branches: Sequence[Branch], signing: SigningKey, entropy: Entropy, now: int
    ) -> list[Outgoing]:
        """Deal to all branches. The share is erased; only the dealings stay."""
        sent: list[Outgoing] = []
        clients = [branch for branch in branches if not isinstance(branch, Scheme)]
        if clients:
            sent += self._deliver_to_clients(held, clients)
        for branch in branches:
            if isinstance(branch, Scheme):
                dealing = redistribute_share(held, branch, signing, entropy)
                self._dealings[branch] = _SentDealing(
                    dealing,
                    now + _ACKNOWLEDGE_BOUNDS * self._bound_us + ACKNOWLEDGE_US,
                    now + dispute_window_us(self._bound_us, branch.max_faulty),
                )
                sent += [
                    Outgoing(replica_id, NextShare(self._advertisement, share.encode().reveal()))
                    for replica_id, share in zip(all_replicas(branch), dealing.shares, strict=True)
                ]
        held.erase()
        return sent

    def record_acknowledgement(self, _message: ShareReceived, source: ReplicaId) -> None:
        for scheme, sent_dealing in list(self._dealings.items()):
            if (replica_id := self._id_under(scheme, source)) is not None:
                sent_dealing.acknowledged[replica_id.index] = None
                if len(sent_dealing.acknowledged) == scheme.size:
                    self._erase(scheme)

    def answer_dispute(self, message: DisputeDealing, source: ReplicaId, now: int) -> list[Outgoing]:
        """The shares to show, to all replicas of the branch. Raises for a share that was never dealt."""
        self.handle(now)
        for scheme, sent_dealing in self._dealings.items():
            replica_id = self._id_under(scheme, source)
            if sent_dealing.dealing.holder_header.name == message.name and replica_id is not None:
                if max(message.replicas) > scheme.size:
                    raise ForgedError("no replica of the node has this index")
                return [
                    outgoing
                    for replica in message.replicas
                    for outgoing in self._show(scheme, sent_dealing, replica, replica_id, now)
                ]
        return []

    def handle(self, now: int) -> None:
        for scheme, sent_dealing in self._dealings.items():
            if sent_dealing.check_us is not None and sent_dealing.check_us <= now:
                self._check_acknowledged(scheme, sent_dealing)
        for scheme in [scheme for scheme, sent_dealing in self._dealings.items() if sent_dealing.deadline_us <= now]:
            self._erase(scheme)

    def next_us(self) -> int | None:
        return min(
            (sent_dealing.check_us or sent_dealing.deadline_us for sent_dealing in self._dealings.values()),
            default=None,
        )

    def _check_acknowledged(self, scheme: Scheme, sent_dealing: _SentDealing) -> None:
        sent_dealing.check_us = None
        sent_dealing.late = {
            replica_id.index: None for replica_id in all_replicas(scheme) if self._is_late(replica_id, sent_dealing)
        }

    def _is_late(self, replica_id: ReplicaId, sent_dealing: _SentDealing) -> bool:
        share = sent_dealing.dealing.share_for(replica_id.index).encode().reveal()
        return replica_id.index not in sent_dealing.acknowledged and self._routes.is_unacknowledged(
            replica_id, NextShare(self._advertisement, share)
        )

    def _show(
        self, scheme: Scheme, sent_dealing: _SentDealing, replica: int, asking: ReplicaId, now: int
    ) -> list[Outgoing]:
        asked_by = sent_dealing.asked_by.setdefault(replica, {})
        asked_by[asking.index] = None
        if (
            len(asked_by) <= scheme.max_faulty
            or replica in sent_dealing.shown
            or len(sent_dealing.shown) >= scheme.max_faulty
        ):
            return []
        sent_dealing.shown[replica] = None
        if sent_dealing.check_us is not None:
            self._check_acknowledged(scheme, sent_dealing)
        denied = ReplicaId(scheme, replica)
        shown = NextShare(self._advertisement, sent_dealing.dealing.share_for(replica).encode().reveal())
        if replica in sent_dealing.late and self._excuses.excuse(self._replica_keys.key_of(denied), now):
            return []
        return [Outgoing(replica_id, shown) for replica_id in all_replicas(scheme)]

    def _deliver_to_clients(self, held: HeldShare, clients: Sequence[Address]) -> list[Outgoing]:
        last = LastShare(self._advertisement, held.make_delivery().encode().reveal())
        return [Outgoing(client, last) for client in clients]

    def _id_under(self, scheme: Scheme, source: ReplicaId) -> ReplicaId | None:
        return (
            source if source.scheme == scheme else self._replica_keys.id_of(scheme, self._replica_keys.key_of(source))
        )

    def _erase(self, scheme: Scheme) -> None:
        self._dealings.pop(scheme).dealing.erase()


class ExcuseQuota:
    """How often each replica was excused for a missing acknowledgement within `keep_us`. Bounded by the replicas of the
    overlay."""

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._given: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._given)

    def excuse(self, key: bytes, now: int) -> bool:
        """True if the replica has an excuse left; it is used up then."""
        for other in list(self._given):
            self._given[other] = [when for when in self._given[other] if when > now]
            if not self._given[other]:
                del self._given[other]
        given = self._given.get(key, [])
        if len(given) >= _EXCUSES_MAX:
            return False
        self._given[key] = [*given, now + self._keep_us]
        return True


class _SentDealing:
    def __init__(self, dealing: IssuedDealing, check_us: int, deadline_us: int) -> None:
        self.dealing, self.deadline_us = dealing, deadline_us
        self.check_us: int | None = check_us
        """Time to check which replicas have not acknowledged."""
        self.late: dict[int, None] = {}
        self.acknowledged: dict[int, None] = {}
        self.asked_by: dict[int, dict[int, None]] = {}
        self.shown: dict[int, None] = {}


_EXCUSES_MAX: Final = 2
"""See property 4."""
_ACKNOWLEDGE_BOUNDS: Final = 2
"""See property 4: in multiples of the bound on delay, plus the queues' acknowledgement delay."""
