"""Routing by claims of real members over replicated nodes: what is believed, what is forwarded, and where messages
go."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from support import broker_keyrings
from support.broker_keyrings import EPOCH, EPOCH_US, OTHER, START, TOPIC, keys_of
from support.router_network import (
    PROFILES,
    UNTIL,
    RouterNetwork,
    advertisement,
    holder,
    publication,
    routing,
    subscription,
    until_of,
)
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.overlay import hop_of_node, node_id
from veilcast.brokers.routing import claims
from veilcast.brokers.routing import router as routing_module
from veilcast.brokers.routing.claim_semantics import PlainInterest, predicate_codec
from veilcast.errors import ExcessError, ForgedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.topics import All, Conjunction, Equal, Label, Range
from veilcast.topics.predicates import parse_predicates
from veilcast.wire.brokers import Claim, Routing

# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def test_fig_1_with_claims_of_real_members_over_three_replicas_a_node() -> None:
    """P1 advertises at B1, S1 subscribes at B3 for prices above 50, and publications are routed; B2 sees nothing."""
    nodes = RouterNetwork("paper", (("B1", "B2"), ("B1", "B3")))
    keys, reader = keys_of(0, "paper"), keys_of(1, "paper", "subscriber")
    words = parse_predicates(f"[topic,=,{TOPIC}],[class,=,bar],[price,>,0]").constraints
    m1 = advertisement(keys, "B1", 1, words=msgspec.msgpack.encode(PlainInterest(words)))
    nodes.client("B1", "P1", m1)
    nodes.settle()
    hops = {name: {router.source_of(m1.id) for router in nodes.at(name)} for name in ("B1", "B2", "B3")}
    assert hops == {"B1": {"P1"}, "B2": {hop_of_node(node_id("B1"))}, "B3": {hop_of_node(node_id("B1"))}}
    m2 = subscription(reader, "B3", 2, parse_predicates("[class,=,bar],[price,>,50]"))
    nodes.client("B3", "S1", m2)
    nodes.settle()
    readers = {name: {tuple(router.subscriber_hops(m1.id)) for router in nodes.at(name)} for name in ("B1", "B2", "B3")}
    assert readers == {"B1": {(hop_of_node(node_id("B3")),)}, "B2": {()}, "B3": {("S1",)}}

    def says(*pairs: tuple[str, str | int]) -> Routing:
        return Routing(m1.id, msgspec.msgpack.encode((("topic", TOPIC), *pairs)), bytes(16), 0, bytes(8))

    assert nodes.reached(m1, "B1", says(("class", "bar"), ("price", 60))) == {"S1"}
    assert nodes.reached(m1, "B1", says(("class", "bar"), ("price", 40))) == set()
    with pytest.raises(ForgedError):
        nodes.reached(m1, "B1", says(("class", "foo"), ("price", 60)))
    assert nodes.shown["B3", Address("S1")] == [m1] * 3, "a reader is shown whom it reads"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(4))
def test_publications_reach_exactly_their_subscribers_in_any_order_of_claims(profile: Profile, seed: int) -> None:
    links = (("B1", "B2"), ("B2", "B3"), ("B2", "B4"), ("B4", "B5"))
    nodes = RouterNetwork(profile, links, seed=seed)
    keys, reader = keys_of(0, profile), keys_of(1, profile, "subscriber")
    wants: dict[str, tuple[str, Conjunction]] = {
        "all": ("B3", Label(TOPIC)),
        "low": ("B5", All(Label(TOPIC), Range("level", 0, 3))),
        "high": ("B5", All(Label(TOPIC), Range("level", 8, 15))),
        "red": ("B1", All(Label(TOPIC), Equal("kind", "red"))),
        "dear": ("B4", All(Label(TOPIC), Range("price", 500, None))),
    }
    steps: list[Callable[[], None]] = []
    ad = advertisement(keys, "B1", 1)
    steps.append(lambda: nodes.client("B1", "P1", ad))
    for number, (client, (edge, interest)) in enumerate(wants.items(), 2):
        claim = subscription(reader, edge, number, interest)
        steps.append(lambda edge=edge, client=client, claim=claim: nodes.client(edge, client, claim))  # type: ignore[misc]
    Random(seed).shuffle(steps)
    for step in steps:
        step()
        if Random(seed).random() < 0.5:
            nodes.settle()
    nodes.settle()
    for level, kind, price in ((2, "red", 20.0), (9, "blue", 700.0), (5, "green", 20.0)):
        said = publication(("level", level), ("kind", kind), ("price", price))
        expected = {client for client, (_, interest) in wants.items() if interest.matches(said)}
        assert nodes.reached(ad, "B1", routing(ad, keys, said)) == expected


# --- who is believed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_minority_of_a_neighbour_can_neither_insert_nor_withdraw_a_claim(profile: Profile) -> None:
    nodes = RouterNetwork(profile, faulty_set=[("B2", 3)])
    keys, reader = keys_of(0, profile), keys_of(1, profile, "subscriber")
    ad, kept = advertisement(keys, "B1", 1), subscription(reader, "B3", 2)
    nodes.client("B1", "P1", ad)
    nodes.client("B3", "S1", kept)
    nodes.settle()
    planted = subscription(reader, "B3", 3, All(Label(TOPIC), Range("level", 0, 3)))
    nodes.inject(("B2", 3), "B1", planted)
    nodes.inject(("B2", 3), "B1", claims.make_withdraw(kept.id, holder(2)))
    nodes.settle()
    nodes.later(10 * broker_keyrings.SECOND)
    for router in nodes.at("B1"):
        assert not router.has_seen(planted.id)
        assert router.subscriber_hops(ad.id) == [hop_of_node(node_id("B2"))], "and it stands as it did"
    nodes.inject(("B2", 1), "B1", planted)
    nodes.settle()
    assert all(router.has_seen(planted.id) for router in nodes.at("B1")), "one of two is honest"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_report_without_its_proof_ends_nothing(profile: Profile, at: int) -> None:
    """A proof is not part of a claim's id: the Byzantine report counted, its claim was stored, and those of others were
    ignored."""
    nodes = RouterNetwork(profile)
    publisher, reader = keys_of(1, profile), keys_of(2, profile, "subscriber")
    offered, wanted = advertisement(publisher, "B1", 1), subscription(reader, "B3", 2)
    router = nodes.routers["B2", 1]
    for claim, node in ((offered, "B1"), (wanted, "B3")):
        for index in range(3):
            told = msgspec.structs.replace(claim, proof=bytes(64)) if index == at else claim
            try:
                key = broker_keyrings.signing(node, index + 1).public
                router.claim_of_node(told, node_id(node), key, nodes.now)
            except ForgedError:
                assert index == at
        assert claim in router.claims_for(node_id("B1" if node == "B3" else "B3")), "as its client made it"
    says = routing(offered, publisher, publication(("level", 3)))
    assert router.route(says) == [hop_of_node(node_id("B3"))]
    assert router.sizes()["waiting"] == router.sizes()["votes"] == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_a_claim_is_accepted_only_from_the_side_of_its_edge(profile: Profile) -> None:
    nodes = RouterNetwork(profile)
    ad = advertisement(keys_of(0, profile), "B1", 1)
    router, entry = nodes.routers["B2", 1], nodes.overlay.node("B3")
    with pytest.raises(ForgedError, match="wrong side"):
        router.claim_of_node(ad, entry.id, entry.replicas[0].key, START)
    with pytest.raises(ForgedError, match="another edge"):
        router.claim_of_client(ad, Address("C"), START)


@pytest.mark.parametrize("profile", PROFILES)
def test_an_unauthorised_subscription_is_never_routed_and_gets_nothing(profile: Profile) -> None:
    """Theorem 3: neither one of another topic's subscriber, nor one signed with a key of its own."""
    nodes = RouterNetwork(profile)
    keys, stranger = keys_of(0, profile), keys_of(2, profile, "subscriber", OTHER)
    genuine = keys_of(1, profile, "subscriber")
    ad = advertisement(keys, "B1", 1)
    nodes.client("B1", "P1", ad)
    words = predicate_codec(profile).encode_subscription(genuine, Label(TOPIC))
    forged = claims.make_subscription(stranger, node_id("B3"), EPOCH, until_of(keys), words, holder(5).public)
    nodes.client("B3", "X", forged)
    changed = msgspec.structs.replace(subscription(genuine, "B2", 6), edge=node_id("B3"))
    nodes.client("B3", "X", changed)
    nodes.settle()
    assert ("B3", Address("X")) not in nodes.shown
    for router in nodes.routers.values():
        assert all(hop != "X" for hop in router.subscriber_hops(ad.id))
    assert nodes.reached(ad, "B1", routing(ad, keys, publication(("level", 1)))) == set()
    assert [router.sizes()["waiting"] for router in nodes.at("B3")] == [2, 2, 2], "it waits, for whatever may come"


def test_in_paper_an_advertisement_under_a_foreign_name_admits_nobody() -> None:
    """Plain predicates are not bound to a certificate; but a subscription counts only where its own proof was shown."""
    nodes = RouterNetwork("paper")
    keys, faulty = keys_of(0, "paper"), keys_of(3, "paper", "publisher", OTHER)
    ad = advertisement(keys, "B1", 1)
    false = advertisement(faulty, "B2", 2, words=predicate_codec("paper").encode_advertisement(keys))
    nodes.client("B1", "P1", ad)
    nodes.client("B2", "L", false)
    accomplice = claims.make_subscription(
        faulty,
        node_id("B3"),
        EPOCH,
        until_of(keys),
        predicate_codec("paper").encode_subscription(keys, Label(TOPIC)),
        holder(3).public,
    )
    nodes.client("B3", "X", accomplice)
    nodes.settle()
    assert nodes.reached(ad, "B1", routing(ad, keys, publication(("level", 1)))) == set()
    assert all(Address("X") not in router.subscriber_hops(ad.id) for router in nodes.at("B3"))


def test_in_hardened_an_advertisement_is_for_the_certified_topic() -> None:
    nodes = RouterNetwork("hardened")
    keys, faulty = keys_of(0, "hardened"), keys_of(3, "hardened", "publisher", OTHER)
    false = advertisement(faulty, "B2", 2, words=predicate_codec("hardened").encode_advertisement(keys))
    with pytest.raises(ForgedError, match="another topic"):
        nodes.client("B2", "L", false)


@pytest.mark.parametrize("profile", PROFILES)
def test_claims_outside_their_period_or_with_a_changed_body_are_refused(profile: Profile) -> None:
    nodes = RouterNetwork(profile)
    keys = keys_of(0, profile)
    late = advertisement(keys, "B1", 1, until=START + 3 * EPOCH_US)
    with pytest.raises(StaleError):
        nodes.client("B1", "P1", late)
    with pytest.raises(StaleError):
        nodes.client("B1", "P1", advertisement(keys, "B1", 1, until=START))
    ad = advertisement(keys, "B1", 1)
    with pytest.raises(ForgedError):
        nodes.client("B1", "P1", msgspec.structs.replace(ad, until_us=ad.until_us - 1))
    with pytest.raises(RemoteError):
        nodes.client("B1", "P1", msgspec.structs.replace(ad, chain=None))


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_withdrawn_claim_ends_everywhere_and_cannot_be_revived_with_a_late_replica(
    profile: Profile,
) -> None:
    nodes = RouterNetwork(profile, faulty_set=[("B2", 3)])
    keys, reader = keys_of(0, profile), keys_of(1, profile, "subscriber")
    ad, sub = advertisement(keys, "B1", 1), subscription(reader, "B3", 2)
    nodes.client("B1", "P1", ad)
    nodes.client("B3", "S1", sub)
    nodes.settle()
    with pytest.raises(ForgedError):
        nodes.client("B3", "X", claims.make_withdraw(sub.id, holder(2)))
    with pytest.raises(ForgedError):
        nodes.client("B3", "S1", claims.make_withdraw(sub.id, holder(3)))
    nodes.client("B3", "S1", claims.make_withdraw(sub.id, holder(2)))
    nodes.settle()
    nodes.later(broker_keyrings.SECOND)
    nodes.later(broker_keyrings.SECOND)
    assert nodes.reached(ad, "B1", routing(ad, keys, publication(("level", 1)))) == set()
    nodes.inject(("B2", 3), "B1", sub)
    nodes.inject(("B2", 1), "B1", sub)
    nodes.settle()
    assert nodes.reached(ad, "B1", routing(ad, keys, publication(("level", 1)))) == set()


@pytest.mark.parametrize("profile", PROFILES)
def test_claims_expire_and_leave_nothing(profile: Profile) -> None:
    nodes = RouterNetwork(profile)
    keys, reader = keys_of(0, profile), keys_of(1, profile, "subscriber")
    nodes.client("B1", "P1", advertisement(keys, "B1", 1))
    nodes.client("B3", "S1", subscription(reader, "B3", 2))
    nodes.client("B3", "S1", subscription(keys_of(1, profile, "subscriber", OTHER), "B3", 3))
    nodes.inject(("B2", 1), "B1", subscription(reader, "B2", 4))
    nodes.settle()
    nodes.later(3 * EPOCH_US)
    for router in nodes.routers.values():
        assert set(router.sizes().values()) == {0}
        assert not router._advertisements_of
        assert not router._unmatched._by_subject
        assert router.next_us() is None
        assert router.claims_of(Address("S1")) == 0


def test_of_two_equal_subscriptions_one_is_forwarded_and_the_other_takes_over() -> None:
    nodes = RouterNetwork("hardened", seed=7)
    keys, reader = keys_of(0, "hardened"), keys_of(1, "hardened", "subscriber")
    ad = advertisement(keys, "B1", 1)
    wish = All(Label(TOPIC), Range("level", 3, 9))
    one, other = (subscription(reader, "B3", number, wish) for number in (2, 3))
    nodes.client("B1", "P1", ad)
    nodes.client("B3", "S1", one)
    nodes.client("B3", "S2", other)
    nodes.settle()
    upstream = [[claim.id for claim in router.claims_for(node_id("B2"))] for router in nodes.at("B3")]
    assert upstream == [[max(one.id, other.id)]] * 3, "all replicas tell the same one, whichever came first"
    told, numbers = (one, 2) if one.id > other.id else (other, 3)
    nodes.client("B3", "S1" if told is one else "S2", claims.make_withdraw(told.id, holder(numbers)))
    nodes.settle()
    said = routing(ad, keys, publication(("level", 5)))
    assert nodes.reached(ad, "B1", said) == {"S2" if told is one else "S1"}
    nodes.later(broker_keyrings.SECOND)
    assert nodes.reached(ad, "B1", said) == {"S2" if told is one else "S1"}, "at no time less is known than is wanted"


def test_invalid_waiting_subscriptions_are_tried_once_for_each_subscriber_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients without a grant, and many publishers: the cost of each is not multiplied by the others."""
    nodes = RouterNetwork("hardened", replicas=1)
    router = nodes.routers["B2", 1]
    stranger, keys = keys_of(2, "hardened", "subscriber", OTHER), keys_of(0, "hardened")
    words = predicate_codec("hardened").encode_subscription(keys, Label(TOPIC))
    for number in range(20):
        noise = claims.make_subscription(stranger, node_id("B2"), EPOCH, UNTIL, words, holder(number).public)
        router.claim_of_client(noise, Address(f"C{number}"), START)
    tried: list[Claim] = []

    def counted(claim: Claim, reader: bytes) -> None:
        tried.append(claim)
        claims.check_subscription(claim, reader)

    monkeypatch.setattr(routing_module, "check_subscription", counted)
    for number in range(30, 40):
        router.claim_of_client(advertisement(keys, "B2", number), Address("P"), START)
    assert len(tried) == 20


def test_a_publisher_cannot_cause_checks_with_invented_subscriber_keys() -> None:
    nodes = RouterNetwork("hardened", replicas=1)
    router = nodes.routers["B2", 1]
    faulty, keys = keys_of(1, "hardened"), keys_of(0, "hardened")
    assert faulty.signing is not None
    for number in range(5):
        false = msgspec.structs.replace(advertisement(faulty, "B2", number), reader=holder(number).public)
        try:
            router.claim_of_client(claims._with_proof(false, faulty.signing), Address("L"), START)
        except ForgedError:
            assert number
    assert router.sizes()["claims"] == 1
    router.claim_of_client(advertisement(keys, "B2", 9), Address("P"), START)
    wanted = subscription(keys_of(2, "hardened", "subscriber"), "B2", 8)
    router.claim_of_client(wanted, Address("R"), START)
    assert router.sizes() == {"claims": 3, "waiting": 0, "votes": 0, "votes each": 0, "ended": 0}


def test_a_claim_that_expires_earlier_covers_none_that_expires_later() -> None:
    nodes = RouterNetwork("paper")
    keys, reader = keys_of(0, "paper"), keys_of(1, "paper", "subscriber")
    ad = advertisement(keys, "B1", 1)
    wide = subscription(reader, "B3", 2, until=START + 100 * broker_keyrings.SECOND)
    narrow = subscription(reader, "B3", 3, All(Label(TOPIC), Range("level", 3, 9)))
    nodes.client("B1", "P1", ad)
    nodes.client("B3", "S1", wide)
    nodes.client("B3", "S2", narrow)
    nodes.settle()
    for router in nodes.at("B1"):
        assert router.has_seen(narrow.id)
    for router in nodes.routers.values():
        router.handle(START + 100 * broker_keyrings.SECOND)
    said = routing(ad, keys, publication(("level", 5)))
    assert nodes.reached(ad, "B1", said) == {"S2"}, "without a word between brokers"


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_claims_of_a_client_and_unconfirmed_reports_of_a_replica_are_bounded() -> None:
    config = BrokerConfig(client_claims=4, claims_each=8, claims_max=16, votes_max=3, waiting_max=6)
    nodes = RouterNetwork("hardened", config=config)
    reader = keys_of(1, "hardened", "subscriber")
    router, entry = nodes.routers["B2", 1], nodes.overlay.node("B3")
    for number in range(4):
        router.claim_of_client(subscription(reader, "B2", number), Address("C"), START)
    with pytest.raises(ExcessError):
        router.claim_of_client(subscription(reader, "B2", 4), Address("C"), START)
    for number in range(10, 14):
        router.claim_of_client(subscription(reader, "B2", number), Address("D"), START)
    assert router.sizes()["waiting"] == 6, "no more wait; who has most loses"
    assert router.claims_of(Address("C")) == router.claims_of(Address("D")) == 3
    for number in range(20, 23):
        router.claim_of_node(subscription(reader, "B3", number), entry.id, entry.replicas[0].key, START)
    with pytest.raises(ExcessError):
        router.claim_of_node(subscription(reader, "B3", 23), entry.id, entry.replicas[0].key, START)
    router.claim_of_node(subscription(reader, "B3", 23), entry.id, entry.replicas[1].key, START)
    assert router.sizes()["votes each"] == 3


def test_tables_are_full_for_one_node_before_they_are_for_all() -> None:
    config = BrokerConfig(client_claims=2, claims_each=4, claims_max=5)
    nodes = RouterNetwork("hardened", config=config)
    keys = keys_of(0, "hardened")
    router, entry = nodes.routers["B2", 1], nodes.overlay.node("B3")
    for number in range(5):
        claim = advertisement(keys, "B3", number)
        router.claim_of_node(claim, entry.id, entry.replicas[0].key, START)
        if number < 4:
            router.claim_of_node(claim, entry.id, entry.replicas[1].key, START)
        else:
            with pytest.raises(ExcessError):
                router.claim_of_node(claim, entry.id, entry.replicas[1].key, START)
    router.claim_of_client(advertisement(keys, "B2", 9), Address("C"), START)
    assert router.sizes()["claims"] == 5
    assert router.sizes()["votes"] == 0
