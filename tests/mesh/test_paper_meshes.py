"""The figures of P0 and P1 as tests: advertisements, loops, duplicates, the resulting mesh, several publishers."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mesh_network import LABEL, SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, advert
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto import hash_chain
from veilcast.machine import Address, Publication
from veilcast.mesh.advertisements import make_advert, replace_chain_value
from veilcast.mesh.anchors import anchor_advert
from veilcast.mesh.config import Defences, MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.graphs import is_connected
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC, role_keyrings
from veilcast.topics import All, Range, Reals, Schema
from veilcast.wire.mesh import Advert, Subscribe, Unadvert, Unsubscribe


def further(message: Advert, hops: int) -> Advert:
    return Advert(
        message.token,
        hash_chain.advance_chain(message.value, hops),
        message.anchor,
        message.certificate,
        message.signature,
    )


# --- P0 Fig. 3 ----------------------------------------------------------------------------------------------


def test_fig_3_left_an_advert_that_comes_back_in_a_loop_goes_no_further() -> None:
    f1 = SingleNode("forwarder", "p f2 f3")
    first = advert()
    f1.hear("p", first)
    assert f1.next_riders() == {"f2": [further(first, 1)], "f3": [further(first, 1)]}
    f1.hear("f3", further(first, 3))
    assert f1.next_riders() == {}
    (origin,) = f1.node.overlay.routes.origins(TOKEN)
    assert origin.via == "p"


def test_fig_3_right_a_duplicate_by_another_path_is_no_second_publisher() -> None:
    f4 = SingleNode("subscriber", "f2 f3 x")
    f4.node.subscribe(LABEL, f4.now)
    first = advert()
    f4.hear("f2", further(first, 1))
    f4.hear("f3", further(first, 1))
    said = f4.next_riders()
    assert said == {"f2": [Subscribe(TOKEN)], "f3": [further(first, 2)], "x": [further(first, 2)]}
    assert len(f4.node.overlay.routes.origins(TOKEN)) == 1


def test_a_nearer_copy_that_comes_late_moves_the_subscription_and_is_told_again() -> None:
    node = SingleNode("subscriber", "far near x")
    node.node.subscribe(LABEL, node.now)
    first = advert()
    node.hear("far", further(first, 4))
    assert node.next_riders()["far"] == [Subscribe(TOKEN)]
    node.hear("near", further(first, 1))
    said = node.next_riders()
    assert said["near"] == [further(first, 2), Subscribe(TOKEN)]
    assert said["far"] == [further(first, 2), Unsubscribe(TOKEN)]
    assert said["x"] == [further(first, 2)]
    assert node.inward() == ["near"]


def test_our_own_advert_that_comes_back_is_ignored() -> None:
    publisher = SingleNode("publisher", "a b")
    publisher.node.advertise("mesh", publisher.now)
    (told,) = publisher.next_riders()["a"]
    assert isinstance(told, Advert)
    publisher.hear("b", further(told, 3))
    assert publisher.next_riders() == {}
    assert len(publisher.node.overlay.routes.origins(TOKEN)) == 1


# --- P0 Fig. 4 and 5, P1 2.2 --------------------------------------------------------------------------------


def test_fig_4_and_5_adverts_flood_a_subscription_answers_and_the_path_becomes_the_mesh() -> None:
    network = MeshNetwork("p-f1 f1-f2 f2-s f1-f3 f3-f4").run(12)
    for name in ("f1", "f2", "f3", "f4", "s"):
        assert len(network.node(name).overlay.routes.origins(TOKEN)) == 1
    assert network.members() == ["f1", "f2", "p", "s"]
    assert (network.inward("s"), network.inward("f2"), network.inward("f1")) == (["f2"], ["f1"], ["p"])
    assert (network.outward("p"), network.outward("f1"), network.outward("f2")) == (["f1"], ["f2"], ["s"])
    network.publish(b"hello")
    assert network.notes == {"s": [b"hello"]}


def test_subscriptions_merge_where_branches_meet() -> None:
    network = MeshNetwork("p-f1 f1-f2 f2-s1 f2-s2 f2-s3").run(12)
    assert network.outward("f2") == ["s1", "s2", "s3"]
    assert network.sent("Subscribe") == 5
    network.publish(b"one")
    assert network.sent("Notify") == 5


def test_unsubscribing_prunes_the_mesh_back_to_the_next_branch() -> None:
    network = MeshNetwork("p-f1 f1-s1 f1-f2 f2-s2").run(12)
    network.world.call(Address("s2"), lambda node, now: node.unsubscribe(1, now))
    network.run(4)
    assert network.members() == ["f1", "p", "s1"]
    network.world.call(Address("s1"), lambda node, now: node.unsubscribe(1, now))
    network.run(4)
    assert network.members() == ["p"]
    network.publish(b"unheard")
    assert network.notes == {}
    assert network.sent("Notify") == 0


def test_unadvertising_takes_the_mesh_down() -> None:
    network = MeshNetwork("p-f1 f1-s1 f1-f2 f2-s2 p-f2").run(12)
    network.world.call(Address("p"), lambda node, now: node.unadvertise("mesh", now))
    network.run(10)
    assert all(not network.inward(name) and not network.outward(name) for name in network.neighbours)


# --- P1 2.1: several publishers -----------------------------------------------------------------------------


def test_p1_two_publishers_are_told_apart_and_subscribe_to_one_another() -> None:
    network = MeshNetwork("p1-f1 f1-f2 f2-p2 f1-s1 f2-s2").run(14)
    assert len(network.node("s1").overlay.routes.origins(TOKEN)) == 2
    assert (network.inward("p1"), network.inward("p2")) == (["f1"], ["f2"])
    network.publish(b"from 1", by="p1")
    network.publish(b"from 2", by="p2")
    for name in ("s1", "s2"):
        assert network.delivered(name) == [b"from 1", b"from 2"]


def test_p1_the_mesh_stays_connected_when_a_second_publisher_comes_late_and_when_it_goes() -> None:
    network = MeshNetwork("p1-f1 f1-f2 f2-f3 f3-p2 f1-s1")
    network.world.crash(Address("p2"))
    network.run(12)
    assert network.members() == ["f1", "p1", "s1"]
    network.world.restart(Address("p2"))
    network.run(12)
    assert network.members() == ["f1", "f2", "f3", "p1", "p2", "s1"]
    network.publish(b"late", by="p2")
    assert network.delivered("s1") == [b"late"]
    network.world.crash(Address("p2"))
    network.run(12)
    assert network.members() == ["f1", "p1", "s1"]


# --- Byzantine neighbours -----------------------------------------------------------------------------------


def anchored(length: int = 16) -> Advert:
    keys = role_keyrings()["publisher"].keys_at(epoch_of(START_US, HOUR_US)).topic(TOPIC)
    return anchor_advert(make_advert(keys, Random(1).randbytes), keys, length, START_US + HOUR_US)


@pytest.mark.parametrize(
    ("config", "first", "attracted"),
    [
        pytest.param(SMALL_CONFIG, advert(), True, id="paper"),
        pytest.param(
            msgspec.structs.replace(SMALL_CONFIG, defences=Defences(anchors=True)), anchored(), False, id="anchors"
        ),
    ],
)
def test_a_lower_chain_value_of_a_forger_attracts_nodes_without_anchors_only(
    config: MeshConfig, first: Advert, attracted: bool
) -> None:
    """The forger is three hops from the publisher, and claims none: with the value that it received, with one further
    on the chain, and with a value of its own, which in the paper nobody has signed. A genuine lower value, handed over
    by a node nearer to the publisher, attracts in both."""
    node = SingleNode("subscriber", "honest forger", config)
    node.node.subscribe(LABEL, node.now)
    node.hear("honest", further(first, 2))
    for hops in (2, 5):
        node.hear("forger", further(first, hops))
        assert node.inward() == ["honest"]
    node.hear("forger", replace_chain_value(first, Random(7).randbytes(hash_chain.VALUE)))
    assert ("forger" in node.inward()) is attracted
    assert (node.node.refused["ForgedError"] > 0) is not attracted
    tunnel = SingleNode("subscriber", "honest forger", config)
    tunnel.node.subscribe(LABEL, tunnel.now)
    tunnel.hear("honest", further(first, 2))
    tunnel.hear("forger", first)
    assert tunnel.inward() == ["forger"]


def test_in_the_paper_profile_a_byzantine_node_can_fill_the_table_but_the_existing_way_stays() -> None:
    """The value is not signed (P1): any node that saw an advertisement may start chains. Only the bound limits them."""
    node = SingleNode("subscriber", "honest forger", MeshConfig(neighbours_max=20, address_bytes_max=8, origins_max=4))
    node.node.subscribe(LABEL, node.now)
    node.hear("honest", advert())
    for seed in range(10, 40):
        node.hear("forger", advert(seed))
    assert len(node.node.overlay.routes.origins(TOKEN)) == 4
    assert node.inward() == ["honest", "forger"]
    assert node.node.refused["StaleError"] == 27


# --- P1: d_max ----------------------------------------------------------------------------------------------


def ring(n: int) -> str:
    """p, f1, f2, ... and s, which closes the ring."""
    return " ".join(["p-f1", *(f"f{i}-f{i + 1}" for i in range(1, n - 2)), f"f{n - 2}-s", "s-p"])


@pytest.mark.parametrize(("d_max", "origins"), [(12, 1), (3, 4)])
def test_beyond_d_max_copies_count_as_other_origins_within_the_bound_and_notifications_still_arrive(
    d_max: int, origins: int
) -> None:
    config = MeshConfig(neighbours_max=20, address_bytes_max=8, d_max=d_max, origins_max=4)
    network = MeshNetwork(ring(10), config=config)
    network.world.crash(Address("s"))
    network.run(20)
    network.world.restart(Address("s"))
    network.run(80)
    tables = [network.node(name).overlay.routes.origins(TOKEN) for name in network.neighbours]
    assert max(sum(origin.is_reachable for origin in table) for table in tables) == origins
    assert max(len(table) for table in tables) <= config.origins_max
    adverts = network.sent("Advert")
    network.run(20)
    assert network.sent("Advert") == adverts, "the flood must end"
    network.publish(b"x")
    assert network.delivered("s") == [b"x"]


# --- the mesh is min-hop ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(6, 14))
def test_for_any_latencies_the_final_mesh_is_min_hop(seed: int, n: int) -> None:
    rng = Random(seed)
    names = ["p", *(("s" if i % 3 == 0 else "f") + str(i) for i in range(1, n))]
    edges = [(u, v) for u in range(n) for v in range(u + 1, n) if v == u + 1 or rng.random() < 0.15]
    assert is_connected(n, edges)
    text = " ".join(f"{names[u]}-{names[v]}" for u, v in edges)
    # Latencies up to six heartbeats: a long way with quick links comes before a short one with slow links.
    network = MeshNetwork(text, seed=seed, links=LinkDelays(latency_us=(1_000, 10_000, 2_000_000, 6_000_000)))
    network.run(120)
    distance = breadth_first(network.neighbours, "p")
    start = next(origin for origin in network.node("p").overlay.routes.origins(TOKEN) if origin.is_own).value
    for name in names[1:]:
        (origin,) = (o for o in network.node(name).overlay.routes.origins(TOKEN) if o.is_reachable)
        assert hash_chain.hops_between(start, origin.value, 64) == distance[name] - 1
        for parent in network.inward(name):
            assert distance[parent] == distance[name] - 1
    network.publish(b"x", wait=100)
    assert all(network.delivered(name) == [b"x"] for name in names if name[0] == "s")


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(4, 14))
def test_a_withdrawn_advert_is_forgotten_by_all_and_costs_a_few_messages_each(seed: int, n: int) -> None:
    rng = Random(seed)
    names = ["p", *(("s" if i % 3 == 0 else "f") + str(i) for i in range(1, n))]
    edges = [(u, v) for u in range(n) for v in range(u + 1, n) if v == u + 1 or rng.random() < 0.25]
    network = MeshNetwork(" ".join(f"{names[u]}-{names[v]}" for u, v in edges), seed=seed).run(30)
    before = network.sent("Advert") + network.sent("Unadvert")
    network.world.call(Address("p"), lambda node, now: node.unadvertise("mesh", now))
    network.run(60)
    # Each tells its neighbours of a detour at most, and of the end; and may appeal once to each of them.
    assert network.sent("Advert") + network.sent("Unadvert") - before <= 3 * 2 * len(edges)
    for name in names:
        assert not any(origin.is_reachable for origin in network.node(name).overlay.routes.origins(TOKEN))
        assert not network.inward(name)
        assert not network.outward(name)


def breadth_first(neighbours: dict[str, list[Address]], start: str) -> dict[str, int]:
    distance, queue = {start: 0}, [start]
    for u in queue:
        for v in neighbours[u]:
            if v not in distance:
                distance[v] = distance[u] + 1
                queue.append(v)
    return distance


# --- P0 4.7 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_p0_4_7_subscriptions_and_notifications_cost_at_most_the_diameter_times_the_subscribers(seed: int) -> None:
    edges = "p-a1 a1-a2 a2-s1 p-b1 b1-b2 b2-s2 a1-b1 a2-b2 b2-c1 c1-s3 c1-s4 s4-d1 d1-s5"
    network = MeshNetwork(edges, seed=seed).run(20)
    diameter = max(max(breadth_first(network.neighbours, name).values()) for name in network.neighbours)
    asked = network.sent("Subscribe") - network.sent("Unsubscribe")
    assert asked <= diameter * 5
    network.publish(b"x")
    assert network.sent("Notify") <= diameter * 5
    assert network.sent("Notify") == len(network.members()) - 1


def test_a_withdrawal_that_reaches_the_origin_starts_a_fresh_chain_but_not_more_often_than_allowed() -> None:
    publisher = SingleNode("publisher", "a b")
    publisher.node.advertise("mesh", publisher.now)
    (old,) = publisher.next_riders()["a"]
    assert isinstance(old, Advert)
    publisher.hear("a", Unadvert(TOKEN, hash_chain.advance_chain(old.value, 2)))
    quiet = [publisher.next_riders() for _ in range(SMALL_CONFIG.again_periods - 2)]
    assert quiet == [{}] * len(quiet)
    publisher.hear("a", Unadvert(TOKEN, hash_chain.advance_chain(old.value, 2)))
    new, gone = publisher.next_riders()["a"]
    assert isinstance(new, Advert)
    assert hash_chain.hops_between(old.value, new.value, 64) is None
    assert gone == Unadvert(TOKEN, old.value)


def test_a_subscriber_gets_only_publications_that_its_whole_interest_matches() -> None:
    topic = TopicRecord(TOPIC, Schema((Reals("temp", -40, 60, 12),)), cover_share=0, profile="paper")
    rings = {role: make_keyring((topic,), HOUR_US, ((TOPIC, role),), 0) for role in ("publisher", "subscriber")}
    network = MeshNetwork("p-s", rings=rings).run(4)
    network.world.call(Address("s"), lambda node, now: node.unsubscribe(1, now))
    network.world.call(Address("s"), lambda node, now: node.subscribe(All(LABEL, Range("temp", 20, 25)), now))
    network.run(3)

    def publish(publication: Publication, node: MeshNode, now: int) -> None:
        node.publish(publication, now)

    for temp in (19, 20, 25, 26):
        publication = Publication((LABEL.pair, ("temp", temp)), b"%d" % temp)
        network.world.call(Address("p"), partial(publish, publication))
        network.run(1)
    assert network.delivered("s") == [b"20", b"25"]
