"""A client at an edge node whose replicas follow the protocol, but are not always connected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.edge_node_stub import EPOCH_US, OTHER, QUICK, SECOND, TOPIC, EdgeNodeStub
from veilcast.authority.topic_record import Profile
from veilcast.errors import LocalError
from veilcast.machine import Address, Overdue, Publication
from veilcast.topics import All, Equal, Label, Range
from veilcast.wire.brokers import (
    Claim,
    ClaimKind,
    ConfirmContent,
    FirstShare,
    ForwardContent,
    RequestBlocks,
    WantKey,
    WithdrawClaim,
)

both = pytest.mark.parametrize("profile", ["hardened", "paper"])


def two(profile: Profile = "hardened", **changes: Any) -> EdgeNodeStub:
    """A publisher p and a subscriber s, whose subscription is in force."""
    world = EdgeNodeStub(profile, msgspec.structs.replace(QUICK, **changes))
    world.client("p")
    world.client("s", "subscriber")
    world.subscribe("s")
    world.run(1)
    return world


@both
@pytest.mark.parametrize("strategy", ["copies", "one", "coded"])
def test_a_publication_is_delivered_once_and_settled(profile: Profile, strategy: str) -> None:
    world = two(profile, strategy=strategy)
    assert [event.until_us is not None for event in world.waiting("s")] == [False, True]
    for number in range(5):
        world.publish("p", b"%d" % number, level=number)
    world.run(20)
    assert sorted(world.heard_by("s")) == [b"%d" % number for number in range(5)]
    assert not world.posts["p"].disk
    assert not world.posts["s"].machine.refused
    world.run(30)
    assert len(world.heard) == 5


@both
def test_only_matching_publications_are_delivered(profile: Profile) -> None:
    world = two(profile)
    world.subscribe("s", All(Label(TOPIC), Range("level", 3, 5), Equal("kind", "a")))
    world.run(1)
    for level in range(8):
        world.publish("p", b"a%d" % level, level=level, kind="a")
        world.publish("p", b"b%d" % level, level=level, kind="b")
    world.run(3)
    assert sorted(body for _, number, body in world.heard if number == 2) == [b"a3", b"a4", b"a5"]
    assert sum(number == 1 for _, number, _ in world.heard) == 16


@both
def test_a_publisher_gets_its_own_notifications_once_and_settles_after_acknowledging_them(profile: Profile) -> None:
    world = two(profile)
    world.prompt = False
    world.subscribe("p", All(Label(TOPIC), Range("level", 0, 3)))
    world.publish("p", b"mine", level=2)
    world.publish("p", b"not mine", level=9)
    world.run(2)
    assert world.heard_by("p") == [b"mine"]
    assert len(world.posts["p"].disk) == 2
    world.prompt = True
    world.run(40)
    assert not world.posts["p"].disk
    assert world.heard_by("p") == [b"mine", b"mine"]  # Again, since it had not been acknowledged.


@both
def test_two_labels_make_two_publications_and_both_reach_their_subscribers(profile: Profile) -> None:
    world = two(profile)
    world.client("o", "subscriber")
    world.subscribe("o", Label(OTHER))
    world.run(1)
    world.publish("p", b"both", (TOPIC, OTHER))
    world.run(2)
    assert world.heard_by("s") == world.heard_by("o") == [b"both"]
    assert not world.posts["p"].disk


@both
def test_one_disconnected_replica_of_three_stops_nothing(profile: Profile) -> None:
    world = EdgeNodeStub(profile)
    world.replicas["r2"].away = True
    world.client("p")
    world.client("s", "subscriber")
    world.subscribe("s")
    world.run(1)
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]
    assert not world.posts["p"].disk
    assert world.posts["s"].machine.edge_up() == (2, 3)


def test_without_a_majority_no_claim_is_in_force_and_publications_are_overdue() -> None:
    world = EdgeNodeStub()
    for name in ("r1", "r2"):
        world.replicas[name].away = True
    world.client("p")
    world.client("s", "subscriber")
    world.subscribe("s")
    world.publish("p", b"hello")
    world.run(70)
    assert [event.until_us for event in world.waiting("s")] == [None]
    assert any(isinstance(event, Overdue) for _, event in world.events)
    world.replicas["r1"].away = False
    world.run(20)
    assert world.heard_by("s") == [b"hello"]
    assert not world.posts["p"].disk


@both
def test_a_restarted_replica_gets_all_active_claims(profile: Profile) -> None:
    world = two(profile)
    replica = world.replicas["r1"]
    before = list(replica.wants)
    for name in world.posts:
        world.act(name, lambda client: client.peer_lost(Address("r1"), world.now))
    replica.start()
    world.run(3)
    assert list(replica.wants) == before
    assert len(replica.adverts) == 2
    world.publish("p", b"hello")
    world.run(2)
    assert world.heard_by("s") == [b"hello"]


@both
def test_claims_are_the_same_after_a_restart_and_a_withdrawn_one_gets_another(profile: Profile) -> None:
    world = two(profile)
    replica = world.replicas["r1"]
    first = list(replica.wants)
    world.start("s")
    world.subscribe("s")
    world.run(1)
    assert list(replica.wants) == first
    world.act("s", lambda client: client.unsubscribe(1, world.now))
    world.run(1)
    assert not replica.wants
    assert len(replica.received(WithdrawClaim)) == 1
    world.start("s")
    world.subscribe("s")
    world.run(1)
    assert list(replica.wants) != first
    world.publish("p", b"hello")
    world.run(2)
    assert world.heard_by("s") == [b"hello"]


@both
def test_a_pending_publication_arrives_after_its_publisher_restarts(profile: Profile) -> None:
    world = two(profile)
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, ForwardContent) else [message]
    world.publish("p", b"hello")
    world.run(1)
    assert not world.heard
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [message]
    world.start("p")
    world.run(20)
    assert world.heard_by("s") == [b"hello"]
    assert not world.posts["p"].disk


@both
def test_an_unacknowledged_notification_is_delivered_again_after_a_restart(profile: Profile) -> None:
    world = two(profile)
    world.prompt = False
    world.publish("p", b"hello")
    world.run(1)
    assert world.heard_by("s") == [b"hello"]
    assert world.posts["p"].disk
    world.start("s")
    world.prompt = True
    world.subscribe("s")
    world.run(30)
    assert world.heard_by("s") == [b"hello", b"hello"]
    assert not world.posts["p"].disk


def test_claims_of_the_next_epoch_arrive_before_it_begins() -> None:
    world = two()
    replica = world.replicas["r1"]
    for number in range(12):
        world.run(EPOCH_US / SECOND / 4)
        world.publish("p", b"%d" % number)
    world.run(5)
    assert world.heard_by("s") == [b"%d" % number for number in range(12)]
    claims = replica.received(Claim, "s")
    assert len({claim.epoch for claim in claims}) == len(claims) >= 4
    assert not world.posts["s"].machine.refused
    assert world.posts["s"].machine.sizes()["claims"] <= 3


def test_paper_leases_are_renewed_after_half_of_their_time() -> None:
    world = two("paper", lease_us=20 * SECOND)
    for number in range(8):
        world.run(7)
        world.publish("p", b"%d" % number)
    world.run(5)
    assert world.heard_by("s") == [b"%d" % number for number in range(8)]
    assert len(world.replicas["r1"].received(Claim, "s")) >= 6


@both
def test_a_subscriber_that_joins_within_a_bulk_requests_the_key_and_gets_it(profile: Profile) -> None:
    world = two(profile, overtime_us=0)
    world.publish("p", b"before")
    world.run(5)
    world.client("late", "subscriber")
    world.subscribe("late")
    world.run(1)
    world.publish("p", b"after")
    world.run(5)
    assert world.heard_by("late") == [b"after"]
    assert world.replicas["r1"].received(WantKey, "late")
    assert len(world.replicas["r1"].received(FirstShare)) == 2
    assert world.heard_by("s") == [b"before", b"after"]


@both
def test_a_key_serves_one_bulk_and_the_next_bulk_has_another(profile: Profile) -> None:
    world = two(profile, refresh_messages=3, overtime_us=0)
    for number in range(7):
        world.publish("p", b"%d" % number)
        world.run(0.5)
    assert len(world.heard) == 7
    assert len(world.replicas["r1"].received(FirstShare)) == 3
    assert world.posts["p"].machine.sizes()["sealing"] == 1
    assert world.posts["s"].machine.sizes()["keys"] == 3


def test_an_unconfirmed_publication_is_sent_again_then_resealed_and_delivered_once() -> None:
    world = two()
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, ConfirmContent) else [message]
    world.publish("p", b"hello")
    world.run(2.5 * EPOCH_US / SECOND)
    carried = world.replicas["r1"].received(ForwardContent, "p")
    assert len({carry.attempt for carry in carried}) >= 3
    assert len({carry.routing.content for carry in carried}) >= 2
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [message]
    world.run(60)
    assert world.heard_by("s") == [b"hello"]
    assert not world.posts["p"].disk


def test_a_subscriber_with_a_full_inbox_loses_nothing() -> None:
    world = two(unread_max=2)
    world.prompt = False
    for number in range(5):
        world.publish("p", b"%d" % number)
    world.run(1)
    reader = world.posts["s"].machine
    assert reader.sizes()["inbox"] == 2
    assert reader.sizes()["contents"] == 3
    world.prompt = True
    world.run(60)
    assert set(world.heard_by("s")) == {b"%d" % number for number in range(5)}
    assert not world.posts["p"].disk


@both
def test_a_publication_that_could_never_be_sent_is_refused(profile: Profile) -> None:
    world = two(profile)
    client = world.posts["p"].machine
    for publication in (
        Publication((("topic", "unknown"),)),
        Publication((Label(TOPIC).pair,), bytes(40_000)),
        Publication((), b"x"),
    ):
        with pytest.raises(LocalError):
            client.publish(publication, world.now)
    with pytest.raises(LocalError):
        world.posts["s"].machine.publish(Publication((Label(TOPIC).pair,)), world.now)
    with pytest.raises(LocalError):
        client.subscribe(Range("level", 0, 1), world.now)
    with pytest.raises(LocalError):
        client.unsubscribe(7, world.now)
    assert not world.posts["p"].disk


def test_a_withdrawn_publication_is_not_sent_again() -> None:
    world = two(overtime_us=0)
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, ForwardContent) else [message]
    record = world.publish("p", b"hello")
    world.run(1)
    world.act("p", lambda client: client.withdraw(record, world.now))
    count = len(world.replicas["r1"].received(ForwardContent))
    world.run(30)
    assert len(world.replicas["r1"].received(ForwardContent)) == count
    assert not world.posts["p"].disk
    assert world.posts["p"].machine.sizes()["pending"] == 0


def test_a_missing_block_is_sent_once_per_attempt() -> None:
    world = two(overtime_us=0)
    replica = world.replicas["r3"]
    for name in world.replicas:
        world.replicas[name].rewrite = lambda message, to: [] if isinstance(message, ConfirmContent) else [message]
    world.publish("p", b"hello")
    world.run(0.5)
    assert [carry.block is None for carry in replica.received(ForwardContent)] == [True, False]
    content = replica.received(ForwardContent)[0].routing.content
    replica.send_raw("p", RequestBlocks(content, (1,)))
    replica.send_raw("p", RequestBlocks(content, (9,)))
    replica.send_raw("p", RequestBlocks(bytes(16), (1,)))
    world.run(0.1)
    assert len(replica.received(ForwardContent)) == 2
    assert world.posts["p"].machine.refused == {"ExcessError": 1, "StaleError": 2}


def test_advertisements_identify_publishers_and_subscriptions_do_not_identify_subscribers() -> None:
    world = two()
    claims = world.replicas["r1"].received(Claim)
    assert {(claim.kind, claim.chain is None) for claim in claims} == {
        (ClaimKind.ADVERTISEMENT, False),
        (ClaimKind.SUBSCRIPTION, True),
    }
    assert len({claim.holder for claim in claims}) == len(claims)
