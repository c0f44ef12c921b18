"""Nodes and a directory together, as in the paper: its three routings, their cost, and what they reveal."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from support.tree_network import QUICK_CONFIG, TOPIC, TreeNetwork
from veilcast.machine import Address, Publication, Value
from veilcast.topics import All, Conjunction, Equal, Label, Range
from veilcast.tree.config import PaperRouting, TreeConfig
from veilcast.wire import encode
from veilcast.wire.tree import ForwardPublication, Install, Offer

ALL = Label(TOPIC)
N0, N1, N2 = (f"n{number}:1" for number in range(3))
ROUTINGS: tuple[PaperRouting, ...] = ("trees", "seen", "labels")
each_routing = pytest.mark.parametrize("routing", ROUTINGS)


def paper(nodes: int, routing: PaperRouting, **changes: Any) -> TreeNetwork:
    config = msgspec.structs.replace(QUICK_CONFIG, profile="paper", routing=routing, filter_elements=32, **changes)
    network = TreeNetwork(nodes, profile="paper", config=config)
    network.run(6)
    return network


def planted(network: TreeNetwork, *subscribers: str) -> TreeNetwork:
    for name in subscribers:
        network.subscribe(name)
    network.until(lambda: all(network.stands(name) for name in subscribers), 20)
    network.run(2)
    return network


def sent_for(network: TreeNetwork, publisher: str, body: bytes) -> int:
    """Number of messages between nodes for one publication."""
    before = len(network.seen)
    network.publish(publisher, body)
    network.run(10)
    return sum(isinstance(message, ForwardPublication | Offer) for _, _, message in network.seen[before:]) - 1


def test_the_paper_routes_by_labels_unless_a_repair_is_chosen() -> None:
    assert TreeConfig(profile="paper").routing == "labels"


@each_routing
def test_a_publication_reaches_the_subscribers_it_matches(routing: PaperRouting) -> None:
    """With mixed trees, a loop label may mistake a message for a repeat: P2's bound covers that."""
    network, rng = paper(7, routing), Random(2)
    wanted: list[tuple[str, int, Conjunction]] = []
    for number, interest in enumerate((ALL, All(ALL, Range("level", 3, 9)), All(ALL, Equal("kind", "red")))):
        name = f"n{number}:1"
        wanted.append((name, network.subscribe(name, interest), interest))
    network.run(5)
    sent = {}
    for number in range(12):
        pairs: dict[str, Value] = {"level": rng.randrange(16), "kind": rng.choice(["red", "blue"])}
        body = b"%d" % number
        sent[body] = Publication((ALL.pair, *pairs.items()), body)
        network.publish(f"n{number % 7}:1", body, **pairs)
        network.run(0.5)
    network.run(5)
    matches = [(name, number, body) for body, p in sent.items() for name, number, i in wanted if i.matches(p)]
    assert sorted(network.heard) == sorted(matches)


def test_mixed_trees_cost_superfluous_messages() -> None:
    """One path to each subscriber if trees are kept apart; cycles and copies if not."""
    cost = {
        routing: [sent_for(planted(paper(16, routing), *names), "n9:1", b"news") for names in ((N0,), (N0, N1))]
        for routing in ROUTINGS
    }
    assert max(cost["trees"]) <= 2 * QUICK_CONFIG.depth
    assert cost["seen"][0] == cost["labels"][0] <= QUICK_CONFIG.depth
    assert cost["trees"][1] < cost["seen"][1] < cost["labels"][1]


def test_instructions_travel_along_the_tree_and_shrink_from_hop_to_hop() -> None:
    """So the recipient of a long one is next to the subscriber: P2's depth leak."""
    network = planted(paper(13, "trees", depth=2), N0)
    lengths: dict[str, int] = {}
    for name, _, message in network.seen:
        if isinstance(message, Install):
            lengths[name] = max(lengths.get(name, 0), len(message.sealed))
    assert len(lengths) == 12
    parents = {name: next(iter(network.machine(name)._profile._router._parents.values())) for name in lengths}
    next_to = [name for name, parent in parents.items() if network.called(parent) == N0]
    others = [name for name in lengths if name not in next_to]
    assert min(lengths[name] for name in next_to) > max(lengths[name] for name in others)


def test_every_node_can_read_the_topic_of_a_message() -> None:
    network = planted(paper(6, "seen"), N0)
    network.publish(N1, b"news")
    network.run(3)
    offers = [message for _, _, message in network.seen if isinstance(message, Offer)]
    assert all(TOPIC.encode() in element for message in offers for group in message.groups for element in group)


def test_plain_filters_keep_withdrawn_subscriptions_and_counting_ones_do_not() -> None:
    for counting in (False, True):
        network = planted(paper(6, "trees", counting=counting), N0)
        network.do(N0, lambda node, now: node.unsubscribe(1, now))
        network.run(5)
        carried = sum(sent_for(network, N1, b"late %d" % number) for number in range(3))
        assert network.heard_by(N0) == []
        assert (carried == 0) is counting


def test_adding_or_removing_a_subscription_does_not_affect_others() -> None:
    network = planted(paper(6, "seen", counting=True), N0, N1)
    network.do(N0, lambda node, now: node.unsubscribe(1, now))
    network.run(5)
    network.publish(N2, b"still")
    network.run(3)
    assert network.heard_by(N1) == [b"still"]
    assert network.heard_by(N0) == []


@each_routing
def test_a_later_node_is_attached_to_existing_trees(routing: PaperRouting) -> None:
    network = TreeNetwork(
        6,
        profile="paper",
        config=msgspec.structs.replace(QUICK_CONFIG, profile="paper", routing=routing, filter_elements=32),
    )
    network.kill("n5:1")
    network.run(6)
    planted(network, N0)
    network.start("n5:1")
    assert network.machine("n5:1").sizes()["entries"] == 0
    network.until(lambda: network.machine("n5:1").sizes()["entries"] == 1, 20)
    network.publish("n5:1", b"from the later one")
    network.run(5)
    assert network.heard_by(N0) == [b"from the later one"]


def test_a_full_filter_and_a_full_table_refuse_more() -> None:
    network = paper(4, "seen", filters_max=1)
    config = msgspec.structs.replace(QUICK_CONFIG, profile="paper", routing="seen", filter_elements=4)
    narrow = TreeNetwork(4, profile="paper", config=config)
    narrow.run(6)
    for each in (network, narrow):
        for name in (N0, N1, N2):
            each.subscribe(name)
            each.subscribe(name, All(ALL, Range("level", 1, 6)))
        each.run(10)
        assert all(each.machine(name).sizes()["entries"] <= 3 for name in each.names)
        assert sum(each.machine(name).refused["ExcessError"] for name in each.names) > 0
    assert all(network.machine(name).sizes()["entries"] <= 1 for name in network.names)


def test_the_two_profiles_refuse_each_others_messages() -> None:
    hard = TreeNetwork(4)
    hard.run(6)
    soft = planted(paper(4, "trees"), N0)
    soft.publish(N1, b"news")
    soft.run(2)
    for name, _, message in soft.seen:
        if isinstance(message, Install | Offer):
            hard.machine(name).receive(encode(message), Address("in:x"), hard.now)
    assert all(hard.machine(name).sizes()["entries"] == 0 for name in hard.names)
