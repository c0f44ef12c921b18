"""A member among others: what is published is delivered, once, whatever the broker loses and whoever starts anew."""

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


def parley(config: FoilConfig = CONFIG, broker: MqttBrokerConfig | None = None) -> FoilNetwork:
    room = FoilNetwork(config, broker)
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(RANGE, room.now)
    room.run(1)
    return room


def publish(room: FoilNetwork, *values: float) -> list[int]:
    records = []
    for value in values:
        records.append(room.places["alice"].member.publish(price_publication(value, body=b"%g" % value), room.now))
        room.run(0.1)
    return records


@pytest.mark.parametrize("config", [CONFIG, PAPER, msgspec.structs.replace(CONFIG, version=4)])
def test_what_matches_is_delivered_once_and_nothing_else_is(config: FoilConfig) -> None:
    room = parley(config)
    publish(room, 99, 100, 150.5, 200, 201, 150.5)
    room.run(5)
    assert bodies_of(room.places["bob"].notes) == [b"100", b"150.5", b"200", b"150.5"]


def test_what_is_said_of_an_attribute_that_no_topic_has_is_a_mistake_with_a_name() -> None:
    for attributes, told in (
        ({"prise": AttributeConfig()}, "foil.attributes.prise: no topic .* declared: kind, price"),
        ({"price": AttributeConfig(generator="moran")}, "foil.attributes.price: .* needs public_after"),
        (
            {"price": AttributeConfig(master="kind", line=(1.0, 0.0))},
            "foil.attributes.price: .* a number follows a number",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            FoilNetwork(FoilConfig(attributes=attributes)).add("alice", "publisher")


def test_the_owner_is_told_when_a_subscription_stands_and_when_a_publication_is_through() -> None:
    room = parley()
    assert [event.until_us is None for event in room.places["bob"].events if isinstance(event, Waiting)] == [
        True,
        False,
    ]
    [record] = publish(room, 120)
    assert Settled(record) in room.places["alice"].events


def test_equalities_and_boxes_are_read_too() -> None:
    room = parley()
    bob = room.places["bob"].member
    bob.subscribe(All(Label(TOPIC), Equal("kind", "bid"), Range("price", None, 50)), room.now)
    room.run(1)
    alice = room.places["alice"].member
    for value, kind in [(20, "bid"), (20, "ask"), (60, "bid")]:
        alice.publish(price_publication(value, kind, kind.encode() + b"%d" % value), room.now)
    room.run(1)
    assert bodies_of(room.places["bob"].notes) == [b"bid20"]


@pytest.mark.parametrize("order", list(permutations(["alice", "bob", "carol"])))
@pytest.mark.parametrize("paper", [False, True])
def test_after_a_broker_died_with_everything_all_is_repeated_in_whatever_order_members_come_back(
    order: tuple[str, ...], paper: bool
) -> None:
    lacking = lacking_after_a_death(order, paper)
    assert lacking == []


@pytest.mark.parametrize(
    ("bug", "order"), [("_greet", ("bob", "carol", "alice")), ("again", ("alice", "bob", "carol"))]
)
def test_a_publisher_who_does_not_say_that_it_is_there_or_does_not_listen_leaves_readers_without(
    bug: str, order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: whichever of both comes last is what brings it about."""
    monkeypatch.setattr(FoilPublisher, bug, lambda self, *arguments: None)
    assert lacking_after_a_death(order, paper=False) == ["bob", "carol"]


def lacking_after_a_death(order: tuple[str, ...], paper: bool) -> list[str]:
    """Carol was away when it was published; bob was there, and the broker died before it brought him anything."""
    room = parley(msgspec.structs.replace(PAPER if paper else CONFIG, connect_us=SECOND // 10))
    room.add("carol", "subscriber").subscribe(RANGE, room.now)
    room.run(1)
    room.leave("carol")
    room.withheld.append("bob")
    [record] = publish(room, 110)
    assert Settled(record) in room.places["alice"].events
    room.withheld.clear()
    room.leave("alice", "bob")
    room.start_broker()
    for name in order:
        room.away.remove(name)
        room.run(3)
    room.run(10)
    assert all(len(room.places[name].notes) <= 1 for name in ("bob", "carol"))
    return [name for name in ("bob", "carol") if bodies_of(room.places[name].notes) != [b"110"]]


def test_what_was_published_while_there_was_no_broker_arrives_when_there_is_one() -> None:
    room = parley()
    room.kill_broker()
    publish(room, 110, 120)
    room.run(20)
    assert room.places["bob"].notes == []
    room.start_broker()
    room.run(60)
    assert bodies_of(room.places["bob"].notes) == [b"110", b"120"]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_publisher_that_starts_anew_brings_through_what_it_had_promised(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forgets:
        monkeypatch.setattr(FoilPublisher, "resume", lambda self, now: None)
        monkeypatch.setattr(FoilPublisher, "handle_repeat_request", lambda self, *arguments: None)
    room = parley()
    room.kill_broker()
    publish(room, 110)
    room.restart("alice")
    room.start_broker()
    room.run(60)
    assert bodies_of(room.places["bob"].notes) == ([] if forgets else [b"110"])


def test_what_reached_the_broker_long_after_it_was_published_is_repeated_to_who_was_away_by_then() -> None:
    room = parley(msgspec.structs.replace(CONFIG, connect_us=SECOND // 10))
    room.leave("alice")
    [record] = publish(room, 110)
    room.run(100)
    room.leave("bob")
    room.away.remove("alice")
    room.run(5)
    assert Settled(record) in room.places["alice"].events
    room.kill_broker()
    room.start_broker()
    room.away.clear()
    room.run(30)
    assert bodies_of(room.places["bob"].notes) == [b"110"]


def test_a_reader_that_starts_anew_gets_what_it_missed_and_its_owner_knows_it_by_its_id() -> None:
    room = parley()
    publish(room, 110)
    room.leave("bob")
    publish(room, 120)
    room.away.clear()
    room.restart("bob").subscribe(RANGE, room.now)
    room.run(60)
    notes = room.places["bob"].notes
    assert sorted(set(bodies_of(notes))) == [b"110", b"120"]
    assert len({note.id for note in notes}) == 2


def test_a_publisher_that_takes_the_place_of_anothers_next_event_keeps_nobody_from_it() -> None:
    """Streams and numbers are there for all to see, and every member of the topic has the secrets of their chains."""
    room = parley()
    room.add("mallory", "publisher")
    room.run(1)
    publish(room, 110)
    alice, mallory = (room.places[name].member for name in ("alice", "mallory"))
    [span] = mallory._spans
    taken = next(iter(alice._publishing._streams.values()))
    mallory._publishing._streams[span.number, TOPIC] = _Stream(taken.name, taken.next)
    mallory.publish(price_publication(150, body=b"mallory's"), room.now)
    room.run(1)
    publish(room, 120)
    assert bodies_of(room.places["bob"].notes) == [b"110", b"mallory's", b"120"]


def test_epochs_pass_and_nothing_is_lost_at_their_edges() -> None:
    room = parley()
    room.run((EPOCH_US - room.now % EPOCH_US) / SECOND - 32)
    published = []
    for step in range(35):
        publish(room, 100 + step)
        published.append(b"%d" % (100 + step))
        room.run(0.9)
    assert bodies_of(room.places["bob"].notes) == published


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@pytest.mark.parametrize("late_s", [1, 5, 20])
def test_a_new_reader_gets_what_was_published_shortly_before_also_if_an_epoch_has_begun_since(
    profile: Profile, late_s: int
) -> None:
    room = parley(msgspec.structs.replace(CONFIG, profile=profile, margin_us=30 * SECOND))
    room.run((EPOCH_US - room.now % EPOCH_US) / SECOND - 50)
    publish(room, 110)
    room.run(45)
    publish(room, 120)
    room.run(4.9 + late_s)
    room.add("carol", "subscriber").subscribe(RANGE, room.now)
    room.run(10)
    assert bodies_of(room.places["carol"].notes) == [b"120"]


@pytest.mark.parametrize("config", [CONFIG, PAPER])
@pytest.mark.parametrize("quick", [True, False])
def test_a_new_reader_gets_what_was_published_shortly_before_however_quick_its_session_is(
    config: FoilConfig, quick: bool
) -> None:
    """Its owner may come to say what is wanted before the broker has answered, or after."""
    room = parley(config)
    publish(room, 110)
    carol = room.add("carol", "subscriber")
    if quick:
        room.run(1)
    carol.subscribe(RANGE, room.now)
    room.run(10)
    assert bodies_of(room.places["carol"].notes) == [b"110"]
    assert not carol._reading._fresh


@pytest.mark.parametrize("config", [CONFIG, PAPER])
@pytest.mark.parametrize("late_s", [0, 31, 900])
def test_a_new_reader_gets_what_a_publisher_that_lingers_has_published_long_before(
    config: FoilConfig, late_s: int
) -> None:
    """The first reader has the event by then, and the broker has nothing of it left."""
    config = msgspec.structs.replace(config, late_us=900 * SECOND)
    room = parley(config)
    room.run((EPOCH_US - room.now % EPOCH_US) / SECOND + 31)
    publish(room, 110)
    room.run(late_s)
    assert bodies_of(room.places["bob"].notes) == [b"110"]
    room.add("carol", "subscriber").subscribe(RANGE, room.now)
    room.run(20)
    assert bodies_of(room.places["carol"].notes) == [b"110"]
    assert bodies_of(room.places["bob"].notes) == [b"110"], "which is delivered to nobody twice"


@pytest.mark.parametrize(("late_us", "late_s"), [(0, 31), (60 * SECOND, 91)])
def test_a_new_reader_gets_nothing_that_was_published_before_its_time(late_us: int, late_s: int) -> None:
    room = parley(msgspec.structs.replace(CONFIG, margin_us=30 * SECOND, late_us=late_us))
    publish(room, 110)
    room.run(late_s)
    room.add("carol", "subscriber").subscribe(RANGE, room.now)
    room.run(20)
    assert bodies_of(room.places["carol"].notes) == []


def test_a_wish_that_is_given_up_before_it_stands_is_waited_for_no_longer() -> None:
    room = parley()
    carol = room.add("carol", "subscriber")
    room.run(1)
    carol.unsubscribe(carol.subscribe(RANGE, room.now), room.now)
    assert not carol._reading._fresh
    room.run(10)
    assert not [packet for who, _, packet in room.sent if who == "carol" and "/again/" in getattr(packet, "topic", "")]


def test_a_new_reader_has_no_session_for_an_epoch_of_which_nothing_would_be_repeated_for_it() -> None:
    room = parley(msgspec.structs.replace(CONFIG, margin_us=30 * SECOND))
    room.run((EPOCH_US - room.now % EPOCH_US) / SECOND + 31)
    assert room.add("carol", "subscriber").sizes()["sessions"] == 1


def test_what_could_not_be_sent_for_longer_than_a_session_lasts_goes_by_the_next_with_the_same_candidates() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, keep_us=60 * SECOND, connect_us=60 * SECOND))
    room.add("alice", "publisher")
    room.add("bob", "subscriber").subscribe(RANGE, room.now)
    room.run(1)
    publish(room, 150)
    room.kill_broker()
    publish(room, 110)
    before = [place for items in room.places["alice"].member._keeping._items.values() for place in items[0].places]
    room.run(1.5 * EPOCH_US / SECOND)
    room.start_broker()
    room.run(1000)
    after = [place for items in room.places["alice"].member._keeping._items.values() for place in items[0].places]
    assert b"110" in bodies_of(room.places["bob"].notes)
    assert sorted(map(str, after)) == sorted(map(str, before[-len(after) :]))


def test_unsubscribing_ends_deliveries_and_leaves_no_filter_but_those_of_others() -> None:
    room = parley(msgspec.structs.replace(CONFIG, k_s=2))
    bob = room.places["bob"].member
    session = next(iter(bob._spans)).session
    first = session.filters
    other = bob.subscribe(All(Label(TOPIC), Range("price", 150, 300)), room.now)
    room.run(1)
    assert session.filters > first
    bob.unsubscribe(other, room.now)
    room.run(1)
    assert session.filters == first
    bob.unsubscribe(1, room.now)
    room.run(1)
    assert session.filters == 0
    publish(room, 150)
    assert room.places["bob"].notes == []


def test_a_full_inbox_gets_the_rest_when_its_owner_has_taken_some() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, unread_max=4))
    room.add("alice", "publisher")
    bob = room.add("bob", "subscriber")
    bob.subscribe(RANGE, room.now)
    room.run(1)
    room.acknowledges = False
    publish(room, *range(100, 110))
    assert len(room.places["bob"].notes) == 4
    room.acknowledges = True
    for note in list(room.places["bob"].notes):
        bob.acknowledge(note.id, room.now)
    room.run(20)
    for _ in range(3):
        room.run(20)
    assert sorted(set(bodies_of(room.places["bob"].notes))) == [b"%d" % value for value in range(100, 110)]


def test_what_is_overdue_is_reported_and_what_is_withdrawn_does_not_leave() -> None:
    room = parley()
    room.kill_broker()
    record, other = publish(room, 110, 120)
    room.run(70)
    assert {event.record for event in room.places["alice"].events if isinstance(event, Overdue)} == {record, other}
    alice = room.places["alice"].member
    alice.withdraw(record, room.now)
    room.run(1)
    assert Settled(record) in room.places["alice"].events
    assert alice.sizes()["pending"] == 1
    room.start_broker()
    room.run(60)
    assert bodies_of(room.places["bob"].notes) == [b"120"]
    room.restart("alice")
    room.restart("bob").subscribe(RANGE, room.now)
    room.run(60)
    assert set(bodies_of(room.places["bob"].notes)) == {b"120"}, "nor is it repeated"


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
def test_what_cannot_be_published_is_refused_and_moves_nothing(publication: Publication) -> None:
    room = parley()
    alice = room.places["alice"].member
    publish(room, 120)
    states = alice._publishing._foilers[TOPIC]._states
    with pytest.raises(LocalError):
        alice.publish(publication, room.now)
    assert alice._publishing._foilers[TOPIC]._states is states
    assert alice.sizes()["pending"] == 0


def test_publications_wait_up_to_a_bound() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, records_max=3))
    room.add("alice", "publisher")
    room.kill_broker()
    publish(room, 1, 2, 3)
    with pytest.raises(LocalError, match="wait already"):
        publish(room, 4)


def test_kept_events_have_a_bound_and_a_time() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, kept_max=5, keep_us=600 * SECOND))
    alice = room.add("alice", "publisher")
    room.run(1)
    publish(room, *range(20))
    alice.handle_timer(room.now)
    assert alice.sizes()["kept"] == 5
    room.run(700)
    alice.handle_timer(room.now)
    assert alice.sizes()["kept"] == 1, "the last one has the state of the fakes"


def test_filters_have_a_bound() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, filters_max=10))
    bob = room.add("bob", "subscriber")
    with pytest.raises(LocalError, match="filters"):
        bob.subscribe(All(Label(TOPIC), Range("price", 1, 1022)), room.now)
    bob.subscribe(Label(TOPIC), room.now)


@pytest.mark.parametrize("attributes", [{}, {"price": AttributeConfig(generator="window", deviation=5.0)}])
def test_a_publisher_who_forgot_nothing_goes_on_with_its_fakes(attributes: dict[str, AttributeConfig]) -> None:
    """A public restart would show the truth at every start: all candidates alike."""
    room = FoilNetwork(FoilConfig(k_p=3, attributes=attributes))
    room.add("alice", "publisher")
    room.run(1)
    publish(room, *(500 + 13 * step for step in range(20)))
    room.restart("alice")
    room.run(1)
    publish(room, 770, 790)
    topics = [topic for topic, _, _ in room.seen("alice")][-8:]
    assert len(set(topics[:4])) > 1
    assert len(set(topics[4:])) > 1


def test_a_broker_that_comes_back_after_a_membership_has_ended_brings_nobody_down() -> None:
    """What is kept may still be asked for then, and a session of the last epoch stands for a while."""
    room = parley()
    leaf = foil_keyring("publisher", 1).membership.certificate.leaf
    room.now = (leaf.last + 1) * EPOCH_US - 10 * SECOND
    room.run(20)
    assert [span.epoch for span in room.places["alice"].member._spans] == [leaf.last]
    room.kill_broker()
    room.start_broker()
    room.run(30)
    assert next(iter(room.places["alice"].member._spans)).session.ready


def test_what_finds_the_inbox_full_when_its_session_has_just_ended_is_let_go() -> None:
    room = FoilNetwork(msgspec.structs.replace(CONFIG, unread_max=1))
    room.add("alice", "publisher")
    bob = room.add("bob", "subscriber")
    bob.subscribe(RANGE, room.now)
    room.acknowledges = False
    room.run(1)
    publish(room, 110)
    room.places["alice"].member.publish(price_publication(120), room.now)
    room.settle()
    assert bob.sizes()["arrived"]
    bob.handle_timer(bob._spans._alarms._when[False, bob._spans.number(room.now)])
    assert bob.sizes()["arrived"] == 0


def test_a_value_goes_out_on_one_topic_or_the_truth_is_what_two_sets_of_fakes_have_in_common() -> None:
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


def test_a_member_that_was_stopped_for_many_epochs_begins_no_session_for_those_that_are_over() -> None:
    room = parley()
    bob = room.places["bob"].member
    calls = len([event for event in room.places["bob"].events if isinstance(event, Connect)])
    room.now += 20 * EPOCH_US
    room.run(120)
    assert len([event for event in room.places["bob"].events if isinstance(event, Connect)]) <= calls + 2
    publish(room, 110)
    room.run(5)
    assert bodies_of(room.places["bob"].notes) == [b"110"]
    assert bob._spans.get(bob._spans.number(room.now)) is not None
