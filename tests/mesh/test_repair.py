"""Churn: nodes fail, stop, restart and are cut off. The mesh heals by itself, and the checkers detect it if not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.mesh_network import TOKEN, MeshNetwork, SingleNode, advert
from veilcast.link.replay_window import ReplayWindow
from veilcast.machine import Address
from veilcast.mesh.replay import SeenIds
from veilcast.mesh.topic_overlay import MeshOverlay
from veilcast.sim import scenario
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Greet, Subscribe, Unadvert

DIAMOND = "p-a p-b a-c b-c c-s"
LONG_WAY = "p-a a-s p-x1 x1-x2 x2-x3 x3-x4 x4-s"


def told(network: MeshNetwork) -> MeshNetwork:
    network.publish(b"before")
    assert network.delivered("s") == [b"before"]
    return network


@pytest.mark.parametrize("edges", [DIAMOND, LONG_WAY])
@pytest.mark.parametrize("seed", range(5))
def test_a_forwarder_that_crashes_is_replaced_without_outside_help(edges: str, seed: int) -> None:
    network = told(MeshNetwork(edges, seed=seed).run(15))
    on_the_way = next(name for name in ("a", "b") if name in network.members())
    network.world.crash(Address(on_the_way))
    network.run(30)
    network.publish(b"after", wait=3)
    assert network.delivered("s") == [b"before", b"after"]


@pytest.mark.parametrize("seed", range(5))
def test_a_forwarder_that_is_cut_off_silently_is_replaced_and_taken_back(seed: int) -> None:
    """No notice here: only the heartbeats stop. When they return, the short way is used again."""
    network = told(MeshNetwork(LONG_WAY, seed=seed).run(15))
    for peer in ("p", "s"):
        for pair in ((peer, "a"), ("a", peer)):
            network.world.block(Address(pair[0]), Address(pair[1]))
    network.run(40)
    network.publish(b"cut", wait=3)
    assert network.delivered("s") == [b"before", b"cut"]
    for peer in ("p", "s"):
        for pair in ((peer, "a"), ("a", peer)):
            network.world.unblock(Address(pair[0]), Address(pair[1]))
    network.run(40)
    assert network.inward("s") == ["a"]
    network.publish(b"whole", wait=3)
    assert network.delivered("s") == [b"before", b"cut", b"whole"]


@pytest.mark.parametrize("who", ["p", "a", "s"])
@pytest.mark.parametrize("down", [1, 3, 20])
def test_a_node_that_crashes_and_restarts_is_back_in_the_mesh(who: str, down: float) -> None:
    network = told(MeshNetwork("p-a a-s").run(12))
    network.world.crash(Address(who))
    network.run(down)
    network.world.restart(Address(who))
    network.run(25)
    network.publish(b"after")
    assert network.delivered("s") == [b"before", b"after"]


@pytest.mark.parametrize("who", ["p", "a", "s"])
@pytest.mark.parametrize("stopped", [2, 20])
def test_a_stopped_node_suspects_no_neighbour_and_is_back_in_the_mesh(who: str, stopped: float) -> None:
    network = told(MeshNetwork("p-a a-s a-b").run(12))
    network.world.pause(Address(who))
    network.run(stopped)
    before = network.node(who).overlay.present_neighbours()
    network.world.resume(Address(who))
    network.run(0)
    assert network.node(who).overlay.present_neighbours() == before
    network.run(25)
    network.publish(b"after")
    assert network.delivered("s") == [b"before", b"after"]


def test_a_greeting_asks_for_everything_and_drops_what_the_greeter_told() -> None:
    bench = SingleNode("forwarder", "a b")
    bench.hear("a", advert(1))
    bench.hear("b", advert(2))
    bench.next_riders()
    bench.hear("a", Greet())
    said = bench.next_riders()
    assert [origin.is_reachable for origin in bench.node.overlay.routes.origins(TOKEN)] == [False, True]
    assert [type(message) for message in said["a"]] == [Unadvert, Advert]


# --- scenarios, and the bugs they catch ---------------------------------------------------------------------

MESHES = [name for name in scenario.packaged_names() if name.startswith("mesh-") and name != "mesh-sybils"]
"""All but the one that takes minutes; `test_sybils` runs it at a smaller size."""


def first_failure(name: str, seeds: range) -> str:
    for seed in seeds:
        outcome = scenario.run_scenario(scenario.load_scenario(name), seed)
        if outcome.violations:
            return outcome.violations[0]
    return ""


HEAVY = ("mesh-hardened", "mesh-many", "mesh-certified")


@pytest.mark.all_only
@pytest.mark.parametrize("name", [name for name in MESHES if not name.startswith(HEAVY)])
def test_five_more_seeds_of_each_scenario_pass(name: str) -> None:
    """`sim/test_scenario.py` has the first five; `veilcast sim run NAME --seeds 30` is the heavy form."""
    assert first_failure(name, range(5, 10)) == ""


@pytest.mark.all_only
@pytest.mark.parametrize("name", [name for name in MESHES if name.startswith(HEAVY)])
@pytest.mark.heavy
def test_another_seed_of_each_heavy_scenario_passes(name: str) -> None:
    assert first_failure(name, range(1, 2)) == ""


def never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by forwarders nor by subscribers."""
    monkeypatch.setattr(SeenIds, "__contains__", lambda self, name: False)
    monkeypatch.setattr(ReplayWindow, "take", lambda self, number: True)


def branch_lost_when_moving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that moves leaves the old parent, and the new one is never asked."""
    send = MeshOverlay.send

    def forgetful(self: MeshOverlay, neighbour: Address, message: Message) -> None:
        if not isinstance(message, Subscribe) or len(self.branches.inward(message.token)) < 2:
            send(self, neighbour, message)

    monkeypatch.setattr(MeshOverlay, "send", forgetful)


@pytest.mark.parametrize(
    ("plant", "name", "finding"),
    [(never_seen, "mesh-storm", "AtMostOnce|stuck"), (branch_lost_when_moving, "mesh-churn", "Everyone")],
)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    failure = first_failure(name, range(10))
    assert any(word in failure for word in finding.split("|")), failure
