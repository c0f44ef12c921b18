"""Byzantine replicas, one at every node, that know all rules of a hop: no key is stopped or revealed, and no honest
replica is blamed."""

from __future__ import annotations

from heapq import heappush

import msgspec
import pytest

from support.byzantine_scripts import ANY, change_table, drop, follow_protocol, without
from support.forged_dealings import FixedRandom, brief_roll_message, forged_share, level, root_of, unpicked_keys
from support.key_transfer_chain import (
    ADVERT,
    PUBLISHER,
    ByzantineReplica,
    CoalitionKnowledge,
    Script,
    TransferChain,
    U,
    key_arrived,
    scheme,
    signing,
)
from veilcast.brokers.keys.agreement import AgreementMessage, EndorsedStatement
from veilcast.brokers.keys.redistribution import DealtShare, HolderHeader
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.crypto.group import Scalar
from veilcast.crypto.verifiable_sharing import VerifiableShare
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, FloodKind, LastShare, NextShare, ShareReceived


def at(hop: int, index: int) -> ReplicaId:
    return ReplicaId(scheme(hop), index)


def headers_of(faulty: ByzantineReplica, key: bytes) -> list[HolderHeader]:
    """The signed headers of the dealings of this key."""
    dealt = [
        DealtShare.decode(message.share).holder_header
        for message, _ in faulty.received
        if isinstance(message, NextShare)
    ]
    return list({header.holder: header for header in dealt if header.key_attempt.key == key}.values())


def passes_on_nothing(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
    """Makes its own statements, and relays none."""
    message = outgoing.message
    others = isinstance(message, AgreementWord) and any(
        word.author != 1 for word in AgreementMessage.decode(message.word).statements
    )
    return [] if others else [(0, outgoing)]


LATER = b"l" * 16
"""An advertisement that is not known at first."""

DENY = change_table(lambda table, to: without(table, 2))
"""Denies the share of holder 2, so that the hop takes as long as possible."""


@pytest.mark.parametrize("attempts", [3])
def test_a_very_early_dealing_makes_no_replica_give_up(attempts: int) -> None:
    """The last Byzantine replica but one needs no share for it: the publisher's header is enough. Those before it delay
    every hop, and the last one is silent, so that each honest replica of its node is needed."""
    world = TransferChain(
        5, 3, {(1, 1): follow_protocol} | {(hop, 1): DENY for hop in (2, 3, 4)} | {(5, 1): drop(*ANY)}
    )
    (key,) = unpicked_keys(1)
    for attempt in range(attempts):
        origin = world.deal(attempt, key=key)
        world.send(at(4, 1), forged_share(root_of(world, origin), at(4, 1), at(5, 3)))
        world.run(150 * U)
        assert key_arrived(world, origin)
    assert (5, 2) not in world.proven_faulty()
    assert (5, 3) not in world.proven_faulty()
    assert not level(world, (5, 2), (5, 3))


def repeat(world: TransferChain, key: bytes, victim: ReplicaId) -> None:
    """The Byzantine replica of node 1 deals again what it dealt once, and that of node 2 shows the start proof."""
    dealt = [m for m, *ends in world.shares if isinstance(m, NextShare) and ends == [at(1, 1), victim]]
    again = next(message for message in dealt if DealtShare.decode(message.share).holder_header.key_attempt.key == key)
    world.send(at(1, 1), Outgoing(victim, again))
    faulty = world.replicas[at(2, 1)]
    assert isinstance(faulty, ByzantineReplica)
    headers = headers_of(faulty, key)
    root = DealtShare.decode(again.share).publisher_header
    said = AgreementMessage(scheme(1), scheme(2), (), root, tuple(headers), True)
    world.send(
        at(2, 1), Outgoing(victim, AgreementWord(key, 0, scheme(1).node, FloodKind.ATTENDANCE, said.encode())), U
    )


def test_an_old_dealing_starts_nothing_so_no_replica_makes_two_statements() -> None:
    world = TransferChain(2, 3, {(1, 1): follow_protocol, (2, 1): follow_protocol})
    origin = world.deal()
    world.run(450 * U)
    assert key_arrived(world, origin)
    faulty = world.replicas[at(2, 1)]
    assert isinstance(faulty, ByzantineReplica)
    old = [message for message, source in faulty.received if isinstance(message, AgreementWord) and source == at(2, 2)]
    repeat(world, origin.key, at(2, 2))
    repeat(world, origin.key, at(2, 3))
    for message in old:
        world.send(at(2, 1), Outgoing(at(2, 3), message))
    world.run(100 * U)
    assert world.proven_faulty() == []
    assert all(replica.key_forwarder.sizes()["hops"] == 0 for replica in world.honest)


def test_replayed_old_keys_use_no_quota() -> None:
    world = TransferChain(2, 3, {(1, 1): follow_protocol, (2, 1): follow_protocol}, keys_max=16)
    *old, new = unpicked_keys(5)
    for key in old:
        world.deal(key=key)
        world.run(60 * U)
    world.run(450 * U)
    for key in old:
        repeat(world, key, at(2, 3))
    world.run(3 * U)
    assert world.replicas[at(2, 3)].key_forwarder.sizes()["passages"] == 0
    origin = world.deal(key=new)
    world.run(100 * U)
    assert key_arrived(world, origin)
    assert not level(world, (2, 2), (2, 3))


def test_a_key_is_fresh_only_while_its_transfer_is_remembered() -> None:
    """Otherwise there would be a time in which it could pass again."""
    world = TransferChain(2, 3, {(1, 1): follow_protocol, (2, 1): follow_protocol})
    origin = world.deal()
    for _ in range(60):
        world.run(10 * U)
        repeat(world, origin.key, at(2, 2))
    world.run(100 * U)
    assert world.proven_faulty() == []
    assert world.messages["DisputeDealing"] == 0


def test_due_messages_are_sent_although_an_invalid_statement_arrives() -> None:
    """Holder 1 leaves out replica 2 and shows nothing to replica 3, to which its own Byzantine replica relays nothing.
    An invalid statement reaches replica 2 exactly when its announcement is due."""

    def leaves_out(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if isinstance(outgoing.message, NextShare) and isinstance(outgoing.to, ReplicaId):
            index = DealtShare.decode(outgoing.message.share).share.index
            return [] if outgoing.to == at(2, 2) or index != outgoing.to.index else [(0, outgoing)]
        return [(0, outgoing)]

    world = TransferChain(2, 3, {(1, 1): leaves_out, (2, 1): passes_on_nothing})
    world.rng = FixedRandom()  # type: ignore[assignment]
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(U)
    forwarder = world.replicas[at(2, 2)].hardened_forwarder
    (hop,) = forwarder._receivers.values()
    assert hop._begun_us is not None
    spoilt = AgreementMessage(scheme(1), scheme(2), (EndorsedStatement(1, b"x", bytes(64)),)).encode()
    word = AgreementWord(key, 0, scheme(1).node, FloodKind.ATTENDANCE, spoilt)
    heappush(world._queue, (hop._begun_us + 4 * U, -1, at(2, 1), at(2, 2), word))
    world.run(60 * U)
    assert key_arrived(world, origin)
    assert set(world.proven_faulty()) <= {(1, 1), (2, 1)}
    assert not level(world, (2, 3), (2, 2))


def test_due_messages_are_sent_although_an_invalid_early_share_is_released() -> None:
    """Holder 1 has left an invalid share with replica 2, for an advertisement that becomes known exactly when the
    replica's announcement is due. The announcement must not be lost with the share: the node's own Byzantine replica is
    silent."""

    def spoils(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare):
            return [(0, outgoing)]
        if outgoing.to != at(2, 2):
            return []
        portion = DealtShare.decode(outgoing.message.share)
        share = VerifiableShare(portion.share.index, portion.share.value + Scalar.of(1), portion.share.blinding)
        spoilt = DealtShare(portion.publisher_header, portion.holder_header, share).encode().reveal()
        return [(0, Outgoing(at(2, 2), NextShare(LATER, spoilt)))]

    world = TransferChain(2, 3, {(1, 1): spoils, (2, 1): drop(*ANY)})
    world.rng = FixedRandom()  # type: ignore[assignment]
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(U)
    replica = world.replicas[at(2, 2)]
    forwarder = replica.hardened_forwarder
    (hop,) = forwarder._receivers.values()
    assert hop._begun_us is not None
    due = hop._begun_us + 4 * U
    world.run(due - 1 - world.now)
    world.now = due
    replica.routes.other_publishers[LATER] = PUBLISHER.public
    replica.key_forwarder.on_advertisement(LATER, due)
    assert any(isinstance(outgoing.message, AgreementWord) for outgoing in replica.key_forwarder.outbox)
    world.run(60 * U)
    assert key_arrived(world, origin)
    assert world.proven_faulty() == [(1, 1)]


def test_a_receiver_without_an_honest_holder_still_has_enough_dealings() -> None:
    """The Byzantine replica of node 2 once acknowledged nothing and denied the share of holder 2, and was excused.
    Since then all skip holder 2. The Byzantine replica of node 1 deals shares of a sharing that never existed."""
    faulty_set: list[bool] = []

    def denies(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if faulty_set:
            return [(0, outgoing)]
        return [] if isinstance(outgoing.message, ShareReceived | LastShare) else DENY(faulty, outgoing, now)

    def forges(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not faulty_set or not isinstance(outgoing.message, NextShare) or not isinstance(outgoing.to, ReplicaId):
            return [(0, outgoing)]
        root = DealtShare.decode(outgoing.message.share).publisher_header
        return [(0, forged_share(root, at(1, 1), outgoing.to))]

    world = TransferChain(2, 3, {(1, 1): forges, (2, 1): denies})
    world.unacknowledging = [at(2, 1)]
    first, *later = unpicked_keys(6)
    world.deal(key=first)
    world.run(60 * U)
    assert level(world, (2, 2), (1, 2)) == level(world, (2, 3), (1, 2)) == 1
    does_without(world, at(2, 1), signing(1, 2).public)
    world.unacknowledging = []
    faulty_set.append(True)
    for key in later:
        origin = world.deal(key=key)
        world.run(40 * U)
        assert key_arrived(world, origin)


def test_two_honest_replicas_that_missed_one_another_cannot_be_split() -> None:
    """The link between them stalled with one key. With the next, Byzantine replicas make one of them finish by its
    brief roll so late that its share is disputed at the next node, when it has reached one honest replica there."""
    one, other, liar_between = at(2, 2), at(2, 3), at(2, 1)
    faulty_set: list[bytes] = []

    def late(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        held = faulty_set and isinstance(outgoing.message, NextShare) and outgoing.to == other
        return [(U * 385 // 100 if held else 0, outgoing)]

    def two_sided(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not faulty_set:
            return passes_on_nothing(faulty, outgoing, now)
        sent = [] if isinstance(outgoing.message, AgreementWord) and outgoing.to == other else [(0, outgoing)]
        headers = headers_of(faulty, faulty_set[0])
        if len(headers) == 3 and "said" not in faulty.memory:
            faulty.memory["said"] = True
            sent.append(
                (
                    0,
                    Outgoing(
                        other, brief_roll_message(faulty.world, liar_between, headers[0].key_attempt, headers, (2,))
                    ),
                )
            )
        return sent

    world = TransferChain(3, 3, {(1, 1): late, (2, 1): two_sided, (3, 1): follow_protocol})
    world.rng = FixedRandom()  # type: ignore[assignment]
    first, second, third = unpicked_keys(3)
    world.extra_delay = lambda source, to, message: (
        40 * U if isinstance(message, AgreementWord) and {source, to} == {one, other} else 0
    )
    assert passed_by(world, first, 60)
    assert level(world, (2, 2), (2, 3)) == level(world, (2, 3), (2, 2)) == 1

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound."""
        if not isinstance(message, NextShare) or not isinstance(source, ReplicaId) or not isinstance(to, ReplicaId):
            return 0
        held = to.index == 2 if source == other else to.index != 2
        return U * 7 // 10 if held and to.scheme == scheme(3) else 0

    world.extra_delay = slow
    does_without(world, liar_between, signing(2, 3).public)
    faulty_set.append(second)
    assert passed_by(world, second, 100)
    assert not CoalitionKnowledge(world).has_key()
    assert set(world.proven_faulty()) <= {(2, 1)}
    assert passed_by(world, third, 100)
    assert level(world, (2, 2), (2, 3)) == level(world, (2, 3), (2, 2)) == 0, "who speaks in time is waited for again"


def does_without(world: TransferChain, faulty: ReplicaId, whom: bytes) -> None:
    """A Byzantine replica that joins the brief rolls of others."""
    forwarder = world.replicas[faulty].hardened_forwarder
    forwarder._unresponsive.record_missed(PUBLISHER.public, whom, 0)


def passed_by(world: TransferChain, key: bytes, units: int) -> bool:
    origin = world.deal(key=key)
    world.run(units * U)
    return key_arrived(world, origin)


@pytest.mark.parametrize("known", [False, True])
def test_a_transfer_that_outlives_its_scheme_breaks_nothing(known: bool) -> None:
    """Two orders for one node in quick succession."""
    silent: Script = drop(*ANY)
    world = TransferChain(2, 3, {(1, 1): silent})
    first, second = unpicked_keys(2)
    if known:
        assert passed_by(world, first, 60)
    world.deal(key=second)
    world.run(U // 4)
    for version in (1, 2):
        world.replica_keys.add(scheme(1, 3, version), [signing(1, index, version).public for index in (1, 2, 3)])
    world.run(60 * U)
    assert world.proven_faulty() == []


def test_shares_shown_before_a_dispute_are_checked_before_they_are_stored() -> None:
    world = TransferChain(2, 3, {(1, 1): drop(NextShare), (2, 1): drop(AgreementWord)})
    world.rng = FixedRandom()  # type: ignore[assignment]
    (key,) = unpicked_keys(1)
    origin = world.deal(key=key)
    world.run(5 * U)
    replica = world.replicas[at(2, 2)]
    forwarder = replica.hardened_forwarder
    (hop,) = forwarder._receivers.values()
    assert hop._reception.has_announced
    long = bytes((1, 254)) + bytes(32 * 254)
    root = msgspec.structs.replace(root_of(world, origin), points=long)
    header = HolderHeader(origin, scheme(1), 1, scheme(2), long, long, bytes(64))
    for index in (1, 3, 4, 255):
        portion = DealtShare(root, header, VerifiableShare(index, Scalar.of(1), Scalar.of(1)))
        replica.receive(NextShare(ADVERT, portion.encode().reveal()), at(1, 1), world.now)
    assert not hop._early_shown
    assert sum(replica.refused.values()) == 4


@pytest.mark.parametrize("early", [415, 420, 425])
def test_honest_messages_for_a_transfer_opened_early_by_a_byzantine_holder_are_not_lost(early: int) -> None:
    """The Byzantine replica of node 4 deals to replica 3 of node 5 so long before the others, in tenths of a unit, that
    the opened transfer would be dropped between the messages of honest replicas; the Byzantine replica of node 5 is
    silent."""

    def build() -> tuple[TransferChain, list[int]]:
        world = TransferChain(
            5, 3, {(1, 1): follow_protocol} | {(hop, 1): DENY for hop in (2, 3, 4)} | {(5, 1): drop(*ANY)}
        )
        world.rng = FixedRandom()  # type: ignore[assignment]
        dealt: list[int] = []

        def slow(source: Peer, to: Peer, message: Message) -> int:
            if not isinstance(message, NextShare) or not isinstance(to, ReplicaId) or to.scheme != scheme(5):
                return 0
            if source != at(4, 1):
                dealt.append(world.now)
            return U * 7 // 10 if to == at(5, 3) else 0

        world.extra_delay = slow
        return world, dealt

    (key,) = unpicked_keys(1)
    world, dealt = build()
    begun = world.now
    world.deal(key=key)
    world.run(150 * U)
    took = dealt[0] - begun
    world, _ = build()
    origin = world.deal(key=key)
    world.run(took - early * U // 10)
    world.send(at(4, 1), forged_share(root_of(world, origin), at(4, 1), at(5, 3)))
    world.run(150 * U)
    assert key_arrived(world, origin)
    assert not level(world, (5, 2), (5, 3))


def test_a_key_that_becomes_stale_during_a_transfer_is_accepted_whole() -> None:
    """The publisher's clock is slow. A replica that refused one honest share of a started transfer would announce that
    it lacks it."""
    late, holder = at(3, 3), at(2, 2)
    (key,) = unpicked_keys(1)
    for age in [U * tenths // 10 for tenths in range(2, 14)]:
        world = TransferChain(3, 3, {(hop, 1): follow_protocol for hop in (1, 2, 3)})
        world.rng = FixedRandom()  # type: ignore[assignment]
        world.extra_delay = lambda source, to, message: (
            U * 7 // 10 if isinstance(message, NextShare) and (source, to) == (holder, late) else 0
        )
        clock, world.now = world.now, world.now - world.config.hold_us + age
        world.deal(key=key)
        world._queue = [(when + clock - world.now, *rest) for when, *rest in world._queue]  # type: ignore[misc]
        world._last.clear()
        world.now = clock
        world.run(100 * U)
        assert not CoalitionKnowledge(world).has_key()
        assert world.messages["DisputeDealing"] == 0
        assert world.proven_faulty() == []


def test_early_statements_are_handled_as_soon_as_the_transfer_begins() -> None:
    """One statement waits, and the next one, of another replica, proves that the transfer has begun."""
    world = TransferChain(2, 5)
    world.rng = FixedRandom()  # type: ignore[assignment]
    late = ReplicaId(scheme(2, 5), 5)
    world.extra_delay = lambda source, to, message: (
        3 * U if isinstance(message, NextShare) and to == late and source != ReplicaId(scheme(1, 5), 1) else 0
    )
    (key,) = unpicked_keys(1)
    world.deal(key=key)
    forwarder = world.replicas[late].hardened_forwarder
    while not forwarder._early_messages:
        world.run(U // 20)
    (hop,) = forwarder._receivers.values()
    while hop._begun_us is None:
        world.run(U // 20)
    assert len(forwarder._early_messages) == 0
    world.run(60 * U)
    assert world.proven_faulty() == []


def test_of_a_start_proof_no_more_is_kept_than_the_next_replica_needs() -> None:
    world = TransferChain(2, 3)
    origin = world.deal()
    world.run(2 * U)
    dealt = [message for message, _, _ in world.shares if isinstance(message, NextShare)]
    headers = [DealtShare.decode(message.share).holder_header for message in dealt]
    proof = list({header.holder: header for header in headers}.values())
    replica = world.replicas[at(2, 2)].hardened_forwarder
    receiver = replica._make_receiver((origin, scheme(1), scheme(2)), PUBLISHER.public)
    word = AgreementMessage(scheme(1), scheme(2), (), root_of(world, origin), tuple(proof * 9), True)
    receiver.accept_message(FloodKind.ATTENDANCE, word, at(2, 3), world.now)
    kept = receiver._reception.start_proof()
    assert kept is not None
    assert len(proof) == 3
    assert len(kept[1]) == scheme(1).threshold
