"""Through a network that loses a third of all datagrams, all notes arrive, once; see also `benchmarks/loss.py`."""

from __future__ import annotations

from random import Random

from support.lossy_network import LossyNetwork, home_address
from support.virtual_time import VirtualTime
from veilcast.lab.runs.mesh.loopback_network import (
    DeliveryStats,
    LoopbackNetwork,
    LoopbackPopulation,
    exclusive_addresses,
)
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import HardeningConfig, MeshConfig

SEED = 3
POPULATION = LoopbackPopulation(
    nodes=8,
    subscribers=0.5,
    notes=60,
    first_us=7_000_000,
    every_us=150_000,
    mesh=MeshConfig(
        "hardened",
        heartbeat_us=100_000,
        silent_periods=100,
        hardening=HardeningConfig(window_periods=8, lead_periods=16, bit_periods=1, uptime_periods=4),
    ),
    link=LinkConfig("cells", 16),
    checks=("once", "turns", "intact", "readers", "everyone"),
)


def test_all_notes_reach_all_subscribers_once_though_a_third_of_all_datagrams_is_lost() -> None:
    duration_us = POPULATION.first_us + POPULATION.notes * POPULATION.every_us + 30_000_000

    async def test() -> None:
        relay = LossyNetwork(POPULATION.addresses(), 0.3, Random(SEED))
        relay.open()
        await town.run(duration_us, lambda: tally.delivered == tally.pairs)
        relay.close()
        assert relay.lost > 0.25 * relay.taken

    tally = DeliveryStats(POPULATION, SEED)
    with exclusive_addresses():
        clock = VirtualTime()
        town = LoopbackNetwork(seed=SEED, home=home_address, on_event=tally.record_event, steady_ns=clock.steady_ns)
        town.settle(POPULATION, duration_us)
        clock.run(test())
    assert town.violations == []
    assert (tally.delivered, tally.repeated, tally.missing()) == (tally.pairs, 0, [])
