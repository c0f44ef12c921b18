"""Client, proxy and server together: deliveries, and recovery from faults."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.relay_network import CLIENT_CONFIG, EPOCH_US, PROXY_CONFIG, SERVER_CONFIG, TOPIC, RelayNetwork
from veilcast.authority.topic_record import Profile
from veilcast.core.durable_records import DurableRecords, WhenDurable
from veilcast.errors import LocalError, UnknownTopicError
from veilcast.machine import Address, Overdue, Publication, Record, Settled, Value, Waiting
from veilcast.sim.relay.population import SERVER
from veilcast.topics import All, Box, Conjunction, Equal, Label, Range
from veilcast.wire import decode
from veilcast.wire.relay import Lease, RelayDelivery, ReplyCode, Submit

ALL = Label(TOPIC)
PROFILES: tuple[Profile, ...] = ("hardened", "paper")
each_profile = pytest.mark.parametrize("profile", PROFILES)


@each_profile
def test_a_publication_reaches_exactly_the_subscribers_it_matches(profile: Profile) -> None:
    """The mode is pinned to `Conjunction.matches`: labels, ranges, boxes, equalities, several of them at once."""
    network, rng = RelayNetwork(profile, clients=3), Random(1)
    wanted: list[tuple[str, int, Conjunction]] = []
    for interest in (
        ALL,
        All(ALL, Range("level", 3, 9)),
        All(ALL, Range("level", None, 4, high_open=True), Equal("kind", "red")),
        All(ALL, Box({"level": (0, 7), "size": (2, 5)})),
        All(ALL, Equal("kind", "blue")),
        All(ALL, Range("size", 3, 3)),
    ):
        name = f"c{rng.randrange(3)}"
        wanted.append((name, network.subscribe(name, interest), interest))
    network.run(3)
    sent = {}
    for number in range(25):
        pairs: dict[str, Value] = {
            "level": rng.randrange(16),
            "size": rng.randrange(8),
            "kind": rng.choice(["red", "blue"]),
        }
        body = b"%d" % number
        sent[body] = Publication((ALL.pair, *pairs.items()), body)
        network.publish(f"c{number % 3}", body, **pairs)
        network.run(0.2)
    network.run(5)
    matches = [(name, number, body) for body, p in sent.items() for name, number, i in wanted if i.matches(p)]
    assert sorted(network.heard) == sorted(matches)
    assert len(matches) > 30


def test_hardened_false_matches_only_share_a_cell() -> None:
    """`size` has two values per cell: the server cannot tell 2 from 3, and the client can."""
    network = RelayNetwork()
    network.subscribe("c0", All(ALL, Range("size", 2, 2)))
    network.run(2)
    for size in range(8):
        network.publish("c1", b"%d" % size, level=0, size=size, kind="red")
    network.run(3)
    assert network.heard_by("c0") == [b"2"]
    assert network.machine("c0").excess == 1
    assert network.machine(SERVER).matched == 2


def test_the_paper_filter_mixes_the_interests_of_one_subscriber() -> None:
    """Two narrow interests let through a publication that meets half of each."""
    network = RelayNetwork("paper")
    network.subscribe("c0", All(ALL, Range("level", 0, 0), Equal("kind", "red")))
    network.subscribe("c0", All(ALL, Range("level", 9, 9), Equal("kind", "blue")))
    network.run(2)
    network.publish("c1", b"mixed", level=0, size=0, kind="blue")
    network.publish("c1", b"wanted", level=0, size=0, kind="red")
    network.run(3)
    assert network.heard_by("c0") == [b"wanted"]
    assert network.machine("c0").excess == 1


@each_profile
def test_an_ended_subscription_receives_nothing(profile: Profile) -> None:
    network = RelayNetwork(profile)
    low = network.subscribe("c0", All(ALL, Range("level", 0, 3)))
    network.subscribe("c0", All(ALL, Range("level", 2, 5)))
    network.run(2)
    network.unsubscribe("c0", low)
    network.run(2)
    for level in (1, 3):
        network.publish("c1", b"%d" % level, level=level, size=0, kind="red")
    network.run(2)
    assert network.heard_by("c0") == [b"3"]
    assert network.machine("c0").excess == 0
    with pytest.raises(LocalError, match="no subscription"):
        network.machine("c0").unsubscribe(low, 0)


@each_profile
def test_a_subscription_ended_and_restarted_at_once_is_active(profile: Profile) -> None:
    network = RelayNetwork(profile)
    for _ in range(3):
        number = network.subscribe("c0", ALL)
        network.unsubscribe("c0", number)
        network.run(0.01)
    network.subscribe("c0", ALL)
    network.run(4)
    network.publish("c1", b"here")
    network.run(2)
    assert network.heard_by("c0") == [b"here"]


@each_profile
def test_two_subscriptions_with_one_interest_share_a_lease_and_both_receive(profile: Profile) -> None:
    network = RelayNetwork(profile)
    first, second = network.subscribe("c0", ALL), network.subscribe("c0", ALL)
    network.run(2)
    network.publish("c1", b"here")
    network.run(2)
    assert network.heard == [("c0", first, b"here"), ("c0", second, b"here")]
    network.unsubscribe("c0", first)
    network.publish("c1", b"there")
    network.run(2)
    assert network.heard[2:] == [("c0", second, b"there")]


@each_profile
def test_a_returning_subscriber_receives_what_it_missed(profile: Profile) -> None:
    network = RelayNetwork(profile)
    network.subscribe("c0", ALL)
    network.run(2)
    network.world.crash(Address("c0"))
    for number in range(40):  # More than a window.
        network.publish("c1", b"%d" % number)
        network.run(0.1)
    network.run(30)
    network.world.restart(Address("c0"))
    network.run(10)
    assert sorted(network.heard_by("c0")) == sorted(b"%d" % number for number in range(40))
    assert network.machine(SERVER).sizes()["held"] == 0


def test_a_subscriber_away_for_an_epoch_receives_publications_of_the_next() -> None:
    network = RelayNetwork()
    network.subscribe("c0", ALL)
    network.run(2)
    network.world.crash(Address("c0"))
    network.run(EPOCH_US / 1_000_000)
    network.publish("c1", b"later")
    network.run(50)
    network.world.restart(Address("c0"))
    network.run(5)
    assert network.heard_by("c0") == [b"later"]


def test_subscriptions_continue_across_epochs_under_unlinkable_names() -> None:
    network = RelayNetwork()
    network.subscribe("c0", ALL)
    for number in range(6):
        network.run(EPOCH_US / 1_000_000 / 2)
        network.publish("c1", b"%d" % number)
    network.run(5)
    assert network.heard_by("c0") == [b"%d" % number for number in range(6)]
    assert network.machine(SERVER).sizes()["leases"] <= 5, "what is over is forgotten"
    assert network.machine("p1").sizes()["leases"] <= 8


@each_profile
def test_killing_server_and_proxies_at_random_moments_loses_nothing(profile: Profile) -> None:
    network, rng = RelayNetwork(profile, disk_us=50_000), Random(2)
    network.subscribe("c0", ALL)
    network.run(3)
    for number in range(30):
        network.publish("c1", b"%d" % number)
        network.run(rng.random() / 4)
        victim = Address(rng.choice([SERVER, "p0", "p1"]))
        network.world.crash(victim)
        network.run(rng.random() / 2)
        network.world.restart(victim)
    network.run(40)
    assert sorted(network.heard_by("c0")) == sorted(b"%d" % number for number in range(30))


def answered_then_killed() -> RelayNetwork:
    """A subscriber is away; a publication arrives; the server is killed before its disk has finished."""
    network = RelayNetwork(disk_us=1_000_000, proxy=msgspec.structs.replace(PROXY_CONFIG, holds_presence=False))
    network.subscribe("c0", ALL)
    network.run(6)
    network.world.crash(Address("c0"))
    network.publish("c1", b"here")
    network.run(1.6)
    network.world.crash(SERVER)
    network.world.restart(SERVER)
    network.run(5)
    network.world.restart(Address("c0"))
    network.run(20)
    return network


def test_a_confirmed_publication_survives_a_kill_of_the_server() -> None:
    assert answered_then_killed().heard_by("c0") == [b"here"]


def test_a_server_that_confirms_before_storing_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug for the test before."""

    def at_once(self: DurableRecords, record: int, now: int, then: WhenDurable) -> None:
        then(now)

    monkeypatch.setattr(DurableRecords, "when_durable", at_once)
    assert answered_then_killed().heard_by("c0") == []


def test_a_publication_leaves_once_durable_and_settles_once_the_server_has_it() -> None:
    network = RelayNetwork(disk_us=100_000)
    record = network.publish("c1", b"here")
    mine = [event for name, event in network.events if name == "c1" and isinstance(event, Record | Settled)]
    assert [type(event) for event in mine] == [Record]
    network.run(1)
    mine = [event for name, event in network.events if name == "c1" and isinstance(event, Record | Settled)]
    assert mine[1:] == [Settled(record)]


def test_a_stored_publication_is_sent_after_a_restart() -> None:
    network = RelayNetwork()
    network.subscribe("c0", ALL)
    network.run(2)
    network.world.crash(Address("p0"))
    network.publish("c1", b"here")
    network.run(0.5)
    network.world.crash(Address("c1"))
    network.world.restart(Address("p0"))
    network.world.restart(Address("c1"))
    network.run(5)
    assert network.heard_by("c0") == [b"here"]


def test_an_overdue_publication_is_reported_and_can_be_withdrawn() -> None:
    network = RelayNetwork()
    network.world.crash(Address("p0"))
    record = network.publish("c1", b"here")
    network.run(61)
    assert any(isinstance(event, Overdue) and event.record == record for _, event in network.events)
    network.do("c1", lambda client, now: client.withdraw(record, now))
    network.world.restart(Address("p0"))
    network.subscribe("c0", ALL)
    network.run(20)
    assert network.heard == []
    assert network.machine("c1").sizes()["pending"] == 0


def test_a_subscription_reports_when_it_is_active() -> None:
    network = RelayNetwork()
    number = network.subscribe("c0", ALL)
    network.run(2)
    waits = [event.until_us for name, event in network.events if isinstance(event, Waiting) and event.number == number]
    assert waits[0] is None
    assert isinstance(waits[1], int)


def test_an_unacknowledged_notification_is_delivered_again_and_kept_by_the_proxy() -> None:
    network = RelayNetwork()
    network.subscribe("c0", ALL)
    network.run(2)
    network.prompt = False
    network.publish("c1", b"here")
    network.run(65)
    assert network.heard_by("c0") == [b"here"] * 3, "at once, and every thirty seconds"
    assert network.machine("p1").sizes()["held"] == 1
    assert network.machine(SERVER).sizes()["held"] == 0, "it does not see that nobody has acknowledged"
    network.prompt = True
    network.run(30)
    assert network.machine("p1").sizes()["held"] == 0


@pytest.mark.parametrize(
    ("interest", "error", "words"),
    [
        (Range("level", 0, 1), LocalError, "label"),
        (Label("another"), UnknownTopicError, "no grant"),
        (All(ALL, Range("weight", 0, 1)), LocalError, "declares no attribute"),
        (All(ALL, Equal("level", "1")), LocalError, "a range"),
    ],
)
def test_an_impossible_subscription_is_refused_at_once(
    interest: Conjunction, error: type[LocalError], words: str
) -> None:
    client = RelayNetwork().machine("c0")
    with pytest.raises(error, match=words):
        client.subscribe(interest, RelayNetwork().world.now)
    assert client.sizes()["subscriptions"] == 0


def test_a_publication_outside_its_domain_is_refused_at_once() -> None:
    network = RelayNetwork()
    client = network.machine("c0")
    with pytest.raises(LocalError, match="level"):
        client.publish(Publication((ALL.pair, ("level", 16))), network.world.now)
    with pytest.raises(LocalError, match="label"):
        client.publish(Publication((("level", 1),)), network.world.now)
    assert client.sizes()["pending"] == 0


def test_the_hardened_proxy_never_carries_the_same_bytes_twice_for_a_client() -> None:
    """The same publication and the same lease, repeated: no two frames share a subject or a body."""
    seen: list[bytes] = []
    network = RelayNetwork()
    proxy = network.machine("p1")
    receive = proxy.receive

    def noted(data: bytes, source: Address, now: int) -> None:
        message = decode(data)
        if isinstance(message, Lease | Submit):
            seen.extend(subject for group in message.subjects for subject in group)
        if isinstance(message, Lease | Submit | RelayDelivery) and message.sealed is not None:
            seen.append(message.sealed)
        receive(data, source, now)

    proxy.receive = noted
    network.subscribe("c0", All(ALL, Range("level", 1, 14)))
    network.run(2)
    for _ in range(3):
        network.world.cut(Address("p1"), Address("c0"))
        network.publish("c1", b"the same", level=3, size=1, kind="red")
        network.run(8)
    assert len(network.heard) == 3
    assert len(seen) > 10
    assert len(set(seen)) == len(seen)


def test_the_tables_of_a_client_are_bounded() -> None:
    config = msgspec.structs.replace(CLIENT_CONFIG, subscriptions_max=1, records_max=2, flight_max=1, seen_max=1)
    network = RelayNetwork(client=config)
    network.subscribe("c0", ALL)
    client, now = network.machine("c0"), network.world.now
    with pytest.raises(LocalError, match="1 subscriptions already"):
        client.subscribe(All(ALL, Equal("kind", "red")), now)
    network.world.crash(Address("p0"))
    network.publish("c1", b"0")
    network.publish("c1", b"1")
    with pytest.raises(LocalError, match="2 publications wait already"):
        network.machine("c1").publish(Publication((ALL.pair,)), now)
    network.run(1)
    assert len(network.machine("c1")._publish_connection._in_flight) <= 1
    network.world.restart(Address("p0"))
    network.run(6)
    assert sorted(network.heard_by("c0")) == [b"0", b"1"]
    assert client.sizes()["seen"] == 1
    assert network.machine("c1").sizes()["pending"] == 0


def test_a_client_reports_refusals_until_they_end() -> None:
    network = RelayNetwork(server=msgspec.structs.replace(SERVER_CONFIG, leases_max=1))
    first = network.subscribe("c0", ALL)
    network.subscribe("c1", ALL)
    network.run(2)
    refusals = network.machine("c0").refusals() | network.machine("c1").refusals()
    assert set(refusals) == {ReplyCode.FULL}
    network.unsubscribe("c0", first)
    network.run(4 * EPOCH_US / 1_000_000)
    assert network.machine("c0").refusals() == network.machine("c1").refusals() == {}, "the lease has ended by itself"
