"""Items that cannot be used yet: no replica's flood evicts the items of another."""

from __future__ import annotations

import msgspec

from support.key_transfer_chain import scheme
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.quota import ItemName, ReplicaQuota

EDGE = scheme(1)
FIRST, SECOND, THIRD = (ReplicaId(EDGE, index) for index in (1, 2, 3))
ONE, OTHER = b"one", b"other"


def name_item(number: int, advert: bytes = ONE) -> ItemName:
    return advert, number.to_bytes(4, "big")


def test_a_replica_over_its_quota_loses_its_own_oldest_charge() -> None:
    holds = ReplicaQuota(9)
    assert not [gone for number in range(3) for gone in holds.charge(name_item(number), FIRST)]
    assert holds.charge(name_item(3), FIRST) == [name_item(0)]
    assert holds.charge(name_item(1), FIRST) == [], "brought again, it is the newest"
    assert holds.charge(name_item(4), FIRST) == [name_item(2)]
    assert len(holds) == 3


def test_an_item_charged_to_another_replica_stays_however_much_two_byzantine_ones_replay() -> None:
    holds = ReplicaQuota(9)
    for bearer in (FIRST, SECOND, THIRD):
        holds.charge(name_item(0), bearer)
    gone = [
        gone
        for number in range(1, 50)
        for faulty in (FIRST, SECOND)
        for gone in holds.charge(name_item(number), faulty)
    ]
    assert name_item(0) not in gone
    assert len(holds) == 4
    holds.release(name_item(0))
    assert len(holds) == 3


def test_a_flooding_publisher_evicts_its_own_items() -> None:
    holds = ReplicaQuota(30)
    holds.charge(name_item(0, OTHER), FIRST)
    gone = [gone for number in range(100) for gone in holds.charge(name_item(number), FIRST)]
    assert gone == [name_item(number) for number in range(91)]


def test_all_replicas_together_use_the_whole_capacity() -> None:
    holds = ReplicaQuota(10)
    for number in range(100):
        for at, bearer in enumerate((FIRST, SECOND, THIRD)):
            holds.charge(name_item(1_000 * at + number), bearer)
    assert len(holds) == 9


def test_a_replica_of_a_node_that_has_changed_twice_has_no_charges() -> None:
    """After one change its items may still be usable."""
    holds = ReplicaQuota(30)
    holds.charge(name_item(0), FIRST)
    gone = [holds.charge(name_item(version), ReplicaId(newer(version), 1)) for version in (1, 2)]
    assert gone == [[], [name_item(0)]]
    assert len(holds) == 2


def newer(by: int) -> Scheme:
    return msgspec.structs.replace(EDGE, version=EDGE.version + by)
