"""Clients and three nodes of three brokers: every publication reaches exactly its subscribers, once, in both profiles;
compared with the plain definition of a match."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.simulated_overlay import BROKER, CLIENT, EPOCH_US, NODES, OTHER, TOPIC, SimulatedOverlay, names_of
from veilcast.authority.topic_record import Profile
from veilcast.brokers.content.blocks import Strategy
from veilcast.machine import Address, Publication
from veilcast.topics import All, Box, Conjunction, Equal, Label, Range

both = pytest.mark.parametrize("profile", ["hardened", "paper"])


@both
def test_a_publication_crosses_three_nodes_and_is_settled(profile: Profile) -> None:
    net = SimulatedOverlay(profile, clients={"p": "a", "s": "c", "t": "b", "u": "a"})
    for name in ("s", "t", "u"):
        net.subscribe(name, Label(TOPIC))
    net.stand()
    for number in range(3):
        net.publish("p", b"%d" % number)
    net.run_until(lambda: len(net.delivered) >= 9 and not net.pending("p"), 10)
    net.run(10)
    for name in ("s", "t", "u"):
        assert sorted(net.delivered_to(name)) == [b"0", b"1", b"2"]
        assert not net.machine(name).suspects()
    for name in (name for node in NODES for name in names_of(node)):
        assert not net.machine(name).suspects()
        assert net.machine(name).sizes()["contents"] == 0


@pytest.mark.parametrize("seed", [1, 2])
@both
def test_every_subscriber_gets_exactly_what_its_interests_match(profile: Profile, seed: int) -> None:
    """Completeness and no excess: labels, ranges, boxes and equalities, several at each subscriber, on two topics."""
    rng = Random(seed)
    readers = ("s", "t", "u", "p")
    net = SimulatedOverlay(profile, clients={"p": "a", "q": "b", "s": "c", "t": "b", "u": "a"}, seed=seed)
    for name in readers:
        for _ in range(3):
            net.subscribe(name, interest(rng))
    net.stand()
    said: dict[bytes, Publication] = {}
    for number in range(24):
        topics = rng.choice([(TOPIC,), (OTHER,), (TOPIC, OTHER)])
        pairs = tuple(pair for pair in values(rng) if rng.random() < 0.8)
        body = b"%d" % number
        said[body] = Publication((*(Label(topic).pair for topic in topics), *pairs), body)
        net.publish(rng.choice("pq"), body, *pairs, topics=topics)
        net.run(0.1)
    net.run_until(lambda: not net.pending("p") and not net.pending("q"), 30)
    net.run(2)
    for name in readers:
        for number, wanted in enumerate(net.wants[name], 1):
            got = sorted(body for reader, which, body in net.delivered if (reader, which) == (name, number))
            # Of a publication with two labels, each topic's readers get the letter of their own.
            assert got == sorted(body for body, publication in said.items() if wanted.matches(publication))


def values(rng: Random) -> list[tuple[str, int | float | str]]:
    return [
        ("level", rng.randrange(16)),
        ("lat", rng.choice([0.0, 1.5, 2.25, 4.0, 7.999])),
        ("lon", rng.uniform(0, 7.9)),
        ("kind", rng.choice(["a", "b"])),
    ]


def interest(rng: Random) -> Conjunction:
    label = Label(rng.choice([TOPIC, OTHER]))
    low = rng.randrange(16)
    south, west = rng.uniform(0, 6), rng.uniform(0, 6)
    return rng.choice(
        [
            label,
            All(label, Range("level", low, rng.randrange(low, 16))),
            All(label, Range("level", None, low), Equal("kind", "a")),
            All(label, Box({"lat": (south, south + 2), "lon": (west, west + 4)})),
            All(label, Box({"lat": (0, 4), "lon": (0, 8)}), Range("level", 3, None), Equal("kind", "b")),
        ]
    )


def test_nothing_is_lost_over_epoch_changes() -> None:
    net = SimulatedOverlay(clients={"p": "a", "s": "c"})
    net.subscribe("s", All(Label(TOPIC), Range("level", 0, 7)))
    net.stand()
    for number in range(10):
        net.publish("p", b"%d" % number, ("level", number % 8))
        net.run(EPOCH_US / 1_000_000 / 3.3)
    net.run(5)
    assert net.delivered_to("s") == [b"%d" % number for number in range(10)]
    assert not net.pending("p")


@both
def test_nothing_is_lost_when_a_broker_of_each_node_is_killed_and_restarts(profile: Profile) -> None:
    net = SimulatedOverlay(profile, clients={"p": "a", "s": "c"})
    net.subscribe("s", Label(TOPIC))
    net.stand()
    count = 0
    for node in ("a", "b", "c"):
        for fate in (net.world.crash, net.world.restart):
            fate(Address(f"{node}2"))
            for _ in range(2):
                net.publish("p", b"%d" % count)
                count += 1
                net.run(3)
    net.run_until(lambda: not net.pending("p"), 60)
    assert sorted(net.delivered_to("s"), key=int) == [b"%d" % number for number in range(count)]


@both
def test_a_broker_that_restarts_before_its_subscribers_does_not_report_no_subscribers(profile: Profile) -> None:
    """So if its sibling is killed right then, the two do not end a publication that a subscriber lacks."""
    net = SimulatedOverlay(profile, clients={"q": "b", "t": "b"}, seed=2)
    net.subscribe("t", Label(TOPIC))
    net.stand()
    net.world.crash(Address("b3"))
    net.run(9)  # Clients call at ever longer distances.
    net.world.restart(Address("b3"))
    net.run(2)
    assert not net.machine("b3").has_routing_state
    net.world.crash(Address("b2"))
    net.publish("q", b"hello")
    net.run(1)
    net.world.restart(Address("b2"))
    net.run_until(lambda: not net.pending("q"), 60)
    assert net.delivered_to("t") == [b"hello"]


@both
def test_a_killed_subscriber_gets_what_was_published_meanwhile(profile: Profile) -> None:
    net = SimulatedOverlay(profile, clients={"p": "a", "s": "c", "t": "b"})
    for name in ("s", "t"):
        net.subscribe(name, Label(TOPIC))
    net.stand()
    net.publish("p", b"before")
    net.run(3)
    net.world.crash(Address("s"))
    net.publish("p", b"meanwhile")
    net.run(5)
    assert net.delivered_to("t") == [b"before", b"meanwhile"]
    assert net.pending("p") == 1
    net.world.restart(Address("s"))
    net.run_until(lambda: not net.pending("p"), 60)
    assert net.delivered_to("s") == [b"before", b"meanwhile"]
    assert net.delivered_to("t") == [b"before", b"meanwhile"]


@both
def test_a_client_without_a_subscription_is_not_waited_for(profile: Profile) -> None:
    net = SimulatedOverlay(profile, clients={"p": "a", "s": "c"})
    number = net.subscribe("s", Label(TOPIC))
    net.stand()
    net.publish("p", b"one")
    net.run(3)
    net.do("s", lambda client, now: client.unsubscribe(number, now))
    net.run(3)
    net.publish("p", b"two")
    net.run_until(lambda: not net.pending("p"), 10)
    assert net.delivered_to("s") == [b"one"]
    net.wants["s"].clear()
    net.subscribe("s", Label(TOPIC))
    net.run(3)
    net.publish("p", b"three")
    net.run_until(lambda: not net.pending("p"), 10)
    assert net.delivered_to("s") == [b"one", b"three"]


@both
@pytest.mark.parametrize("strategy", ["one", "coded"])
def test_other_strategies_deliver_the_same(profile: Profile, strategy: str) -> None:
    net = SimulatedOverlay(
        profile,
        clients={"p": "a", "s": "c", "t": "b"},
        client=msgspec.structs.replace(CLIENT, strategy=Strategy(strategy)),
        broker=msgspec.structs.replace(BROKER, strategy=Strategy(strategy)),
    )
    for name in ("s", "t"):
        net.subscribe(name, Label(TOPIC))
    net.stand()
    for number in range(5):
        net.publish("p", b"%d" % number * 500)
    net.run_until(lambda: not net.pending("p"), 30)
    for name in ("s", "t"):
        assert sorted(net.delivered_to(name)) == [b"%d" % number * 500 for number in range(5)]
