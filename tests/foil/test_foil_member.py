"""Members at a broker: publications are delivered once, whatever the broker loses and whichever member restarts."""

from __future__ import annotations

import random
from itertools import permutations

import msgspec
import pytest

from support.foil_network import (
    BROKER,
    CONFIG,
    EPOCH_US,
    SCHEMA,
    SECOND,
    TOPIC,
    FoilNetwork,
    bodies_of,
    foil_keyring,
    price_publication,
)
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.foil.publisher import FoilPublisher, _Stream
from veilcast.machine import Connect, Overdue, Publication, Settled, Waiting
from veilcast.sim.engine import START_US
from veilcast.sim.foil.mqtt_broker import MqttBrokerConfig
from veilcast.sim.keyrings import make_keyring
from veilcast.topics import All, Equal, Label, Range

PAPER = msgspec.structs.replace(CONFIG, profile="paper")
RANGE = All(Label(TOPIC), Range("price", 100, 200))


def make_network(config: FoilConfig = CONFIG, broker: MqttBrokerConfig | None = None) -> FoilNetwork:
    network = FoilNetwork(config, broker)
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(RANGE, network.now)
    network.run(1)
    return network


def publish(network: FoilNetwork, *values: float) -> list[int]:
    records = []
    for value in values:
        records.append(
            network.places["alice"].member.publish(price_publication(value, body=b"%g" % value), network.now)
        )
        network.run(0.1)
    return records


@pytest.mark.parametrize("config", [CONFIG, PAPER, msgspec.structs.replace(CONFIG, version=4)])
def test_matching_events_are_delivered_once_and_no_others(config: FoilConfig) -> None:
    network = make_network(config)
    publish(network, 99, 100, 150.5, 200, 201, 150.5)
    network.run(5)
    assert bodies_of(network.places["bob"].notes) == [b"100", b"150.5", b"200", b"150.5"]


def test_settings_of_an_undeclared_attribute_are_refused_by_name() -> None:
    for attributes, told in (
        ({"prise": AttributeConfig()}, "foil.attributes.prise: no topic .* declared: kind, price"),
        ({"price": AttributeConfig(generator="moran")}, "foil.attributes.price: .* needs public_after"),
        (
            {"price": AttributeConfig(primary="kind", line=(1.0, 0.0))},
            "foil.attributes.price: .* a number can depend on a number",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            FoilNetwork(FoilConfig(attributes=attributes)).add("alice", "publisher")


def test_the_owner_is_told_of_active_subscriptions_and_settled_publications() -> None:
    network = make_network()
    assert [event.until_us is None for event in network.places["bob"].events if isinstance(event, Waiting)] == [
        True,
        False,
    ]
    [record] = publish(network, 120)
    assert Settled(record) in network.places["alice"].events


def test_equality_and_box_interests_work() -> None:
    network = make_network()
    bob = network.places["bob"].member
    bob.subscribe(All(Label(TOPIC), Equal("kind", "bid"), Range("price", None, 50)), network.now)
    network.run(1)
    alice = network.places["alice"].member
    for value, kind in [(20, "bid"), (20, "ask"), (60, "bid")]:
        alice.publish(price_publication(value, kind, kind.encode() + b"%d" % value), network.now)
    network.run(1)
    assert bodies_of(network.places["bob"].notes) == [b"bid20"]


@pytest.mark.parametrize("order", list(permutations(["alice", "bob", "carol"])))
@pytest.mark.parametrize("paper", [False, True])
def test_after_a_broker_loses_everything_all_is_repeated_in_any_order_of_return(
    order: tuple[str, ...], paper: bool
) -> None:
    lacking = lacking_after_a_death(order, paper)
    assert lacking == []


@pytest.mark.parametrize(
    ("bug", "order"), [("_announce", ("bob", "carol", "alice")), ("handle_repeat_request", ("alice", "bob", "carol"))]
)
def test_without_announcements_or_requests_subscribers_miss_events(
    bug: str, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the later of the two causes the repetition."""
    monkeypatch.setattr(FoilPublisher, bug, lambda self, *arguments: None)
    assert lacking_after_a_death(order, paper=False) == ["bob", "carol"]


def lacking_after_a_death(order: tuple[str, ...], paper: bool) -> list[str]:
    """Carol was away during the publication; bob was there, and the broker died before it delivered to him."""
    network = make_network(msgspec.structs.replace(PAPER if paper else CONFIG, connect_us=SECOND // 10))
    network.add("carol", "subscriber").subscribe(RANGE, network.now)
    network.run(1)
    network.leave("carol")
    network.withheld.append("bob")
    [record] = publish(network, 110)
    assert Settled(record) in network.places["alice"].events
    network.withheld.clear()
    network.leave("alice", "bob")
    network.start_broker()
    for name in order:
        network.away.remove(name)
        network.run(3)
    network.run(10)
    assert all(len(network.places[name].notes) <= 1 for name in ("bob", "carol"))
    return [name for name in ("bob", "carol") if bodies_of(network.places[name].notes) != [b"110"]]


def test_events_published_without_a_broker_arrive_later() -> None:
    network = make_network()
    network.kill_broker()
    publish(network, 110, 120)
    network.run(20)
    assert network.places["bob"].notes == []
    network.start_broker()
    network.run(60)
    assert bodies_of(network.places["bob"].notes) == [b"110", b"120"]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_restarted_publisher_delivers_its_stored_publications(forgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if forgets:
        monkeypatch.setattr(FoilPublisher, "resume", lambda self, now: None)
        monkeypatch.setattr(FoilPublisher, "handle_repeat_request", lambda self, *arguments: None)
    network = make_network()
    network.kill_broker()
    publish(network, 110)
    network.restart("alice")
    network.start_broker()
    network.run(60)
    assert bodies_of(network.places["bob"].notes) == ([] if forgets else [b"110"])


def test_an_event_that_reached_the_broker_late_is_repeated_to_absent_subscribers() -> None:
    network = make_network(msgspec.structs.replace(CONFIG, connect_us=SECOND // 10))
    network.leave("alice")
    [record] = publish(network, 110)
    network.run(100)
    network.leave("bob")
    network.away.remove("alice")
    network.run(5)
    assert Settled(record) in network.places["alice"].events
    network.kill_broker()
    network.start_broker()
    network.away.clear()
    network.run(30)
    assert bodies_of(network.places["bob"].notes) == [b"110"]


def test_a_restarted_subscriber_gets_what_it_missed_under_the_same_id() -> None:
    network = make_network()
    publish(network, 110)
    network.leave("bob")
    publish(network, 120)
    network.away.clear()
    network.restart("bob").subscribe(RANGE, network.now)
    network.run(60)
    notes = network.places["bob"].notes
    assert sorted(set(bodies_of(notes))) == [b"110", b"120"]
    assert len({note.id for note in notes}) == 2


def test_a_publisher_cannot_displace_anothers_next_event() -> None:
    """Streams and numbers are public, and every member of the topic has the secrets of their chains."""
    network = make_network()
    network.add("mallory", "publisher")
    network.run(1)
    publish(network, 110)
    alice, mallory = (network.places[name].member for name in ("alice", "mallory"))
    [period] = mallory._periods
    taken = next(iter(alice._publisher._streams.values()))
    mallory._publisher._streams[period.number, TOPIC] = _Stream(taken.name, taken.next)
    mallory.publish(price_publication(150, body=b"mallory's"), network.now)
    network.run(1)
    publish(network, 120)
    assert bodies_of(network.places["bob"].notes) == [b"110", b"mallory's", b"120"]


def test_nothing_is_lost_at_epoch_boundaries() -> None:
    network = make_network()
    network.run((EPOCH_US - network.now % EPOCH_US) / SECOND - 32)
    published = []
    for step in range(35):
        publish(network, 100 + step)
        published.append(b"%d" % (100 + step))
        network.run(0.9)
    assert bodies_of(network.places["bob"].notes) == published


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@pytest.mark.parametrize("late_s", [1, 5, 20])
def test_a_new_subscriber_gets_recent_events_across_an_epoch_boundary(profile: Profile, late_s: int) -> None:
    network = make_network(msgspec.structs.replace(CONFIG, profile=profile, margin_us=30 * SECOND))
    network.run((EPOCH_US - network.now % EPOCH_US) / SECOND - 50)
    publish(network, 110)
    network.run(45)
    publish(network, 120)
    network.run(4.9 + late_s)
    network.add("carol", "subscriber").subscribe(RANGE, network.now)
    network.run(10)
    assert bodies_of(network.places["carol"].notes) == [b"120"]


@pytest.mark.parametrize("config", [CONFIG, PAPER])
@pytest.mark.parametrize("quick", [True, False])
def test_a_new_subscriber_gets_recent_events_with_a_quick_session(config: FoilConfig, quick: bool) -> None:
    """The owner may subscribe before the broker has answered, or after."""
    network = make_network(config)
    publish(network, 110)
    carol = network.add("carol", "subscriber")
    if quick:
        network.run(1)
    carol.subscribe(RANGE, network.now)
    network.run(10)
    assert bodies_of(network.places["carol"].notes) == [b"110"]
    assert not carol._subscriber._ungranted


@pytest.mark.parametrize("config", [CONFIG, PAPER])
@pytest.mark.parametrize("late_s", [0, 31, 900])
def test_a_new_subscriber_gets_older_events_of_a_lingering_publisher(config: FoilConfig, late_s: int) -> None:
    """The first subscriber has the event by then, and the broker has nothing left of it."""
    config = msgspec.structs.replace(config, late_us=900 * SECOND)
    network = make_network(config)
    network.run((EPOCH_US - network.now % EPOCH_US) / SECOND + 31)
    publish(network, 110)
    network.run(late_s)
    assert bodies_of(network.places["bob"].notes) == [b"110"]
    network.add("carol", "subscriber").subscribe(RANGE, network.now)
    network.run(20)
    assert bodies_of(network.places["carol"].notes) == [b"110"]
    assert bodies_of(network.places["bob"].notes) == [b"110"], "which is delivered to nobody twice"


@pytest.mark.parametrize(("late_us", "late_s"), [(0, 31), (60 * SECOND, 91)])
def test_a_new_subscriber_gets_no_events_from_before_the_margin(late_us: int, late_s: int) -> None:
    network = make_network(msgspec.structs.replace(CONFIG, margin_us=30 * SECOND, late_us=late_us))
    publish(network, 110)
    network.run(late_s)
    network.add("carol", "subscriber").subscribe(RANGE, network.now)
    network.run(20)
    assert bodies_of(network.places["carol"].notes) == []


def test_an_interest_withdrawn_before_it_is_active_is_not_waited_for() -> None:
    network = make_network()
    carol = network.add("carol", "subscriber")
    network.run(1)
    carol.unsubscribe(carol.subscribe(RANGE, network.now), network.now)
    assert not carol._subscriber._ungranted
    network.run(10)
    assert not [
        packet for who, _, packet in network.sent if who == "carol" and "/again/" in getattr(packet, "topic", "")
    ]


def test_a_new_subscriber_opens_no_session_for_an_epoch_without_repeats() -> None:
    network = make_network(msgspec.structs.replace(CONFIG, margin_us=30 * SECOND))
    network.run((EPOCH_US - network.now % EPOCH_US) / SECOND + 31)
    assert network.add("carol", "subscriber").sizes()["sessions"] == 1


def test_an_event_that_outlives_its_session_leaves_in_the_next_with_the_same_candidates() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, keep_us=60 * SECOND, connect_us=60 * SECOND))
    network.add("alice", "publisher")
    network.add("bob", "subscriber").subscribe(RANGE, network.now)
    network.run(1)
    publish(network, 150)
    network.kill_broker()
    publish(network, 110)
    before = [place for items in network.places["alice"].member._store._items.values() for place in items[0].places]
    network.run(1.5 * EPOCH_US / SECOND)
    network.start_broker()
    network.run(1000)
    after = [place for items in network.places["alice"].member._store._items.values() for place in items[0].places]
    assert b"110" in bodies_of(network.places["bob"].notes)
    assert sorted(map(str, after)) == sorted(map(str, before[-len(after) :]))


def test_unsubscribing_ends_deliveries_and_removes_only_unshared_filters() -> None:
    network = make_network(msgspec.structs.replace(CONFIG, k_s=2))
    bob = network.places["bob"].member
    session = next(iter(bob._periods)).session
    first = session.filters
    other = bob.subscribe(All(Label(TOPIC), Range("price", 150, 300)), network.now)
    network.run(1)
    assert session.filters > first
    bob.unsubscribe(other, network.now)
    network.run(1)
    assert session.filters == first
    bob.unsubscribe(1, network.now)
    network.run(1)
    assert session.filters == 0
    publish(network, 150)
    assert network.places["bob"].notes == []


def test_a_full_inbox_gets_the_rest_after_acknowledgements() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, unread_max=4))
    network.add("alice", "publisher")
    bob = network.add("bob", "subscriber")
    bob.subscribe(RANGE, network.now)
    network.run(1)
    network.acknowledges = False
    publish(network, *range(100, 110))
    assert len(network.places["bob"].notes) == 4
    network.acknowledges = True
    for note in list(network.places["bob"].notes):
        bob.acknowledge(note.id, network.now)
    network.run(20)
    for _ in range(3):
        network.run(20)
    assert sorted(set(bodies_of(network.places["bob"].notes))) == [b"%d" % value for value in range(100, 110)]


def test_overdue_publications_are_reported_and_withdrawn_ones_do_not_leave() -> None:
    network = make_network()
    network.kill_broker()
    record, other = publish(network, 110, 120)
    network.run(70)
    assert {event.record for event in network.places["alice"].events if isinstance(event, Overdue)} == {record, other}
    alice = network.places["alice"].member
    alice.withdraw(record, network.now)
    network.run(1)
    assert Settled(record) in network.places["alice"].events
    assert alice.sizes()["pending"] == 1
    network.start_broker()
    network.run(60)
    assert bodies_of(network.places["bob"].notes) == [b"120"]
    network.restart("alice")
    network.restart("bob").subscribe(RANGE, network.now)
    network.run(60)
    assert set(bodies_of(network.places["bob"].notes)) == {b"120"}, "nor is it repeated"


@pytest.mark.parametrize(
    "publication",
    [
        price_publication(-1),
        price_publication(1025),
        price_publication(float("nan")),
        price_publication(float("inf")),
        price_publication(100, "gift"),
        Publication((Label(TOPIC).pair, ("price", 1.0), ("price", 2.0))),
        Publication((Label("another").pair,)),
        Publication((("price", 1.0),)),
        price_publication(100, body=bytes(40_000)),
    ],
)
def test_an_invalid_publication_is_refused_and_moves_no_fakes(publication: Publication) -> None:
    network = make_network()
    alice = network.places["alice"].member
    publish(network, 120)
    states = alice._publisher._foilers[TOPIC]._states
    with pytest.raises(LocalError):
        alice.publish(publication, network.now)
    assert alice._publisher._foilers[TOPIC]._states is states
    assert alice.sizes()["pending"] == 0


def test_pending_publications_are_bounded() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, records_max=3))
    network.add("alice", "publisher")
    network.kill_broker()
    publish(network, 1, 2, 3)
    with pytest.raises(LocalError, match="wait already"):
        publish(network, 4)


def test_stored_events_are_bounded_in_number_and_time() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, kept_max=5, keep_us=600 * SECOND))
    alice = network.add("alice", "publisher")
    network.run(1)
    publish(network, *range(20))
    alice.handle_timer(network.now)
    assert alice.sizes()["kept"] == 5
    network.run(700)
    alice.handle_timer(network.now)
    assert alice.sizes()["kept"] == 1, "the last one has the state of the fakes"


def test_filters_are_bounded() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, filters_max=10))
    bob = network.add("bob", "subscriber")
    with pytest.raises(LocalError, match="filters"):
        bob.subscribe(All(Label(TOPIC), Range("price", 1, 1022)), network.now)
    bob.subscribe(Label(TOPIC), network.now)


@pytest.mark.parametrize("attributes", [{}, {"price": AttributeConfig(generator="window", deviation=5.0)}])
def test_a_restarted_publisher_continues_its_fakes(attributes: dict[str, AttributeConfig]) -> None:
    """A public restart would reveal the truth at every start: all candidates would be equal."""
    network = FoilNetwork(FoilConfig(k_p=3, attributes=attributes))
    network.add("alice", "publisher")
    network.run(1)
    publish(network, *(500 + 13 * step for step in range(20)))
    network.restart("alice")
    network.run(1)
    publish(network, 770, 790)
    topics = [topic for topic, _, _ in network.seen("alice")][-8:]
    assert len(set(topics[:4])) > 1
    assert len(set(topics[4:])) > 1


def test_a_broker_that_returns_after_a_membership_expired_faults_no_member() -> None:
    """Stored events may still be asked for then, and a session of the last epoch stays for a while."""
    network = make_network()
    leaf = foil_keyring("publisher", 1).membership.certificate.leaf
    network.now = (leaf.last + 1) * EPOCH_US - 10 * SECOND
    network.run(20)
    assert [period.epoch for period in network.places["alice"].member._periods] == [leaf.last]
    network.kill_broker()
    network.start_broker()
    network.run(30)
    assert next(iter(network.places["alice"].member._periods)).session.ready


def test_a_candidate_for_a_full_inbox_after_its_session_ended_is_dropped() -> None:
    network = FoilNetwork(msgspec.structs.replace(CONFIG, unread_max=1))
    network.add("alice", "publisher")
    bob = network.add("bob", "subscriber")
    bob.subscribe(RANGE, network.now)
    network.acknowledges = False
    network.run(1)
    publish(network, 110)
    network.places["alice"].member.publish(price_publication(120), network.now)
    network.settle()
    assert bob.sizes()["arrived"]
    bob.handle_timer(bob._periods._timers._when[False, bob._periods.number(network.now)])
    assert bob.sizes()["arrived"] == 0


def test_a_foiled_value_is_refused_on_two_topics() -> None:
    other = "prices/elsewhere"
    topics = tuple(TopicRecord(topic, SCHEMA, profile="hardened") for topic in (TOPIC, other))
    keys = make_keyring(topics, EPOCH_US, ((TOPIC, "publisher"), (other, "publisher")), 1)
    rng = random.Random(1)
    alice = FoilMember(CONFIG, keys, BROKER, rng, rng.randbytes, START_US)
    labels = (Label(TOPIC).pair, Label(other).pair)
    with pytest.raises(LocalError, match="one topic"):
        alice.publish(Publication((*labels, ("price", 100.0), ("kind", "bid"))), START_US)
    assert alice.sizes()["pending"] == 0
    alice.publish(price_publication(100.0), START_US)


def test_a_member_stopped_for_many_epochs_opens_no_session_for_past_ones() -> None:
    network = make_network()
    bob = network.places["bob"].member
    calls = len([event for event in network.places["bob"].events if isinstance(event, Connect)])
    network.now += 20 * EPOCH_US
    network.run(120)
    assert len([event for event in network.places["bob"].events if isinstance(event, Connect)]) <= calls + 2
    publish(network, 110)
    network.run(5)
    assert bodies_of(network.places["bob"].notes) == [b"110"]
    assert bob._periods.get(bob._periods.number(network.now)) is not None
