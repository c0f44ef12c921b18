"""Proven replicas are counted, reported and avoided; mere failures prove nothing; every table is bounded."""

from __future__ import annotations

import pytest

from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.quota import PendingMessages, PublisherQuota
from veilcast.errors import ExcessError, LocalError, StaleError

NODE = Scheme(b"n" * 16, 0, 3)
ONE, TWO, THREE = (ReplicaId(NODE, index) for index in (1, 2, 3))


def test_proofs_incriminate_and_failures_do_not() -> None:
    known = FaultEvidence(10)
    known.record(ONE, FaultReason.BAD_BLOCK)
    known.record(ONE, FaultReason.BAD_BLOCK)
    known.record_all([TWO, TWO], FaultReason.LATE)
    assert known.proven_faulty() == [ONE]
    assert known.counts() == {ONE: {FaultReason.BAD_BLOCK: 2}, TWO: {FaultReason.LATE: 2}}
    assert known.is_proven_faulty(ONE)
    assert not known.is_proven_faulty(TWO)


def test_proven_replicas_are_avoided_if_enough_others_are_left() -> None:
    known = FaultEvidence(10)
    known.record(TWO, FaultReason.TWO_STATEMENTS)
    assert known.without_faulty([ONE, TWO, THREE], 2) == [ONE, THREE]
    known.record(ONE, FaultReason.BAD_DEALT_SHARE)
    assert known.without_faulty([ONE, TWO, THREE], 2) == [ONE, TWO, THREE]


def test_when_full_the_least_evidence_is_dropped_and_never_a_proof_for_a_failure() -> None:
    known = FaultEvidence(2)
    known.record(ONE, FaultReason.LATE)
    known.record(TWO, FaultReason.BAD_BLOCK)
    known.record(THREE, FaultReason.BAD_BLOCK)
    assert known.proven_faulty() == [TWO, THREE]
    known.record(ONE, FaultReason.LATE)
    assert known.proven_faulty() == [TWO, THREE]
    assert len(known) == 2
    with pytest.raises(LocalError):
        FaultEvidence(0)


class TestProvenReplicaAfterRedeployment:
    """Of the first three replicas, the second leaves; the third one is the fifth then."""

    NEWER, NEWEST = Scheme(NODE.node, 1, 5), Scheme(NODE.node, 2, 3)
    ELSEWHERE = Scheme(b"m" * 16, 0, 3)

    def known(self) -> tuple[FaultEvidence, ReplicaKeys]:
        roster = ReplicaKeys(nodes=2)
        roster.add(NODE, keys(1, 2, 3))
        known = FaultEvidence(10, roster)
        for place in (TWO, THREE):
            known.record(place, FaultReason.TWO_DEALINGS)
        roster.add(self.NEWER, keys(1, 6, 5, 4, 3))
        return known, roster

    def test_stays_proven_under_its_current_id_and_no_other_replica_is(self) -> None:
        known, _ = self.known()
        assert [known.is_proven_faulty(ReplicaId(self.NEWER, index)) for index in range(1, 6)] == [False] * 4 + [True]
        assert known.is_proven_faulty(THREE), "what is still on its way by the old scheme comes from the same liar"
        assert known.without_faulty([ReplicaId(self.NEWER, 4), ReplicaId(self.NEWER, 5)]) == [ReplicaId(self.NEWER, 4)]

    def test_is_reported_under_its_current_or_last_id(self) -> None:
        known, roster = self.known()
        assert known.proven_faulty() == [TWO, ReplicaId(self.NEWER, 5)]
        roster.add(self.NEWEST, keys(3, 4, 5))
        assert known.proven_faulty() == [TWO, ReplicaId(self.NEWEST, 1)], (
            "though the scheme that it lied under is forgotten"
        )
        roster.add(self.ELSEWHERE, keys(7, 2, 8))
        assert known.proven_faulty() == [ReplicaId(self.ELSEWHERE, 2), ReplicaId(self.NEWEST, 1)]

    def test_is_counted_as_one(self) -> None:
        known, _ = self.known()
        known.record(ReplicaId(self.NEWER, 5), FaultReason.TWO_DEALINGS)
        known.record(ReplicaId(self.NEWER, 5), FaultReason.LATE)
        assert len(known) == 2
        assert known.counts() == {
            TWO: {FaultReason.TWO_DEALINGS: 1},
            ReplicaId(self.NEWER, 5): {FaultReason.TWO_DEALINGS: 2, FaultReason.LATE: 1},
        }

    def test_is_identified_by_its_id_if_its_key_is_unknown(self) -> None:
        known, roster = self.known()
        roster.add(self.NEWEST, keys(3, 4, 5))
        known.record(TWO, FaultReason.LATE)
        assert not known.is_proven_faulty(THREE), "of a scheme that is over"
        assert known.counts()[TWO] == {FaultReason.TWO_DEALINGS: 1, FaultReason.LATE: 1}


def keys(*names: int) -> list[bytes]:
    return [bytes((name,)) * 32 for name in names]


def test_a_replica_is_found_under_another_scheme_by_its_key() -> None:
    roster = ReplicaKeys(nodes=2)
    newer = Scheme(NODE.node, 1, 5)
    roster.add(NODE, keys(1, 2, 3))
    roster.add(newer, keys(5, 4, 3, 2, 1))
    assert roster.id_of(newer, roster.key_of(ONE)) == ReplicaId(newer, 5)
    assert roster.id_of(NODE, b"\5" * 32) is None
    assert roster.id_of(Scheme(NODE.node, 2, 3), b"\1" * 32) is None


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_publisher_has_a_quarter_of_the_quota_and_others_keep_theirs() -> None:
    room: PublisherQuota[int] = PublisherQuota(8, 64, 100)
    for key in (1, 2):
        room.admit(key, b"a", 0)
    room.admit(1, b"a", 0)
    with pytest.raises(ExcessError):
        room.admit(3, b"a", 0)
    for key in range(10, 16):
        room.admit(key, bytes((key // 2,)), 0)
    with pytest.raises(ExcessError):
        room.admit(20, b"z", 0)
    assert len(room) == 8


def test_refused_and_finished_items_are_past_for_a_while() -> None:
    room: PublisherQuota[int] = PublisherQuota(4, 64, 100)
    room.admit(1, b"a", 0)
    with pytest.raises(ExcessError):
        room.admit(2, b"a", 0)
    room.finish(1, 10)
    room.finish(7, 10)
    for key in (1, 2):
        with pytest.raises(StaleError):
            room.admit(key, b"a", 50)
    room.admit(2, b"a", 100)
    assert room.is_past(1, 109)
    assert not room.is_past(1, 110)


def test_a_flooding_publisher_is_refused_until_its_items_are_forgotten() -> None:
    room: PublisherQuota[int] = PublisherQuota(4, 8, 100)
    for key in (1, 2):
        room.admit(key, b"a", 0)
        room.finish(key, 0)
    with pytest.raises(ExcessError):
        room.admit(3, b"a", 60)
    with pytest.raises(ExcessError):
        room.admit(3, b"a", 120)
    room.admit(4, b"b", 120)
    room.admit(3, b"a", 10_000)
    assert room.past_count == 0
    with pytest.raises(LocalError):
        PublisherQuota(0, 1, 1)


def test_past_items_are_bounded_too() -> None:
    room: PublisherQuota[int] = PublisherQuota(4, 6, 100)
    for key in range(50):
        try:
            room.admit(key, bytes((key,)), key // 10)
        except ExcessError:
            continue
        room.finish(key, key // 10)
    assert room.past_count == 6


# --- early ------------------------------------------------------------------------------------------------------------


def test_pending_messages_per_sender_are_bounded_and_the_oldest_is_evicted() -> None:
    early: PendingMessages[str, str, int] = PendingMessages(count=2, size=100, senders=2, keep_us=10)
    assert early.put("k", "one", 1, 10, 0) == []
    assert early.put("j", "one", 2, 10, 0) == []
    assert early.put("k", "one", 3, 10, 0) == [1]
    assert early.put("k", "two", 4, 95, 0) == []
    assert early.put("k", "two", 5, 10, 0) == [4]
    assert early.put("k", "two", 6, 101, 0) == [6]
    assert early.put("k", "three", 7, 1, 0) == [7]
    assert early.take("k") == [("one", 3), ("two", 5)]
    assert len(early) == 1
    assert early.expire(10) == [2]
    assert early.put("k", "three", 8, 1, 10) == []
    with pytest.raises(LocalError):
        PendingMessages(count=0, size=1, senders=1, keep_us=1)


def test_over_the_total_the_sender_with_the_most_messages_loses_its_oldest() -> None:
    early: PendingMessages[int, str, int] = PendingMessages(count=9, size=9, senders=9, keep_us=10, total=4)
    for number, sender in enumerate("mmmb"):
        assert early.put(number, sender, number, 1, 0) == []
    assert early.put(4, "b", 4, 1, 0) == [0]
    assert [early.take(number) for number in range(5)] == [[], [("m", 1)], [("m", 2)], [("b", 3)], [("b", 4)]]
