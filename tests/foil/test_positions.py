"""Positions are uniform; a secret of the chain reveals all later ones and none before."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.foil.positions import (
    CHAIN_EVENTS,
    PositionChain,
    chain_number,
    derive_publisher_chain,
    derive_topic_chain,
    true_slot,
)
from veilcast.sim.keyrings import make_keyring
from veilcast.topics import Schema

SECRET, STREAM = Secret(bytes(range(32))), bytes(range(16))
RECORD = TopicRecord("t", Schema())


@given(st.integers(0, CHAIN_EVENTS - 1), st.integers(0, CHAIN_EVENTS - 1))
def test_one_secret_reveals_all_later_ones_and_none_before(told: int, number: int) -> None:
    whole = derive_publisher_chain(SECRET, STREAM, 0)
    part = PositionChain(told, whole.at(told))
    if number >= told:
        assert part.at(number) == whole.at(number)
    else:
        assert not part.covers(number)
        with pytest.raises(LocalError):
            part.at(number)


def test_a_chain_has_a_hundred_events() -> None:
    assert [chain_number(number) for number in (0, 99, 100, 199, 200)] == [0, 0, 1, 1, 2]
    chain = derive_publisher_chain(SECRET, STREAM, 1)
    assert chain.covers(100)
    assert chain.covers(199)
    assert not chain.covers(99)
    assert not chain.covers(200)


def test_only_members_of_a_topic_compute_its_chains() -> None:
    def keys(role: str, number: int, record: TopicRecord = RECORD) -> PositionChain:
        keyring = make_keyring((record,), 3_600_000_000, (("t", role),), number)
        return derive_topic_chain(keyring.keys_at(keyring.grants[0].first).topic("t"), STREAM, 0)

    assert keys("publisher", 1).at(7) == keys("subscriber", 2).at(7)
    other = derive_topic_chain(
        (ring := make_keyring((RECORD,), 3_600_000_000, (("t", "subscriber"),), 2))
        .keys_at(ring.grants[0].first + 1)
        .topic("t"),
        STREAM,
        0,
    )
    assert keys("publisher", 1).at(7) != other.at(7), "another epoch has other chains"


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_slots_are_uniform(n: int) -> None:
    chains = [derive_publisher_chain(SECRET, STREAM, chain) for chain in range(60)]
    counts = Counter(true_slot(chain.at(chain.number + i), n) for chain in chains for i in range(CHAIN_EVENTS))
    assert set(counts) <= set(range(n))
    expected = 60 * CHAIN_EVENTS / n
    chi = sum((counts[slot] - expected) ** 2 / expected for slot in range(n))
    assert chi < n - 1 + 5 * (2 * n) ** 0.5


def test_streams_and_chains_share_no_secret() -> None:
    slots = [
        tuple(
            true_slot(derive_publisher_chain(SECRET, stream, chain).at(chain * CHAIN_EVENTS + i), 1000)
            for i in range(4)
        )
        for stream in (STREAM, bytes(16))
        for chain in (0, 1)
    ]
    assert len(set(slots)) == 4
