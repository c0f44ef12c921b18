"""Slots: one cell each, never a burst, whatever the timer does."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.link.pacing import (
    RATES,
    SECOND_US,
    STEP_SHARE,
    STRETCH_DRAWS,
    STRETCH_PPB,
    CellSlots,
    SendJitter,
    period_us,
)

RATE = st.sampled_from(RATES)
PHASE = st.integers(0, SECOND_US - 1)
START = st.integers(0, 1 << 51)


@given(RATE, PHASE, START)
def test_slots_are_a_period_apart_from_the_first_after_the_start(rate: int, phase: int, start: int) -> None:
    slots = CellSlots(rate, phase_us=phase, now=start)
    assert start <= slots.next_us < start + period_us(rate)
    for _ in range(20):
        slot = slots.next_us
        assert slot % period_us(rate) == phase % period_us(rate)
        assert not slots.take_due_slot(slot - 1)
        assert slots.take_due_slot(slot)
        assert not slots.take_due_slot(slot)
        assert slots.next_us == slot + period_us(rate)
    assert slots.missed == 0


LATENESS = st.lists(st.integers(0, 5 * SECOND_US), max_size=50)


@given(RATE, PHASE, LATENESS)
def test_a_late_timer_sends_one_cell_and_keeps_to_the_grid(rate: int, phase: int, lateness: list[int]) -> None:
    assert_never_a_burst(CellSlots(rate, phase_us=phase, now=0), lateness)


class _Diligent(CellSlots):
    """Makes up for missed slots."""

    def take_due_slot(self, now: int) -> bool:
        if now < self.next_us:
            return False
        self.next_us += self.period_us
        return True


def test_the_check_detects_a_planted_burst() -> None:
    with pytest.raises(AssertionError):
        assert_never_a_burst(_Diligent(4, phase_us=0, now=0), [3 * SECOND_US])


def assert_never_a_burst(slots: CellSlots, lateness: list[int]) -> None:
    first, cells = slots.next_us, 0
    for late in lateness:
        now = slots.next_us + late
        assert slots.take_due_slot(now)
        assert not slots.take_due_slot(now)
        cells += 1
        assert now < slots.next_us <= now + slots.period_us
        assert (slots.next_us - first) % slots.period_us == 0
    assert cells + slots.missed == (slots.next_us - first) // slots.period_us


@given(RATE, RATE, PHASE, st.integers(1, 20 * SECOND_US))
def test_a_rate_changes_at_the_edge_and_no_two_slots_come_closer(
    before: int, after: int, phase: int, edge: int
) -> None:
    slots = CellSlots(before, phase_us=phase, now=0)
    slots.change_rate(after, edge_us=edge, now=0)
    sent = []
    while slots.next_us < edge + 5 * SECOND_US:
        sent.append(slots.next_us)
        assert slots.take_due_slot(slots.next_us)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    assert all(gap >= period_us(max(before, after)) for gap in gaps)
    for rate, of_rate in (
        (before, [slot for slot in sent if slot < edge]),
        (after, [slot for slot in sent if slot >= edge]),
    ):
        assert all(later - earlier == period_us(rate) for earlier, later in pairwise(of_rate))
    assert min(slot for slot in sent if slot >= edge) < edge + period_us(after)
    assert slots.period_us == period_us(after)


def test_a_pending_change_can_be_withdrawn() -> None:
    slots = CellSlots(4, phase_us=0, now=1)
    slots.change_rate(16, edge_us=SECOND_US, now=1)
    slots.change_rate(4, edge_us=SECOND_US, now=1)
    while slots.next_us <= 2 * SECOND_US:
        slots.take_due_slot(slots.next_us)
    assert slots.period_us == period_us(4)
    assert slots.next_us == 2 * SECOND_US + period_us(4)


def test_impossible_rates_phases_and_edges_are_local_errors() -> None:
    with pytest.raises(LocalError):
        CellSlots(2, phase_us=0, now=0)
    with pytest.raises(LocalError):
        CellSlots(1, phase_us=SECOND_US, now=0)
    with pytest.raises(LocalError):
        CellSlots(1, phase_us=0, now=0).change_rate(4, edge_us=7, now=7)


def test_rates_divide_one_another() -> None:
    assert all(faster % slower == 0 for slower, faster in pairwise(RATES))
    assert all(SECOND_US % rate == 0 for rate in RATES)


@given(RATE, PHASE, START, st.integers(0, 1 << 32))
def test_a_cell_leaves_within_a_quarter_of_the_period_after_its_slot(
    rate: int, phase: int, start: int, seed: int
) -> None:
    period = period_us(rate)
    slots = CellSlots(rate, phase_us=phase, now=start, jitter=SendJitter(Secret(Random(seed).randbytes(32))))
    sways = []
    for _ in range(200):
        sways.append(slots.next_us - slots._slot_ps // 1_000_000)
        assert slots.take_due_slot(slots.next_us)
    assert all(0 <= jitter < period // 4 for jitter in sways)
    assert slots.missed == 0
    assert min(sways) < period / 16 < 3 * period / 16 < max(sways)


@given(RATE, PHASE, START, st.integers(0, 1 << 32))
def test_slots_of_a_link_do_a_random_walk_about_a_period_of_its_own(
    rate: int, phase: int, start: int, seed: int
) -> None:
    period = period_us(rate)
    slots = CellSlots(rate, phase_us=phase, now=start, jitter=SendJitter(Secret(Random(seed).randbytes(32))))
    at = []
    for _ in range(400):
        at.append(slots._slot_ps / 1_000_000)
        slots.take_due_slot(slots.next_us)
    gaps = [later - earlier for earlier, later in pairwise(at)]
    own = period * (1 + slots._stretch_ppb / 1e9)
    assert abs(slots._stretch_ppb) <= STRETCH_DRAWS * STRETCH_PPB
    assert all(abs(gap - own) <= period / STEP_SHARE + 1 for gap in gaps)
    assert abs(sum(gaps) / len(gaps) - own) < 5 * period / STEP_SHARE / math.sqrt(3 * len(gaps))
    assert max(gaps) - min(gaps) > period / STEP_SHARE


def test_periods_of_links_spread_as_the_docs_say_and_have_no_sharp_ends() -> None:
    jitter = SendJitter(Secret(bytes(32)))
    drawn = [CellSlots(4, phase_us=0, now=0, jitter=jitter)._stretch_ppb / 1000 for _ in range(2000)]
    assert len(set(drawn)) > 1990
    spread = math.sqrt(sum(each**2 for each in drawn) / 2000)
    assert 5_400 < spread < 6_150
    assert abs(sum(drawn) / 2000) < 4 * spread / math.sqrt(2000)
    assert sum(abs(each) > 15_000 for each in drawn) < 20


@given(st.integers(0, 100), st.integers(0, 1 << 32))
def test_signed_draws_are_even(bound: int, seed: int) -> None:
    jitter = SendJitter(Secret(Random(seed).randbytes(32)))
    drawn = [jitter.draw_signed(bound) for _ in range(100)]
    assert all(-bound <= each <= bound for each in drawn)
    assert {jitter.draw_signed(1) for _ in range(100)} == {-1, 0, 1}


@given(RATE, RATE, PHASE, st.integers(1, 20 * SECOND_US), st.integers(0, 1 << 32))
def test_a_rate_changes_at_the_edge_also_with_random_slots(
    before: int, after: int, phase: int, edge: int, seed: int
) -> None:
    slots = CellSlots(before, phase_us=phase, now=0, jitter=SendJitter(Secret(Random(seed).randbytes(32))))
    slots.change_rate(after, edge_us=edge, now=0)
    at = []
    while slots.next_us < edge + 5 * SECOND_US:
        at.append(slots._slot_ps // 1_000_000)
        assert slots.take_due_slot(slots.next_us)
    least = period_us(max(before, after)) * (1 - 0.02 - 2 / STEP_SHARE)
    assert all(later - earlier >= least for earlier, later in pairwise(at))
    assert min(slot for slot in at if slot >= edge) < edge + 1.04 * period_us(after) + period_us(before) / 4
    assert slots.period_us == period_us(after)
