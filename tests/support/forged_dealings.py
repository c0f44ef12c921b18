"""Dealings that Byzantine replicas can forge from a publisher's header alone, and networks without randomness."""

from __future__ import annotations

import random

import msgspec

from support.key_transfer_chain import ADVERT, PUBLISHER, TransferChain, scheme, signing
from veilcast.brokers.keys import agreement
from veilcast.brokers.keys.agreement import AgreementMessage, AttendanceRoll, DealingRef
from veilcast.brokers.keys.agreement import SignedBroadcast as Words
from veilcast.brokers.keys.bulk_key import make_key_id
from veilcast.brokers.keys.redistribution import (
    HeldShare,
    HolderHeader,
    IssuedDealing,
    PublisherHeader,
    PublisherShare,
    redistribute_share,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, Scheme
from veilcast.brokers.keys.unresponsive_replicas import _is_retried
from veilcast.brokers.routing.view import Outgoing
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.verifiable_sharing import Commitments, VerifiableShare
from veilcast.wire.brokers import AgreementWord, FirstShare, FloodKind, NextShare


class FixedRandom:
    """All messages take the same time."""

    def randrange(self, low: int, high: int) -> int:
        return low


def unpicked_keys(count: int) -> list[bytes]:
    """Keys with which no absent replica is waited for."""
    keys = (make_key_id(PUBLISHER.public, number.to_bytes(8, "big")) for number in range(9_999))
    return [key for key in keys if not _is_retried(key, 1)][:count]


def level(world: TransferChain, who: tuple[int, int], whom: tuple[int, int]) -> int:
    """Number of times in a row that this replica has missed that one."""
    way = world.replicas[ReplicaId(scheme(who[0]), who[1])].hardened_forwarder
    return way._unresponsive.level(PUBLISHER.public, signing(*whom).public)


def root_of(world: TransferChain, origin: KeyAttempt) -> PublisherHeader:
    dealt = [
        PublisherShare.decode(message.share).publisher_header
        for message, _, _ in world.shares
        if isinstance(message, FirstShare)
    ]
    return next(root for root in dealt if root.key_attempt == origin)


def forge_dealing(root: PublisherHeader, holder: ReplicaId, to: Scheme) -> IssuedDealing:
    """A valid dealing of a share of a sharing that never existed; for a node of three."""
    assert holder.scheme.threshold == 2
    entropy = random.Random(f"{holder} {root.key_attempt}").randbytes
    value, blinding = Scalar.draw(entropy), Scalar.draw(entropy)
    first = root.commitments.points[0]
    second = (verifiable_sharing._commit(value, blinding) - first) / Scalar.of(holder.index)
    held = HeldShare(root, holder, Commitments((first, second)), VerifiableShare(holder.index, value, blinding))
    return redistribute_share(held, to, signing(holder.scheme.node[0], holder.index), entropy)


def forged_share(root: PublisherHeader, holder: ReplicaId, to: ReplicaId) -> Outgoing:
    portion = forge_dealing(root, holder, to.scheme).share_for(to.index)
    return Outgoing(to, NextShare(ADVERT, portion.encode().reveal()))


def brief_roll_message(
    world: TransferChain, by: ReplicaId, origin: KeyAttempt, headers: list[HolderHeader], absent: tuple[int, ...]
) -> AgreementWord:
    """A brief roll signed by this replica: it has these dealings, and waits for none of those replicas."""
    old = headers[0].old_scheme
    about = digest(msgspec.msgpack.encode((origin, old)), purpose=b"vc/attend")
    roll = AttendanceRoll(
        {header.holder: DealingRef(header.name, header.old_sharing) for header in headers}, absent, (), is_brief=True
    )
    word = Words(about, by, world.replica_keys, signing(by.scheme.node[0], by.index)).announce(
        agreement.encode_roll(roll)
    )
    said = AgreementMessage(old, by.scheme, (word,)).encode()
    return AgreementWord(origin.key, origin.attempt, old.node, FloodKind.ATTENDANCE, said)
