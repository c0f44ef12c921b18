"""Nodes and a directory together, hardened: who gets what, and what becomes of it when something breaks."""

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
    """One more of the same, for when there is time."""
    return pytest.param(what, marks=pytest.mark.all_only)


def standing(nodes: int = 8, *subscribers: str, seed: int = 1, config: object = QUICK_CONFIG) -> TreeNetwork:
    """A network in which these have subscriptions that stand."""
    grove = TreeNetwork(nodes, seed=seed, config=config)  # type: ignore[arg-type]
    grove.run(6)
    for name in subscribers:
        grove.subscribe(name)
    grove.until(lambda: all(grove.stands(name) for name in subscribers), 30)
    return grove


def guards_of(grove: TreeNetwork, name: str) -> list[str]:
    return [grove.called(node) for node in profile_of(grove, name)._guards._chain]


def tree_of(grove: TreeNetwork, name: str) -> object:
    return profile_of(grove, name)._subscribing.terms(grove.now)[0].tree


def test_a_publication_reaches_exactly_those_whose_interest_it_matches() -> None:
    """The mode is pinned to `Conjunction.matches`: labels, ranges, boxes, equalities, several of them at once."""
    grove, rng = TreeNetwork(6), Random(1)
    grove.run(6)
    wanted: list[tuple[str, int, Conjunction]] = []
    for interest in (
        ALL,
        All(ALL, Range("level", 3, 9)),
        All(ALL, Range("level", None, 4, high_open=True), Equal("kind", "red")),
        All(ALL, Box({"level": (0, 7)}), Equal("kind", "blue")),
    ):
        name = f"n{rng.randrange(3)}:1"
        wanted.append((name, grove.subscribe(name, interest), interest))
    grove.run(8)
    sent = {}
    for number in range(16):
        pairs: dict[str, Value] = {"level": rng.randrange(16), "kind": rng.choice(["red", "blue"])}
        body = b"%d" % number
        sent[body] = Publication((ALL.pair, *pairs.items()), body)
        grove.publish(f"n{number % 6}:1", body, **pairs)
        grove.run(0.2)
    grove.run(4)
    matches = [(name, number, body) for body, p in sent.items() for name, number, i in wanted if i.matches(p)]
    assert sorted(grove.heard) == sorted(matches)
    assert len(matches) > 15


def test_two_copies_go_to_two_origins_under_two_names_and_are_delivered_once() -> None:
    grove = standing(8, N0)
    grove.publish(N1, b"news")
    grove.run(4)
    offers = [(name, message) for name, _, message in grove.seen if isinstance(message, Offer)]
    assert (
        len(offers) == QUICK_CONFIG.copies == len({name for name, _ in offers}) == len({m.message for _, m in offers})
    )
    assert len({message.body for _, message in offers}) == 2
    assert N1 not in {name for name, _ in offers}
    assert grove.heard_by(N0) == [b"news"]


def test_a_subscription_is_reported_when_something_has_come_from_nearly_all() -> None:
    grove = TreeNetwork(8)
    grove.run(6)
    grove.subscribe(N0)
    told = [event for name, event in grove.events if name == N0 and isinstance(event, Waiting)]
    assert told == [Waiting(1, None)]
    grove.until(lambda: grove.stands(N0), 30)
    probed = {name for name, source, m in grove.seen if isinstance(m, ForwardPublication)}
    assert len(probed) == 8


def test_whoever_passes_something_on_sees_one_entry_and_no_tags() -> None:
    """What two nodes on a way have in common is the message, and nothing by which to know its topic or its tree."""
    grove = standing(12, N0)
    before = len(grove.seen)
    grove.publish(N1, b"news")
    grove.run(4)
    carried = [(name, m) for name, _, m in grove.seen[before:] if isinstance(m, ForwardPublication)]
    assert len({m.entry for _, m in carried}) == len({(name, m.entry) for name, m in carried})
    offered = [m for _, _, m in grove.seen[before:] if isinstance(m, Offer)]
    tags = {tag for offer in offered for group in offer.groups for tag in group}
    assert tags
    assert not any(tag in encode(m) for tag in tags for _, m in carried)


def test_instructions_have_one_size_whoever_gets_them_and_in_whichever_network() -> None:
    sizes, bodies = set(), set()
    for nodes in (3, 34):
        grove = standing(nodes, N0)
        grove.publish(N1, b"news")
        grove.run(3)
        sizes |= {len(encode(m)) for _, _, m in grove.seen if isinstance(m, Install)}
        sizes -= {len(encode(m)) - 1 for _, _, m in grove.seen if isinstance(m, Install) and m.number < 1 << 16}
        bodies |= {len(m.body) for _, _, m in grove.seen if isinstance(m, ForwardPublication | Offer)}
    assert len(sizes) == 1
    assert min(sizes) > INSTALL_BLOCK
    assert bodies <= {size + 29 for size in BODY_CLASSES}


@pytest.mark.parametrize("role", ["guard", heavy("far guard"), heavy("inner")])
def test_when_a_node_dies_what_waited_for_it_goes_another_way_and_nothing_is_lost(role: str) -> None:
    grove = standing(8, N0)
    guards = guards_of(grove, N0)
    tree = tree_of(grove, N0)
    parents = [grove.called(tree.node(tree.up(stop))) for stop in tree.stops if tree.up(stop) >= 0]  # type: ignore[attr-defined]
    victim = {"guard": guards[0], "far guard": guards[-1]}.get(role) or next(
        name for name in parents if name not in (*guards, N0)
    )
    grove.run(2)
    grove.kill(victim)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        grove.publish(N0, body)
        grove.run(1)
    grove.until(lambda: set(grove.heard_by(N0)) == set(bodies), 30)
    assert victim not in guards_of(grove, N0)
    assert [grove.called(node) for node in profile_of(grove, N0)._subscribing._avoided] == [victim]
    assert len(grove.heard_by(N0)) == len(bodies)


def test_a_node_that_starts_anew_is_told_again_what_it_forgot() -> None:
    grove = standing(8, N0, N1)
    grove.kill(N3)
    grove.run(0.5)
    grove.start(N3)
    assert grove.machine(N3).sizes()["entries"] == 0
    took = grove.until(lambda: grove.machine(N3).sizes()["entries"] >= 2, 20)
    assert took <= 3 * QUICK_CONFIG.fetch_us / SECOND


def test_a_newcomer_is_hung_into_the_trees_that_stand() -> None:
    grove = TreeNetwork(8)
    grove.kill("n7:1")
    grove.run(6)
    grove.subscribe(N0)
    grove.until(lambda: grove.stands(N0), 30)
    grove.start("n7:1")
    grove.until(lambda: grove.machine("n7:1").sizes()["entries"] >= 1, 30)
    ways = profile_of(grove, N0)._subscribing.terms(grove.now)[0]
    grove.until(lambda: len(ways.reached) == 8, 30)
    grove.run(20)
    assert sorted(ways.reached) == list(range(8))  # Guards are probed, too, and count for nobody.


def test_trees_are_drawn_anew_for_every_epoch_and_hang_by_the_same_guards() -> None:
    grove = standing(8, N0, config=msgspec.structs.replace(QUICK_CONFIG, probe_us=5 * SECOND))
    guards, first = guards_of(grove, N0), tree_of(grove, N0)
    sent: list[bytes] = []
    while grove.now < START_US + 3 * EPOCH_US:
        sent.append(b"%d" % len(sent))
        grove.publish(N1, sent[-1])
        grove.run(10)
    grove.run(5)
    assert set(grove.heard_by(N0)) == set(sent)
    assert len(grove.heard_by(N0)) == len(sent)
    later = tree_of(grove, N0)
    names = [{tree.name(stop) for stop in tree.stops} for tree in (first, later)]  # type: ignore[attr-defined]
    assert guards_of(grove, N0) == guards
    assert not names[0] & names[1]
    most = max(grove.machine(name).sizes()["entries"] for name in grove.names)
    assert most <= 2 * 3  # A node's own place, and one as a guard, in three epochs.


def test_who_unsubscribes_gets_nothing_more_and_its_guards_cannot_tell() -> None:
    grove = standing(8, N0)
    grove.do(N0, lambda node, now: node.unsubscribe(1, now))
    before = len(grove.seen)
    grove.publish(N1, b"late")
    grove.run(4)
    assert grove.heard_by(N0) == []
    came = [source for name, source, m in grove.seen[before:] if name == N0 and isinstance(m, ForwardPublication)]
    heard = [m for name, source, m in grove.seen[before:] if isinstance(m, RequestAck)]
    assert came
    assert len(heard) >= len(came)
    grove.run(2.5 * EPOCH_US / SECOND)
    assert all(grove.machine(name).sizes()["entries"] == 0 for name in grove.names)


def give_up(grove: TreeNetwork, number: int) -> None:
    grove.do(N0, lambda node, now: node.unsubscribe(number, now))


def test_who_takes_a_subscription_up_again_finds_its_trees_and_plants_no_others() -> None:
    grove = standing(8, N0)
    grove.run(EPOCH_US / SECOND - 25)  # That of the next epoch is planted, too.
    before = len(grove.seen)
    for number in range(1, 6):
        give_up(grove, number)
        grove.subscribe(N0)
    grove.until(lambda: grove.stands(N0), 10)
    grove.publish(N1, b"again")
    grove.run(4)
    assert not [message for _, _, message in grove.seen[before:] if isinstance(message, Install)]
    grove.run(20)
    grove.publish(N1, b"later")
    grove.run(4)
    assert grove.heard_by(N0) == [b"again", b"later"]


def test_of_trees_that_nobody_wants_so_many_are_kept_as_may_be_wanted() -> None:
    grove = TreeNetwork(4, config=msgspec.structs.replace(QUICK_CONFIG, subscriptions_max=3))
    grove.run(6)
    for number in range(1, 13):
        grove.subscribe(N0, All(ALL, Range("level", number, number)))
        give_up(grove, number)
    assert len(profile_of(grove, N0)._subscribing._terms) <= 4


def test_a_subscriber_that_starts_anew_gets_what_its_earlier_life_planted() -> None:
    grove = standing(8, N0, config=msgspec.structs.replace(QUICK_CONFIG, spread_us=12 * SECOND))
    guards = guards_of(grove, N0)
    grove.kill(N0)
    grove.publish(N1, b"meanwhile")
    grove.run(1)
    grove.start(N0)
    grove.until(lambda: grove.heard_by(N0) == [b"meanwhile"], 4)
    part = profile_of(grove, N0)
    assert len(part._planting) > 0 or not part._subscribing.terms(grove.now)  # It has not planted all of its own yet.
    grove.run(20)
    assert guards_of(grove, N0) == guards


def test_a_publication_that_is_on_the_disk_is_sent_by_the_next_life() -> None:
    grove = standing(8, N0)
    grove.publish(N1, b"kept")
    grove.run(0.002)
    grove.kill(N1)
    grove.run(5)
    assert grove.heard_by(N0) == []
    grove.start(N1)
    grove.until(lambda: grove.heard_by(N0) == [b"kept"], 20)
    grove.until(lambda: grove.machine(N1).sizes()["pending"] == 0, 20)


def test_a_directory_that_is_away_stops_nobody() -> None:
    grove = standing(8, N0)
    grove.kill(DIRECTORY)
    grove.run(90)
    grove.publish(N1, b"on")
    grove.until(lambda: grove.heard_by(N0) == [b"on"], 10)
    grove.start(DIRECTORY)
    grove.run(30)
    assert grove.machine(DIRECTORY).sizes()["nodes"] == 8


def test_a_publication_waits_for_somebody_to_take_it_and_its_owner_is_told() -> None:
    grove = TreeNetwork(1, config=msgspec.structs.replace(QUICK_CONFIG, wait_us=5 * SECOND))
    grove.run(6)
    record = grove.publish(N0, b"alone")
    grove.run(12)
    overdue = [event for _, event in grove.events if isinstance(event, Overdue)]
    assert [event.record for event in overdue] == [record, record]
    grove.do(N0, lambda node, now: node.withdraw(record, now))
    grove.run(12)
    assert len([event for _, event in grove.events if isinstance(event, Overdue)]) == 2
    assert grove.machine(N0).sizes()["pending"] == 0


def test_a_network_of_two_works() -> None:
    grove = standing(2, N0, N1)
    grove.publish(N0, b"a")
    grove.publish(N1, b"b")
    grove.run(4)
    assert sorted(grove.heard_by(N0)) == sorted(grove.heard_by(N1)) == [b"a", b"b"]


@pytest.mark.parametrize("rate", [1.0, heavy(0.6)])
def test_who_keeps_what_it_should_pass_on_is_found_and_nobody_else(rate: float) -> None:
    grove, rng = standing(10, N0), Random(1)
    dropper = next(name for name in guards_of(grove, N0) if name != N1)
    forwarding = profile_of(grove, dropper)._forwarding
    passing = forwarding._pass_on
    forwarding._pass_on = lambda *what: None if rng.random() < rate else passing(*what)
    grove.until(lambda: bool(profile_of(grove, N0)._subscribing._avoided), 200)
    grove.run(30)
    assert [grove.called(node) for node in profile_of(grove, N0)._subscribing._avoided] == [dropper]
    assert dropper not in guards_of(grove, N0)
    grove.publish(N2, b"through")
    grove.run(4)
    assert grove.heard_by(N0) == [b"through"]


def test_a_node_whom_nobody_can_reach_does_not_blame_its_guards() -> None:
    """Its own Tor is down, for instance: it calls in vain, and learns nothing of others by that."""
    grove = standing(8, N0)
    guards = guards_of(grove, N0)
    grove.cut_off.add(Address(N0))
    grove.run(60)
    grove.cut_off.clear()
    grove.run(20)
    assert guards_of(grove, N0) == guards


def test_what_can_never_be_sent_or_subscribed_to_is_refused_at_once() -> None:
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


def test_a_slow_network_is_waited_for_and_nobody_is_held_to_be_away() -> None:
    """Every call takes three seconds here, and every message one and a half."""
    config = TreeConfig(fetch_us=20 * SECOND)
    grove = TreeNetwork(6, config=config, listing=DirectoryConfig(), latency_us=3 * SECOND // 2)
    grove.run(60)
    grove.subscribe(N0)
    grove.until(lambda: grove.stands(N0), 90)
    grove.publish(N1, b"slow")
    grove.until(lambda: grove.heard_by(N0) == [b"slow"], 60)
    assert profile_of(grove, N0)._subscribing._avoided == {}


def test_a_probe_that_came_late_makes_nobody_wait_longer_for_others() -> None:
    """It waited for a guard that was away. How long the others take is known by how long they take."""
    grove = standing(8, N0)
    probing, guard = profile_of(grove, N0)._probing, guards_of(grove, N0)[0]
    before = probing.round_us
    for _ in range(4):
        grove.kill(guard)
        grove.run(3)
        grove.start(guard)
        grove.run(8)
        assert probing.round_us == before


def test_nothing_hangs_by_who_may_lose_things_until_something_has_come_by_it() -> None:
    grove = standing(12, N0)
    tending, subscribing = profile_of(grove, N0)._tending, profile_of(grove, N0)._subscribing
    tree = subscribing.terms(grove.now)[0].tree
    stop = next(
        stop
        for stop in tree.stops
        if tree.below(stop) and tree.up(stop) >= 0 and tree.node(stop) not in profile_of(grove, N0)._guards
    )
    above = tree.up(stop)
    node, old = tree.node(stop), tree.node(above)
    for _ in range(12):
        tending._suspects.note([node, old, *profile_of(grove, N0)._guards._chain], returned=False)
        tending._suspects.note([old, *profile_of(grove, N0)._guards._chain], returned=True)
    tending._verdict_us = grove.now
    grove.do(N0, lambda machine, now: machine.handle_timer(now))
    assert tree.below(stop) == []
    assert tree.up(stop) != above
    assert subscribing._avoided == {}
    for guard in profile_of(grove, N0)._guards._chain:
        subscribing.avoid(guard, grove.now + 600 * SECOND, grove.now)
        assert node not in profile_of(grove, N0)._guards
    grove.run(1)
    grove.until(lambda: node not in subscribing._doubted, 30)


def test_what_is_in_question_is_probed_as_soon_as_there_is_room_for_a_probe() -> None:
    grove = standing(8, N0, config=msgspec.structs.replace(QUICK_CONFIG, probes_max=2))
    probing, term = profile_of(grove, N0)._probing, profile_of(grove, N0)._subscribing.terms(grove.now)[0]
    grove.until(lambda: not len(probing), 5)
    for stop in term.tree.stops[:2]:
        probing._send(term, stop, grove.now)
    for stop in term.tree.chain[:2]:
        probing.urge(term, stop, grove.now)
    grove.do(N0, lambda node, now: node.handle_timer(now))
    assert len(probing._urgent) == 2
    grove.until(lambda: not len(probing._urgent), 5)
