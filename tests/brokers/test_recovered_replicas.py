"""Byzantine replicas cannot exploit replicas that others skip, whether honest and recovered or Byzantine."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from support.byzantine_scripts import change_roll, drop, follow_protocol, without
from support.forged_dealings import FixedRandom, unpicked_keys
from support.key_transfer_chain import QUIET, SECRET, ByzantineReplica, Script, TransferChain, U, key_arrived, scheme
from veilcast.brokers.keys.agreement import AttendanceRoll, DealingRef
from veilcast.brokers.keys.redistribution import DealtShare
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, LastShare, NextShare, ShareReceived


def after_a_while(script: Script) -> tuple[Script, list[bool]]:
    faulty_set: list[bool] = []

    def moody(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return script(faulty, outgoing, now) if faulty_set else [(0, outgoing)]

    return moody, faulty_set


def back(world: TransferChain, *places: tuple[int, int]) -> None:
    """These were absent while a key passed, and are back."""
    key, _ = unpicked_keys(2)
    for hop, index in places:
        world.kill(hop, index)
    origin = world.deal(key=key)
    world.run(3 * QUIET)
    assert all(reader.reassembled.get(origin) == SECRET for reader in world.subscribers.values())


def test_a_recovered_replica_that_is_late_shows_no_shares_of_honest_replicas() -> None:
    """Replica 3 of node 2 is skipped there, and waited for by all of node 3, where all were absent since. A Byzantine
    replica makes it deal so late that one honest replica of node 3 has announced what it lacks, and another has not."""

    def late(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        held = isinstance(outgoing.message, NextShare) and outgoing.to == ReplicaId(scheme(2), 3)
        return [(U * 385 // 100 if held else 0, outgoing)]

    def slow(source: Peer, to: Peer, message: Message) -> int:
        """Within the bound."""
        if not isinstance(message, NextShare) or not isinstance(source, ReplicaId) or not isinstance(to, ReplicaId):
            return 0
        held = to.index == 2 if source == ReplicaId(scheme(2), 3) else to.index != 2
        return U * 7 // 10 if held and to.scheme == scheme(3) else 0

    script, faulty_set = after_a_while(late)
    world = TransferChain(3, 3, {(1, 1): script, (2, 1): follow_protocol, (3, 1): follow_protocol})
    world.rng = FixedRandom()  # type: ignore[assignment]
    back(world, (2, 3))
    for at in (1, 2, 3):
        world.kill(3, at)
        world.run(3 * QUIET)
    world.extra_delay = slow
    faulty_set.append(True)
    origin = world.deal(key=unpicked_keys(2)[1])
    world.run(100 * U)
    assert key_arrived(world, origin)


def test_a_recovered_replica_gets_the_certificate_whatever_byzantine_ones_sent_it() -> None:
    """Otherwise it would have another sharing than the others, and be blamed for it."""

    def two_words(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if outgoing.to != ReplicaId(scheme(2), 3) or not isinstance(outgoing.message, AgreementWord):
            return [(0, outgoing)]
        made_up = {1: DealingRef(b"x" * 32, b"y" * 32)}
        said = [change_roll(lambda roll, to: roll._replace(table={}))]
        said += [change_roll(lambda roll, to: roll._replace(table=made_up, skipped_holders=()))]
        said += [change_roll(lambda roll, to: AttendanceRoll(without(roll.table, 1)))]
        return [sent for script in said for sent in script(faulty, outgoing, now)]

    script, faulty_set = after_a_while(two_words)
    leaves_out, lying_too = after_a_while(drop(NextShare, only=(3,)))
    world = TransferChain(2, 3, {(1, 1): leaves_out, (2, 1): script})
    back(world, (2, 3))
    faulty_set.append(True)
    lying_too.append(True)
    origin = world.deal(key=unpicked_keys(2)[1])
    world.run(100 * U)
    assert key_arrived(world, origin)


@pytest.mark.heavy
def test_a_recovered_replica_of_a_large_node_gets_the_whole_certificate() -> None:
    """The certificate arrives before its own announcement, and Byzantine replicas have sent it nothing."""
    silent, faulty_set = after_a_while(drop(AgreementWord, only=(15,)))
    leaves_out, lying_too = after_a_while(drop(NextShare, only=(15,)))
    byzantine = {(1, 1): leaves_out} | {(2, at): silent for at in range(8, 15)}
    world = TransferChain(2, 15, byzantine)
    back(world, (2, 15))
    faulty_set.append(True)
    lying_too.append(True)
    origin = world.deal(key=unpicked_keys(2)[1])
    world.run(100 * U)
    assert key_arrived(world, origin)


def deals_to_two(keys: Collection[bytes], silent: Collection[bytes] = ()) -> Script:
    """Leaves out replica 3 with these keys, and shows nothing; deals nothing at all of others."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if not isinstance(outgoing.message, NextShare) or not isinstance(outgoing.to, ReplicaId):
            return [(0, outgoing)]
        portion = DealtShare.decode(outgoing.message.share)
        key, other = portion.holder_header.key_attempt.key, portion.share.index != outgoing.to.index
        left_out = key in keys and (other or outgoing.to.index == 3)
        return [] if left_out or key in silent else [(0, outgoing)]

    return script


def test_a_byzantine_holder_is_skipped_by_all_or_by_none() -> None:
    """It is missed with one key while the next is in transfer: replica 2 has announced, replica 3 waits for it until it
    is known as absent. No honest replica was ever absent."""
    first, second = unpicked_keys(2)

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        message = outgoing.message
        slow = isinstance(message, AgreementWord) and message.key == first
        return [] if slow or isinstance(message, LastShare) else [(0, outgoing)]

    world = TransferChain(2, 3, {(1, 1): deals_to_two([second], silent=[first]), (2, 1): script})
    faulty = world.replicas[ReplicaId(scheme(2), 1)].hardened_forwarder
    faulty._unresponsive.is_skipped = lambda *_: False  # type: ignore[method-assign]
    one = world.deal(key=first)
    world.run(9 * U)
    two = world.deal(key=second)
    world.run(100 * U)
    assert key_arrived(world, one)
    assert key_arrived(world, two)


def test_an_honest_holder_excluded_by_a_byzantine_replica_serves_the_next_keys() -> None:
    """Replica 1 acknowledges nothing, once, and denies what holder 2 dealt, so that it is missed; then holder 1 leaves
    out replica 3. No honest replica was ever absent."""
    first, *others = unpicked_keys(4)

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        if isinstance(outgoing.message, ShareReceived):
            return []
        return change_roll(lambda roll, to: roll._replace(table=without(roll.table, 2)))(faulty, outgoing, now)

    world = TransferChain(2, 3, {(1, 1): deals_to_two(others), (2, 1): script})
    world.unacknowledging = [ReplicaId(scheme(2), 1)]
    assert after(world, first)
    world.unacknowledging = []
    for key in others:
        assert after(world, key)


def after(world: TransferChain, key: bytes) -> bool:
    origin = world.deal(key=key)
    world.run(60 * U)
    return key_arrived(world, origin)
