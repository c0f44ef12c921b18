"""Late timers over many links: cells delayed by a stall leave one by one, and none is lost."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from support.link_network import LinkWorld
from veilcast.crypto.secret import Secret
from veilcast.link import machine
from veilcast.link.config import LinkConfig
from veilcast.link.pacing import SECOND_US, CellSlots, SendJitter, spread_late_cells
from veilcast.machine import Address

HUB = Address("hub")


def star(links: int, rate: int) -> LinkWorld:
    """A hub with this many links, all up."""
    world = LinkWorld(HUB, *[f"n{place}" for place in range(links)], config=LinkConfig(rate=rate), watched=True)
    for place in range(links):
        world.tell(HUB, f"n{place}", b"hello")
    world.run(6 * SECOND_US)
    assert len(world.links(HUB).peers()) == links
    return world


def stall(world: LinkWorld, stall_us: int, times: int) -> list[int]:
    """Stop the hub at intervals for this time. Returns the times of its cells."""
    start, rng, peers = world.now - world.start, Random(stall_us), world.links(HUB).peers()
    for turn in range(times):
        world.tell(HUB, peers[turn % len(peers)], b"work")
        world.run(SECOND_US // 2 + rng.randrange(SECOND_US))
        if stall_us:
            world.pause(HUB)
            world.run(stall_us)
            world.resume(HUB)
    world.run(SECOND_US)
    return sorted(at for at, source, *_ in world.wire.seen if source == HUB and at > start)


def most_at_once(times: list[int], within_us: int = 1) -> int:
    """The largest number of cells that left within an interval of this length."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= within_us:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize(("links", "rate"), [(24, 16), (8, 4)])
def test_many_links_never_burst_after_a_stall(links: int, rate: int) -> None:
    """At one instant no more cells leave than when timers are on time, and in a millisecond at most twice as many."""
    on_time = stall(star(links, rate), 0, 30)
    for stall_us in (20_000, 50_000):
        world = star(links, rate)
        late = stall(world, stall_us, 30)
        assert most_at_once(late) <= max(2, most_at_once(on_time))
        assert most_at_once(late, 1_000) <= 2 * most_at_once(on_time, 1_000)
        assert world.links(HUB).status(world.now)["slots missed"] <= len(late) / 100
        seconds = (late[-1] - late[0]) / SECOND_US
        assert abs(len(late) / seconds / (links * rate) - 1) < 0.02


def test_a_planted_machine_that_sends_all_late_cells_at_once_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "spread_late_cells", lambda *arguments: None)
    with pytest.raises(AssertionError):
        test_many_links_never_burst_after_a_stall(24, 16)


def test_a_cell_is_deferred_once_and_its_later_slots_stay() -> None:
    jitter, grid = (
        SendJitter(Secret(bytes(32))),
        [CellSlots(16, phase_us=phase, now=0) for phase in range(0, 20_000, 1_000)],
    )
    before = [slots.next_us for slots in grid]
    spread_late_cells(grid, jitter, 320, 30_000)
    assert [slots.next_us for slots in grid][:1] == before[:1]
    assert all(30_000 < slots.next_us <= 30_000 + 62_500 // 4 for slots in grid[1:])
    assert Counter(slots.is_deferred for slots in grid) == {True: 19, False: 1}
    spread_late_cells(grid, jitter, 320, 61_400)
    for slots, first in zip(grid, before, strict=True):
        assert slots.take_due_slot(61_400)
        assert (slots.next_us - first) % 62_500 == 0
        assert not slots.is_deferred


def test_as_many_leave_at_once_as_are_due_in_one_tick() -> None:
    """128 links at 16 cells a second are due two in a millisecond: one at a time would fall behind."""
    grid = [CellSlots(16, phase_us=phase, now=0) for phase in range(8)]
    spread_late_cells(grid, SendJitter(Secret(bytes(32))), 128 * 16, 10_000)
    assert [slots.is_deferred for slots in grid] == [False] * 3 + [True] * 5


def test_times_of_a_busy_hub_are_those_of_an_idle_one_also_after_stalls() -> None:
    wires = []
    for is_busy in (False, True):
        world = star(12, 16)
        if is_busy:
            for place in range(12):
                world.tell(HUB, f"n{place}", b"\1" * 20_000)
        wires.append(stall(world, 20_000, 20))
    assert wires[0] == wires[1]
