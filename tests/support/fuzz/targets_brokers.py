"""Targets: brokers. Shares, dealings, messages of replicas, manifests, overlays, orders and claims."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from support.broker_keyrings import OPERATOR, TOPIC, keys_of, overlay, signing
from support.fuzz.fuzz_target import Format, Group, Prepared
from support.fuzz.targets_wire import one
from support.message_strategies import of_type
from veilcast.authority.topic_record import Profile
from veilcast.brokers.content.blocks import ContentManifest, Strategy, encode_content
from veilcast.brokers.keys import agreement, share_reception
from veilcast.brokers.keys.agreement import AgreementMessage, AttendanceRoll, DealingRef
from veilcast.brokers.keys.paper_split import SplitShare, split_key
from veilcast.brokers.keys.redistribution import (
    DealtShare,
    DeliveredShare,
    PublisherShare,
    accept_publisher_share,
    deal_key,
    redistribute_share,
)
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, Scheme
from veilcast.brokers.overlay import SignedOverlay, sign_overlay
from veilcast.brokers.routing import renewal
from veilcast.brokers.routing.claim_semantics import predicate_codec
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import ShamirShare
from veilcast.crypto.verifiable_sharing import Commitments
from veilcast.errors import MalformedError, RemoteError, TamperedError
from veilcast.machine import Publication
from veilcast.topics import Label
from veilcast.wire.brokers import Claim

GROUP = Group()
ENTROPY = random.Random(8).randbytes


def _scheme(node: int) -> Scheme:
    return Scheme(bytes((node,)) * 16, 0, 3)


def _dealt() -> tuple[list[PublisherShare], list[DealtShare]]:
    key = signing("publisher", 1)
    origin = KeyAttempt(bytes(32), 0)
    firsts = deal_key(Scalar.draw(ENTROPY), origin, _scheme(1), key, ENTROPY)
    held = accept_publisher_share(firsts[0], ReplicaId(_scheme(1), 1), key.public)
    handed = redistribute_share(held, _scheme(2), signing("north", 1), ENTROPY)
    return firsts, [handed.share_for(index) for index in (1, 2, 3)]


@GROUP.target(
    "shares",
    "shares of keys, dealings and commitments, from replicas and publishers",
    "brokers.keys.redistribution:PublisherShare.decode",
    "brokers.keys.redistribution:DealtShare.decode",
    "brokers.keys.redistribution:DeliveredShare.decode",
    "brokers.keys.paper_split:SplitShare.decode",
    "crypto.shamir:ShamirShare.decode",
    "crypto.verifiable_sharing:Commitments.decode",
)
def shares() -> Prepared:
    firsts, portions = _dealt()
    parcels = split_key(Secret(bytes(32)), KeyAttempt(bytes(32), 0), _scheme(1), signing("publisher", 1), ENTROPY)
    delivery = DeliveredShare(firsts[0].publisher_header, firsts[0].publisher_header.points, firsts[0].share)
    kinds: list[Callable[[bytes], Any]] = [
        PublisherShare.decode, DealtShare.decode, DeliveredShare.decode, SplitShare.decode, ShamirShare.decode,
        Commitments.decode,
    ]  # fmt: skip

    def check(data: bytes) -> object:
        found = []
        for decode in kinds:
            try:
                found.append(type(decode(data)).__name__)
            except RemoteError as error:
                found.append(type(error).__name__)
        return "".join(found)

    made: list[Any] = [firsts[0], *portions[:2], delivery, parcels[0]]
    examples = [each.encode().reveal() for each in made] + [firsts[0].publisher_header.points, b"\1\1" + bytes(32)]
    return Prepared(check, (), examples, Format.MSGPACK)


@GROUP.target(
    "replicas-say",
    "what replicas of a node say of one another's dealings",
    "brokers.keys.agreement:AgreementMessage.decode",
    "brokers.keys.agreement:decode_roll",
    "brokers.keys.share_reception:_DECODER",
)
def replicas_say() -> Prepared:
    firsts, portions = _dealt()

    def check(data: bytes) -> object:
        found = []
        for decode in (AgreementMessage.decode, agreement.decode_roll, share_reception._DECODER.decode):
            try:
                found.append(type(decode(data)).__name__)
            except RemoteError as error:
                found.append(type(error).__name__)
        assert isinstance(agreement.is_brief_roll(data), bool)
        return "".join(found)

    said = [
        AgreementMessage(_scheme(1), _scheme(2)),
        AgreementMessage(_scheme(1), _scheme(2), (), firsts[0].publisher_header, (portions[0].holder_header,), True),
    ]
    roll = agreement.encode_roll(AttendanceRoll({1: DealingRef(bytes(32), bytes(32))}, (2,), (), False))
    evidence = msgspec.msgpack.encode([portions[0].encode().reveal()])
    return Prepared(check, (), [*(each.encode() for each in said), roll, evidence], Format.MSGPACK)


@GROUP.target("manifest", "the manifest of a content, from publishers", "brokers.content.blocks:ContentManifest.decode")
def manifest() -> Prepared:
    made = [
        encode_content(bytes(16), b"content" * 99, strategy, _scheme(1), signing("publisher", 1))[0]
        for strategy in Strategy
    ]

    def check(data: bytes) -> object:
        read = ContentManifest.decode(data)
        assert read.encode() == data
        assert read.block_size > 0
        return read

    return Prepared(check, (MalformedError,), [each.encode() for each in made], Format.MSGPACK)


@GROUP.target(
    "overlay-order",
    "descriptions and orders of an overlay, signed by its operator or said to be",
    "brokers.overlay:SignedOverlay.decode",
    "brokers.overlay:SignedOverlay.verify",
)
def overlay_order() -> Prepared:
    """The first byte chooses: the bytes as they came, or as a body that the operator has signed."""
    current = overlay()

    def check(data: bytes) -> object:
        if data[:1] == b"\0":
            return SignedOverlay.decode(data[1:]).verify(OPERATOR.public)
        body = data[1:]
        if not body:
            return None
        signature = OPERATOR.sign(body, purpose=b"veilcast/overlay")
        newer = SignedOverlay(body, signature).verify(OPERATOR.public)
        current.check_successor(newer)
        return newer

    whole = sign_overlay(current, OPERATOR)
    later = sign_overlay(overlay(version=2), OPERATOR)
    examples = [b"\0" + whole.encode(), b"\1" + whole.body, b"\1" + later.body]
    return Prepared(check, (RemoteError,), examples, Format.MSGPACK, prefixes=(b"\0", b"\1"), skip=1)


@GROUP.target(
    "claims-language",
    "interests and publications as brokers match them",
    "brokers.routing.claim_semantics:predicate_codec",
)
def claims_language() -> Prepared:
    claim = one(of_type(Claim))
    assert isinstance(claim, Claim)
    languages = [predicate_codec("paper"), predicate_codec("hardened")]

    def check(data: bytes) -> object:
        told = msgspec.structs.replace(claim, interest=data)
        found = []
        for language in languages:
            for read in (
                partial(language.decode_subscription, told),
                partial(language.decode_advertisement, told),
                partial(language.decode_publication, data),
            ):
                try:
                    found.append(type(read()).__name__)
                except RemoteError as error:
                    found.append(type(error).__name__)
        return "".join(found)

    publication = Publication((Label(TOPIC).pair, ("level", 3), ("kind", "red"), ("price", 5.0)))
    examples = []
    profiles: tuple[Profile, ...] = ("paper", "hardened")
    for profile in profiles:
        keys, language = keys_of(1, profile), predicate_codec(profile)
        examples += [language.encode_subscription(keys, Label(TOPIC)), language.encode_publication(keys, publication)]
    return Prepared(check, (), examples, Format.MSGPACK)


@GROUP.target(
    "claims-record",
    "a client's record of claims it withdrew, from its disk",
    "brokers.routing.renewal:_decode_withdrawals",
)
def claims_record() -> Prepared:
    example = renewal._encode_withdrawals({(bytes(16), 5): 2, (b"a" * 16, 6): 1})
    return Prepared(renewal._decode_withdrawals, (TamperedError,), [example], Format.MSGPACK)
