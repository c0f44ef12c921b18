"""A subscriber's keys, share by share: neither replayed shares nor simultaneous keys evict any of them."""

from __future__ import annotations

import random
from functools import cache

import pytest

from support.key_transfer_chain import ADVERT, PUBLISHER, scheme, signing
from veilcast.brokers.evidence import FaultEvidence
from veilcast.brokers.keys import reassembly as module
from veilcast.brokers.keys.bulk_key import make_key_id
from veilcast.brokers.keys.reassembly import KeyReassembly
from veilcast.brokers.keys.redistribution import accept_publisher_share, deal_key
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys
from veilcast.brokers.routing.subscriber_advertisements import KnownAdvertisement
from veilcast.crypto.group import Scalar

EACH = 12
"""Keys kept per advertisement: few, so that the test is quick."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_PER_ADVERTISEMENT", EACH)


def key(number: int) -> bytes:
    return make_key_id(PUBLISHER.public, number.to_bytes(8, "big"))


@cache
def shares(number: int, size: int) -> list[bytes]:
    """The shares of one key, as the replicas of an edge node of this size send them."""
    edge = scheme(1, size)
    firsts = deal_key(Scalar.of(number + 1), KeyAttempt(key(number)), edge, PUBLISHER, random.Random(number).randbytes)
    holdings = [
        accept_publisher_share(first, ReplicaId(edge, index), PUBLISHER.public) for index, first in enumerate(firsts, 1)
    ]
    return [holding.make_delivery().encode().reveal() for holding in holdings]


class Reader:
    def __init__(self, size: int = 3, most: int = 60) -> None:
        self.size, self.suspicions = size, FaultEvidence(100)
        roster = ReplicaKeys(nodes=8)
        roster.add(scheme(1, size), [signing(1, index).public for index in range(1, size + 1)])
        self.openings = KeyReassembly(hardened=True, replica_keys=roster, evidence=self.suspicions, most=most)

    def bring(self, number: int, *replicas: int) -> None:
        advert = KnownAdvertisement(ADVERT, "news", None, PUBLISHER.public)  # type: ignore[arg-type]
        for index in replicas:
            self.openings.add(advert, shares(number, self.size)[index - 1], [ReplicaId(scheme(1, self.size), index)])

    def has(self, number: int) -> bool:
        return self.openings.get((ADVERT, key(number))) is not None


def test_a_replica_that_replays_old_shares_evicts_no_key() -> None:
    reader = Reader()
    for honest in (2, 3):
        reader.bring(1_000, honest)
        for number in range(30):
            reader.bring(number, 1)
    assert reader.has(1_000)
    assert len(reader.openings) == 20, "a third of the room is the liar's"
    assert not reader.suspicions.proven_faulty()


def test_byzantine_replicas_that_replay_the_same_old_shares_evict_no_key() -> None:
    reader = Reader(5)
    for honest in (3, 4, 5):
        reader.bring(1_000, honest)
        for number in range(30):
            reader.bring(number, 1, 2)
    assert reader.has(1_000)
    assert not reader.suspicions.proven_faulty()


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3)])
def test_simultaneous_keys_all_complete_though_many_came_before(replicas: tuple[int, ...]) -> None:
    """One replica is a little ahead of the others, and the subscriber already has its maximum of keys."""
    reader = Reader()
    for number in range(EACH):
        reader.bring(number, 2, 3)
    for index in replicas:
        for number in range(100, 106):
            reader.bring(number, index)
    assert [number for number in range(200) if reader.has(number)] == [*range(6, EACH), *range(100, 106)]


def test_complete_and_incomplete_keys_are_bounded() -> None:
    reader = Reader(most=9)
    for number in range(15):
        reader.bring(number, 1, 2, 3)
    assert [number for number in range(20) if reader.has(number)] == [*range(6, 15)]
    for number in range(6):
        for index in (1, 2, 3):
            reader.bring(100 * index + number, index)
    assert len(reader.openings._pending) == len(reader.openings._complete) == len(reader.openings) == 9
    reader.openings.end_advertisement(ADVERT)
    assert not len(reader.openings)
