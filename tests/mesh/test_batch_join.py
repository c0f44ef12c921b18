"""Joining: which nodes ask for a hardened mesh, when, and which parent; as seen by the neighbours of one node."""

from __future__ import annotations

import pytest

from support.hardened_mesh_network import (
    EPOCH_US,
    PERIOD_US,
    RULES,
    HardenedMeshNetwork,
    SingleHardenedNode,
    certified_notify,
    only,
    root_advert,
    token,
    with_rules,
)
from support.mesh_network import LABEL
from veilcast.machine import Address, Waiting
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Greet, Notify, Subscribe, Unadvert, Unsubscribe

EDGE_US = START_US + EPOCH_US


def asked(said: list[tuple[int, str, Message]], later: int = 0) -> list[tuple[int, str]]:
    """When the node asked which neighbours for the mesh of that epoch."""
    return [(at_us, name) for at_us, name, message in said if message == Subscribe(token(later))]


def ahead(bench: SingleHardenedNode, later: int = 1) -> None:
    """Let time pass until the mesh of that epoch begins to form."""
    bench.run_until(START_US + later * EPOCH_US - RULES.lead_periods * PERIOD_US)


def joined(role: str = "subscriber", cover: float = 0, seed: int = 3) -> SingleHardenedNode:
    """A node in the mesh of the first epoch, with the parent a."""
    bench = SingleHardenedNode(role, cover=cover, seed=seed)
    if role == "subscriber":
        bench.node.subscribe(LABEL, bench.now)
    bench.hear("a", root_advert(cover=cover))
    assert len(asked(bench.run(RULES.window_periods + 2))) == 1
    bench.events()
    return bench


def test_a_node_that_must_not_cover_asks_only_for_its_children() -> None:
    """With a share of one, every node would be a cover."""
    bench = SingleHardenedNode(config=with_rules(covers=False), cover=1)
    bench.hear("a", root_advert(cover=1))
    assert asked(bench.run(RULES.window_periods + 2)) == []
    bench.hear("b", Subscribe(token()))
    assert [name for _, name in asked(bench.run(RULES.follow_periods + 2))] == ["a"]


# --- the moment ---------------------------------------------------------------------------------------------


def moments(role: str, cover: float) -> list[float]:
    """When otherwise equal nodes with different seeds ask, in periods after the advertisement."""
    found = []
    for seed in range(120):
        bench = SingleHardenedNode(role, cover=cover, seed=seed)
        if role == "subscriber":
            bench.node.subscribe(LABEL, bench.now)
        bench.hear("a", root_advert(cover=cover))
        begin_us = bench.now
        [(at_us, name)] = asked(bench.run(RULES.window_periods + 2))
        assert name == "a"
        found.append((at_us - begin_us) / PERIOD_US)
    return sorted(found)


def test_subscribers_and_covers_ask_at_equally_distributed_moments() -> None:
    """A Kolmogorov-Smirnov test finds no difference between them, nor from a uniform moment of the window.

    A waiting message leaves with the next heartbeat, up to a period later.
    """
    reading, covering = moments("subscriber", 0), moments("forwarder", 1)
    assert reading == covering
    window = RULES.window_periods
    for place, moment in enumerate(reading):
        assert 0 <= moment <= window + 1
        lowest, highest = max(0.0, moment - 1) / window, min(1.0, moment / window)
        assert lowest - 0.18 <= place / len(reading) <= highest + 0.18


def test_a_relay_of_the_previous_epoch_asks_in_the_window_without_another_reason() -> None:
    for children, expected in (("b",), 1), ((), 0):
        bench = SingleHardenedNode()
        bench.hear("a", root_advert())
        for child in children:
            bench.hear(child, Subscribe(token()))
        ahead(bench)
        bench.hear("a", root_advert(later=1))
        said = asked(bench.run(RULES.window_periods + 2), 1)
        assert len(said) == expected


def test_a_relay_whose_children_left_stays_until_the_edge_and_is_gone_after_it() -> None:
    bench = SingleHardenedNode()
    bench.hear("a", root_advert())
    bench.hear("b", Subscribe(token()))
    bench.run(RULES.follow_periods + 2)
    bench.hear("b", Unsubscribe(token()))
    said = bench.run(20)
    assert only(said, Unsubscribe) == []
    assert bench.node.overlay.branches.inward(token()) == ["a"]
    ahead(bench)
    bench.hear("a", root_advert(later=1))
    said = bench.run_until(EDGE_US + (RULES.grace_periods + 2) * PERIOD_US)
    assert only(said, Subscribe) == only(said, Unsubscribe) == []
    assert bench.node.overlay.branches.tokens() == []


def test_a_node_without_a_reason_joins_only_after_a_child_has_asked() -> None:
    bench = SingleHardenedNode()
    bench.hear("a", root_advert())
    assert asked(bench.run(3 * RULES.window_periods)) == []
    bench.hear("b", Subscribe(token()))
    asked_us = bench.now
    [(at_us, name)] = asked(bench.run(RULES.follow_periods + 2))
    assert name == "a"
    assert at_us - asked_us <= (RULES.follow_periods + 1) * PERIOD_US


# --- inside an epoch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["never", "before", "in the window", "in the epoch", "and not again"])
def test_a_member_with_a_grant_sends_the_same_whether_and_whenever_it_subscribes(when: str) -> None:
    """Over two epochs, message by message and at the same moments."""

    def sent(when: str) -> list[tuple[int, str, Message]]:
        bench = SingleHardenedNode("subscriber")
        if when == "before":
            bench.node.subscribe(LABEL, bench.now)
        bench.hear("a", root_advert())
        said = bench.run(2)
        if when == "in the window":
            bench.node.subscribe(LABEL, bench.now)
        said += bench.run(RULES.window_periods + 2)
        if when in ("in the epoch", "and not again"):
            bench.node.subscribe(LABEL, bench.now)
        said += bench.run(10)
        if when == "and not again":
            bench.node.unsubscribe(1, bench.now)
        ahead(bench)
        bench.hear("a", root_advert(later=1))
        return said + bench.run_until(EDGE_US + 30 * PERIOD_US)

    assert sent(when) == sent("never")
    assert len(only(sent(when), Subscribe)) == 2


def test_a_late_subscriber_with_a_grant_reads_at_once() -> None:
    bench = SingleHardenedNode("subscriber")
    bench.hear("a", root_advert())
    bench.run(RULES.window_periods + 2)
    number = bench.node.subscribe(LABEL, bench.now)
    assert bench.events() in ([], [Waiting(number, bench.now)])
    bench.send("a", certified_notify(b"x"))
    assert bench.delivered() == [b"x"]


NO_COVERS = with_rules(covers=False)


def test_without_covers_a_late_subscriber_waits_for_the_edge_and_sends_nothing_before() -> None:
    bench = SingleHardenedNode("subscriber", config=NO_COVERS)
    bench.hear("a", root_advert())
    bench.run(2)
    number = bench.node.subscribe(LABEL, bench.now)
    assert bench.events() == [Waiting(number, EDGE_US)]
    said = bench.run_until(EDGE_US - RULES.lead_periods * PERIOD_US)
    assert only(said, Subscribe) == []
    bench.hear("a", root_advert(later=1))
    assert len(asked(bench.run_until(EDGE_US), 1)) == 1
    bench.send("a", certified_notify(b"x", later=1))
    assert bench.delivered() == [b"x"]


def test_without_covers_a_subscriber_that_comes_after_the_next_mesh_formed_waits_for_the_one_after() -> None:
    bench = SingleHardenedNode("subscriber", config=NO_COVERS)
    bench.hear("a", root_advert())
    ahead(bench)
    bench.hear("a", root_advert(later=1))
    bench.run(RULES.window_periods)
    number = bench.node.subscribe(LABEL, bench.now)
    assert bench.events() == [Waiting(number, EDGE_US + EPOCH_US)]
    said = bench.run_until(EDGE_US + EPOCH_US - RULES.lead_periods * PERIOD_US)
    assert only(said, Subscribe) == []
    bench.hear("a", root_advert(later=2))
    assert len(asked(bench.run_until(EDGE_US + EPOCH_US), 2)) == 1


def test_a_subscriber_of_an_unadvertised_topic_waits_for_an_unknown_time() -> None:
    bench = SingleHardenedNode("subscriber")
    number = bench.node.subscribe(LABEL, bench.now)
    assert bench.events() == [Waiting(number, None)]


def test_a_subscriber_of_an_unadvertised_topic_is_ready_once_it_would_have_heard_of_a_mesh() -> None:
    """A publisher that comes then finds the subscriber in the first mesh."""
    bench = SingleHardenedNode("subscriber")
    number = bench.node.subscribe(LABEL, bench.now)
    assert bench.events() == [Waiting(number, None)]
    bench.run(RULES.window_periods + 3)
    [told] = bench.events()
    assert isinstance(told, Waiting)
    assert told.until_us is not None
    assert told.until_us <= bench.now
    bench.node.subscribe(LABEL, bench.now)
    assert bench.events() == []


def test_a_reader_without_neighbours_is_never_ready() -> None:
    bench = SingleHardenedNode("subscriber", neighbours="")
    number = bench.node.subscribe(LABEL, bench.now)
    bench.run_until(START_US + 3 * EPOCH_US)
    assert bench.events() == [Waiting(number, None)]


def test_a_subscriber_gets_a_new_time_when_an_advertisement_comes() -> None:
    bench = SingleHardenedNode("subscriber")
    number = bench.node.subscribe(LABEL, bench.now)
    bench.hear("a", root_advert())
    bench.run(2)
    unknown, known, *rest = bench.events()
    assert unknown == Waiting(number, None)
    assert isinstance(known, Waiting)
    assert known.until_us is not None
    assert bench.now < known.until_us <= bench.now + RULES.window_periods * PERIOD_US
    bench.run(RULES.window_periods + 2)
    assert [*rest, *bench.events()] == []


@pytest.mark.parametrize(("is_first", "seed"), [(True, 1), (True, 2), (False, 1), (False, 2)])
def test_publications_after_a_subscriber_is_ready_reach_it(is_first: bool, seed: int) -> None:
    """In a whole network, with a publisher that has advertised or with one that has not. A subscriber is ready when its
    owner is told so."""
    network = HardenedMeshNetwork("p-a a-b b-s a-s b-s2 p-b", seed=seed)
    if is_first:
        network.world.call(Address("p"), lambda machine, now: machine.unadvertise(TOPIC, now))

    def is_ready(name: str) -> bool:
        told = [event.until_us for node, event in network.events if node == name and isinstance(event, Waiting)]
        return bool(told) and told[-1] is not None and told[-1] <= network.world.now

    while not (is_ready("s") and is_ready("s2")):
        network.run(1)
    assert not (is_first and network.node("s").overlay.routes.origins(network.token()))
    network.run(seed * 17 % 90)
    network.publish(b"x", wait=0)
    network.run_until(3)
    assert network.delivered("s") == network.delivered("s2") == [b"x"]


def test_a_late_subscriber_that_covers_the_topic_reads_at_once_and_sends_nothing() -> None:
    bench = joined("forwarder", cover=1)
    reader = SingleHardenedNode("subscriber", cover=1)
    reader.hear("a", root_advert(cover=1))
    reader.run(RULES.window_periods + 2)
    reader.node.subscribe(LABEL, reader.now)
    assert reader.events() == []
    assert only(reader.run(3), Subscribe) == []
    assert bench.node.overlay.branches.inward(token()) == reader.node.overlay.branches.inward(token()) == ["a"]


def test_unsubscribing_changes_nothing_on_the_wire_before_the_edge() -> None:
    bench = joined()
    bench.node.unsubscribe(1, bench.now)
    ahead(bench)
    bench.hear("a", root_advert(later=1))
    said = bench.run_until(EDGE_US + 30 * PERIOD_US)
    assert only(said, Unsubscribe) == []
    assert len(only(said, Subscribe)) == 1  # The grant remains, and with it the reason to ask.
    assert bench.node.overlay.branches.tokens() == [token(1)]


def test_a_node_that_unsubscribes_delivers_no_more_notifications_but_forwards_them() -> None:
    bench = joined()
    bench.hear("b", Subscribe(token()))
    bench.node.unsubscribe(1, bench.now)
    said = bench.send("a", certified_notify(b"x"))
    assert [name for _, name, _ in said] == ["b"]
    assert bench.delivered() == []


# --- parents ------------------------------------------------------------------------------------------------


def choose(bench: SingleHardenedNode, later: int) -> str:
    """The parent that the node asks, of three neighbours equally near to the root."""
    if later:
        ahead(bench, later)
    advert = root_advert(later=later, at_us=bench.now)
    for name in "bca":
        bench.hear(name, advert)
    [(_, parent)] = asked(bench.run(RULES.window_periods + 2), later)
    return parent


@pytest.mark.parametrize("number", range(4))
def test_the_parent_is_the_same_from_epoch_to_epoch(number: int) -> None:
    bench = SingleHardenedNode("subscriber", number=number)
    bench.node.subscribe(LABEL, bench.now)
    assert len({choose(bench, later) for later in range(4)}) == 1


def test_parents_differ_between_members() -> None:
    chosen = set()
    for number in range(10):
        bench = SingleHardenedNode("subscriber", number=number)
        bench.node.subscribe(LABEL, bench.now)
        chosen.add(choose(bench, 0))
    assert len(chosen) > 1


def test_a_lost_parent_is_replaced_in_the_next_slot_by_the_next_in_the_order() -> None:
    replaced = []
    for seed in range(5):
        bench = SingleHardenedNode("subscriber", seed=seed)
        bench.node.subscribe(LABEL, bench.now)
        first = choose(bench, 0)
        bench.node.peer_lost(Address(first), bench.now)
        bench.names.remove(Address(first))
        lost_us = bench.now
        [(at_us, second)] = asked(bench.run(RULES.repair_periods + 3))
        assert at_us - lost_us <= (RULES.repair_periods + 2) * PERIOD_US
        assert second != first
        replaced.append(second)
    assert len(set(replaced)) == 1


def test_a_parent_whose_heartbeat_was_lost_is_asked_again() -> None:
    """The other way is as near, so the chain survives. The order brings the node back to its parent."""
    bench = SingleHardenedNode("subscriber")
    bench.node.subscribe(LABEL, bench.now)
    first = choose(bench, 0)
    bench._numbers[Address(first)] += 1
    bench.hear(first)
    advert = root_advert(at_us=START_US)
    bench.hear(first, Greet(), advert)
    said = bench.run(RULES.repair_periods + 3)
    assert [name for _, name in asked(said)] == [first]
    assert bench.node.overlay.branches.inward(token()) == [first]


def test_a_neighbour_that_flaps_does_not_make_the_node_flap() -> None:
    """A neighbour that is gone and back in every period is asked at most once in each slot."""
    bench = SingleHardenedNode("subscriber")
    bench.node.subscribe(LABEL, bench.now)
    first = choose(bench, 0)
    said: list[tuple[int, str, Message]] = []
    for _ in range(20):
        bench.node.peer_lost(Address(first), bench.now)
        bench.hear(first, Greet(), root_advert(at_us=START_US))
        said += bench.run(1)
    assert len(asked(said)) <= 20
    bench.run(RULES.repair_periods + 3)
    assert len(bench.node.overlay.branches.inward(token())) == 1


# --- the end of an epoch ------------------------------------------------------------------------------------


def test_a_mesh_is_kept_for_the_grace_time_and_then_forgotten_without_a_message() -> None:
    bench = joined()
    bench.hear("b", Subscribe(token()))
    bench.run_until(EDGE_US + (RULES.grace_periods - 1) * PERIOD_US)
    assert bench.node.overlay.branches.outward(token()) == ["b"]
    said = bench.run(3)
    assert only(said, Unsubscribe) == only(said, Unadvert) == []
    sizes = bench.node.sizes()
    assert (sizes["routes"], sizes["branches"], sizes["policy"], sizes["calls"]) == (0, 0, 0, 0)


def test_a_past_mesh_cannot_be_brought_back() -> None:
    """Its anchor is still valid and its certificate is only one epoch old. Forwarded, it would circulate forever."""
    bench = joined()
    bench.run_until(EDGE_US + (RULES.grace_periods + 2) * PERIOD_US)
    bench.hear("a", root_advert())
    said = bench.run(3)
    assert only(said, Advert) == []
    assert bench.node.sizes()["routes"] == 0
    assert bench.node.refused == {"StaleError": 1}


def test_a_subscription_to_an_unadvertised_topic_leaves_no_state_behind() -> None:
    bench = SingleHardenedNode("subscriber")
    bench.node.subscribe(LABEL, bench.now)
    for later in range(1, 12):
        bench.run_until(START_US + later * EPOCH_US + PERIOD_US)
    assert len(bench.node.overlay.subscribed_tokens()) <= 3


# --- whole hamlets ------------------------------------------------------------------------------------------


def test_a_reader_that_starts_again_gets_notes_in_the_same_epoch() -> None:
    network = HardenedMeshNetwork("p-a a-b b-s a-c c-s").run_until(0.4)
    network.publish(b"1")
    network.world.crash(Address("s"))
    network.run(2)
    network.world.restart(Address("s"))
    network.run(RULES.window_periods + 6)
    network.publish(b"2", wait=4)
    assert network.world.now < EDGE_US
    assert network.delivered("s") == [b"1", b"2"]


def test_clocks_that_are_wrong_by_a_few_periods_lose_nothing_at_an_edge() -> None:
    network = HardenedMeshNetwork("p-a a-b b-s a-c c-s", cover=0.5)
    for name, periods in (("a", 3), ("b", -3), ("s", 2), ("c", -2)):
        network.world.set_clock(Address(name), periods * PERIOD_US, 0)
    network.run_until(0.9)
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        network.publish(body, wait=1)
    network.run(20)
    assert network.delivered("s") == bodies


def test_no_member_can_make_the_next_mesh_form_early_and_keep_new_subscribers_out() -> None:
    bench = SingleHardenedNode("subscriber")
    bench.hear("a", root_advert(later=1))
    assert bench.node.refused == {"StaleError": 1}
    bench.node.subscribe(LABEL, bench.now)
    ahead(bench)
    bench.hear("a", root_advert(later=1, seed=2))
    assert len(asked(bench.run(RULES.window_periods + 2), 1)) == 1


@pytest.mark.parametrize("role", ["forwarder", "subscriber"])
def test_a_subscriber_outside_the_mesh_refuses_notifications_like_other_nodes_and_still_opens_them(role: str) -> None:
    """If it accepted them it would not forward them later, and a neighbour could notice that. A subscriber that waits
    for the edge is in this state, and so is one that is cut off in a mass failure that it has not noticed."""
    bench = SingleHardenedNode(role)
    bench.hear("a", root_advert())
    bench.run(1)
    if role == "subscriber":
        bench.node.subscribe(LABEL, bench.now)
    assert bench.send("b", certified_notify(b"x")) == []
    assert bench.node.refused == {"StaleError": 1}
    assert bench.delivered() == ([b"x"] if role == "subscriber" else [])
    bench.hear("b", Subscribe(token()))
    bench.run(RULES.follow_periods + 2)
    assert [name for _, name, _ in only(bench.send("a", certified_notify(b"x")), Notify)] == ["b"]
    assert bench.delivered() == []
