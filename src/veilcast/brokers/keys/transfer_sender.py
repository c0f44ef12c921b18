"""The holder's side of a hop, once for each next node: it deals, shows disputed shares, and erases.

A share is dealt once to each branch, with fresh randomness for each, and is erased in the same step. If it is needed
again, the publisher makes another attempt. The dealing stays for disputes, as long as one can come
(`transfer_receiver.dispute_window_us`), or until all replicas of the branch confirm that they have their share.

A dealt share is shown only if more than f replicas ask for it. At least one of them is honest, so the replica in
question has signed that it lacks the share. And the shares of at most f replicas are shown. If more lack theirs, some
of those are honest and delay has exceeded its bound. Then another attempt is better than showing their shares to
Byzantine replicas.

A replica that has acknowledged its share in time has it, and its denial is Byzantine. A replica that has not
acknowledged may be honest with a stalled link, or Byzantine. The first times in a period (`ExcuseQuota`) its share is
not shown, the dealing is excluded, and the publisher tries again. After that it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.brokers.keys.redistribution import HeldShare, IssuedDealing, redistribute_share
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.transfer_receiver import dispute_window_us
from veilcast.brokers.queues import ACKNOWLEDGE_US
from veilcast.brokers.routing.view import Branch, Outgoing, RoutingView, all_replicas
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError
from veilcast.machine import Address, Entropy
from veilcast.wire.brokers import DisputeDealing, LastShare, NextShare, ShareReceived


class TransferSender:
    """The sender of one key. Bounded by the branches, which are claims, and their sizes."""

    def __init__(
        self, advertisement: bytes, routes: RoutingView, roster: ReplicaKeys, strikes: ExcuseQuota, bound_us: int
    ) -> None:
        self._advertisement, self._routes, self._roster = advertisement, routes, roster
        self._strikes, self._bound_us = strikes, bound_us
        self._dealt: dict[Scheme, _SentDealing] = {}

    def __len__(self) -> int:
        return len(self._dealt)

    def send(
        self, holding: HeldShare, branches: Sequence[Branch], signing: SigningKey, entropy: Entropy, now: int
    ) -> list[Outgoing]:
        """Deal to all branches. The share is erased; only the dealings stay."""
        sent: list[Outgoing] = []
        readers = [branch for branch in branches if not isinstance(branch, Scheme)]
        if readers:
            sent += self._deliver(holding, readers)
        for branch in branches:
            if isinstance(branch, Scheme):
                handed = redistribute_share(holding, branch, signing, entropy)
                self._dealt[branch] = _SentDealing(
                    handed,
                    now + _ACKNOWLEDGE_BOUNDS * self._bound_us + ACKNOWLEDGE_US,
                    now + dispute_window_us(self._bound_us, branch.max_faulty),
                )
                sent += [
                    Outgoing(place, NextShare(self._advertisement, portion.encode().reveal()))
                    for place, portion in zip(all_replicas(branch), handed.shares, strict=True)
                ]
        holding.erase()
        return sent

    def record_acknowledgement(self, _said: ShareReceived, source: ReplicaId) -> None:
        for scheme, dealt in list(self._dealt.items()):
            if (place := self._under(scheme, source)) is not None:
                dealt.acknowledged[place.index] = None
                if len(dealt.acknowledged) == scheme.size:
                    self._erase(scheme)

    def answer_dispute(self, said: DisputeDealing, source: ReplicaId, now: int) -> list[Outgoing]:
        """The shares to show, to all replicas of the branch. Raises for a share that was never dealt."""
        self.handle(now)
        for scheme, dealt in self._dealt.items():
            place = self._under(scheme, source)
            if dealt.dealing.holder_header.name == said.name and place is not None:
                if max(said.replicas) > scheme.size:
                    raise ForgedError("no replica of the node has this index")
                return [
                    outgoing for replica in said.replicas for outgoing in self._show(scheme, dealt, replica, place, now)
                ]
        return []

    def handle(self, now: int) -> None:
        for scheme, dealt in self._dealt.items():
            if dealt.check_us is not None and dealt.check_us <= now:
                self._look(scheme, dealt)
        for scheme in [scheme for scheme, dealt in self._dealt.items() if dealt.deadline_us <= now]:
            self._erase(scheme)

    def next_us(self) -> int | None:
        return min((dealt.check_us or dealt.deadline_us for dealt in self._dealt.values()), default=None)

    def _look(self, scheme: Scheme, dealt: _SentDealing) -> None:
        dealt.check_us = None
        dealt.late = {place.index: None for place in all_replicas(scheme) if self._is_late(place, dealt)}

    def _is_late(self, place: ReplicaId, dealt: _SentDealing) -> bool:
        portion = dealt.dealing.share_for(place.index).encode().reveal()
        return place.index not in dealt.acknowledged and self._routes.is_unacknowledged(
            place, NextShare(self._advertisement, portion)
        )

    def _show(self, scheme: Scheme, dealt: _SentDealing, replica: int, asking: ReplicaId, now: int) -> list[Outgoing]:
        asked = dealt.asked.setdefault(replica, {})
        asked[asking.index] = None
        if len(asked) <= scheme.max_faulty or replica in dealt.shown or len(dealt.shown) >= scheme.max_faulty:
            return []
        dealt.shown[replica] = None
        if dealt.check_us is not None:
            self._look(scheme, dealt)
        denied = ReplicaId(scheme, replica)
        shown = NextShare(self._advertisement, dealt.dealing.share_for(replica).encode().reveal())
        if replica in dealt.late and self._strikes.excuse(self._roster.key_of(denied), now):
            return []
        return [Outgoing(place, shown) for place in all_replicas(scheme)]

    def _deliver(self, holding: HeldShare, readers: Sequence[Address]) -> list[Outgoing]:
        last = LastShare(self._advertisement, holding.make_delivery().encode().reveal())
        return [Outgoing(reader, last) for reader in readers]

    def _under(self, scheme: Scheme, source: ReplicaId) -> ReplicaId | None:
        return source if source.scheme == scheme else self._roster.id_of(scheme, self._roster.key_of(source))

    def _erase(self, scheme: Scheme) -> None:
        self._dealt.pop(scheme).dealing.erase()


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
    def __init__(self, handed: IssuedDealing, look_us: int, until: int) -> None:
        self.dealing, self.deadline_us = handed, until
        self.check_us: int | None = look_us
        """Time to check which replicas have not acknowledged."""
        self.late: dict[int, None] = {}
        self.acknowledged: dict[int, None] = {}
        self.asked: dict[int, dict[int, None]] = {}
        self.shown: dict[int, None] = {}


_EXCUSES_MAX: Final = 2
_ACKNOWLEDGE_BOUNDS: Final = 2
"""Honest replicas acknowledge within this multiple of the bound on delay, plus the queues' acknowledgement delay."""
