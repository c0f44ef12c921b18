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

    network = MeshNetwork(MAP, config=config, disguises={"m": forger}).run(10)
    bodies = [b"%d" % number for number in range(periods // 5)]
    for body in bodies:
        network.publish(body, wait=5)
    assert network.delivered("s") == bodies
    network.notes.clear()
    return network


def repairs(network: MeshNetwork) -> bool:
    """True if notifications still reach the subscriber after its way fails."""
    network.world.crash(Address("f"))
    network.run(40)
    network.publish(b"by the long way")
    return network.delivered("s") == [b"by the long way"]


def hears_again(network: MeshNetwork) -> bool:
    """True if notifications still reach the subscriber after a restart of the publisher."""
    network.world.crash(Address("p"))
    network.run(10)
    network.world.restart(Address("p"))
    network.run(30)
    network.publish(b"in a new life")
    return network.delivered("s") == [b"in a new life"]


def origins(network: MeshNetwork, name: str) -> int:
    return len(network.node(name).overlay.routes.origins(TOKEN))


# --- the papers' mesh ---------------------------------------------------------------------------------------


def test_in_the_paper_profile_a_flood_fills_the_tables_attracts_nodes_and_prevents_repair() -> None:
    network = flooded(PAPER, STEADY, 60)
    assert origins(network, "g") == PAPER.origins_max
    assert Address("m") in network.inward("g")
    assert not repairs(network)


# --- the hardened one ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", [STEADY, SUDDEN])
def test_a_hardened_mesh_delivers_and_repairs_as_if_there_were_no_flood_and_its_tables_stay_small(pace: int) -> None:
    network = flooded(SAFE, pace, 60)
    assert Address("m") not in network.inward("g")
    assert repairs(network)
    network.run(max(0, CHAINS // pace - 80))
    assert network.world.machine(Address("m")).done
    refused = network.node("g").refused
    assert refused["ExcessError"] + refused["ForgedError"] == CHAINS
    assert all(origins(network, name) <= 2 for name in "gsabc"), "the chain that was lost, and the fresh one"
    assert all(max(network.node(name).sizes().values()) <= 70 for name in "gsabc"), "which is the notes"


def test_in_a_hardened_mesh_a_restarted_publisher_is_heard_during_the_flood() -> None:
    assert hears_again(flooded(SAFE, STEADY, 30))


# --- which switch does what ---------------------------------------------------------------------------------


def test_anchors_keep_forged_chains_out() -> None:
    assert repairs(flooded(with_defences(anchors=True), STEADY, 30))
    network = flooded(with_defences(caps=True, buckets=True, replay=True), STEADY, 20)
    assert origins(network, "g") > 8
    assert Address("m") in network.inward("g")


def test_rate_limits_keep_the_work_small() -> None:
    """Every advertisement within the rate costs the check of a signature."""
    checked = flooded(SAFE, SUDDEN, 30).node("g").refused["ForgedError"]
    assert checked <= 256 + 32 * 12
    assert flooded(with_defences(anchors=True), SUDDEN, 30).node("g").refused["ForgedError"] == CHAINS
