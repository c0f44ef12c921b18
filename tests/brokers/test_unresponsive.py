"""A replica that failed once is not waited for again, and this weakens no safety property."""

from __future__ import annotations

import random

import pytest

from support.byzantine_scripts import ANY, BEHAVIOURS, drop, follow_protocol
from support.key_transfer_chain import (
    PUBLISHER,
    QUIET,
    SECRET,
    ByzantineReplica,
    ByzantineScripts,
    CoalitionKnowledge,
    Script,
    TransferChain,
    U,
    key_arrived,
    scheme,
    signing,
)
from veilcast.brokers.keys.bulk_key import make_key_id
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId
from veilcast.brokers.keys.unresponsive_replicas import UnresponsiveReplicas
from veilcast.brokers.routing.view import Outgoing, Peer
from veilcast.errors import LocalError
from veilcast.machine import Address
from veilcast.wire.base import Message
from veilcast.wire.brokers import NextShare

ONE, OTHER, REPLICA = b"p" * 32, b"q" * 32, b"r" * 32


def names(count: int) -> list[bytes]:
    return [make_key_id(PUBLISHER.public, number.to_bytes(8, "big")) for number in range(count)]


def skipped_keys(count: int) -> list[bytes]:
    """Keys with which a replica that was missed once is not waited for."""
    absences = UnresponsiveReplicas(1)
    absences.record_missed(ONE, REPLICA, 0)
    return [key for key in names(99) if absences.is_skipped(KeyAttempt(key), ONE, REPLICA)][:count]


# --- what is learnt ---------------------------------------------------------------------------------------------------


def share_waived(absences: UnresponsiveReplicas) -> float:
    keys = names(2_000)
    return sum(absences.is_skipped(KeyAttempt(key), ONE, REPLICA) for key in keys) / len(keys)


def test_a_missed_replica_is_waited_for_with_some_keys_and_half_as_often_each_time() -> None:
    absences = UnresponsiveReplicas(10)
    assert share_waived(absences) == 0
    for odds in (8, 16, 32, 64, 128, 128):
        absences.record_missed(ONE, REPLICA, absences.level(ONE, REPLICA))
        assert 1 - share_waived(absences) == pytest.approx(1 / odds, abs=0.012)


def test_a_second_attempt_waits_for_all_replicas() -> None:
    absences = UnresponsiveReplicas(10)
    absences.record_missed(ONE, REPLICA, 4)
    assert not any(absences.is_skipped(KeyAttempt(key, 1), ONE, REPLICA) for key in names(200))


def test_transfers_that_waited_at_the_same_time_count_once() -> None:
    absences = UnresponsiveReplicas(10)
    for _ in range(5):
        absences.record_missed(ONE, REPLICA, 0)
    assert absences.level(ONE, REPLICA) == 1


def test_a_recovered_replica_is_waited_for_as_before() -> None:
    absences = UnresponsiveReplicas(10)
    absences.record_missed(ONE, REPLICA, 3)
    absences.record_present(ONE, REPLICA)
    assert share_waived(absences) == 0 == len(absences)


def test_absences_of_one_publisher_affect_no_other() -> None:
    absences = UnresponsiveReplicas(10)
    absences.record_missed(ONE, REPLICA, 0)
    assert absences.level(OTHER, REPLICA) == 0


def test_the_oldest_entry_is_dropped_when_the_table_is_full() -> None:
    absences = UnresponsiveReplicas(2)
    for replica in (b"1", b"2", b"1", b"3"):
        absences.record_missed(ONE, replica, 0)
    assert [absences.level(ONE, replica) for replica in (b"1", b"2", b"3")] == [1, 0, 1]
    with pytest.raises(LocalError):
        UnresponsiveReplicas(0)


# --- what comes of it -------------------------------------------------------------------------------------------------


def keys_pass(world: TransferChain, keys: list[bytes], apart_us: int = 60 * U) -> list[int]:
    """The time of each key to all subscribers."""
    took = []
    for key in keys:
        began, origin = world.now, world.deal(key=key)
        end = began + apart_us
        while world.now < end and not all(origin in reader.reassembled for reader in world.subscribers.values()):
            world.run(U // 10)
        took.append(world.now - began)
        world.run(end - world.now)
        assert all(reader.reassembled.get(origin) == SECRET for reader in world.subscribers.values()), key
    return took


def absences_of(world: TransferChain, hop: int, index: int) -> list[int]:
    """The levels of this replica at the others of its node and at those of the next."""
    key = signing(hop, index).public
    levels = []
    for replica in world.honest:
        redistributing = replica.hardened_forwarder
        if replica.place.scheme.node[0] in (hop, hop + 1) and replica.place != ReplicaId(
            scheme(hop, world.size), index
        ):
            levels.append(redistributing._unresponsive.level(PUBLISHER.public, key))
    return levels


SILENT = drop(*ANY)


@pytest.mark.parametrize(("size", "byzantine", "keys"), [(3, [2], 13), (5, [1, 4], 5)])
def test_a_silent_replica_delays_the_first_key_and_few_others(size: int, byzantine: list[int], keys: int) -> None:
    world = TransferChain(3, size, {(hop, at): SILENT for hop in (1, 2, 3) for at in byzantine})
    first, *others = keys_pass(world, names(keys))
    assert first > 20 * U
    assert sorted(others)[len(others) // 2] < 8 * U, "three hops, of two messages each, and the ends"
    assert not CoalitionKnowledge(world).has_key()
    assert world.proven_faulty() == []


def test_a_replica_that_is_back_is_waited_for_again() -> None:
    silent = True

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return [] if silent else [(0, outgoing)]

    world = TransferChain(3, 3, {(2, 3): script})
    keys = names(40)
    keys_pass(world, keys[:3])
    assert min(absences_of(world, 2, 3)) > 0
    silent = False
    keys_pass(world, keys[3:])
    assert set(absences_of(world, 2, 3)) == {0}


def test_the_second_attempt_includes_a_recovered_replica_that_others_need() -> None:
    """A Byzantine replica beside it participates while it is absent, and deals nothing once it is back."""
    faulty_set = False

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        return BEHAVIOURS["drop portions"](faulty, outgoing, now) if faulty_set else [(0, outgoing)]

    world = TransferChain(3, 3, {(2, 1): script})
    got = world.subscribers[Address("reader 3")].reassembled
    first, second = skipped_keys(2)
    world.kill(2, 2)
    assert world.deal(key=first) not in got
    world.run(2 * QUIET)
    assert min(absences_of(world, 2, 2)) > 0
    faulty_set = True
    lost = world.deal(key=second)
    world.run(60 * U)
    assert lost not in got
    again = world.deal(1, key=second)
    world.run(100 * U)
    assert key_arrived(world, again)
    assert set(absences_of(world, 2, 2)) == {0}


def test_a_recovered_replica_that_is_kept_waiting_shows_no_shares_to_the_others() -> None:
    """All delays are within the bound. The Byzantine replica deals to the recovered one at the last moment. The others
    have finished, and the next node, which does not know of the absence, has begun to announce what it lacks."""
    faulty_set = False

    def late(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        held = faulty_set and isinstance(outgoing.message, NextShare) and outgoing.to == ReplicaId(scheme(2), 3)
        return [(int(3.85 * U) if held else 0, outgoing)]

    def slow(source: Peer, to: Peer, message: Message) -> int:
        if not faulty_set or not isinstance(message, NextShare) or not isinstance(source, ReplicaId):
            return 0
        behind = [2] if source == ReplicaId(scheme(2), 3) else [1, 3]
        return U * 7 // 10 if to in [ReplicaId(scheme(3), at) for at in behind] else 0

    world = TransferChain(3, 3, {(1, 1): late, (2, 1): follow_protocol, (3, 1): follow_protocol})
    world.rng = _Quickest()
    world.extra_delay = slow
    first, second = skipped_keys(2)
    world.kill(2, 3)
    world.deal(key=first)
    world.run(2 * QUIET)
    for at in (1, 2, 3):
        world.kill(3, at)
        world.run(2 * QUIET)
    faulty_set = True
    origin = world.deal(key=second)
    world.run(100 * U)
    assert key_arrived(world, origin)


class _Quickest(random.Random):
    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start


def moody(seed: int, names: list[str]) -> Script:
    """Another behaviour every minute, so that no evidence on it lasts."""

    def script(faulty: ByzantineReplica, outgoing: Outgoing, now: int) -> list[tuple[int, Outgoing]]:
        chosen = random.Random(f"{seed} {faulty.place} {now // (60 * U)}").choice(names)
        return BEHAVIOURS[chosen](faulty, outgoing, now)

    return script


def moods(seed: int, size: int) -> ByzantineScripts:
    rng = random.Random(seed)
    of = [*BEHAVIOURS, *["drop"] * 12, *["curious"] * 6]
    return {(hop, at): moody(seed, of) for hop in (1, 2, 3) for at in rng.sample(range(1, size + 1), (size - 1) // 2)}


def moody_run(seed: int, size: int, keys: int) -> None:
    world = TransferChain(3, size, moods(seed, size), seed=seed)
    keys_pass(world, names(keys))
    assert not CoalitionKnowledge(world).has_key()
    assert [at for at in world.proven_faulty() if at not in world.scripts] == []


@pytest.mark.parametrize(("seed", "size"), [(0, 3), (1, 3), (2, 5)])
def test_byzantine_replicas_that_change_from_key_to_key_are_tolerated(seed: int, size: int) -> None:
    moody_run(seed, size, 6)


@pytest.mark.heavy
def test_many_byzantine_replicas_that_change_from_key_to_key_are_tolerated() -> None:
    for seed in range(100, 150):
        moody_run(seed, 3, 12)
    for seed in range(150, 160):
        moody_run(seed, 5, 12)


def test_honest_replicas_never_skip_one_another_whatever_byzantine_ones_say() -> None:
    for name in ("slander", "slander one", "slander and hide", "two words 2", "deny, hide and drop"):
        world = TransferChain(2, 3, {(1, 3): BEHAVIOURS[name], (2, 3): BEHAVIOURS[name]})
        keys_pass(world, names(4))
        for hop, index in ((1, 1), (1, 2), (2, 1), (2, 2)):
            assert set(absences_of(world, hop, index)) == {0}, (name, hop, index)


def test_rolls_are_unchanged_if_no_replica_is_absent() -> None:
    world = TransferChain(3, 3, {(2, 2): follow_protocol}, bound_us=10 * U, hold_us=400 * U)
    took = keys_pass(world, names(3))
    assert max(took) < 8 * U
    assert world.messages["AgreementWord"] == 3 * 2 * 3 * 2
