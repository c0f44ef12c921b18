"""Fault budgets: the budget after one more fault, and which budget covers which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.sim.swap_model.search import FaultBudget

FAULTS = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@given(FAULTS)
def test_one_more_fault_leaves_one_fewer_of_its_kind(faults: list[int]) -> None:
    allowance = FaultBudget(*faults)
    assert allowance.remaining[allowance.full] == tuple(faults)
    for number, left in enumerate(allowance.remaining):
        for kind, after in enumerate(allowance.after_fault[number]):
            if left[kind] == 0:
                assert after == -1
            else:
                assert allowance.used[after] == allowance.used[number] + 1
                assert allowance.remaining[after][kind] == left[kind] - 1


@given(FAULTS)
def test_a_number_covers_those_with_no_more_left_of_any_kind(faults: list[int]) -> None:
    allowance = FaultBudget(*faults)
    for high, many in enumerate(allowance.remaining):
        for low, few in enumerate(allowance.remaining):
            covers = all(a <= b for a, b in zip(few, many, strict=True))
            assert bool(allowance.covered[high] >> low & 1) == covers
            assert bool(allowance.above[low] >> high & 1) == (covers and low != high)
