"""Client, proxy and server together: who gets what, and what becomes of it when something breaks."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.relay_network import CLIENT_CONFIG, EPOCH_US, SERVER_CONFIG, TOPIC, RelayNetwork
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
def test_a_publication_reaches_exactly_those_whose_interest_it_matches(profile: Profile) -> None:
    """The mode is pinned to `Conjunction.matches`: labels, ranges, boxes, equalities, several of them at once."""
    exchange, rng = RelayNetwork(profile, clients=3), Random(1)
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
        wanted.append((name, exchange.subscribe(name, interest), interest))
    exchange.run(3)
    sent = {}
    for number in range(25):
        pairs: dict[str, Value] = {
            "level": rng.randrange(16),
            "size": rng.randrange(8),
            "kind": rng.choice(["red", "blue"]),
        }
        body = b"%d" % number
        sent[body] = Publication((ALL.pair, *pairs.items()), body)
        exchange.publish(f"c{number % 3}", body, **pairs)
        exchange.run(0.2)
    exchange.run(5)
    matches = [(name, number, body) for body, p in sent.items() for name, number, i in wanted if i.matches(p)]
    assert sorted(exchange.heard) == sorted(matches)
    assert len(matches) > 30


def test_only_what_shares_a_cell_is_let_through_in_vain_when_hardened() -> None:
    """`size` has two values to a cell: the server cannot tell 2 from 3, and the client does."""
    exchange = RelayNetwork()
    exchange.subscribe("c0", All(ALL, Range("size", 2, 2)))
    exchange.run(2)
    for size in range(8):
        exchange.publish("c1", b"%d" % size, level=0, size=size, kind="red")
    exchange.run(3)
    assert exchange.heard_by("c0") == [b"2"]
    assert exchange.machine("c0").excess == 1
    assert exchange.machine(SERVER).matched == 2


def test_the_paper_s_filter_mixes_what_one_subscriber_wants() -> None:
    """Two narrow interests let through what meets a half of each."""
    exchange = RelayNetwork("paper")
    exchange.subscribe("c0", All(ALL, Range("level", 0, 0), Equal("kind", "red")))
    exchange.subscribe("c0", All(ALL, Range("level", 9, 9), Equal("kind", "blue")))
    exchange.run(2)
    exchange.publish("c1", b"mixed", level=0, size=0, kind="blue")
    exchange.publish("c1", b"wanted", level=0, size=0, kind="red")
    exchange.run(3)
    assert exchange.heard_by("c0") == [b"wanted"]
    assert exchange.machine("c0").excess == 1


@each_profile
def test_who_ends_a_subscription_gets_nothing_more_for_it(profile: Profile) -> None:
    exchange = RelayNetwork(profile)
    low = exchange.subscribe("c0", All(ALL, Range("level", 0, 3)))
    exchange.subscribe("c0", All(ALL, Range("level", 2, 5)))
    exchange.run(2)
    exchange.unsubscribe("c0", low)
    exchange.run(2)
    for level in (1, 3):
        exchange.publish("c1", b"%d" % level, level=level, size=0, kind="red")
    exchange.run(2)
    assert exchange.heard_by("c0") == [b"3"]
    assert exchange.machine("c0").excess == 0
    with pytest.raises(LocalError, match="no subscription"):
        exchange.machine("c0").unsubscribe(low, 0)


@each_profile
def test_who_ends_a_subscription_and_starts_it_again_at_once_has_it(profile: Profile) -> None:
    exchange = RelayNetwork(profile)
    for _ in range(3):
        number = exchange.subscribe("c0", ALL)
        exchange.unsubscribe("c0", number)
        exchange.run(0.01)
    exchange.subscribe("c0", ALL)
    exchange.run(4)
    exchange.publish("c1", b"here")
    exchange.run(2)
    assert exchange.heard_by("c0") == [b"here"]


@each_profile
def test_two_subscriptions_with_one_interest_share_a_lease_and_both_hear(profile: Profile) -> None:
    exchange = RelayNetwork(profile)
    first, second = exchange.subscribe("c0", ALL), exchange.subscribe("c0", ALL)
    exchange.run(2)
    exchange.publish("c1", b"here")
    exchange.run(2)
    assert exchange.heard == [("c0", first, b"here"), ("c0", second, b"here")]
    exchange.unsubscribe("c0", first)
    exchange.publish("c1", b"there")
    exchange.run(2)
    assert exchange.heard[2:] == [("c0", second, b"there")]


@each_profile
def test_a_reader_who_was_away_gets_what_it_missed(profile: Profile) -> None:
    exchange = RelayNetwork(profile)
    exchange.subscribe("c0", ALL)
    exchange.run(2)
    exchange.world.crash(Address("c0"))
    for number in range(40):  # More than a window.
        exchange.publish("c1", b"%d" % number)
        exchange.run(0.1)
    exchange.run(30)
    exchange.world.restart(Address("c0"))
    exchange.run(10)
    assert sorted(exchange.heard_by("c0")) == sorted(b"%d" % number for number in range(40))
    assert exchange.machine(SERVER).sizes()["held"] == 0


def test_a_reader_who_was_away_for_an_epoch_gets_what_was_published_in_the_next() -> None:
    exchange = RelayNetwork()
    exchange.subscribe("c0", ALL)
    exchange.run(2)
    exchange.world.crash(Address("c0"))
    exchange.run(EPOCH_US / 1_000_000)
    exchange.publish("c1", b"later")
    exchange.run(50)
    exchange.world.restart(Address("c0"))
    exchange.run(5)
    assert exchange.heard_by("c0") == [b"later"]


def test_subscriptions_go_on_over_the_edges_of_epochs_under_names_that_have_nothing_in_common() -> None:
    exchange = RelayNetwork()
    exchange.subscribe("c0", ALL)
    for number in range(6):
        exchange.run(EPOCH_US / 1_000_000 / 2)
        exchange.publish("c1", b"%d" % number)
    exchange.run(5)
    assert exchange.heard_by("c0") == [b"%d" % number for number in range(6)]
    assert exchange.machine(SERVER).sizes()["leases"] <= 5, "what is over is forgotten"
    assert exchange.machine("p1").sizes()["leases"] <= 8


@each_profile
def test_killing_server_and_proxies_at_random_moments_loses_nothing(profile: Profile) -> None:
    exchange, rng = RelayNetwork(profile, disk_us=50_000), Random(2)
    exchange.subscribe("c0", ALL)
    exchange.run(3)
    for number in range(30):
        exchange.publish("c1", b"%d" % number)
        exchange.run(rng.random() / 4)
        victim = Address(rng.choice([SERVER, "p0", "p1"]))
        exchange.world.crash(victim)
        exchange.run(rng.random() / 2)
        exchange.world.restart(victim)
    exchange.run(40)
    assert sorted(exchange.heard_by("c0")) == sorted(b"%d" % number for number in range(30))


def answered_then_killed() -> RelayNetwork:
    """A reader is away; a publication arrives; the server is killed in the time that its disk takes."""
    exchange = RelayNetwork(disk_us=1_000_000)
    exchange.subscribe("c0", ALL)
    exchange.run(6)
    exchange.world.crash(Address("c0"))
    exchange.publish("c1", b"here")
    exchange.run(1.6)
    exchange.world.crash(SERVER)
    exchange.world.restart(SERVER)
    exchange.run(5)
    exchange.world.restart(Address("c0"))
    exchange.run(20)
    return exchange


def test_what_the_server_answered_is_on_its_disk() -> None:
    assert answered_then_killed().heard_by("c0") == [b"here"]


def test_a_server_that_answers_before_it_has_stored_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug to the test before."""

    def at_once(self: DurableRecords, record: int, now: int, then: WhenDurable) -> None:
        then(now)

    monkeypatch.setattr(DurableRecords, "when_durable", at_once)
    assert answered_then_killed().heard_by("c0") == []


def test_a_publication_leaves_when_it_is_on_the_disk_and_is_settled_when_the_server_has_it() -> None:
    exchange = RelayNetwork(disk_us=100_000)
    record = exchange.publish("c1", b"here")
    mine = [event for name, event in exchange.events if name == "c1" and isinstance(event, Record | Settled)]
    assert [type(event) for event in mine] == [Record]
    exchange.run(1)
    mine = [event for name, event in exchange.events if name == "c1" and isinstance(event, Record | Settled)]
    assert mine[1:] == [Settled(record)]


def test_a_publication_of_an_earlier_life_is_sent_by_the_next() -> None:
    exchange = RelayNetwork()
    exchange.subscribe("c0", ALL)
    exchange.run(2)
    exchange.world.crash(Address("p0"))
    exchange.publish("c1", b"here")
    exchange.run(0.5)
    exchange.world.crash(Address("c1"))
    exchange.world.restart(Address("p0"))
    exchange.world.restart(Address("c1"))
    exchange.run(5)
    assert exchange.heard_by("c0") == [b"here"]


def test_the_owner_hears_of_what_is_overdue_and_can_withdraw_it() -> None:
    exchange = RelayNetwork()
    exchange.world.crash(Address("p0"))
    record = exchange.publish("c1", b"here")
    exchange.run(61)
    assert any(isinstance(event, Overdue) and event.record == record for _, event in exchange.events)
    exchange.do("c1", lambda client, now: client.withdraw(record, now))
    exchange.world.restart(Address("p0"))
    exchange.subscribe("c0", ALL)
    exchange.run(20)
    assert exchange.heard == []
    assert exchange.machine("c1").sizes()["pending"] == 0


def test_a_subscription_says_from_when_on_it_stands() -> None:
    exchange = RelayNetwork()
    number = exchange.subscribe("c0", ALL)
    exchange.run(2)
    waits = [event.until_us for name, event in exchange.events if isinstance(event, Waiting) and event.number == number]
    assert waits[0] is None
    assert isinstance(waits[1], int)


def test_what_nobody_acknowledges_comes_again_and_the_server_keeps_it() -> None:
    exchange = RelayNetwork()
    exchange.subscribe("c0", ALL)
    exchange.run(2)
    exchange.prompt = False
    exchange.publish("c1", b"here")
    exchange.run(65)
    assert exchange.heard_by("c0") == [b"here"] * 3, "at once, and every thirty seconds"
    assert exchange.machine(SERVER).sizes()["held"] == 1
    exchange.prompt = True
    exchange.run(30)
    assert exchange.machine(SERVER).sizes()["held"] == 0


@pytest.mark.parametrize(
    ("interest", "error", "words"),
    [
        (Range("level", 0, 1), LocalError, "label"),
        (Label("another"), UnknownTopicError, "no grant"),
        (All(ALL, Range("weight", 0, 1)), LocalError, "declares no attribute"),
        (All(ALL, Equal("level", "1")), LocalError, "a range"),
    ],
)
def test_a_subscription_that_can_never_stand_is_refused_at_once(
    interest: Conjunction, error: type[LocalError], words: str
) -> None:
    client = RelayNetwork().machine("c0")
    with pytest.raises(error, match=words):
        client.subscribe(interest, RelayNetwork().world.now)
    assert client.sizes()["subscriptions"] == 0


def test_a_publication_outside_its_domain_is_refused_at_once() -> None:
    exchange = RelayNetwork()
    client = exchange.machine("c0")
    with pytest.raises(LocalError, match="level"):
        client.publish(Publication((ALL.pair, ("level", 16))), exchange.world.now)
    with pytest.raises(LocalError, match="label"):
        client.publish(Publication((("level", 1),)), exchange.world.now)
    assert client.sizes()["pending"] == 0


def test_nothing_that_the_hardened_proxy_carries_for_a_client_ever_repeats() -> None:
    """The same publication and the same lease, told again and again: no two frames share a subject or a body."""
    seen: list[bytes] = []
    exchange = RelayNetwork()
    proxy = exchange.machine("p1")
    receive = proxy.receive

    def noted(data: bytes, source: Address, now: int) -> None:
        message = decode(data)
        if isinstance(message, Lease | Submit):
            seen.extend(subject for group in message.subjects for subject in group)
        if isinstance(message, Lease | Submit | RelayDelivery) and message.sealed is not None:
            seen.append(message.sealed)
        receive(data, source, now)

    proxy.receive = noted
    exchange.subscribe("c0", All(ALL, Range("level", 1, 14)))
    exchange.run(2)
    for _ in range(3):
        exchange.world.cut(Address("p1"), Address("c0"))
        exchange.publish("c1", b"the same", level=3, size=1, kind="red")
        exchange.run(8)
    assert len(exchange.heard) == 3
    assert len(seen) > 10
    assert len(set(seen)) == len(seen)


def test_a_client_takes_no_more_than_it_has_room_for() -> None:
    config = msgspec.structs.replace(CLIENT_CONFIG, subscriptions_max=1, records_max=2, flight_max=1, seen_max=1)
    exchange = RelayNetwork(client=config)
    exchange.subscribe("c0", ALL)
    client, now = exchange.machine("c0"), exchange.world.now
    with pytest.raises(LocalError, match="1 subscriptions already"):
        client.subscribe(All(ALL, Equal("kind", "red")), now)
    exchange.world.crash(Address("p0"))
    exchange.publish("c1", b"0")
    exchange.publish("c1", b"1")
    with pytest.raises(LocalError, match="2 publications wait already"):
        exchange.machine("c1").publish(Publication((ALL.pair,)), now)
    exchange.run(1)
    assert len(exchange.machine("c1")._out._flying) <= 1
    exchange.world.restart(Address("p0"))
    exchange.run(6)
    assert sorted(exchange.heard_by("c0")) == [b"0", b"1"]
    assert client.sizes()["seen"] == 1
    assert exchange.machine("c1").sizes()["pending"] == 0


def test_a_client_says_what_the_relay_refuses_until_it_does_not() -> None:
    exchange = RelayNetwork(server=msgspec.structs.replace(SERVER_CONFIG, leases_max=2))
    first = exchange.subscribe("c0", ALL)
    exchange.subscribe("c1", ALL)
    exchange.run(2)
    refusals = exchange.machine("c0").refusals() | exchange.machine("c1").refusals()
    assert set(refusals) == {ReplyCode.FULL}
    exchange.unsubscribe("c0", first)
    exchange.run(30)
    assert exchange.machine("c0").refusals() == {}
