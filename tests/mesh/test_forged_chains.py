"""Ten thousand fresh chains for one overheard token, and their effect on the papers' mesh and on a hardened one.

The forger sits next to the subscriber's last hop. The way from publisher to subscriber is short over f and g; the other
is long over a, b and c, so that only a fresh chain can lead there.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.chain_forger import ChainForger
from support.mesh_network import SMALL_CONFIG, TOKEN, MeshNetwork
from veilcast.machine import Address, Machine
from veilcast.mesh.config import ALL_DEFENCES, Defences, MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US

CHAINS = 10_000
STEADY, SUDDEN = 40, 1_000
"""Chains in each heartbeat period: the table is kept full for minutes, or all come at once."""

PAPER = msgspec.structs.replace(SMALL_CONFIG, d_max=6)
SAFE = msgspec.structs.replace(PAPER, defences=ALL_DEFENCES)
MAP = "p-f f-g g-s p-a a-b b-c c-s g-m"


def with_defences(**switches: bool) -> MeshConfig:
    return msgspec.structs.replace(PAPER, defences=msgspec.structs.replace(Defences(), **switches))


def flooded(config: MeshConfig, pace: int, periods: int) -> MeshNetwork:
    """A network this many periods into the flood. Publications of that time have arrived."""

    def forger(node: MeshNode) -> Machine:
        return ChainForger(node, Random(5), count=CHAINS, each=pace, start_us=START_US + 10_000_000)

    village = MeshNetwork(MAP, config=config, disguises={"m": forger}).run(10)
    bodies = [b"%d" % number for number in range(periods // 5)]
    for body in bodies:
        village.publish(body, wait=5)
    assert village.delivered("s") == bodies
    village.notes.clear()
    return village


def repairs(village: MeshNetwork) -> bool:
    """True if notifications still reach the subscriber after its way fails."""
    village.world.crash(Address("f"))
    village.run(40)
    village.publish(b"by the long way")
    return village.delivered("s") == [b"by the long way"]


def hears_again(village: MeshNetwork) -> bool:
    """True if notifications still reach the subscriber after a restart of the publisher."""
    village.world.crash(Address("p"))
    village.run(10)
    village.world.restart(Address("p"))
    village.run(30)
    village.publish(b"in a new life")
    return village.delivered("s") == [b"in a new life"]


def origins(village: MeshNetwork, name: str) -> int:
    return len(village.node(name).overlay.routes.origins(TOKEN))


# --- the papers' mesh ---------------------------------------------------------------------------------------


def test_the_flood_fills_the_papers_tables_draws_its_nodes_to_the_forger_and_no_broken_way_is_ever_repaired() -> None:
    village = flooded(PAPER, STEADY, 60)
    assert origins(village, "g") == PAPER.origins_max
    assert Address("m") in village.inward("g")
    assert not repairs(village)


# --- the hardened one ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", [STEADY, SUDDEN])
def test_a_hardened_mesh_delivers_and_repairs_as_if_there_were_no_flood_and_its_tables_stay_small(pace: int) -> None:
    village = flooded(SAFE, pace, 60)
    assert Address("m") not in village.inward("g")
    assert repairs(village)
    village.run(max(0, CHAINS // pace - 80))
    assert village.world.machine(Address("m")).done
    refused = village.node("g").refused
    assert refused["ExcessError"] + refused["ForgedError"] == CHAINS
    assert all(origins(village, name) <= 2 for name in "gsabc"), "the chain that was lost, and the fresh one"
    assert all(max(village.node(name).sizes().values()) <= 70 for name in "gsabc"), "which is the notes"


def test_in_a_hardened_mesh_a_publisher_that_starts_anew_is_heard_during_the_flood() -> None:
    assert hears_again(flooded(SAFE, STEADY, 30))


# --- which switch does what ---------------------------------------------------------------------------------


def test_it_is_the_anchors_that_keep_forged_chains_out() -> None:
    assert repairs(flooded(with_defences(anchors=True), STEADY, 30))
    village = flooded(with_defences(caps=True, buckets=True, replay=True), STEADY, 20)
    assert origins(village, "g") > 8
    assert Address("m") in village.inward("g")


def test_it_is_the_buckets_that_keep_the_work_small() -> None:
    """Every advertisement within the rate costs the check of a signature."""
    checked = flooded(SAFE, SUDDEN, 30).node("g").refused["ForgedError"]
    assert checked <= 256 + 32 * 12
    assert flooded(with_defences(anchors=True), SUDDEN, 30).node("g").refused["ForgedError"] == CHAINS
