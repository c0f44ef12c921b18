"""A Byzantine minority at a client's edge node achieves nothing that matters, and is proven."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from support.edge_node_stub import EPOCH_US, OTHER, QUICK, SECOND, TOPIC, EdgeNodeStub, keyring, signing
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.brokers.content.blocks import Strategy, encode_content
from veilcast.brokers.keys.paper_split import SplitShare, split_key
from veilcast.brokers.keys.redistribution import (
    DeliveredShare,
    HeldShare,
    PublisherShare,
    accept_publisher_share,
    deal_key,
    redistribute_share,
)
from veilcast.brokers.keys.scheme import KeyAttempt
from veilcast.brokers.overlay import node_id
from veilcast.brokers.routing import claims
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.crypto import verifiable_sharing
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.verifiable_sharing import Commitments
from veilcast.errors import ForgedError, LocalError, RemoteError
from veilcast.machine import Address, Publication
from veilcast.sim.rng import SeededEntropy
from veilcast.topics import Label
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    BringClaim,
    Claim,
    ClaimKind,
    ConfirmContent,
    CopyRouting,
    FirstShare,
    ForwardContent,
    LastShare,
    NextShare,
    Routing,
    ShareReceived,
    WantKey,
    WithdrawClaim,
)

both = pytest.mark.parametrize("profile", ["hardened", "paper"])
ENTROPY = SeededEntropy(b"liars")


def two(profile: Profile = "hardened", **changes: Any) -> EdgeNodeStub:
    world = EdgeNodeStub(profile, msgspec.structs.replace(QUICK, **changes))
    world.client("p")
    world.client("s", "subscriber")
    world.subscribe("s")
    world.run(1)
    return world


def corrupt(kind: type[Any], spoil: Callable[[Any], Any]) -> Callable[[Message, Address], list[Message]]:
    """A replica that changes all its messages of a kind."""
    return lambda message, to: [spoil(message)] if isinstance(message, kind) else [message]


def keys_of(world: EdgeNodeStub, number: int = 0, topic: str = TOPIC, role: str = "publisher") -> TopicKeys:
    epoch = epoch_of(world.now, EPOCH_US)
    return keyring(number, world.profile, role).keys_at(epoch).topic(topic)


def flip_bit(data: bytes, at: int = -1) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def advert_of(world: EdgeNodeStub) -> Claim:
    """The publisher's advertisement of the topic and this epoch."""
    claims = [claim for claim, _ in world.replicas["r1"].adverts.values()]
    own = keys_of(world).certificate
    return next(claim for claim in claims if claim.chain == own)


def craft_content(world: EdgeNodeStub, key: SigningKey, *, number: int = 0, topic: str = "") -> ForwardContent:
    """An empty content under the publisher's advertisement, signed with this key."""
    words = predicate_codec(world.profile).encode_publication(keys_of(world), Publication((Label(TOPIC).pair,)))
    routing = Routing(advert_of(world).id, words, bytes(16), number, ENTROPY(8))
    manifest, blocks = encode_content(
        routing.content, ENTROPY(200), Strategy.COPIES, world.replicas["r1"].place.scheme, key
    )
    return ForwardContent(routing, msgspec.msgpack.encode(manifest), blocks[0].data, 1, 0)


def redealt(holdings: list[HeldShare], chosen: list[int], index: int) -> DeliveredShare:
    """The share of a replica that combines the dealings of these two; the same for the same two."""
    entropy = {holder: SeededEntropy(bytes((holder,))) for holder in chosen}
    handed = {
        holder: redistribute_share(holdings[holder - 1], holdings[0].holder_id.scheme, signing(holder), entropy[holder])
        for holder in chosen
    }
    portions = [
        verifiable_sharing.Subshare(
            holder, Commitments.decode(each.holder_header.new_points), each.share_for(index).share
        )
        for holder, each in handed.items()
    ]
    agreed = verifiable_sharing.agreement_digest({portion.holder: portion.commitments for portion in portions})
    points, share = verifiable_sharing.combine_subshares(portions, holdings[0].commitments, index, 2, agreed=agreed)
    return DeliveredShare(holdings[0].publisher_header, points.encode(), share)


# --- keys -------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("faulty", ["r1", "r2", "r3"])
def test_a_replica_that_corrupts_shares_is_proven_and_stops_nothing(profile: Profile, faulty: str) -> None:
    world = two(profile)
    world.replicas[faulty].rewrite = corrupt(
        LastShare, lambda message: LastShare(message.advertisement, flip_bit(message.share))
    )
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]
    reader = world.posts["s"].machine
    assert reader.suspects() in ([world.replicas[faulty].place], [])
    if profile == "paper":
        assert reader.suspects() == [world.replicas[faulty].place]


def test_the_sender_of_an_invalid_share_is_proven_even_if_it_comes_last() -> None:
    world = two()

    def another(message: LastShare) -> LastShare:
        delivery = DeliveredShare.decode(message.share)
        share = msgspec.structs.replace(delivery.share, value=delivery.share.blinding)
        return LastShare(message.advertisement, msgspec.structs.replace(delivery, share=share).encode().reveal())

    for faulty in ("r1", "r3"):
        before = len(world.heard)
        world.replicas[faulty].rewrite = corrupt(LastShare, another)
        world.publish("p", b"hello", level=1)
        world.run(3)
        assert len(world.heard) == before + 1
        assert world.posts["s"].machine.suspects() == [world.replicas[faulty].place]
        world = two()


def test_a_valid_share_of_another_sharing_proves_nothing() -> None:
    world = two(overtime_us=0)
    keys, advert = keys_of(world), advert_of(world)
    assert keys.signing is not None
    scheme = world.replicas["r1"].place.scheme
    firsts = deal_key(Scalar.draw(ENTROPY), KeyAttempt(bytes(16)), scheme, keys.signing, ENTROPY)
    holdings = [
        accept_publisher_share(first, replica.place, keys.signing.public)
        for first, replica in zip(firsts, world.replicas.values(), strict=True)
    ]
    # Two replicas put the dealings of 1 and 2 together, and the third, cut off from them, those of 2 and 3.
    for order in ((1, 2, 3), (3, 1, 2)):
        world = two(overtime_us=0)
        for index in order:
            chosen = [1, 2] if index < 3 else [2, 3]
            delivery = redealt(holdings, chosen, index)
            world.replicas[f"r{index}"].send_raw("s", LastShare(advert.id, delivery.encode().reveal()))
        world.run(1)
        reader = world.posts["s"].machine
        assert reader.suspects() == []
        assert reader.sizes()["suspects"] == reader.sizes()["keys"] == 1  # It is marked, and the key is there.


@both
def test_a_share_of_another_replica_proves_its_sender_faulty(profile: Profile) -> None:
    world = two(profile, overtime_us=0)
    shares: list[LastShare] = []
    world.replicas["r1"].rewrite = lambda message, to: shares.append(message) or [message]  # type: ignore[func-returns-value, arg-type]
    world.publish("p", b"hello")
    world.run(3)
    (share,) = [message for message in shares if isinstance(message, LastShare)]
    world.replicas["r2"].send_raw("s", share)
    world.run(1)
    assert world.posts["s"].machine.suspects() == [world.replicas["r2"].place]


@both
def test_shares_of_unsigned_keys_leave_nothing_behind(profile: Profile) -> None:
    world = two(profile, overtime_us=0)
    replica, reader = world.replicas["r1"], world.posts["s"].machine
    mine = SigningKey.generate(ENTROPY)
    scheme, advert = replica.place.scheme, advert_of(world)
    for number in range(50):
        origin = KeyAttempt(number.to_bytes(16, "big"))
        if profile == "hardened":
            first = deal_key(Scalar.draw(ENTROPY), origin, scheme, mine, ENTROPY)[0]
            share = accept_publisher_share(first, replica.place, mine.public).make_delivery().encode().reveal()
        else:
            share = split_key(Secret(ENTROPY(32)), origin, scheme, mine, ENTROPY)[0].encode().reveal()
        replica.send_raw("s", LastShare(advert.id, share))
        replica.send_raw("s", LastShare(ENTROPY(16), share))
        replica.send_raw("s", LastShare(advert.id, ENTROPY(60)))
    world.run(2)
    assert reader.sizes()["keys"] == 0
    assert reader.refused == {"ForgedError": 50, "StaleError": 50, "MalformedError": 50}
    assert reader.suspects() == [replica.place]
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]


def test_of_a_publisher_with_endless_keys_only_the_last_are_kept() -> None:
    world = two(keys_max=20)
    reader, keys = world.posts["s"].machine, keys_of(world)
    assert keys.signing is not None
    for number in range(60):
        origin = KeyAttempt(number.to_bytes(16, "big"))
        replica = world.replicas["r1"]
        first = deal_key(Scalar.draw(ENTROPY), origin, replica.place.scheme, keys.signing, ENTROPY)[0]
        share = accept_publisher_share(first, replica.place, keys.signing.public).make_delivery()
        replica.send_raw("s", LastShare(advert_of(world).id, share.encode().reveal()))
    world.run(2)
    assert reader.sizes()["keys"] == 20 // 3, "each replica has a third of the room"
    assert not reader.refused


def test_an_equivocating_publisher_gets_no_honest_replica_suspected() -> None:
    world = two(overtime_us=0)
    keys, advert = keys_of(world), advert_of(world)
    assert keys.signing is not None
    scheme, origin = world.replicas["r1"].place.scheme, KeyAttempt(bytes(16))
    one, other = (deal_key(Scalar.draw(ENTROPY), origin, scheme, keys.signing, ENTROPY) for _ in range(2))
    manifests = [craft_content(world, keys.signing) for _ in range(2)]
    routing = manifests[0].routing
    signed = [
        encode_content(routing.content, carry.block or b"", Strategy.COPIES, scheme, keys.signing)
        for carry in manifests
    ]
    for replica, firsts, (manifest, blocks) in (
        (world.replicas["r3"], other, signed[1]),
        (world.replicas["r1"], one, signed[0]),
        (world.replicas["r2"], one, signed[0]),
    ):
        delivery = accept_publisher_share(firsts[replica.index - 1], replica.place, keys.signing.public).make_delivery()
        replica.send_raw("s", LastShare(advert.id, delivery.encode().reveal()))
        replica.send_raw("s", ForwardContent(routing, msgspec.msgpack.encode(manifest), blocks[0].data, 1, 0))
    world.run(2)
    reader = world.posts["s"].machine
    assert reader.suspects() == []
    assert reader.sizes()["keys"] == 1
    assert reader.refused["ForgedError"]


@both
def test_a_replica_gets_one_share_of_each_attempt_and_no_two_are_of_one_polynomial(profile: Profile) -> None:
    world = two(profile, overtime_us=0)
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, ConfirmContent) else [message]
    world.publish("p", b"hello")
    world.run(25)
    for index, replica in enumerate(world.replicas.values(), 1):
        shares = [message.share for message in replica.received(FirstShare)]
        assert len(shares) >= 3
        if profile == "hardened":
            firsts = [PublisherShare.decode(share) for share in shares]
            assert {first.share.index for first in firsts} == {index}
            assert len({first.publisher_header.points for first in firsts}) == len(firsts)
            assert [first.publisher_header.key_attempt.attempt for first in firsts] == list(range(len(firsts)))
        else:
            parcels = [SplitShare.decode(share) for share in shares]
            assert {parcel.index for parcel in parcels} == {index}
            assert len({parcel.trail[0].digests for parcel in parcels}) == len(parcels)


@both
def test_endless_key_requests_cause_ever_fewer_dealings(profile: Profile) -> None:
    world = two(profile, overtime_us=0)
    world.publish("p", b"hello")
    world.run(2)
    (first,) = world.replicas["r1"].received(FirstShare)
    advert, key = first.advertisement, world.replicas["r1"].received(ForwardContent)[0].routing.key
    for _ in range(250):
        world.replicas["r2"].send_raw("p", WantKey(advert, key))
        world.replicas["r2"].send_raw("p", WantKey(advert, bytes(16)))
        world.run(0.1)
    assert 2 <= len(world.replicas["r1"].received(FirstShare)) <= 6
    world.publish("p", b"again")
    world.run(3)
    assert world.heard_by("s") == [b"hello", b"again"]


# --- contents ---------------------------------------------------------------------------------------------------------


@both
def test_a_replica_that_corrupts_blocks_is_proven_and_stops_nothing(profile: Profile) -> None:
    world = two(profile)
    world.replicas["r1"].rewrite = corrupt(
        ForwardContent, lambda carry: msgspec.structs.replace(carry, block=flip_bit(carry.block))
    )
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]
    assert world.posts["s"].machine.suspects() == [world.replicas["r1"].place]


@both
def test_repeated_contents_are_confirmed_and_not_delivered(profile: Profile) -> None:
    world = two(profile, overtime_us=0)
    world.publish("p", b"hello")
    world.run(2)
    (carry,) = [carry for carry in world.replicas["r1"].received(ForwardContent) if carry.block is not None]
    before, others = (len(world.replicas[name].received(ConfirmContent, "s")) for name in ("r2", "r3"))
    for attempt in range(8):
        world.replicas["r2"].send_raw("s", msgspec.structs.replace(carry, attempt=attempt))
    world.run(2)
    assert world.heard_by("s") == [b"hello"]
    assert len(world.replicas["r2"].received(ConfirmContent, "s")) == before + 8
    assert (
        len(world.replicas["r3"].received(ConfirmContent, "s")) == others + 1
    )  # All are told again once in a while, and not each time.


def test_contents_of_a_past_epoch_are_ignored_even_if_forgotten() -> None:
    world = two(seen_max=1, overtime_us=0)
    world.publish("p", b"old")
    world.run(2)
    (carry,) = [carry for carry in world.replicas["r1"].received(ForwardContent) if carry.block is not None]
    world.publish("p", b"newer")
    world.run(2)
    for _ in range(2):
        world.replicas["r2"].send_raw("s", carry)  # Forgotten as done; its key is at hand, and has gone forward.
        world.run(EPOCH_US * 2 / SECOND)
    assert world.heard_by("s") == [b"old", b"newer"]
    assert world.posts["s"].machine.refused["StaleError"] == 2
    assert world.posts["s"].machine.sizes()["contents"] == 0


@both
@pytest.mark.parametrize("field", ["says", "key", "number", "salt", "advertisement"])
def test_changed_routing_makes_another_content_that_nobody_signed(profile: Profile, field: str) -> None:
    world = two(profile)

    def change(carry: ForwardContent) -> ForwardContent:
        value = getattr(carry.routing, field)
        other = value + 1 if isinstance(value, int) else flip_bit(value)
        return msgspec.structs.replace(carry, routing=msgspec.structs.replace(carry.routing, **{field: other}))

    world.replicas["r2"].rewrite = corrupt(ForwardContent, change)
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]
    assert world.posts["s"].machine.refused
    assert world.posts["s"].machine.sizes()["contents"] == 0


@both
def test_contents_invented_by_a_broker_are_refused_and_not_remembered(profile: Profile) -> None:
    world = two(profile)
    mine = SigningKey.generate(ENTROPY)
    for _ in range(100):
        world.replicas["r1"].send_raw("s", craft_content(world, mine))
    world.run(2)
    reader = world.posts["s"].machine
    assert reader.refused == {"ForgedError": 100}
    assert reader.sizes()["contents"] == 0
    assert not world.heard
    assert not world.replicas["r2"].received(WantKey)


@pytest.mark.parametrize("whose", ["own", "another"])
def test_a_flood_of_unopenable_content_evicts_nothing_and_causes_few_requests(
    whose: str,
) -> None:
    world = two(contents_max=20, hold_us=8 * SECOND)
    world.client("q")
    world.run(1)
    signer = keys_of(world).signing
    assert signer is not None
    for _ in range(100):
        carry = craft_content(world, signer)
        for replica in world.replicas.values():
            replica.send_raw("s", carry)
    world.run(1)
    reader = world.posts["s"].machine
    assert reader.sizes()["contents"] == 20 // 3
    assert not reader.refused
    world.publish("q" if whose == "another" else "p", b"hello")
    world.run(6)
    assert len(world.replicas["r2"].received(WantKey, "s")) <= 8  # One key, of which all of them say that they are.
    world.run(20)
    assert reader.sizes()["contents"] == 0
    assert world.heard_by("s") == [b"hello"]


def test_content_sealed_so_that_it_cannot_be_opened_is_confirmed() -> None:
    world = two()
    world.publish("p", b"hello")
    world.run(2)
    keys, (carry, *_) = keys_of(world), world.replicas["r1"].received(ForwardContent)
    assert keys.signing is not None
    routing = msgspec.structs.replace(carry.routing, number=1, salt=bytes(8))
    scheme = world.replicas["r1"].place.scheme
    manifest, blocks = encode_content(routing.content, ENTROPY(200), Strategy.COPIES, scheme, keys.signing)
    world.replicas["r1"].send_raw("s", ForwardContent(routing, msgspec.msgpack.encode(manifest), blocks[0].data, 1, 0))
    world.run(1)
    assert any(done.content == routing.content for done in world.replicas["r1"].received(ConfirmContent, "s"))
    assert world.posts["s"].machine.refused == {"ForgedError": 1}
    world.publish("p", b"next")
    world.run(2)
    assert world.heard_by("s") == [b"hello", b"next"]


# --- what is said of publications -------------------------------------------------------------------------------------


@both
def test_one_confirmation_does_not_settle_a_publication(profile: Profile) -> None:
    world = two(profile)
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [] if isinstance(message, ForwardContent | ConfirmContent) else [message]
    world.publish("p", b"hello")
    world.run(1)
    content = world.replicas["r1"].received(ForwardContent)[0].routing.content
    for attempt in range(5):
        world.replicas["r1"].send_raw("p", ConfirmContent(content, attempt))
    world.run(5)
    assert world.posts["p"].disk
    for replica in world.replicas.values():
        replica.rewrite = lambda message, to: [message]
    world.run(20)
    assert world.heard_by("s") == [b"hello"]
    assert not world.posts["p"].disk


def test_a_replica_that_withholds_everything_stops_nothing() -> None:
    world = two()
    world.replicas["r1"].rewrite = lambda message, to: []
    for number in range(4):
        world.publish("p", b"%d" % number)
    world.run(15)
    assert sorted(world.heard_by("s")) == [b"0", b"1", b"2", b"3"]
    assert not world.posts["p"].disk


# --- advertisements and claims ----------------------------------------------------------------------------------------


@both
def test_advertisements_that_the_authority_did_not_certify_for_this_topic_are_refused(profile: Profile) -> None:
    world = two(profile)
    advert, reader = advert_of(world), world.posts["s"].machine
    known = reader.sizes()["advertised"]
    mine = SigningKey.generate(ENTROPY)
    assert advert.chain is not None
    leaf = msgspec.structs.replace(advert.chain.leaf, subject=mine.public)
    forged = msgspec.structs.replace(advert, chain=msgspec.structs.replace(advert.chain, leaf=leaf))
    late = msgspec.structs.replace(advert, until_us=advert.until_us + 1)
    for claim in (forged, late, msgspec.structs.replace(advert, chain=None)):
        world.replicas["r1"].send_raw("s", claim)
    subscription = next(claim for claim, _ in world.replicas["r1"].wants.values())
    world.replicas["r1"].send_raw("s", subscription)
    world.run(1)
    assert reader.sizes()["advertised"] == known
    assert sum(reader.refused.values()) == 4


def test_a_member_without_a_grant_can_neither_subscribe_nor_read() -> None:
    world = two()
    world.client("n", "nobody")
    with pytest.raises(LocalError):
        world.subscribe("n")
    world.run(1)
    stranger = world.posts["n"].machine
    for replica in world.replicas.values():
        replica.send_raw("n", advert_of(world))
        replica.rewrite = lambda message, to, replica=replica: (  # type: ignore[misc]
            replica.send_raw("n", message) or [message]
            if isinstance(message, LastShare | ForwardContent)
            else [message]
        )
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]
    assert not world.heard_by("n")
    assert stranger.sizes()["keys"] == stranger.sizes()["contents"] == stranger.sizes()["advertised"] == 0


@both
def test_a_subscription_without_a_grant_for_the_topic_matches_no_advertisement(profile: Profile) -> None:
    world = two(profile)
    advert, words = advert_of(world), predicate_codec(profile)
    assert advert.reader is not None
    granted, other = keys_of(world, 1, TOPIC, "subscriber"), keys_of(world, 1, OTHER, "subscriber")
    interest = words.encode_subscription(granted, Label(TOPIC))
    fitting = claims.make_subscription(granted, node_id("edge"), advert.epoch, advert.until_us, interest, bytes(32))
    claims.check_subscription(fitting, advert.reader)
    strange = msgspec.structs.replace(granted, content=Secret(ENTROPY(32)))
    for keys in (other, strange):
        claim = claims.make_subscription(keys, node_id("edge"), advert.epoch, advert.until_us, interest, bytes(32))
        with pytest.raises(ForgedError):
            claims.check_subscription(claim, advert.reader)
    changed = msgspec.structs.replace(fitting, until_us=fitting.until_us + 1)
    with pytest.raises(ForgedError):
        claims.check_subscription(changed, advert.reader)


def test_an_overheard_claim_cannot_be_brought_by_another() -> None:
    holder, mine = SigningKey.generate(ENTROPY), SigningKey.generate(ENTROPY)
    claim = Claim(ClaimKind.SUBSCRIPTION, bytes(16), 1, 2, b"x", holder.public, None, None, bytes(64))
    brought = claims.make_bring(claim, holder, signing(1).public)
    claims.check_bring(brought, signing(1).public)
    for forged, replica in (
        (brought, signing(2).public),
        (BringClaim(claim, mine.sign(claim.id + signing(1).public, purpose=b"veilcast/bring")), signing(1).public),
        (
            claims.make_bring(msgspec.structs.replace(claim, holder=mine.public), holder, signing(1).public),
            signing(1).public,
        ),
    ):
        with pytest.raises(ForgedError):
            claims.check_bring(forged, replica)


# --- anything else ----------------------------------------------------------------------------------------------------


def test_messages_not_meant_for_clients_are_refused() -> None:
    world = two()
    reader = world.posts["s"].machine
    odd: list[Message] = [
        FirstShare(bytes(16), b"x"),
        NextShare(bytes(16), b"x"),
        ShareReceived(bytes(16), 0),
        CopyRouting(0),
    ]
    for message in odd:
        world.replicas["r1"].send_raw("s", message)
    world.run(1)
    assert reader.refused == {"MalformedError": len(odd)}
    world.replicas["r1"].send_raw("s", WithdrawClaim(bytes(16), bytes(64)))
    world.replicas["r1"].send_raw("s", ConfirmContent(bytes(16), 0))
    world.run(1)
    assert reader.refused == {"MalformedError": len(odd)}
    reader.receive(b"garbage", Address("r1"), world.now)
    reader.receive(b"", Address("r1"), world.now)
    reader.receive(b"garbage", Address("stranger"), world.now)
    assert sum(reader.refused.values()) == len(odd) + 3
    world.publish("p", b"hello")
    world.run(3)
    assert world.heard_by("s") == [b"hello"]


@pytest.mark.parametrize("seed", range(4))
@both
def test_a_replica_that_mangles_all_messages_breaks_nothing(profile: Profile, seed: int) -> None:
    """Bytes are changed inside messages that are well-formed for the queues, so that everything is parsed."""
    world, rng = two(profile), Random(seed)

    def mangle(message: Message, to: Address) -> list[Message]:
        said: list[Message] = [message]
        for _ in range(30):
            data = bytearray(encode(message))
            for _ in range(rng.choice([1, 1, 1, 4])):
                data[rng.randrange(1, len(data))] = rng.randrange(256)
            with suppress(RemoteError):
                said.append(decode(bytes(data)))
        rng.shuffle(said)
        return said

    world.replicas["r2"].rewrite = mangle
    for number in range(6):
        world.publish("p", b"%d" % number, level=number)
        world.run(1)
    world.run(10)
    assert world.heard_by("s") == [b"%d" % number for number in range(6)]
    assert not world.posts["p"].disk
    for name in ("p", "s"):
        assert set(world.posts[name].machine.suspects()) <= {world.replicas["r2"].place}
