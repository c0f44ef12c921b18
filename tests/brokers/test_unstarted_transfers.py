"""Nodes of five: shares and statements that arrive before a transfer begins are kept until it does."""

from __future__ import annotations

import random
from functools import cache

import pytest

from support.byzantine_scripts import change_table, combine, drop, follow_protocol, without
from support.forged_dealings import FixedRandom, root_of, unpicked_keys
from support.key_transfer_chain import ADVERT, Script, TransferChain, U, key_arrived, scheme, signing
from veilcast.brokers.keys.agreement import AgreementMessage, EndorsedStatement
from veilcast.brokers.keys.hardened_forwarder import HardenedKeyForwarder
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, PublisherHeader, redistribute_share
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.verifiable_sharing import Commitments, VerifiableShare
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, FloodKind, NextShare

DENY: Script = change_table(lambda table, to: without(table, 3))
"""Denies the share of an honest holder, so that the hop takes as long as possible."""


def at(hop: int, index: int) -> ReplicaId:
    return ReplicaId(scheme(hop, 5), index)


EARLY, LATE, HELD = at(3, 1), at(4, 5), at(3, 3)


def forge_dealing_of_five(root: PublisherHeader, holder: ReplicaId, to: ReplicaId) -> Outgoing:
    """A valid dealing of a share of a sharing that never existed; for a node of five."""
    entropy = random.Random(f"{holder} {root.key_attempt}").randbytes
    value, blinding, third = (Scalar.draw(entropy) for _ in range(3))
    first, square = root.commitments.points[0], Scalar.of(holder.index * holder.index)
    last = verifiable_sharing._commit(third, third)
    second = (verifiable_sharing._commit(value, blinding) - first - last * square) / Scalar.of(holder.index)
    held = HeldShare(root, holder, Commitments((first, second, last)), VerifiableShare(holder.index, value, blinding))
    portion = redistribute_share(held, to.scheme, signing(holder.scheme.node[0], holder.index), entropy).share_for(
        to.index
    )
    return Outgoing(to, NextShare(ADVERT, portion.encode().reveal()))


def build() -> tuple[TransferChain, list[int]]:
    """Two Byzantine replicas at each node; one of them delays its hop, and that of node 3 deals nothing. Returns when
    others deal."""
    byzantine: dict[tuple[int, int], Script] = {
        (hop, index): follow_protocol for hop in (1, 2, 3, 4) for index in (1, 2)
    }
    world = TransferChain(4, 5, byzantine | {(2, 1): DENY, (3, 1): combine(DENY, drop(NextShare))})
    world.rng = FixedRandom()  # type: ignore[assignment]
    dealt: list[int] = []

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound: to one replica the share of one holder comes sooner than the others."""
        if not isinstance(message, NextShare) or to != LATE or source == EARLY:
            return 0
        dealt.append(world.now)
        return 0 if source == HELD else U * 6 // 10

    world.extra_delay = slow
    return world, dealt


@cache
def honest_deal_us() -> int:
    """Time after the publisher's dealing."""
    world, dealt = build()
    (key,) = unpicked_keys(1)
    begun = world.now
    world.deal(key=key)
    world.run(80 * U)
    return dealt[0] - begun


@pytest.mark.parametrize("early", [197, 237, 277, 557])
def test_a_transfer_opened_early_is_kept_while_its_key_is_fresh(early: int) -> None:
    """The Byzantine holder deals to one replica so long before the others, in tenths of a unit, that the opened
    transfer could be dropped between the messages of honest replicas: after the dispute window, after the quiet period,
    after one or two durations of a hop. A replica that had lost an honest share would announce that it lacks it, the
    holder would show it, and with their other shares two Byzantine replicas at each node would have the key."""
    world, dealt = build()
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(honest_deal_us() - early * U // 10)
    world.send(EARLY, forge_dealing_of_five(root_of(world, origin), EARLY, LATE))
    world.run(U // 5)
    forwarder = world.replicas[LATE].hardened_forwarder
    (hop,) = forwarder._receivers.values()
    assert hop.holder_count == 1
    assert not hop.has_begun
    world.run(150 * U)
    assert dealt
    assert key_arrived(world, origin)
    assert not any(
        isinstance(message, NextShare) and source == HELD and DealtShare.decode(message.share).share.index != to.index
        for message, source, to in world.shares
        if isinstance(to, ReplicaId)
    ), "what an honest holder dealt to an honest replica is shown to nobody"


def waiting(
    byzantine: dict[tuple[int, int], Script] | None = None,
) -> tuple[TransferChain, HardenedKeyForwarder, ReplicaId]:
    """One replica of node 2 gets its shares when all others have announced and have proven that the transfer has
    begun."""
    world, late = TransferChain(2, 5, byzantine, keys_max=16), at(2, 5)
    world.rng = FixedRandom()  # type: ignore[assignment]

    def slow(source: Peer, to: Peer, message: Message) -> int:
        if not isinstance(message, NextShare) or to != late:
            return 0
        return 2 * U if source == at(1, 1) else 3 * U

    world.extra_delay = slow
    forwarder = world.replicas[late].hardened_forwarder
    return world, forwarder, late


def test_a_start_proof_releases_all_waiting_statements_of_its_transfer() -> None:
    """In any order: one share has arrived, which starts nothing, and no other statement may follow."""
    world, forwarder, _ = waiting()
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(2 * U)
    waits = [kept.item[1] for kept in forwarder._early_messages._entries.values()]
    assert not forwarder._receivers
    assert [said.publisher_header is None for said in waits] == [True] * 4 + [False] * 4, "those that show it came last"
    assert all(said.statements for said in waits[:4])
    while not forwarder._receivers:
        world.run(U // 20)
    (hop,) = forwarder._receivers.values()
    assert hop.holder_count == 1
    assert hop.has_begun
    assert len(forwarder._early_messages) == 0
    assert hop._announced_by == {1, 2, 3, 4}, "who has spoken is not absent"
    world.run(60 * U)
    assert key_arrived(world, origin)


def test_waiting_statements_are_not_evicted_by_those_of_other_replicas() -> None:
    """Two Byzantine replicas send as much as they can before, on this transfer and on others that never come."""
    world, forwarder, late = waiting({(2, 1): follow_protocol, (2, 2): follow_protocol})
    (key,) = unpicked_keys(1)
    for faulty in (at(2, 1), at(2, 2)):
        for number in range(600):
            name = key if number % 2 else number.to_bytes(len(key), "big")
            word = AgreementMessage(
                scheme(1, 5), scheme(2, 5), (EndorsedStatement(faulty.index, bytes(2_000), bytes(64)),)
            ).encode()
            world.send(faulty, Outgoing(late, AgreementWord(name, 0, scheme(1, 5).node, FloodKind.ATTENDANCE, word)))
    world.run(U)
    assert 0 < len(forwarder._early_messages) <= 2 * 10 * 16, "of each so much and no more"
    origin = world.deal(key=key)
    world.run(2 * U)
    authors = [kept.sender.index for kept in forwarder._early_messages._entries.values()]
    assert authors.count(3) == authors.count(4) == 2
    while not forwarder._receivers:
        world.run(U // 20)
    (hop,) = forwarder._receivers.values()
    assert hop.has_begun
    assert {3, 4} <= hop._announced_by
    world.run(60 * U)
    assert key_arrived(world, origin)
