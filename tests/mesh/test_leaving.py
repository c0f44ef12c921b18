"""A node that stops says so: its neighbours repair their overlay at once, and an observer of cells sees nothing."""

from __future__ import annotations

import msgspec
import pytest

from support.mesh_network import SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Departing, Left, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import GOODBYE_BEATS, Departure, MeshNode
from veilcast.observe import CellRow, ObservationRow
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.wire.mesh import Replace, Unsubscribe

PATIENT = msgspec.structs.replace(SMALL_CONFIG, silent_periods=1_000)
"""Neighbours that miss no heartbeat: what they learn of a departure, they were told."""


def take_leave(machine: Machine, now: int) -> None:
    member = unwrap(machine)
    assert isinstance(member, Departing)
    member.leave(now)


def test_neighbours_go_another_way_as_soon_as_they_are_told() -> None:
    network = MeshNetwork("p-a p-b a-s b-s", config=PATIENT).run(12)
    [parent] = network.inward("s")
    network.world.call(parent, take_leave)
    network.run(7)
    assert network.inward("s") == [Address("b" if parent == "a" else "a")]
    network.publish(b"after it left")
    assert network.delivered("s") == [b"after it left"]


def test_a_node_that_falls_silent_without_a_word_is_waited_for() -> None:
    """The control of the test above."""
    network = MeshNetwork("p-a p-b a-s b-s", config=PATIENT).run(12)
    [parent] = network.inward("s")
    silent = network.node(parent)._departure = Departure()
    silent.is_told = True
    network.run(7)
    assert network.inward("s") == [parent]


def test_the_goodbye_is_in_the_next_heartbeat_and_the_event_one_heartbeat_later() -> None:
    single = SingleNode("forwarder", "a b")
    single.tick()
    single.node.leave(single.now)
    assert {name: words[-1] for name, words in single.next_riders().items()} == {"a": Replace(None), "b": Replace(None)}
    assert single.events() == []
    assert single.tick() == []
    assert single.events() == [Left()]
    assert single.tick() == []
    assert single.events() == []


def test_goodbyes_that_do_not_fit_do_not_hold_a_node_for_ever() -> None:
    single = SingleNode("forwarder", "a b")
    single.tick()
    single.node.leave(single.now)
    for _ in range(GOODBYE_BEATS):
        # Whatever is queued in the meantime.
        single.node._heartbeats.send(Unsubscribe(TOKEN), [Address("elsewhere")])
        single.tick()
    single.tick()
    assert Left() in single.events()


def test_a_neighbour_that_left_may_come_back() -> None:
    single = SingleNode("forwarder", "a b")
    single.hear("a", Replace(None))
    assert not single.node._links.is_present(Address("a"))
    single.hear("a")
    assert single.node._links.is_present(Address("a"))


class Recorder:
    def __init__(self) -> None:
        self.cells: list[tuple[int, str, str, int]] = []

    def append(self, row: ObservationRow) -> None:
        if isinstance(row, CellRow):
            self.cells.append((row.t_us, row.src, row.dst, row.size))


@pytest.mark.parametrize("membership", ["fixed", "certified"])
def test_an_observer_of_cells_sees_no_departure(membership: str) -> None:
    """All wires of the same network, with and without a goodbye, until the process ends."""

    def record(*, leaves: bool) -> tuple[list[tuple[int, str, str, int]], int]:
        people = MeshPopulation(
            nodes=8,
            neighbours=4,
            subscribers=0.25,
            notes=0,
            cover_share=1.0,
            whole=False,
            checks=(),
            mesh=MeshConfig("hardened", membership=membership, neighbours_max=20, address_bytes_max=8),  # type: ignore[arg-type]
            link=LinkConfig("cells", 16),
        )
        seen = Recorder()
        world = World(seed=5, links=LinkDelays(latency_us=(1_000, 20_000)), recorder=seen)
        people.populate(world, 60_000_000)
        world.run(30_000_000)
        leaver = people.addresses()[3]
        if leaves:
            world.call(leaver, take_leave)
        start = world.now
        world.run(3 * people.mesh.heartbeat_us)
        lost = sum(not _has_present(world, address, leaver) for address in people.addresses() if address != leaver)
        return [cell for cell in seen.cells if cell[0] >= start], lost

    quiet, linked = record(leaves=False)
    told, left = record(leaves=True)
    assert told == quiet
    assert left > linked


def _has_present(world: World, address: Address, other: Address) -> bool:
    node = unwrap(world.machine(address))
    assert isinstance(node, MeshNode)
    return node._links.is_present(other)
