"""Mesh nodes over the neighbourhood that SCAMP builds, with heartbeats, in the simulator."""

from __future__ import annotations

from random import Random

import pytest

from veilcast.errors import LocalError
from veilcast.machine import Address, Connect, Disconnect
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import Heartbeats
from veilcast.mesh.node import MeshNode
from veilcast.observe import ObservationRow, TopologyRow
from veilcast.sim import scenario
from veilcast.sim.checkers import OverlayConnected, ViolationError
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation, role_keyrings
from veilcast.sim.world import World
from veilcast.wire import decode, encode, pad, unpad
from veilcast.wire.mesh import Heartbeat, Join, Keep, Subscribe

SCAMP = MeshConfig(membership="scamp", neighbours_max=8, address_bytes_max=8)


def make_node(name: str, contacts: list[Address], now: int = 0) -> MeshNode:
    rng = Random(name)
    return MeshNode(SCAMP, role_keyrings()["forwarder"], rng, rng.randbytes, contacts, now, Address(name))


def beat(number: int, *riders: bytes) -> bytes:
    return pad(encode(Heartbeat(number, riders)), SCAMP.heartbeat_bytes)


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_forms_over_the_overlay_that_scamp_built(seed: int) -> None:
    assert scenario.run_scenario(scenario.load_scenario("mesh-scamp"), seed).violations == ()


@pytest.mark.parametrize("seed", range(2))
def test_notifications_reach_all_subscribers_after_churn(seed: int) -> None:
    assert scenario.run_scenario(scenario.load_scenario("mesh-scamp-churn"), seed).violations == ()


def test_the_first_message_to_a_contact_is_a_heartbeat_like_any_other() -> None:
    node = make_node("a", [Address("c")])
    node.handle_timer(node.next_timer() or 0)
    (frame,) = node.frames_to_send(0, 9)
    assert frame.destination == "c"
    assert len(frame.data) == SCAMP.heartbeat_bytes
    message = decode(unpad(frame.data))
    assert isinstance(message, Heartbeat)
    assert [type(decode(rider)) for rider in message.riders] == [Join]
    node.handle_timer(node.next_timer() or 0)
    assert node.frames_to_send(0, 9) == []
    assert node.sizes()["queued"] == 0


def test_only_a_membership_message_lets_a_stranger_in() -> None:
    node = make_node("a", [])
    node.receive(beat(1), Address("x"), 0)
    node.receive(beat(2, encode(Subscribe(bytes(32)))), Address("x"), 0)
    node.receive(b"\x06note", Address("x"), 0)
    assert node.sizes()["neighbours"] == 0
    node.receive(beat(3, encode(Keep(60_000))), Address("x"), 0)
    assert node.sizes()["neighbours"] == 1
    assert node.overlay.present_neighbours() == []
    node.receive(beat(4), Address("x"), 1_000)
    assert node.overlay.present_neighbours() == ["x"]


def test_a_message_in_a_heartbeat_acts_once_however_often_it_comes() -> None:
    node = make_node("a", [])
    node.receive(beat(3, encode(Keep(60_000))), Address("x"), 0)
    node.receive(beat(4), Address("x"), 1_000)
    join = beat(5, encode(Join("y", 1_000, True, 0)))
    for _ in range(3):
        node.receive(join, Address("x"), 2_000)
    assert node.refused["StaleError"] == 2


def test_strangers_cannot_fill_more_than_the_bounds() -> None:
    node = make_node("a", [])
    for number in range(100):
        node.receive(beat(number, encode(Join(f"x{number}", 60_000, True, 9))), Address(f"x{number}"), 0)
        node.receive(beat(number, encode(Keep(60_000))), Address(f"y{number}"), 0)
    assert node.sizes()["neighbours"] == SCAMP.neighbours_max
    assert node.sizes()["passive"] == SCAMP.scamp.passive_max
    node.handle_timer(node.next_timer() or 0)
    assert len(node.frames_to_send(0, 99)) <= 3 * SCAMP.neighbours_max


def test_a_queue_that_was_sent_is_not_kept() -> None:
    beats = Heartbeats(period_us=10, size=900, queue_max=4, first_us=0, first_number=0)
    for number in range(50):
        name = Address(f"guest{number}")
        beats.send(Keep(1), (name,))
        beats.beat((name,), 0)
    assert not beats._queues


def test_a_fixed_neighbourhood_refuses_membership_messages() -> None:
    rng = Random(1)
    fixed = MeshConfig(neighbours_max=8, address_bytes_max=8)
    node = MeshNode(fixed, role_keyrings()["forwarder"], rng, rng.randbytes, [Address("x")], 0)
    node.receive(beat(1, encode(Keep(1_000))), Address("x"), 0)
    node.receive(beat(1, encode(Keep(1_000))), Address("stranger"), 0)
    assert node.refused == {"MalformedError": 1, "StaleError": 1}
    with pytest.raises(LocalError):
        MeshNode(SCAMP, role_keyrings()["forwarder"], rng, rng.randbytes, [], 0)


def test_the_survivors_of_a_mass_crash_find_one_another_and_deliver() -> None:
    """Eighty in a hundred die at once, the first two contacts among them, in the middle of the run."""
    population = MeshPopulation(
        nodes=40,
        notes=5,
        first_us=130_000_000,
        subscribers=0.9,
        mesh=MeshConfig(membership="scamp", neighbours_max=32, address_bytes_max=8),
        checks=("connected", "bounds"),
    )
    world = World(seed=2, links=LinkDelays())
    population.populate(world, 150_000_000)
    world.run(60_000_000)
    publisher, _ = population.roles(2)
    doomed = [address for address in population.addresses() if address != publisher][:32]
    for address in doomed:
        world.crash(address)
    world.run(90_000_000)
    world.finish()
    assert world.deliveries == 7 * 5


def test_the_checker_detects_a_split_overlay() -> None:
    world = World(seed=1)
    checker = OverlayConnected([Address("a"), Address("b"), Address("c")], lambda machine: machine.known)
    for name, known in (("a", ["b"]), ("b", ["a"]), ("c", [])):
        node = make_node(name, [])
        node.known = known  # type: ignore[attr-defined]
        world.add(Address(name), lambda birth, node=node: node)  # type: ignore[misc]
    with pytest.raises(ViolationError):
        checker.on_end(world)
    world.crash(Address("c"))
    checker.on_end(world)


class Rows:
    def __init__(self) -> None:
        self.rows: list[ObservationRow] = []

    def append(self, row: ObservationRow) -> None:
        self.rows.append(row)


def test_the_driver_is_asked_to_connect_when_a_link_opens_and_told_when_it_closes() -> None:
    node = make_node("a", [])
    node.receive(beat(3, encode(Keep(60_000))), Address("x"), 0)
    node.peer_up(Address("x"), 0)
    assert node.overlay.present_neighbours() == []
    node.receive(beat(4, encode(Keep(60_000))), Address("x"), 0)
    assert node.next_event() == Connect(Address("x"))
    assert node.next_event() is None
    node.peer_lost(Address("x"), 0)
    assert node.next_event() == Disconnect(Address("x"))
    assert node.next_event() is None


def test_links_opened_by_scamp_are_in_the_topology_table() -> None:
    loaded, tables = scenario.load_scenario("mesh-scamp"), Rows()
    world = scenario.build_world(loaded, 0, tables)
    world.run(loaded.config.duration_us)
    last = max(row.epoch for row in tables.rows if isinstance(row, TopologyRow))
    recorded = {(row.u, row.v) for row in tables.rows if isinstance(row, TopologyRow) and row.epoch == last}
    linked = {
        (min(u, v), max(u, v))
        for u in loaded.config.population.addresses()
        for v in world.machine(u).overlay.present_neighbours()
    }
    assert linked
    assert linked <= recorded
