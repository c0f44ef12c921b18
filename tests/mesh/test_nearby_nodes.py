"""Links to all nodes near in the overlay: which pairs exchange heartbeats, and what swaps and publications do then."""

from __future__ import annotations

from random import Random

import pytest

from support.mesh_network import SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, advert
from veilcast.errors import ConfigError, MalformedError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig, ShellGameConfig
from veilcast.mesh.nearby_nodes import NearbyNodes
from veilcast.wire import encode
from veilcast.wire.geometry import ADDRESS_MAX, MANAGEMENT_MAX, NEARBY_MAX
from veilcast.wire.mesh import Subscribe, Surroundings, SwapAnswer, SwapAsk

GAME = bytes(16)
RING = "p-a a-b b-c c-d d-e e-f f-g g-h h-p"


def linked(reach: int, **more: object) -> MeshConfig:
    game = {"start": "child", "rate": 0.0, "wait_us": 2_000_000, "settle_periods": 4, "reach": reach} | more
    return MeshConfig(neighbours_max=20, address_bytes_max=8, shellgame=ShellGameConfig(**game))  # type: ignore[arg-type]


def names(text: str) -> tuple[Address, ...]:
    return tuple(Address(name) for name in text.split())


# --- the table


def exchange(overlay: dict[str, str], reach: int, turns: int) -> dict[str, set[str]]:
    """The nodes within reach of each node, after so many turns of telling."""
    nodes = {name: NearbyNodes(reach, 20) for name in overlay}
    for _ in range(turns):
        for name, node in nodes.items():
            for neighbour, message in node.take_news(names(overlay[name])):
                nodes[neighbour].hear(message, Address(name))
    return {name: set(node.names(names(overlay[name]))) for name, node in nodes.items()}


@pytest.mark.parametrize(("reach", "far"), [(1, ""), (2, "c g"), (3, "c d f g"), (4, "c d e f g")])
def test_a_node_knows_all_within_its_reach_and_nobody_else(reach: int, far: str) -> None:
    ring = {"a": "b h", "b": "a c", "c": "b d", "d": "c e", "e": "d f", "f": "e g", "g": "f h", "h": "g a"}
    assert exchange(ring, reach, 6)["a"] == set(far.split())


def test_who_is_near_is_mutual_on_drawn_overlays() -> None:
    for seed in range(20):
        rng, nodes = Random(seed), [f"n{number}" for number in range(12)]
        pairs = [(u, v) for u in nodes for v in nodes if u < v and rng.random() < 0.2]
        overlay = {
            name: " ".join([v for u, v in pairs if u == name] + [u for u, v in pairs if v == name]) for name in nodes
        }
        near = exchange(overlay, 3, 6)
        assert all(name in near[other] for name, others in near.items() for other in others)


def test_a_node_behind_a_neighbour_that_is_gone_is_forgotten() -> None:
    node = NearbyNodes(3, 20)
    node.hear(Surroundings(("x",), b"\x01"), Address("a"))
    assert list(node.names(names("a b"))) == ["x"]
    assert list(node.names(names("b"))) == []


def test_surroundings_need_a_distance_for_each_name() -> None:
    with pytest.raises(MalformedError):
        NearbyNodes(3, 20).hear(Surroundings(("x", "y"), b"\x01"), Address("a"))


def test_the_table_is_bounded_whatever_neighbours_say() -> None:
    node = NearbyNodes(3, 4)
    neighbours = names(" ".join(f"a{number}" for number in range(9)))
    for at, source in enumerate(neighbours):
        node.hear(Surroundings(tuple(f"x{at}-{number}" for number in range(7)), bytes([1] * 7)), source)
    assert len(node) <= 4
    assert len(node.names(neighbours)) <= 7


def test_the_largest_surroundings_ride_in_a_heartbeat() -> None:
    largest = Surroundings(("x" * ADDRESS_MAX,) * NEARBY_MAX, bytes(NEARBY_MAX))
    assert len(encode(largest)) <= MANAGEMENT_MAX


@pytest.mark.parametrize("bad", [{"reach": -1}, {"reach": 9}, {"hold_periods": -1}])
def test_impossible_reaches_and_holds_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ShellGameConfig(**bad)  # type: ignore[arg-type]


# --- the machines


def heartbeat_pairs(network: MeshNetwork) -> set[frozenset[str]]:
    """The pairs of nodes of which one sends the other heartbeats."""
    return {
        frozenset((name, target))
        for name in network.neighbours
        for target in (*network.neighbours[name], *network.node(name).overlay.acquaintances())
    }


def test_nodes_within_reach_exchange_heartbeats_before_anybody_subscribes() -> None:
    network = MeshNetwork(RING, config=linked(2)).run(8)
    assert network.node("d").overlay.acquaintances() == ["b", "f"]


def test_games_make_no_pair_that_was_not_there_before_them() -> None:
    """The positive control: without a reach, the same games make such pairs."""
    tree = "p-a a-b b-c a-d b-e c-s1 d-s2 e-s3"
    for reach, hidden in ((8, True), (3, True), (0, False)):
        network = MeshNetwork(tree, config=linked(reach, settle_periods=8)).run(7)
        before = heartbeat_pairs(network)
        network.run(150)
        swaps = sum(network.node(name).swaps_played() for name in network.neighbours)
        assert swaps > 0
        assert (heartbeat_pairs(network) <= before) is hidden


def bench(reach: int) -> SingleNode:
    node = SingleNode("forwarder", "p v w", linked(reach, wait_us=10**12, first="exponential", settle_periods=2))
    node.hear("p", advert(), Surroundings(("q",), b"\x01"))
    node.hear("v", Subscribe(TOKEN))
    for _ in range(4):
        for name in ("p", "v", "w"):
            node.hear(name)
        node.next_riders()
    return node


@pytest.mark.parametrize(("reach", "asked", "agreed"), [(2, "q", True), (2, "z", False), (0, "z", True)])
def test_a_child_refuses_a_position_beside_nodes_that_it_is_not_linked_with(
    reach: int, asked: str, agreed: bool
) -> None:
    node = bench(reach)
    node.hear("p", SwapAsk(GAME, TOKEN, (asked,), ()))
    answers = [message for message in node.next_riders()["p"] if isinstance(message, SwapAnswer)]
    assert [answer.agreed for answer in answers] == [agreed]


# --- publications that wait


def test_a_publication_waits_for_the_nodes_to_swap_and_arrives() -> None:
    network = MeshNetwork("p-f f-s", config=linked(0, hold_periods=30)).run(4)
    network.publish(b"early", wait=20)
    assert network.delivered("s") == []
    delay = network.node("p").delay(network.world.now)
    assert delay is not None
    assert "swap" in delay.reason
    network.run(10)
    assert network.delivered("s") == [b"early"]
    network.publish(b"late")
    assert network.delivered("s") == [b"early", b"late"]


def test_a_fresh_chain_makes_publications_wait_again_but_not_for_ever() -> None:
    network = MeshNetwork("p-f f-s", config=linked(0, hold_periods=20)).run(25)
    node = network.node("p")
    for turn in range(40):
        node.overlay.request_fresh_chains(node.overlay.reachable_origins(TOKEN), network.world.now)
        if turn == 1:
            network.publish(b"note", wait=0)
        network.run(3)
        if turn == 10:
            assert network.delivered("s") == []
    assert network.delivered("s") == [b"note"]


def test_without_a_hold_a_publication_leaves_at_once() -> None:
    network = MeshNetwork("p-f f-s", config=SMALL_CONFIG).run(6)
    network.publish(b"note")
    assert network.delivered("s") == [b"note"]
