"""Attacks on claims: subscribers that send them to few replicas, and replicas that report them without a proof."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from support import broker_keyrings
from support.broker_keyrings import TOPIC, keys_of
from support.router_network import PROFILES, RouterNetwork, advertisement, publication, routing, subscription
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.overlay import hop_of_node, node_id
from veilcast.brokers.routing.votes import CANDIDATES_MAX
from veilcast.machine import Address
from veilcast.topics import All, Equal, Label, Range

SPOILT = bytes(64)


def key(node: str, index: int) -> bytes:
    return broker_keyrings.signing(node, index).public


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("silent", [(), (("B3", 3),)])
@pytest.mark.parametrize("first", [True, False])
def test_wide_claims_at_single_replicas_silence_nobody(
    profile: Profile, silent: tuple[tuple[str, int], ...], first: bool
) -> None:
    nodes = RouterNetwork(profile, faulty_set=silent)
    author, evil, good = keys_of(0, profile), keys_of(1, profile, "subscriber"), keys_of(2, profile, "subscriber")
    offered = advertisement(author, "B1", 1)
    wanted = subscription(good, "B3", 2, All(Label(TOPIC), Range("level", 0, 3)))
    nodes.client("B1", "P1", offered)
    nodes.settle()
    if not first:
        nodes.client("B3", "S1", wanted)
        nodes.settle()
    for index in (1,) if silent else (1, 2):
        wide = subscription(evil, "B3", 10 + index)
        nodes.routers["B3", index].claim_of_client(wide, Address("X"), nodes.now)
        nodes.settle()
    if first:
        nodes.client("B3", "S1", wanted)
        nodes.settle()
    says = routing(offered, author, publication(("level", 2)))
    for at, toward in (("B1", "B2"), ("B2", "B3")):
        for router in nodes.at(at):
            assert router.route(says) == [hop_of_node(node_id(toward))], at


@pytest.mark.parametrize("profile", PROFILES)
def test_a_covering_claim_is_no_vote_for_a_claim_that_no_other_replica_reports(profile: Profile) -> None:
    nodes, reader = RouterNetwork(profile), keys_of(1, profile, "subscriber")
    router = nodes.routers["B2", 1]
    wide, narrow = subscription(reader, "B3", 1), subscription(reader, "B3", 2, All(Label(TOPIC), Range("level", 0, 3)))
    for claim in (wide, narrow):
        router.claim_of_node(claim, node_id("B3"), key("B3", 1), nodes.now)
    assert not router.has_seen(wide.id)
    assert not router.has_seen(narrow.id)
    router.claim_of_node(wide, node_id("B3"), key("B3", 2), nodes.now)
    assert router.has_seen(wide.id)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_an_early_invalid_proof_keeps_no_subscriber_out(profile: Profile, order: tuple[int, ...]) -> None:
    nodes, author, reader = RouterNetwork(profile), keys_of(1, profile), keys_of(2, profile, "subscriber")
    offered, wanted = advertisement(author, "B1", 1), subscription(reader, "B3", 2)
    router = nodes.routers["B2", 1]
    for index in order:
        told = msgspec.structs.replace(wanted, proof=SPOILT) if index == 1 else wanted
        router.claim_of_node(told, node_id("B3"), key("B3", index), nodes.now)
    for index in (1, 2, 3):
        router.claim_of_node(offered, node_id("B1"), key("B1", index), nodes.now)
    assert router.route(routing(offered, author, publication(("level", 3)))) == [hop_of_node(node_id("B3"))]


def test_a_new_replica_stores_all_subscribers_before_it_knows_their_publisher() -> None:
    nodes = RouterNetwork("hardened", config=BrokerConfig(waiting_max=8, client_claims=8))
    author, reader = keys_of(1, "hardened"), keys_of(2, "hardened", "subscriber")
    router = nodes.routers["B1", 1]
    wanted = [subscription(reader, "B3", 10 + n, All(Label(TOPIC), Equal("kind", f"k{n}"))) for n in range(20)]
    for index in (1, 2):
        for claim in wanted:
            router.claim_of_node(claim, node_id("B2"), key("B2", index), nodes.now)
    for n in range(12):
        stray = subscription(reader, "B1", 100 + n, All(Label(TOPIC), Equal("kind", f"s{n}")))
        router.claim_of_client(stray, Address(f"S{n}"), nodes.now)
    assert router.sizes()["waiting"] == len(wanted) + 8
    router.claim_of_client(advertisement(author, "B1", 1), Address("P"), nodes.now)
    assert all(router.has_seen(claim.id) for claim in wanted)
    assert router.sizes()["waiting"] == 0


def test_invented_claims_are_compared_with_a_bounded_number_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, reader = RouterNetwork("hardened"), keys_of(2, "hardened", "subscriber")
    router = nodes.routers["B2", 1]
    made_up = subscription(reader, "B3", 10)
    for n in range(CANDIDATES_MAX + 88):
        told = msgspec.structs.replace(made_up, holder=n.to_bytes(32))
        router.claim_of_node(told, node_id("B3"), key("B3", 1), nodes.now)
    compared = 0
    covers = router._votes._covers

    def counted(*pair: object) -> bool:
        nonlocal compared
        compared += 1
        return covers(*pair)  # type: ignore[arg-type]

    monkeypatch.setattr(router._votes, "_covers", counted)
    honest = subscription(reader, "B3", 9, All(Label(TOPIC), Range("level", 0, 3)))
    router.claim_of_node(honest, node_id("B3"), key("B3", 2), nodes.now)
    assert 0 < compared <= 2 * CANDIDATES_MAX


@pytest.mark.parametrize("profile", PROFILES)
def test_a_covering_claim_is_one_more_vote_however_many_report_the_claim(profile: Profile) -> None:
    nodes, reader = RouterNetwork(profile, replicas=5), keys_of(1, profile, "subscriber")
    router = nodes.routers["B2", 1]
    wide, narrow = subscription(reader, "B3", 1), subscription(reader, "B3", 2, All(Label(TOPIC), Range("level", 0, 3)))
    for index in (1, 2):
        router.claim_of_node(narrow, node_id("B3"), key("B3", index), nodes.now)
    assert not router.has_seen(narrow.id)
    router.claim_of_node(wide, node_id("B3"), key("B3", 3), nodes.now)
    assert router.has_seen(narrow.id)
    assert not router.has_seen(wide.id)
