"""Nodes and a directory together, as in the paper: its three ways to route, what it costs, and what it shows."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from support.tree_network import QUICK_CONFIG, TOPIC, TreeNetwork
from veilcast.machine import Address, Publication, Value
from veilcast.topics import All, Conjunction, Equal, Label, Range
from veilcast.tree.config import PaperRouting
from veilcast.wire import encode
from veilcast.wire.tree import ForwardPublication, Install, Offer

ALL = Label(TOPIC)
N0, N1, N2 = (f"n{number}:1" for number in range(3))
ROUTINGS: tuple[PaperRouting, ...] = ("trees", "seen", "labels")
each_routing = pytest.mark.parametrize("routing", ROUTINGS)


def paper(nodes: int, routing: PaperRouting, **changes: Any) -> TreeNetwork:
    config = msgspec.structs.replace(QUICK_CONFIG, profile="paper", routing=routing, filter_elements=32, **changes)
    grove = TreeNetwork(nodes, profile="paper", config=config)
    grove.run(6)
    return grove


def planted(grove: TreeNetwork, *subscribers: str) -> TreeNetwork:
    for name in subscribers:
        grove.subscribe(name)
    grove.until(lambda: all(grove.stands(name) for name in subscribers), 20)
    grove.run(2)
    return grove


def sent_for(grove: TreeNetwork, publisher: str, body: bytes) -> int:
    """How many messages between nodes one publication takes."""
    before = len(grove.seen)
    grove.publish(publisher, body)
    grove.run(10)
    return sum(isinstance(message, ForwardPublication | Offer) for _, _, message in grove.seen[before:]) - 1


@each_routing
def test_a_publication_reaches_those_whose_interest_it_matches(routing: PaperRouting) -> None:
    """Where the trees are mixed a loop label may take a message for one that was here: P2's bound is on that."""
    grove, rng = paper(7, routing), Random(2)
    wanted: list[tuple[str, int, Conjunction]] = []
    for number, interest in enumerate((ALL, All(ALL, Range("level", 3, 9)), All(ALL, Equal("kind", "red")))):
        name = f"n{number}:1"
        wanted.append((name, grove.subscribe(name, interest), interest))
    grove.run(5)
    sent = {}
    for number in range(12):
        pairs: dict[str, Value] = {"level": rng.randrange(16), "kind": rng.choice(["red", "blue"])}
        body = b"%d" % number
        sent[body] = Publication((ALL.pair, *pairs.items()), body)
        grove.publish(f"n{number % 7}:1", body, **pairs)
        grove.run(0.5)
    grove.run(5)
    matches = [(name, number, body) for body, p in sent.items() for name, number, i in wanted if i.matches(p)]
    assert sorted(grove.heard) == sorted(matches)


def test_trees_that_are_mixed_cost_what_nobody_asked_for() -> None:
    """One path to each subscriber where they are kept apart; cycles and copies where they are not."""
    cost = {
        routing: [sent_for(planted(paper(16, routing), *names), "n9:1", b"news") for names in ((N0,), (N0, N1))]
        for routing in ROUTINGS
    }
    assert max(cost["trees"]) <= 2 * QUICK_CONFIG.depth
    assert cost["seen"][0] == cost["labels"][0] <= QUICK_CONFIG.depth
    assert cost["trees"][1] < cost["seen"][1] < cost["labels"][1]


def test_instructions_go_along_the_tree_and_shrink_from_hop_to_hop() -> None:
    """So whoever gets a long one stands next to the subscriber: P2's depth leak."""
    grove = planted(paper(13, "trees", depth=2), N0)
    lengths: dict[str, int] = {}
    for name, _, message in grove.seen:
        if isinstance(message, Install):
            lengths[name] = max(lengths.get(name, 0), len(message.sealed))
    assert len(lengths) == 12
    parents = {name: next(iter(grove.machine(name)._part._pouring._parents.values())) for name in lengths}
    next_to = [name for name, parent in parents.items() if grove.called(parent) == N0]
    others = [name for name in lengths if name not in next_to]
    assert min(lengths[name] for name in next_to) > max(lengths[name] for name in others)


def test_every_node_can_read_what_topic_a_message_has() -> None:
    grove = planted(paper(6, "seen"), N0)
    grove.publish(N1, b"news")
    grove.run(3)
    offers = [message for _, _, message in grove.seen if isinstance(message, Offer)]
    assert all(TOPIC.encode() in element for message in offers for group in message.groups for element in group)


def test_filters_that_only_grow_keep_what_nobody_wants_and_those_that_count_do_not() -> None:
    for counting in (False, True):
        grove = planted(paper(6, "trees", counting=counting), N0)
        grove.do(N0, lambda node, now: node.unsubscribe(1, now))
        grove.run(5)
        carried = sum(sent_for(grove, N1, b"late %d" % number) for number in range(3))
        assert grove.heard_by(N0) == []
        assert (carried == 0) is counting


def test_one_subscription_more_or_less_leaves_the_others_as_they_were() -> None:
    grove = planted(paper(6, "seen", counting=True), N0, N1)
    grove.do(N0, lambda node, now: node.unsubscribe(1, now))
    grove.run(5)
    grove.publish(N2, b"still")
    grove.run(3)
    assert grove.heard_by(N1) == [b"still"]
    assert grove.heard_by(N0) == []


@each_routing
def test_who_comes_later_is_told_too(routing: PaperRouting) -> None:
    grove = TreeNetwork(
        6,
        profile="paper",
        config=msgspec.structs.replace(QUICK_CONFIG, profile="paper", routing=routing, filter_elements=32),
    )
    grove.kill("n5:1")
    grove.run(6)
    planted(grove, N0)
    grove.start("n5:1")
    grove.until(lambda: grove.machine("n5:1").sizes()["entries"] == 1, 20)


def test_a_full_filter_and_a_full_table_refuse_more() -> None:
    grove = paper(4, "seen", filters_max=1)
    config = msgspec.structs.replace(QUICK_CONFIG, profile="paper", routing="seen", filter_elements=4)
    narrow = TreeNetwork(4, profile="paper", config=config)
    narrow.run(6)
    for each in (grove, narrow):
        for name in (N0, N1, N2):
            each.subscribe(name)
            each.subscribe(name, All(ALL, Range("level", 1, 6)))
        each.run(10)
        assert all(each.machine(name).sizes()["entries"] <= 3 for name in each.names)
        assert sum(each.machine(name).refused["ExcessError"] for name in each.names) > 0
    assert all(grove.machine(name).sizes()["entries"] <= 1 for name in grove.names)


def test_the_two_profiles_do_not_understand_one_another() -> None:
    hard = TreeNetwork(4)
    hard.run(6)
    soft = planted(paper(4, "trees"), N0)
    soft.publish(N1, b"news")
    soft.run(2)
    for name, _, message in soft.seen:
        if isinstance(message, Install | Offer):
            hard.machine(name).receive(encode(message), Address("in:x"), hard.now)
    assert all(hard.machine(name).sizes()["entries"] == 0 for name in hard.names)
