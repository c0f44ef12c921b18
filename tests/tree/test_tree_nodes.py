"""Nodes and a directory together, hardened: deliveries, and recovery from faults."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.tree_network import DIRECTORY, EPOCH_US, QUICK_CONFIG, SECOND, START_US, TOPIC, TreeNetwork, profile_of
from veilcast.errors import LocalError
from veilcast.machine import Address, Overdue, Publication, Value, Waiting
from veilcast.topics import All, Box, Conjunction, Equal, Label, Range
from veilcast.tree.config import DirectoryConfig, TreeConfig
from veilcast.wire import encode
from veilcast.wire.geometry import BODY_CLASSES, INSTALL_BLOCK
from veilcast.wire.tree import ForwardPublication, Install, Offer, RequestAck

ALL = Label(TOPIC)
N0, N1, N2, N3 = (f"n{number}:1" for number in range(4))


def heavy(what: object) -> object:
    """Marks a further case of the same for the long run."""
    return pytest.param(what, marks=pytest.mark.all_only)


def standing(nodes: int = 8, *subscribers: str, seed: int = 1, config: object = QUICK_CONFIG) -> TreeNetwork:
    """A network in which these nodes have active subscriptions."""
    network = TreeNetwork(nodes, seed=seed, config=config)  # type: ignore[arg-type]
    network.run(6)
    for name in subscribers:
        network.subscribe(name)
    network.until(lambda: all(network.stands(name) for name in subscribers), 30)
    return network


def guards_of(network: TreeNetwork, name: str) -> list[str]:
    return [network.called(node) for node in profile_of(network, name)._guards._chain]


def tree_of(network: TreeNetwork, name: str) -> object:
    return profile_of(network, name)._subscriber.current_trees(network.now)[0].tree


def test_a_publication_reaches_exactly_the_subscribers_it_matches() -> None:
    """The mode is pinned to `Conjunction.matches`: labels, ranges, boxes, equalities, several of them at once."""
    network, rng = TreeNetwork(6), Random(1)
    network.run(6)
    wanted: list[tuple[str, int, Conjunction]] = []
    for interest in (
        ALL,
        All(ALL, Range("level", 3, 9)),
        All(ALL, Range("level", None, 4, high_open=True), Equal("kind", "red")),
        All(ALL, Box({"level": (0, 7)}), Equal("kind", "blue")),
    ):
        name = f"n{rng.randrange(3)}:1"
        wanted.append((name, network.subscribe(name, interest), interest))
    network.run(8)
    sent = {}
    for number in range(16):
        pairs: dict[str, Value] = {"level": rng.randrange(16), "kind": rng.choice(["red", "blue"])}
        body = b"%d" % number
        sent[body] = Publication((ALL.pair, *pairs.items()), body)
        network.publish(f"n{number % 6}:1", body, **pairs)
        network.run(0.2)
    network.run(4)
    matches = [(name, number, body) for body, p in sent.items() for name, number, i in wanted if i.matches(p)]
    assert sorted(network.heard) == sorted(matches)
    assert len(matches) > 15


def test_two_copies_go_to_two_origins_under_two_ids_and_are_delivered_once() -> None:
    network = standing(8, N0)
    network.publish(N1, b"news")
    network.run(4)
    offers = [(name, message) for name, _, message in network.seen if isinstance(message, Offer)]
    assert (
        len(offers) == QUICK_CONFIG.copies == len({name for name, _ in offers}) == len({m.message for _, m in offers})
    )
    assert len({message.body for _, message in offers}) == 2
    assert N1 not in {name for name, _ in offers}
    assert network.heard_by(N0) == [b"news"]


def test_a_subscription_is_active_when_probes_of_nearly_all_nodes_have_returned() -> None:
    network = TreeNetwork(8)
    network.run(6)
    network.subscribe(N0)
    told = [event for name, event in network.events if name == N0 and isinstance(event, Waiting)]
    assert told == [Waiting(1, None)]
    network.until(lambda: network.stands(N0), 30)
    probed = {name for name, source, m in network.seen if isinstance(m, ForwardPublication)}
    assert len(probed) == 8


def test_a_forwarder_sees_one_entry_and_no_tags() -> None:
    """Two nodes on a path share the message, and nothing that identifies its topic or its tree."""
    network = standing(12, N0)
    before = len(network.seen)
    network.publish(N1, b"news")
    network.run(4)
    carried = [(name, m) for name, _, m in network.seen[before:] if isinstance(m, ForwardPublication)]
    assert len({m.entry for _, m in carried}) == len({(name, m.entry) for name, m in carried})
    offered = [m for _, _, m in network.seen[before:] if isinstance(m, Offer)]
    tags = {tag for offer in offered for group in offer.groups for tag in group}
    assert tags
    assert not any(tag in encode(m) for tag in tags for _, m in carried)


def test_instructions_have_one_size_for_every_node_and_network() -> None:
    sizes, bodies = set(), set()
    for nodes in (3, 34):
        network = standing(nodes, N0)
        network.publish(N1, b"news")
        network.run(3)
        sizes |= {len(encode(m)) for _, _, m in network.seen if isinstance(m, Install)}
        sizes -= {len(encode(m)) - 1 for _, _, m in network.seen if isinstance(m, Install) and m.number < 1 << 16}
        bodies |= {len(m.body) for _, _, m in network.seen if isinstance(m, ForwardPublication | Offer)}
    assert len(sizes) == 1
    assert min(sizes) > INSTALL_BLOCK
    assert bodies <= {size + 29 for size in BODY_CLASSES}


@pytest.mark.parametrize("role", ["guard", heavy("far guard"), heavy("inner")])
def test_messages_waiting_for_a_dead_node_take_another_path_and_none_is_lost(role: str) -> None:
    network = standing(8, N0)
    guards = guards_of(network, N0)
    tree = tree_of(network, N0)
    parents = [network.called(tree.node(tree.next_stop(stop))) for stop in tree.stops if tree.next_stop(stop) >= 0]  # type: ignore[attr-defined]
    victim = {"guard": guards[0], "far guard": guards[-1]}.get(role) or next(
        name for name in parents if name not in (*guards, N0)
    )
    network.run(2)
    network.kill(victim)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        network.publish(N0, body)
        network.run(1)
    network.until(lambda: set(network.heard_by(N0)) == set(bodies), 30)
    assert victim not in guards_of(network, N0)
    assert [network.called(node) for node in profile_of(network, N0)._subscriber._avoided] == [victim]
    assert len(network.heard_by(N0)) == len(bodies)


def test_a_restarted_node_receives_its_instructions_again() -> None:
    network = standing(8, N0, N1)
    network.kill(N3)
    network.run(0.5)
    network.start(N3)
    assert network.machine(N3).sizes()["entries"] == 0
    took = network.until(lambda: network.machine(N3).sizes()["entries"] >= 2, 20)
    assert took <= 3 * QUICK_CONFIG.fetch_us / SECOND


def test_a_newcomer_is_attached_to_the_current_trees() -> None:
    network = TreeNetwork(8)
    network.kill("n7:1")
    network.run(6)
    network.subscribe(N0)
    network.until(lambda: network.stands(N0), 30)
    network.start("n7:1")
    network.until(lambda: network.machine("n7:1").sizes()["entries"] >= 1, 30)
    ways = profile_of(network, N0)._subscriber.current_trees(network.now)[0]
    network.until(lambda: len(ways.reached) == 8, 30)
    network.run(20)
    assert sorted(ways.reached) == list(range(8))  # Guards are probed, too, and count for nobody.


def test_trees_are_redrawn_every_epoch_and_keep_their_guards() -> None:
    network = standing(8, N0, config=msgspec.structs.replace(QUICK_CONFIG, probe_us=5 * SECOND))
    guards, first = guards_of(network, N0), tree_of(network, N0)
    sent: list[bytes] = []
    while network.now < START_US + 3 * EPOCH_US:
        sent.append(b"%d" % len(sent))
        network.publish(N1, sent[-1])
        network.run(10)
    network.run(5)
    assert set(network.heard_by(N0)) == set(sent)
    assert len(network.heard_by(N0)) == len(sent)
    later = tree_of(network, N0)
    names = [{tree.entry_at(stop) for stop in tree.stops} for tree in (first, later)]  # type: ignore[attr-defined]
    assert guards_of(network, N0) == guards
    assert not names[0] & names[1]
    most = max(network.machine(name).sizes()["entries"] for name in network.names)
    assert most <= 2 * 3  # A node's own place, and one as a guard, in three epochs.


def test_an_unsubscribed_node_receives_nothing_and_its_guards_notice_nothing() -> None:
    network = standing(8, N0)
    network.do(N0, lambda node, now: node.unsubscribe(1, now))
    before = len(network.seen)
    network.publish(N1, b"late")
    network.run(4)
    assert network.heard_by(N0) == []
    came = [source for name, source, m in network.seen[before:] if name == N0 and isinstance(m, ForwardPublication)]
    heard = [m for name, source, m in network.seen[before:] if isinstance(m, RequestAck)]
    assert came
    assert len(heard) >= len(came)
    network.run(2.5 * EPOCH_US / SECOND)
    assert all(network.machine(name).sizes()["entries"] == 0 for name in network.names)


def give_up(network: TreeNetwork, number: int) -> None:
    network.do(N0, lambda node, now: node.unsubscribe(number, now))


def test_a_renewed_subscription_reuses_its_trees() -> None:
    network = standing(8, N0)
    network.run(EPOCH_US / SECOND - 25)  # That of the next epoch is planted, too.
    before = len(network.seen)
    for number in range(1, 6):
        give_up(network, number)
        network.subscribe(N0)
    network.until(lambda: network.stands(N0), 10)
    network.publish(N1, b"again")
    network.run(4)
    assert not [message for _, _, message in network.seen[before:] if isinstance(message, Install)]
    network.run(20)
    network.publish(N1, b"later")
    network.run(4)
    assert network.heard_by(N0) == [b"again", b"later"]


def test_the_number_of_trees_without_a_subscription_is_bounded() -> None:
    network = TreeNetwork(4, config=msgspec.structs.replace(QUICK_CONFIG, subscriptions_max=3))
    network.run(6)
    for number in range(1, 13):
        network.subscribe(N0, All(ALL, Range("level", number, number)))
        give_up(network, number)
    assert len(profile_of(network, N0)._subscriber._trees) <= 4


def test_a_restarted_subscriber_receives_on_the_trees_of_its_earlier_run() -> None:
    network = standing(8, N0, config=msgspec.structs.replace(QUICK_CONFIG, spread_us=12 * SECOND))
    guards = guards_of(network, N0)
    network.kill(N0)
    network.publish(N1, b"meanwhile")
    network.run(1)
    network.start(N0)
    network.until(lambda: network.heard_by(N0) == [b"meanwhile"], 4)
    profile = profile_of(network, N0)
    assert len(profile._installer) > 0 or not profile._subscriber.current_trees(
        network.now
    )  # It has not planted all of its own yet.
    network.run(20)
    assert guards_of(network, N0) == guards


def test_a_durable_publication_is_sent_after_a_restart() -> None:
    network = standing(8, N0)
    network.publish(N1, b"kept")
    network.run(0.002)
    network.kill(N1)
    network.run(5)
    assert network.heard_by(N0) == []
    network.start(N1)
    network.until(lambda: network.heard_by(N0) == [b"kept"], 20)
    network.until(lambda: network.machine(N1).sizes()["pending"] == 0, 20)


def test_an_absent_directory_stops_no_node() -> None:
    network = standing(8, N0)
    network.kill(DIRECTORY)
    network.run(90)
    network.publish(N1, b"on")
    network.until(lambda: network.heard_by(N0) == [b"on"], 10)
    network.start(DIRECTORY)
    network.run(30)
    assert network.machine(DIRECTORY).sizes()["nodes"] == 8


def test_a_publication_waits_for_an_origin_and_its_owner_is_told() -> None:
    network = TreeNetwork(1, config=msgspec.structs.replace(QUICK_CONFIG, wait_us=5 * SECOND))
    network.run(6)
    record = network.publish(N0, b"alone")
    network.run(12)
    overdue = [event for _, event in network.events if isinstance(event, Overdue)]
    assert [event.record for event in overdue] == [record, record]
    network.do(N0, lambda node, now: node.withdraw(record, now))
    network.run(12)
    assert len([event for _, event in network.events if isinstance(event, Overdue)]) == 2
    assert network.machine(N0).sizes()["pending"] == 0


def test_a_network_of_two_works() -> None:
    network = standing(2, N0, N1)
    network.publish(N0, b"a")
    network.publish(N1, b"b")
    network.run(4)
    assert sorted(network.heard_by(N0)) == sorted(network.heard_by(N1)) == [b"a", b"b"]


@pytest.mark.parametrize("rate", [1.0, heavy(0.6)])
def test_a_node_that_drops_messages_is_found_and_no_other(rate: float) -> None:
    network, rng = standing(10, N0), Random(1)
    dropper = next(name for name in guards_of(network, N0) if name != N1)
    forwarding = profile_of(network, dropper)._forwarder
    passing = forwarding._forward_copy
    forwarding._forward_copy = lambda *what: None if rng.random() < rate else passing(*what)
    network.until(lambda: bool(profile_of(network, N0)._subscriber._avoided), 200)
    network.run(30)
    assert [network.called(node) for node in profile_of(network, N0)._subscriber._avoided] == [dropper]
    assert dropper not in guards_of(network, N0)
    network.publish(N2, b"through")
    network.run(4)
    assert network.heard_by(N0) == [b"through"]


def test_an_unreachable_subscriber_does_not_blame_its_guards() -> None:
    """For example, its own Tor is down: it opens streams in vain, and learns nothing about others from that."""
    network = standing(8, N0)
    guards = guards_of(network, N0)
    network.cut_off.add(Address(N0))
    network.run(60)
    network.cut_off.clear()
    network.run(20)
    assert guards_of(network, N0) == guards


def test_impossible_publications_and_subscriptions_are_refused_at_once() -> None:
    node = TreeNetwork(1).machine(N0)
    for publication in (Publication((("level", 1),), b""), Publication((Label("other").pair,), b"")):
        with pytest.raises(LocalError):
            node.publish(publication, START_US)
    with pytest.raises(LocalError):
        node.publish(Publication((ALL.pair,), bytes(40_000)), START_US)
    for interest in (Range("level", 1, 2), Label("other")):
        with pytest.raises(LocalError):
            node.subscribe(interest, START_US)
    with pytest.raises(LocalError):
        node.unsubscribe(9, START_US)


def test_in_a_slow_network_no_node_is_taken_for_absent() -> None:
    """Opening a stream takes three seconds here, and every message one and a half."""
    config = TreeConfig(fetch_us=20 * SECOND)
    network = TreeNetwork(6, config=config, listing=DirectoryConfig(), latency_us=3 * SECOND // 2)
    network.run(60)
    network.subscribe(N0)
    network.until(lambda: network.stands(N0), 90)
    network.publish(N1, b"slow")
    network.until(lambda: network.heard_by(N0) == [b"slow"], 60)
    assert profile_of(network, N0)._subscriber._avoided == {}


def test_a_late_probe_does_not_lengthen_the_wait_for_others() -> None:
    """The probe waited for an absent guard. The wait for others depends on their own answer times."""
    network = standing(8, N0)
    prober, guard = profile_of(network, N0)._prober, guards_of(network, N0)[0]
    before = prober.round_us
    for _ in range(4):
        network.kill(guard)
        network.run(3)
        network.start(guard)
        network.run(8)
        assert prober.round_us == before


def test_nothing_depends_on_a_doubted_node_until_a_message_arrives_through_it() -> None:
    network = standing(12, N0)
    repair, subscriber = profile_of(network, N0)._repair, profile_of(network, N0)._subscriber
    tree = subscriber.current_trees(network.now)[0].tree
    stop = next(
        stop
        for stop in tree.stops
        if tree.children(stop) and tree.next_stop(stop) >= 0 and tree.node(stop) not in profile_of(network, N0)._guards
    )
    above = tree.next_stop(stop)
    node, old = tree.node(stop), tree.node(above)
    for _ in range(12):
        repair._suspects.record([node, old, *profile_of(network, N0)._guards._chain], returned=False)
        repair._suspects.record([old, *profile_of(network, N0)._guards._chain], returned=True)
    repair._verdict_us = network.now
    network.do(N0, lambda machine, now: machine.handle_timer(now))
    assert tree.children(stop) == []
    assert tree.next_stop(stop) != above
    assert subscriber._avoided == {}
    for guard in profile_of(network, N0)._guards._chain:
        subscriber.avoid(guard, network.now + 600 * SECOND, network.now)
        assert node not in profile_of(network, N0)._guards
    network.run(1)
    network.until(lambda: node not in subscriber._doubted, 30)


def test_absent_nodes_do_not_bring_back_a_node_that_drops_messages() -> None:
    network = standing(12, N0)
    subscriber = profile_of(network, N0)._subscriber
    tree = subscriber.current_trees(network.now)[0].tree
    dropper, *absent = dict.fromkeys(tree.node(stop) for stop in tree.stops)
    until_us = network.now + 600 * SECOND
    subscriber.avoid(dropper, until_us, network.now, 30.0)
    for node in absent[: 2 * subscriber._few_nodes]:
        subscriber.avoid(node, until_us, network.now)
        assert subscriber.avoids(node)
        assert subscriber.avoids(dropper)
        assert len(subscriber._avoided) <= subscriber._few_nodes
    assert not subscriber.avoids(absent[0])


def test_a_stop_in_question_is_probed_as_soon_as_there_is_capacity() -> None:
    network = standing(8, N0, config=msgspec.structs.replace(QUICK_CONFIG, probes_max=2))
    prober, epoch_tree = (
        profile_of(network, N0)._prober,
        profile_of(network, N0)._subscriber.current_trees(network.now)[0],
    )
    network.until(lambda: not len(prober), 5)
    for stop in epoch_tree.tree.stops[:2]:
        prober._send(epoch_tree, stop, network.now)
    for stop in epoch_tree.tree.chain[:2]:
        prober.probe_soon(epoch_tree, stop, network.now)
    network.do(N0, lambda node, now: node.handle_timer(now))
    assert len(prober._urgent) == 2
    network.until(lambda: not len(prober._urgent), 5)
