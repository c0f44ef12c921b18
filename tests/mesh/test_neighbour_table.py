"""Presence of neighbours: silence is failure, but not after one period, and not if the node itself was stopped."""

from __future__ import annotations

import pytest

from veilcast.errors import LocalError
from veilcast.machine import Address
from veilcast.mesh.neighbour_table import NeighbourTable

A, B = Address("a"), Address("b")
PERIOD = 1_000


class Watch:
    """A node's own beat, and the neighbours it hears in each period."""

    def __init__(self) -> None:
        self.members = NeighbourTable([A, B], period_us=PERIOD, silent_periods=3, now=0)
        self.now, self.number = 0, 0
        for name in (A, B):
            assert not self.members.hear(name, 0, 0)

    def pass_periods(self, count: int, heard: str) -> list[Address]:
        failed = []
        for _ in range(count):
            self.now += PERIOD
            self.number += 1
            for name in heard:
                self.members.hear(Address(name), self.number, self.now)
            for name in self.members.find_silent(self.now):
                self.members.mark_lost(name)
                failed.append(name)
        return failed


def test_a_neighbour_silent_for_the_given_periods_has_failed_and_not_before() -> None:
    watch = Watch()
    assert watch.pass_periods(3, "a") == []
    assert watch.pass_periods(1, "a") == [B]
    assert watch.pass_periods(5, "a") == []


def test_a_neighbour_that_is_heard_again_is_back() -> None:
    watch = Watch()
    watch.pass_periods(4, "a")
    assert list(watch.members.present) == [A]
    assert not watch.members.hear(B, 77, watch.now)
    assert watch.members.hear(B, 78, watch.now)
    assert list(watch.members.present) == [A, B]


def test_a_stopped_node_suspects_no_neighbour_for_that_time() -> None:
    watch = Watch()
    watch.pass_periods(2, "ab")
    watch.now += 10 * PERIOD
    assert watch.members.find_silent(watch.now) == []
    watch.members.hear(A, 9, watch.now)
    assert watch.pass_periods(3, "a") == []
    assert watch.pass_periods(1, "a") == [B]


def test_a_node_that_hears_no_neighbour_suspects_none() -> None:
    watch = Watch()
    assert watch.pass_periods(20, "") == []
    assert watch.pass_periods(3, "a") == []


def test_a_missed_beat_and_a_restart_are_noticed_and_an_overtaken_beat_is_neither() -> None:
    watch = Watch()
    assert watch.members.hear(A, 1, 10)
    assert not watch.members.hear(A, 3, 11), "number 2 was missed, and what rode in it"
    assert watch.members.is_overtaken(A, 2)
    assert not watch.members.is_overtaken(A, 4)
    assert not watch.members.hear(A, 3_000_000_000, 12), "a new life"
    assert watch.members.hear(A, 3_000_000_001, 13)


def test_numbers_may_run_over() -> None:
    watch = Watch()
    watch.members.mark_lost(A)
    watch.members.hear(A, (1 << 32) - 1, 1)
    assert watch.members.hear(A, 0, 2)


def test_no_neighbour_is_listed_twice() -> None:
    with pytest.raises(LocalError, match="twice"):
        NeighbourTable([A, A], period_us=1, silent_periods=2, now=0)
