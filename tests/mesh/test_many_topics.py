"""Many topics and roles in one node at once: every publication reaches its subscribers, and the load for others is
counted."""

from __future__ import annotations

from collections import Counter

import pytest

from support.mesh_network import MeshNetwork
from veilcast.errors import ConfigError
from veilcast.machine import Address, Delivered, Note, Publication
from veilcast.mesh.forwarding_load import ForwardingLoad
from veilcast.sim import scenario
from veilcast.sim.checkers import OnlySubscribers, ViolationError
from veilcast.sim.mesh.checkers import TopicChecker, mesh_node_at
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import World
from veilcast.topics import Label


@pytest.mark.parametrize("name", ["mesh-many", pytest.param("mesh-many-hardened", marks=pytest.mark.heavy)])
def test_fifty_topics_share_the_nodes_and_each_notification_reaches_its_subscribers_only(name: str) -> None:
    loaded = scenario.load_scenario(name)
    people = loaded.config.population
    assert isinstance(people, MeshPopulation)
    assert people.topics == 50
    parts = [
        Counter(part for cast in people.draw_roles(0).values() for who, part in cast.items() if who == address)
        for address in people.addresses()
    ]
    assert all(sum(part.values()) < 50 for part in parts), "every node carries something for others"
    assert any({"publisher", "both", "subscriber"} <= part.keys() for part in parts), "some are everything at once"
    world = scenario.build_world(loaded, 0)
    world.run(loaded.config.duration_us)
    world.finish()
    readers = sum(part in ("subscriber", "both") for cast in people.draw_roles(0).values() for part in cast.values())
    assert world.deliveries == people.notes // people.topics * readers
    loads: list[ForwardingLoad] = [mesh_node_at(world, address).load for address in people.addresses()]
    facts = people.facts(world)
    assert facts["Notify"] == sum(load.own.copies + load.others.copies for load in loads)
    assert facts["cover copies"] == sum(load.others.copies for load in loads) > facts["own copies"]
    assert facts["most cover"] == max(load.others.copies for load in loads)
    for address in people.addresses():
        sizes = mesh_node_at(world, address).sizes()
        epochs = 2 if people.mesh.profile == "hardened" else 1
        links = len(mesh_node_at(world, address).overlay.present_neighbours())
        assert 50 <= sizes["routes"] <= 50 * epochs * links
        assert sizes["branches"] <= 50 * epochs * (links + 1)
        assert sizes["queued"] == 0


def test_a_node_counts_what_it_carries_for_others_apart_from_its_own() -> None:
    network = MeshNetwork("p-f f-s s-g g-s2").run(8)
    network.publish(b"x", wait=3)
    assert network.delivered("s") == network.delivered("s2") == [b"x"]
    loads = {name: network.node(name).load for name in network.neighbours}
    assert {name: load.own.notes for name, load in loads.items()} == {"p": 1, "f": 0, "s": 1, "g": 0, "s2": 1}
    assert {name: load.others.notes for name, load in loads.items()} == {"p": 0, "f": 1, "s": 0, "g": 1, "s2": 0}
    assert loads["f"].others.copies == 1
    assert loads["f"].others.size == loads["p"].own.size > 100
    assert loads["s2"].own.copies == 0


def test_the_checker_of_a_topic_catches_a_note_for_the_reader_of_another() -> None:
    world, reader = World(seed=1), Address("a")
    checkers = [TopicChecker("one", OnlySubscribers([reader])), TopicChecker("two", OnlySubscribers([]))]

    def deliver(topic: str) -> None:
        note = Note(bytes(16), Publication((Label(topic).pair,)))
        for checker in checkers:
            checker.on_event(world, reader, Delivered(1, note))

    deliver("one")
    with pytest.raises(ViolationError, match="no subscriber"):
        deliver("two")


def test_options_for_a_single_topic_are_refused_for_many() -> None:
    with pytest.raises(ConfigError, match=r"population\.topics"):
        MeshPopulation(topics=2, checks=("tree",))
    with pytest.raises(ConfigError, match=r"population\.topics"):
        MeshPopulation(topics=0)
    with pytest.raises(ConfigError, match=r"population\.topics"):
        MeshPopulation(topics=2, publishers=2)
