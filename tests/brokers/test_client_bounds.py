"""Every table of a client is bounded, and the effect of each bound is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from support.edge_node_stub import EPOCH_US, QUICK, SECOND, TOPIC, EdgeNodeStub, keyring
from veilcast.authority.epoch import epoch_of
from veilcast.authority.topic_record import Profile
from veilcast.brokers.content import publisher
from veilcast.brokers.content.sealed_publication import encode_publication, open_publication, seal_publication
from veilcast.brokers.overlay import node_id
from veilcast.brokers.routing import claims
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.brokers.routing.renewal import ValidityPeriods
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Publication
from veilcast.sim.rng import SeededEntropy
from veilcast.topics import All, Label, Range
from veilcast.wire.brokers import Claim, ConfirmContent, ForwardContent

ENTROPY = SeededEntropy(b"bounds")


def two(profile: Profile = "hardened", **changes: Any) -> EdgeNodeStub:
    world = EdgeNodeStub(profile, msgspec.structs.replace(QUICK, **changes))
    world.client("p")
    world.client("s", "subscriber")
    world.subscribe("s")
    world.run(1)
    return world


def more_adverts(world: EdgeNodeStub, count: int) -> list[Claim]:
    """Claims of a publisher that advertises one topic over and over."""
    epoch = epoch_of(world.now, EPOCH_US)
    keys = keyring(0, world.profile).keys_at(epoch).topic(TOPIC)
    words, until_us = predicate_codec(world.profile).encode_advertisement(keys), (epoch + 2) * EPOCH_US
    holders = [SigningKey.generate(ENTROPY).public for _ in range(count)]
    return [claims.make_advertisement(keys, node_id("edge"), epoch, until_us, words, holder) for holder in holders]


@pytest.mark.parametrize(("profile", "most"), [("hardened", 4), ("paper", 7)])
def test_advertisements_are_bounded_and_in_hardened_those_of_each_publisher(profile: Profile, most: int) -> None:
    world = two(profile, advertised_max=7)
    for claim in more_adverts(world, 20):
        world.replicas["r1"].send_raw("s", claim)
    world.run(1)
    reader = world.posts["s"].machine
    assert reader.sizes()["advertised"] == most
    assert reader.refused == {"ExcessError": 21 - most}
    world.publish("p", b"hello")
    world.run(2)
    assert world.heard_by("s") == [b"hello"]
    world.run(3 * EPOCH_US / SECOND)
    assert reader.sizes()["advertised"] <= 3


def test_done_contents_are_remembered_up_to_a_bound() -> None:
    world = two(seen_max=3)
    for number in range(8):
        world.publish("p", b"%d" % number)
        world.run(0.5)
    sizes = world.posts["s"].machine.sizes()
    assert (sizes["done"], sizes["seen"], len(world.heard)) == (3, 3, 8)


def test_publications_and_subscriptions_are_bounded_and_the_application_is_told() -> None:
    world = two(records_max=2, subscriptions_max=2)
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, ConfirmContent) else [message]
    for _ in range(2):
        world.publish("p", b"x")
    with pytest.raises(LocalError, match="wait already"):
        world.publish("p", b"x")
    world.subscribe("s", All(Label(TOPIC), Range("level", 0, 3)))
    with pytest.raises(LocalError, match="subscriptions already"):
        world.subscribe("s", All(Label(TOPIC), Range("level", 0, 4)))


def test_a_repeatedly_resealed_publication_is_one_notification_and_uses_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher, "ATTEMPTS_MAX", 0)
    world = two(unread_max=2, again_us=SECOND // 4, want_us=SECOND // 10)
    world.prompt = False
    world.publish("p", b"hello")
    world.run(40)
    assert len({carry.routing.content for carry in world.replicas["r1"].received(ForwardContent)}) > 8
    reader = world.posts["s"].machine
    assert reader.sizes()["opened"] == 4
    assert reader.sizes()["inbox"] == 1
    world.prompt = True
    world.run(40)
    assert set(world.heard_by("s")) == {b"hello"}
    assert reader.sizes()["opened"] == reader.sizes()["inbox"] == 0
    assert not world.posts["p"].disk


def test_own_notifications_wait_for_room_and_their_publications_with_them() -> None:
    world = two(unread_max=1, deliver_again_us=2 * SECOND)
    world.prompt = False
    world.subscribe("p")
    for number in range(3):
        world.publish("p", b"%d" % number)
    world.run(1)
    assert world.heard_by("p") == [b"0"]
    world.prompt = True
    world.run(10)
    assert set(world.heard_by("p")) == set(world.heard_by("s")) == {b"0", b"1", b"2"}
    assert not world.posts["p"].disk


def test_own_notifications_of_an_earlier_run_are_delivered_in_the_next() -> None:
    world = two()
    world.prompt = False
    world.subscribe("p")
    world.publish("p", b"mine")
    world.run(1)
    world.start("p")
    world.prompt = True
    world.subscribe("p")
    world.run(40)
    assert world.heard_by("p") == [b"mine", b"mine"]
    assert not world.posts["p"].disk


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "length"), [("hardened", 60), ("paper", 10)])
def test_validity_periods_are_consecutive_and_claims_outlast_them_by_one(profile: Profile, length: int) -> None:
    spans = ValidityPeriods(profile, 60, 20)
    for now in range(0, 300, 7):
        span = spans.at(now)
        after = spans.after(span)
        assert span.from_us <= now < span.end_us == after.from_us
        assert (span.end_us - span.from_us, span.expiry_us) == (length, after.end_us)
        assert span.epoch == (span.end_us - 1) // 60
        assert after == spans.at(span.end_us)


@pytest.mark.parametrize("padded", [True, False])
def test_a_sealed_publication_opens_only_with_its_key_and_routing(padded: bool) -> None:
    letter = PendingPublication(TOPIC, NumberedPublication(bytes(8), 1, Publication((Label(TOPIC).pair,), b"hello")))
    key, content = Secret(ENTROPY(32)), ENTROPY(16)
    spelled = encode_publication(letter, padded=padded)
    sealed = seal_publication(key, spelled, content, ENTROPY)
    assert open_publication(key, sealed, content, TOPIC, padded=padded) == letter
    for other, routed in ((Secret(ENTROPY(32)), content), (key, ENTROPY(16))):
        with pytest.raises(ForgedError):
            open_publication(other, sealed, routed, TOPIC, padded=padded)


def test_padded_publications_have_few_sizes() -> None:
    sizes = {
        len(
            encode_publication(
                PendingPublication(TOPIC, NumberedPublication(bytes(8), 1, Publication((), bytes(body)))), padded=True
            )
        )
        for body in range(0, 32_000, 500)
    }
    assert sizes == {1024, 4096, 16 * 1024, 36 * 1024}
