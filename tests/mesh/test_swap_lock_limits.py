"""How long a neighbour may lock a node, whatever it does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.machine import Address
from veilcast.mesh.swap import LockLimits

DEBT_MAX_US, LEASE_US = 40, 10
V = Address("v")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, LEASE_US)), max_size=200))
def test_no_neighbour_holds_a_lock_for_more_than_half_of_the_time_plus_the_allowance(
    games: list[tuple[int, int]],
) -> None:
    """A wait and then a lock, again and again, whenever it is allowed."""
    patience, now, bound = LockLimits(DEBT_MAX_US, 8), 0, 0
    for wait, hold in games:
        now += wait
        if patience.allows(V, now):
            patience.charge(V, now, now + hold)
            now, bound = now + hold, bound + hold
    assert bound <= now / 2 + DEBT_MAX_US + LEASE_US


def test_a_neighbour_that_keeps_asking_gets_all_that_is_allowed() -> None:
    patience, bound = LockLimits(DEBT_MAX_US, 8), 0
    now = 0
    while now < 10_000:
        if patience.allows(V, now):
            patience.charge(V, now, now + LEASE_US)
            now, bound = now + LEASE_US, bound + LEASE_US
        else:
            now += 1
    assert 5_000 <= bound <= 5_000 + DEBT_MAX_US + LEASE_US


def test_debts_are_separate_for_each_neighbour_and_end() -> None:
    patience = LockLimits(DEBT_MAX_US, 8)
    patience.charge(V, 0, DEBT_MAX_US)
    assert not patience.allows(V, DEBT_MAX_US)
    assert patience.allows(Address("w"), DEBT_MAX_US)
    assert patience.allows(V, DEBT_MAX_US + 1)
    assert len(patience) == 1
    assert patience.allows(V, 2 * DEBT_MAX_US)
    assert len(patience) == 0


def test_debts_are_bounded_and_the_greatest_are_kept() -> None:
    patience = LockLimits(DEBT_MAX_US, 3)
    for number in range(10):
        patience.charge(Address(f"n{number}"), 0, DEBT_MAX_US + number)
    assert len(patience) == 3
    assert not patience.allows(Address("n9"), DEBT_MAX_US + 9)
    assert patience.allows(Address("n0"), DEBT_MAX_US + 9)
