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
from veilcast.wire.mesh import Advert, Greet, Message, Notify, Subscribe, Unadvert, Unsubscribe

EDGE_US = START_US + EPOCH_US


def asked(said: list[tuple[int, str, Message]], later: int = 0) -> list[tuple[int, str]]:
    """When the node asked which neighbours for the mesh of that epoch."""
    return [(at_us, name) for at_us, name, message in said if message == Subscribe(token(later))]


def ahead(cottage: SingleHardenedNode, later: int = 1) -> None:
    """Let time pass until the mesh of that epoch begins to form."""
    cottage.run_until(START_US + later * EPOCH_US - RULES.lead_periods * PERIOD_US)


def joined(role: str = "subscriber", cover: float = 0, seed: int = 3) -> SingleHardenedNode:
    """A node in the mesh of the first epoch, with the parent a."""
    cottage = SingleHardenedNode(role, cover=cover, seed=seed)
    if role == "subscriber":
        cottage.node.subscribe(LABEL, cottage.now)
    cottage.hear("a", root_advert(cover=cover))
    assert len(asked(cottage.run(RULES.window_periods + 2))) == 1
    cottage.events()
    return cottage


def test_who_is_told_not_to_cover_asks_for_others_alone() -> None:
    """With a share of one, every node would be a cover."""
    cottage = SingleHardenedNode(config=with_rules(covers=False), cover=1)
    cottage.hear("a", root_advert(cover=1))
    assert asked(cottage.run(RULES.window_periods + 2)) == []
    cottage.hear("b", Subscribe(token()))
    assert [name for _, name in asked(cottage.run(RULES.follow_periods + 2))] == ["a"]


# --- the moment ---------------------------------------------------------------------------------------------


def moments(role: str, cover: float) -> list[float]:
    """When otherwise equal nodes with different seeds ask, in periods after the advertisement."""
    found = []
    for seed in range(120):
        cottage = SingleHardenedNode(role, cover=cover, seed=seed)
        if role == "subscriber":
            cottage.node.subscribe(LABEL, cottage.now)
        cottage.hear("a", root_advert(cover=cover))
        begin_us = cottage.now
        [(at_us, name)] = asked(cottage.run(RULES.window_periods + 2))
        assert name == "a"
        found.append((at_us - begin_us) / PERIOD_US)
    return sorted(found)


def test_readers_and_covers_ask_at_moments_of_one_law() -> None:
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


def test_who_was_a_relay_in_the_epoch_before_asks_in_the_window_and_with_no_other_reason() -> None:
    for children, expected in (("b",), 1), ((), 0):
        cottage = SingleHardenedNode()
        cottage.hear("a", root_advert())
        for child in children:
            cottage.hear(child, Subscribe(token()))
        ahead(cottage)
        cottage.hear("a", root_advert(later=1))
        said = asked(cottage.run(RULES.window_periods + 2), 1)
        assert len(said) == expected


def test_a_relay_whose_children_left_stays_until_the_edge_and_is_gone_after_it() -> None:
    cottage = SingleHardenedNode()
    cottage.hear("a", root_advert())
    cottage.hear("b", Subscribe(token()))
    cottage.run(RULES.follow_periods + 2)
    cottage.hear("b", Unsubscribe(token()))
    said = cottage.run(20)
    assert only(said, Unsubscribe) == []
    assert cottage.node.overlay.branches.inward(token()) == ["a"]
    ahead(cottage)
    cottage.hear("a", root_advert(later=1))
    said = cottage.run_until(EDGE_US + (RULES.grace_periods + 2) * PERIOD_US)
    assert only(said, Subscribe) == only(said, Unsubscribe) == []
    assert cottage.node.overlay.branches.tokens() == []


def test_a_node_without_a_reason_joins_only_after_a_child_has_asked() -> None:
    cottage = SingleHardenedNode()
    cottage.hear("a", root_advert())
    assert asked(cottage.run(3 * RULES.window_periods)) == []
    cottage.hear("b", Subscribe(token()))
    asked_us = cottage.now
    [(at_us, name)] = asked(cottage.run(RULES.follow_periods + 2))
    assert name == "a"
    assert at_us - asked_us <= (RULES.follow_periods + 1) * PERIOD_US


# --- inside an epoch ----------------------------------------------------------------------------------------


def test_a_late_reader_is_told_to_wait_for_the_edge_and_nobody_hears_of_it_before() -> None:
    cottage = SingleHardenedNode("subscriber")
    cottage.hear("a", root_advert())
    cottage.run(2)
    number = cottage.node.subscribe(LABEL, cottage.now)
    assert cottage.events() == [Waiting(number, EDGE_US)]
    said = cottage.run_until(EDGE_US - RULES.lead_periods * PERIOD_US)
    assert only(said, Subscribe) == []
    cottage.hear("a", root_advert(later=1))
    assert len(asked(cottage.run_until(EDGE_US), 1)) == 1
    cottage.send("a", certified_notify(b"x", later=1))
    assert cottage.delivered() == [b"x"]


def test_who_subscribes_when_the_next_mesh_has_formed_is_told_to_wait_for_the_one_after() -> None:
    cottage = SingleHardenedNode("subscriber")
    cottage.hear("a", root_advert())
    ahead(cottage)
    cottage.hear("a", root_advert(later=1))
    cottage.run(RULES.window_periods)
    number = cottage.node.subscribe(LABEL, cottage.now)
    assert cottage.events() == [Waiting(number, EDGE_US + EPOCH_US)]
    said = cottage.run_until(EDGE_US + EPOCH_US - RULES.lead_periods * PERIOD_US)
    assert only(said, Subscribe) == []
    cottage.hear("a", root_advert(later=2))
    assert len(asked(cottage.run_until(EDGE_US + EPOCH_US), 2)) == 1


def test_a_reader_of_what_nobody_advertises_waits_for_nobody_knows_how_long() -> None:
    cottage = SingleHardenedNode("subscriber")
    number = cottage.node.subscribe(LABEL, cottage.now)
    assert cottage.events() == [Waiting(number, None)]


def test_a_reader_of_what_nobody_advertises_is_ready_once_it_would_have_heard_of_a_mesh() -> None:
    """A publisher that comes then finds the subscriber in the first mesh."""
    cottage = SingleHardenedNode("subscriber")
    number = cottage.node.subscribe(LABEL, cottage.now)
    assert cottage.events() == [Waiting(number, None)]
    cottage.run(RULES.window_periods + 3)
    [told] = cottage.events()
    assert isinstance(told, Waiting)
    assert told.until_us is not None
    assert told.until_us <= cottage.now
    cottage.node.subscribe(LABEL, cottage.now)
    assert cottage.events() == []


def test_a_reader_without_neighbours_is_never_ready() -> None:
    cottage = SingleHardenedNode("subscriber", neighbours="")
    number = cottage.node.subscribe(LABEL, cottage.now)
    cottage.run_until(START_US + 3 * EPOCH_US)
    assert cottage.events() == [Waiting(number, None)]


def test_a_reader_is_told_anew_when_an_advert_comes() -> None:
    cottage = SingleHardenedNode("subscriber")
    number = cottage.node.subscribe(LABEL, cottage.now)
    cottage.hear("a", root_advert())
    cottage.run(2)
    unknown, known, *rest = cottage.events()
    assert unknown == Waiting(number, None)
    assert isinstance(known, Waiting)
    assert known.until_us is not None
    assert cottage.now < known.until_us <= cottage.now + RULES.window_periods * PERIOD_US
    cottage.run(RULES.window_periods + 2)
    assert [*rest, *cottage.events()] == []


@pytest.mark.parametrize(("is_first", "seed"), [(True, 1), (True, 2), (False, 1), (False, 2)])
def test_what_is_published_once_a_reader_is_ready_reaches_it(is_first: bool, seed: int) -> None:
    """In a whole network, with a publisher that has advertised or with one that has not. A subscriber is ready when its
    owner is told so."""
    hamlet = HardenedMeshNetwork("p-a a-b b-s a-s b-s2 p-b", seed=seed)
    if is_first:
        hamlet.world.call(Address("p"), lambda machine, now: machine.unadvertise(TOPIC, now))

    def is_ready(name: str) -> bool:
        told = [event.until_us for node, event in hamlet.events if node == name and isinstance(event, Waiting)]
        return bool(told) and told[-1] is not None and told[-1] <= hamlet.world.now

    while not (is_ready("s") and is_ready("s2")):
        hamlet.run(1)
    assert not (is_first and hamlet.node("s").overlay.routes.origins(hamlet.token()))
    hamlet.run(seed * 17 % 90)
    hamlet.publish(b"x", wait=0)
    hamlet.run_until(3)
    assert hamlet.delivered("s") == hamlet.delivered("s2") == [b"x"]


def test_a_late_reader_that_covers_the_topic_reads_at_once_and_says_nothing() -> None:
    cottage = joined("forwarder", cover=1)
    reader = SingleHardenedNode("subscriber", cover=1)
    reader.hear("a", root_advert(cover=1))
    reader.run(RULES.window_periods + 2)
    reader.node.subscribe(LABEL, reader.now)
    assert reader.events() == []
    assert only(reader.run(3), Subscribe) == []
    assert cottage.node.overlay.branches.inward(token()) == reader.node.overlay.branches.inward(token()) == ["a"]


def test_unsubscribing_changes_nothing_on_the_wire_before_the_edge() -> None:
    cottage = joined()
    cottage.node.unsubscribe(1, cottage.now)
    ahead(cottage)
    cottage.hear("a", root_advert(later=1))
    said = cottage.run_until(EDGE_US + 30 * PERIOD_US)
    assert only(said, Unsubscribe) == only(said, Subscribe) == []
    assert cottage.node.overlay.branches.tokens() == []


def test_who_unsubscribes_gets_no_more_notes_but_passes_them_on() -> None:
    cottage = joined()
    cottage.hear("b", Subscribe(token()))
    cottage.node.unsubscribe(1, cottage.now)
    said = cottage.send("a", certified_notify(b"x"))
    assert [name for _, name, _ in said] == ["b"]
    assert cottage.delivered() == []


# --- parents ------------------------------------------------------------------------------------------------


def choose(cottage: SingleHardenedNode, later: int) -> str:
    """The parent that the node asks, of three neighbours equally near to the root."""
    if later:
        ahead(cottage, later)
    advert = root_advert(later=later, at_us=cottage.now)
    for name in "bca":
        cottage.hear(name, advert)
    [(_, parent)] = asked(cottage.run(RULES.window_periods + 2), later)
    return parent


@pytest.mark.parametrize("number", range(4))
def test_the_parent_is_the_same_from_epoch_to_epoch(number: int) -> None:
    cottage = SingleHardenedNode("subscriber", number=number)
    cottage.node.subscribe(LABEL, cottage.now)
    assert len({choose(cottage, later) for later in range(4)}) == 1


def test_parents_differ_between_members() -> None:
    chosen = set()
    for number in range(10):
        cottage = SingleHardenedNode("subscriber", number=number)
        cottage.node.subscribe(LABEL, cottage.now)
        chosen.add(choose(cottage, 0))
    assert len(chosen) > 1


def test_a_lost_parent_is_replaced_in_the_next_slot_by_the_next_in_the_order() -> None:
    replaced = []
    for seed in range(5):
        cottage = SingleHardenedNode("subscriber", seed=seed)
        cottage.node.subscribe(LABEL, cottage.now)
        first = choose(cottage, 0)
        cottage.node.peer_lost(Address(first), cottage.now)
        cottage.names.remove(Address(first))
        lost_us = cottage.now
        [(at_us, second)] = asked(cottage.run(RULES.repair_periods + 3))
        assert at_us - lost_us <= (RULES.repair_periods + 2) * PERIOD_US
        assert second != first
        replaced.append(second)
    assert len(set(replaced)) == 1


def test_a_parent_whose_heartbeat_was_lost_is_asked_again() -> None:
    """The other way is as near, so the chain survives. The order brings the node back to its parent."""
    cottage = SingleHardenedNode("subscriber")
    cottage.node.subscribe(LABEL, cottage.now)
    first = choose(cottage, 0)
    cottage._numbers[Address(first)] += 1
    cottage.hear(first)
    advert = root_advert(at_us=START_US)
    cottage.hear(first, Greet(), advert)
    said = cottage.run(RULES.repair_periods + 3)
    assert [name for _, name in asked(said)] == [first]
    assert cottage.node.overlay.branches.inward(token()) == [first]


def test_a_neighbour_that_flaps_does_not_make_the_node_flap() -> None:
    """A neighbour that is gone and back in every period is asked at most once in each slot."""
    cottage = SingleHardenedNode("subscriber")
    cottage.node.subscribe(LABEL, cottage.now)
    first = choose(cottage, 0)
    said: list[tuple[int, str, Message]] = []
    for _ in range(20):
        cottage.node.peer_lost(Address(first), cottage.now)
        cottage.hear(first, Greet(), root_advert(at_us=START_US))
        said += cottage.run(1)
    assert len(asked(said)) <= 20
    cottage.run(RULES.repair_periods + 3)
    assert len(cottage.node.overlay.branches.inward(token())) == 1


# --- the end of an epoch ------------------------------------------------------------------------------------


def test_a_mesh_is_kept_for_the_grace_and_then_forgotten_without_a_word() -> None:
    cottage = joined()
    cottage.hear("b", Subscribe(token()))
    cottage.run_until(EDGE_US + (RULES.grace_periods - 1) * PERIOD_US)
    assert cottage.node.overlay.branches.outward(token()) == ["b"]
    said = cottage.run(3)
    assert only(said, Unsubscribe) == only(said, Unadvert) == []
    sizes = cottage.node.sizes()
    assert (sizes["routes"], sizes["branches"], sizes["policy"], sizes["calls"]) == (0, 0, 0, 0)


def test_what_is_over_cannot_be_brought_back() -> None:
    """Its anchor is still valid and its certificate is only one epoch old. Forwarded, it would circulate forever."""
    cottage = joined()
    cottage.run_until(EDGE_US + (RULES.grace_periods + 2) * PERIOD_US)
    cottage.hear("a", root_advert())
    said = cottage.run(3)
    assert only(said, Advert) == []
    assert cottage.node.sizes()["routes"] == 0
    assert cottage.node.refused == {"StaleError": 1}


def test_reading_what_nobody_advertises_leaves_nothing_behind() -> None:
    cottage = SingleHardenedNode("subscriber")
    cottage.node.subscribe(LABEL, cottage.now)
    for later in range(1, 12):
        cottage.run_until(START_US + later * EPOCH_US + PERIOD_US)
    assert len(cottage.node.overlay.subscribed_tokens()) <= 3


# --- whole hamlets ------------------------------------------------------------------------------------------


def test_a_reader_that_starts_again_gets_notes_in_the_same_epoch() -> None:
    hamlet = HardenedMeshNetwork("p-a a-b b-s a-c c-s").run_until(0.4)
    hamlet.publish(b"1")
    hamlet.world.crash(Address("s"))
    hamlet.run(2)
    hamlet.world.restart(Address("s"))
    hamlet.run(RULES.window_periods + 6)
    hamlet.publish(b"2", wait=4)
    assert hamlet.world.now < EDGE_US
    assert hamlet.delivered("s") == [b"1", b"2"]


def test_clocks_that_are_wrong_by_a_few_periods_lose_nothing_at_an_edge() -> None:
    hamlet = HardenedMeshNetwork("p-a a-b b-s a-c c-s", cover=0.5)
    for name, periods in (("a", 3), ("b", -3), ("s", 2), ("c", -2)):
        hamlet.world.set_clock(Address(name), periods * PERIOD_US, 0)
    hamlet.run_until(0.9)
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        hamlet.publish(body, wait=1)
    hamlet.run(20)
    assert hamlet.delivered("s") == bodies


def test_nobody_can_have_the_next_mesh_form_before_its_time_and_keep_new_readers_out() -> None:
    cottage = SingleHardenedNode("subscriber")
    cottage.hear("a", root_advert(later=1))
    assert cottage.node.refused == {"StaleError": 1}
    cottage.node.subscribe(LABEL, cottage.now)
    ahead(cottage)
    cottage.hear("a", root_advert(later=1, seed=2))
    assert len(asked(cottage.run(RULES.window_periods + 2), 1)) == 1


@pytest.mark.parametrize("role", ["forwarder", "subscriber"])
def test_a_reader_outside_the_mesh_refuses_notes_as_others_there_do_and_reads_them_all_the_same(role: str) -> None:
    """If it accepted them it would not forward them later, and a neighbour could notice that. A subscriber that waits
    for the edge is in this state, and so is one that is cut off in a mass failure that it has not noticed."""
    cottage = SingleHardenedNode(role)
    cottage.hear("a", root_advert())
    cottage.run(1)
    if role == "subscriber":
        cottage.node.subscribe(LABEL, cottage.now)
    assert cottage.send("b", certified_notify(b"x")) == []
    assert cottage.node.refused == {"StaleError": 1}
    assert cottage.delivered() == ([b"x"] if role == "subscriber" else [])
    cottage.hear("b", Subscribe(token()))
    cottage.run(RULES.follow_periods + 2)
    assert [name for _, name, _ in only(cottage.send("a", certified_notify(b"x")), Notify)] == ["b"]
    assert cottage.delivered() == []
