"""The figures of P0 and P1 as tests: advertisements, loops, duplicates, the resulting mesh, several publishers."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mesh_network import LABEL, SMALL_CONFIG, TOKEN, MeshNetwork, SingleNode, advert
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto import hash_chain
from veilcast.machine import Address, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.graphs import is_connected
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC
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
    village = MeshNetwork("p-f1 f1-f2 f2-s f1-f3 f3-f4").run(12)
    for name in ("f1", "f2", "f3", "f4", "s"):
        assert len(village.node(name).overlay.routes.origins(TOKEN)) == 1
    assert village.members() == ["f1", "f2", "p", "s"]
    assert (village.inward("s"), village.inward("f2"), village.inward("f1")) == (["f2"], ["f1"], ["p"])
    assert (village.outward("p"), village.outward("f1"), village.outward("f2")) == (["f1"], ["f2"], ["s"])
    village.publish(b"hello")
    assert village.notes == {"s": [b"hello"]}


def test_subscriptions_merge_where_branches_meet() -> None:
    village = MeshNetwork("p-f1 f1-f2 f2-s1 f2-s2 f2-s3").run(12)
    assert village.outward("f2") == ["s1", "s2", "s3"]
    assert village.sent("Subscribe") == 5
    village.publish(b"one")
    assert village.sent("Notify") == 5


def test_unsubscribing_prunes_the_mesh_back_to_the_next_branch() -> None:
    village = MeshNetwork("p-f1 f1-s1 f1-f2 f2-s2").run(12)
    village.world.call(Address("s2"), lambda node, now: node.unsubscribe(1, now))
    village.run(4)
    assert village.members() == ["f1", "p", "s1"]
    village.world.call(Address("s1"), lambda node, now: node.unsubscribe(1, now))
    village.run(4)
    assert village.members() == ["p"]
    village.publish(b"unheard")
    assert village.notes == {}
    assert village.sent("Notify") == 0


def test_unadvertising_takes_the_mesh_down() -> None:
    village = MeshNetwork("p-f1 f1-s1 f1-f2 f2-s2 p-f2").run(12)
    village.world.call(Address("p"), lambda node, now: node.unadvertise("mesh", now))
    village.run(10)
    assert all(not village.inward(name) and not village.outward(name) for name in village.neighbours)


# --- P1 2.1: several publishers -----------------------------------------------------------------------------


def test_p1_two_publishers_are_told_apart_and_subscribe_to_one_another() -> None:
    village = MeshNetwork("p1-f1 f1-f2 f2-p2 f1-s1 f2-s2").run(14)
    assert len(village.node("s1").overlay.routes.origins(TOKEN)) == 2
    assert (village.inward("p1"), village.inward("p2")) == (["f1"], ["f2"])
    village.publish(b"from 1", by="p1")
    village.publish(b"from 2", by="p2")
    for name in ("s1", "s2"):
        assert village.delivered(name) == [b"from 1", b"from 2"]


def test_p1_the_mesh_stays_connected_when_a_second_publisher_comes_late_and_when_it_goes() -> None:
    village = MeshNetwork("p1-f1 f1-f2 f2-f3 f3-p2 f1-s1")
    village.world.crash(Address("p2"))
    village.run(12)
    assert village.members() == ["f1", "p1", "s1"]
    village.world.restart(Address("p2"))
    village.run(12)
    assert village.members() == ["f1", "f2", "f3", "p1", "p2", "s1"]
    village.publish(b"late", by="p2")
    assert village.delivered("s1") == [b"late"]
    village.world.crash(Address("p2"))
    village.run(12)
    assert village.members() == ["f1", "p1", "s1"]


# --- liars --------------------------------------------------------------------------------------------------


def test_a_liar_about_the_chain_attracts_nobody_by_a_lower_value() -> None:
    """It cannot go back on the chain: the lowest value that it can claim is the one it received."""
    node = SingleNode("subscriber", "honest liar")
    node.node.subscribe(LABEL, node.now)
    first = advert()
    node.hear("honest", further(first, 2))
    node.hear("liar", further(first, 2))
    assert node.inward() == ["honest"]
    node.hear("liar", further(first, 5))
    assert node.inward() == ["honest"]


def test_in_paper_a_liar_can_start_fresh_chains_and_fill_the_table_but_the_way_that_was_there_stays() -> None:
    """The value is not signed (P1): any node that saw an advertisement may start chains. Only the bound limits them."""
    node = SingleNode("subscriber", "honest liar", MeshConfig(neighbours_max=20, address_bytes_max=8, origins_max=4))
    node.node.subscribe(LABEL, node.now)
    node.hear("honest", advert())
    for seed in range(10, 40):
        node.hear("liar", advert(seed))
    assert len(node.node.overlay.routes.origins(TOKEN)) == 4
    assert node.inward() == ["honest", "liar"]
    assert node.node.refused["StaleError"] == 27


# --- P1: d_max ----------------------------------------------------------------------------------------------


def ring(n: int) -> str:
    """p, f1, f2, ... and s, which closes the ring."""
    return " ".join(["p-f1", *(f"f{i}-f{i + 1}" for i in range(1, n - 2)), f"f{n - 2}-s", "s-p"])


@pytest.mark.parametrize(("d_max", "origins"), [(12, 1), (3, 4)])
def test_past_d_max_copies_are_taken_for_other_origins_within_the_bound_and_notes_still_arrive(
    d_max: int, origins: int
) -> None:
    config = MeshConfig(neighbours_max=20, address_bytes_max=8, d_max=d_max, origins_max=4)
    village = MeshNetwork(ring(10), config=config)
    village.world.crash(Address("s"))
    village.run(20)
    village.world.restart(Address("s"))
    village.run(80)
    tables = [village.node(name).overlay.routes.origins(TOKEN) for name in village.neighbours]
    assert max(sum(origin.is_reachable for origin in table) for table in tables) == origins
    assert max(len(table) for table in tables) <= config.origins_max
    adverts = village.sent("Advert")
    village.run(20)
    assert village.sent("Advert") == adverts, "the flood must end"
    village.publish(b"x")
    assert village.delivered("s") == [b"x"]


# --- the mesh is min-hop ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(6, 14))
def test_whatever_the_latencies_the_mesh_ends_min_hop(seed: int, n: int) -> None:
    rng = Random(seed)
    names = ["p", *(("s" if i % 3 == 0 else "f") + str(i) for i in range(1, n))]
    edges = [(u, v) for u in range(n) for v in range(u + 1, n) if v == u + 1 or rng.random() < 0.15]
    assert is_connected(n, edges)
    text = " ".join(f"{names[u]}-{names[v]}" for u, v in edges)
    # Latencies up to six heartbeats: a long way with quick links comes before a short one with slow links.
    village = MeshNetwork(text, seed=seed, links=LinkDelays(latency_us=(1_000, 10_000, 2_000_000, 6_000_000)))
    village.run(120)
    distance = breadth_first(village.neighbours, "p")
    start = next(origin for origin in village.node("p").overlay.routes.origins(TOKEN) if origin.is_own).value
    for name in names[1:]:
        (origin,) = (o for o in village.node(name).overlay.routes.origins(TOKEN) if o.is_reachable)
        assert hash_chain.hops_between(start, origin.value, 64) == distance[name] - 1
        for parent in village.inward(name):
            assert distance[parent] == distance[name] - 1
    village.publish(b"x", wait=100)
    assert all(village.delivered(name) == [b"x"] for name in names if name[0] == "s")


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(4, 14))
def test_a_withdrawn_advert_is_forgotten_by_all_and_costs_a_few_messages_each(seed: int, n: int) -> None:
    rng = Random(seed)
    names = ["p", *(("s" if i % 3 == 0 else "f") + str(i) for i in range(1, n))]
    edges = [(u, v) for u in range(n) for v in range(u + 1, n) if v == u + 1 or rng.random() < 0.25]
    village = MeshNetwork(" ".join(f"{names[u]}-{names[v]}" for u, v in edges), seed=seed).run(30)
    before = village.sent("Advert") + village.sent("Unadvert")
    village.world.call(Address("p"), lambda node, now: node.unadvertise("mesh", now))
    village.run(60)
    # Each tells its neighbours of a detour at most, and of the end; and may appeal once to each of them.
    assert village.sent("Advert") + village.sent("Unadvert") - before <= 3 * 2 * len(edges)
    for name in names:
        assert not any(origin.is_reachable for origin in village.node(name).overlay.routes.origins(TOKEN))
        assert not village.inward(name)
        assert not village.outward(name)


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
    village = MeshNetwork(edges, seed=seed).run(20)
    diameter = max(max(breadth_first(village.neighbours, name).values()) for name in village.neighbours)
    asked = village.sent("Subscribe") - village.sent("Unsubscribe")
    assert asked <= diameter * 5
    village.publish(b"x")
    assert village.sent("Notify") <= diameter * 5
    assert village.sent("Notify") == len(village.members()) - 1


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


def test_a_reader_gets_only_what_its_whole_interest_matches() -> None:
    topic = TopicRecord(TOPIC, Schema((Reals("temp", -40, 60, 12),)), cover_share=0, profile="paper")
    rings = {role: make_keyring((topic,), HOUR_US, ((TOPIC, role),), 0) for role in ("publisher", "subscriber")}
    village = MeshNetwork("p-s", rings=rings).run(4)
    village.world.call(Address("s"), lambda node, now: node.unsubscribe(1, now))
    village.world.call(Address("s"), lambda node, now: node.subscribe(All(LABEL, Range("temp", 20, 25)), now))
    village.run(3)

    def publish(publication: Publication, node: MeshNode, now: int) -> None:
        node.publish(publication, now)

    for temp in (19, 20, 25, 26):
        publication = Publication((LABEL.pair, ("temp", temp)), b"%d" % temp)
        village.world.call(Address("p"), partial(publish, publication))
        village.run(1)
    assert village.delivered("s") == [b"20", b"25"]
