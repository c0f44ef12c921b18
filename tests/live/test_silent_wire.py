"""If nothing is late, the wire looks the same whatever happens: one size, and a cell for every slot."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from veilcast.lab.runs.mesh.loopback_network import LoopbackPopulation, WireRecorder
from veilcast.lab.runs.mesh.traffic_day import (
    BEFORE_EDGE_US,
    EPOCH_US,
    PHASE_MESH,
    SLOT_US,
    WARM_UP_US,
    plan_phases,
    schedule_phases,
)
from veilcast.link import generations
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Delivered, Event
from veilcast.sim.links import LinkDelays
from veilcast.sim.scenario import Scenario, ScenarioConfig, build_world

SEED = 1
PERIOD_US = 62_500
POPULATION = LoopbackPopulation(
    nodes=10,
    subscribers=0.4,
    notes=0,
    mesh=PHASE_MESH,
    link=LinkConfig("cells", 16),
    checks=("once", "readers"),
)


def test_every_slot_has_one_cell_of_one_size_while_notes_joins_and_new_keys_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generations, "EARLIEST_US", 0)  # Or peers would refuse keys that are renewed so often.
    phases = plan_phases(16, Random(SEED))
    duration_us = phases[-1].start_us + 2 * SLOT_US
    notes: Counter[Address] = Counter()

    def take(address: Address, event: Event, now: int) -> None:
        notes[address] += isinstance(event, Delivered)

    scenario = ScenarioConfig("silence", duration_us, POPULATION, LinkDelays((1_000,)), epoch_us=EPOCH_US)
    world = build_world(Scenario("silence", scenario), SEED, on_event=take)
    publisher, readers = POPULATION.roles(SEED)
    published = schedule_phases(phases, world, publisher, POPULATION.addresses(), Random(SEED))
    wires = []
    for host in world._hosts.values():
        wires.append(WireRecorder(host.machine, lambda: world.now))
        host.machine = wires[-1]
    world.run(duration_us)
    assert {reader: notes[reader] for reader in readers} == dict.fromkeys(readers, published)
    sessions = [link.channel.generations.session for wire in wires for link in wire.inner._links.values()]
    assert sum(session.generation > 0 for session in sessions) > len(sessions) / 2
    sizes: Counter[int] = Counter()
    gaps: Counter[int] = Counter()
    for wire in wires:
        for times, lengths in wire.sent.values():
            sizes.update(lengths)
            formed = [at for at in times if at >= world.start + WARM_UP_US - BEFORE_EDGE_US]
            gaps.update(after - before for before, after in pairwise(formed))
    assert list(sizes) == [1200]
    assert all(0.7 * PERIOD_US < gap < 1.3 * PERIOD_US for gap in gaps), "none is missing, and none too many"
