"""A reader's keys, share by share: what liars repeat takes none of them away, and nor do keys that come at once."""

from __future__ import annotations

import random
from functools import cache

import pytest

from support.key_transfer_chain import ADVERT, PUBLISHER, scheme, signing
from veilcast.brokers.evidence import FaultEvidence
from veilcast.brokers.keys import reassembly as module
from veilcast.brokers.keys.bulk import make_key_id
from veilcast.brokers.keys.paper_split import KeyAttempt
from veilcast.brokers.keys.reassembly import KeyReassembly
from veilcast.brokers.keys.redistribution import accept_publisher_share, deal_key
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys
from veilcast.brokers.routing.known_advertisements import KnownAdvertisement
from veilcast.crypto.group import Scalar

EACH = 12
"""Keys of an advertisement that are remembered: few, so that this is quick."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_PER_ADVERTISEMENT", EACH)


def key(number: int) -> bytes:
    return make_key_id(PUBLISHER.public, number.to_bytes(8, "big"))


@cache
def shares(number: int, size: int) -> list[bytes]:
    """Of one key, as the replicas of an edge node of this size bring them."""
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
        self.openings = KeyReassembly(hardened=True, roster=roster, suspicions=self.suspicions, most=most)

    def bring(self, number: int, *replicas: int) -> None:
        advert = KnownAdvertisement(ADVERT, "news", None, PUBLISHER.public)  # type: ignore[arg-type]
        for index in replicas:
            self.openings.add(advert, shares(number, self.size)[index - 1], [ReplicaId(scheme(1, self.size), index)])

    def has(self, number: int) -> bool:
        return self.openings.get((ADVERT, key(number))) is not None


def test_a_replica_that_repeats_old_shares_takes_no_key_from_a_reader() -> None:
    reader = Reader()
    for honest in (2, 3):
        reader.bring(1_000, honest)
        for number in range(30):
            reader.bring(number, 1)
    assert reader.has(1_000)
    assert len(reader.openings) == 20, "a third of the room is the liar's"
    assert not reader.suspicions.proven_faulty()


def test_liars_that_repeat_the_same_old_shares_take_no_key_from_a_reader() -> None:
    reader = Reader(5)
    for honest in (3, 4, 5):
        reader.bring(1_000, honest)
        for number in range(30):
            reader.bring(number, 1, 2)
    assert reader.has(1_000)
    assert not reader.suspicions.proven_faulty()


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3)])
def test_keys_that_come_at_once_all_come_out_though_many_came_before(replicas: tuple[int, ...]) -> None:
    """One replica is a little ahead of the others, and the reader has as many keys as it remembers."""
    reader = Reader()
    for number in range(EACH):
        reader.bring(number, 2, 3)
    for index in replicas:
        for number in range(100, 106):
            reader.bring(number, index)
    assert [number for number in range(200) if reader.has(number)] == [*range(6, EACH), *range(100, 106)]


def test_keys_at_hand_and_keys_on_their_way_have_a_bound() -> None:
    reader = Reader(most=9)
    for number in range(15):
        reader.bring(number, 1, 2, 3)
    assert [number for number in range(20) if reader.has(number)] == [*range(6, 15)]
    for number in range(6):
        for index in (1, 2, 3):
            reader.bring(100 * index + number, index)
    assert len(reader.openings._pending) == len(reader.openings._opened) == len(reader.openings) == 9
    reader.openings.end_advertisement(ADVERT)
    assert not len(reader.openings)
