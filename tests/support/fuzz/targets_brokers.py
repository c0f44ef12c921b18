"""Targets: brokers. Shares and dealings, what replicas say, manifests, overlays and orders, the language of claims."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from support.broker_grants import OPERATOR, TOPIC, keys_of, overlay, signing
from support.fuzz.fuzz_target import Format, Group, Prepared
from support.fuzz.targets_wire import one
from support.strategies import of_type
from veilcast.authority.record import Profile
from veilcast.brokers import renewing
from veilcast.brokers.content import Manifest, Strategy, prepare
from veilcast.brokers.language import language_of
from veilcast.brokers.overlay import SignedOverlay, sign_overlay
from veilcast.brokers.said import Said
from veilcast.brokers.sharing import attendance, receiving
from veilcast.brokers.sharing.attendance import Dealt, Roll
from veilcast.brokers.sharing.paper import Origin, Parcel, split_key
from veilcast.brokers.sharing.redistribution import Delivery, First, Portion, deal_key, hand_on, take_first
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.crypto.dealing import Commitments
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.shares import Share
from veilcast.errors import MalformedError, RemoteError, TamperedError
from veilcast.machine import Publication
from veilcast.topics import Label
from veilcast.wire.brokers import Claim

GROUP = Group()
ENTROPY = random.Random(8).randbytes


def _scheme(node: int) -> Scheme:
    return Scheme(bytes((node,)) * 16, 0, 3)


def _dealt() -> tuple[list[First], list[Portion]]:
    key = signing("publisher", 1)
    origin = Origin(bytes(32), 0)
    firsts = deal_key(Scalar.draw(ENTROPY), origin, _scheme(1), key, ENTROPY)
    held = take_first(firsts[0], Place(_scheme(1), 1), key.public)
    handed = hand_on(held, _scheme(2), signing("north", 1), ENTROPY)
    return firsts, [handed.portion(index) for index in (1, 2, 3)]


@GROUP.target(
    "shares",
    "shares of keys, dealings and commitments, from replicas and publishers",
    "brokers.sharing.redistribution:First.decode",
    "brokers.sharing.redistribution:Portion.decode",
    "brokers.sharing.redistribution:Delivery.decode",
    "brokers.sharing.paper:Parcel.decode",
    "crypto.shares:Share.decode",
    "crypto.dealing:Commitments.decode",
)
def shares() -> Prepared:
    firsts, portions = _dealt()
    parcels = split_key(Secret(bytes(32)), Origin(bytes(32), 0), _scheme(1), signing("publisher", 1), ENTROPY)
    delivery = Delivery(firsts[0].root, firsts[0].root.points, firsts[0].share)
    kinds: list[Callable[[bytes], Any]] = [
        First.decode, Portion.decode, Delivery.decode, Parcel.decode, Share.decode, Commitments.decode,
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
    examples = [each.encode().reveal() for each in made] + [firsts[0].root.points, b"\1\1" + bytes(32)]
    return Prepared(check, (), examples, Format.MSGPACK)


@GROUP.target(
    "replicas-say",
    "what replicas of a node say of one another's dealings",
    "brokers.said:Said.decode",
    "brokers.sharing.attendance:decode",
    "brokers.sharing.receiving:_DECODER",
)
def replicas_say() -> Prepared:
    firsts, portions = _dealt()

    def check(data: bytes) -> object:
        found = []
        for decode in (Said.decode, attendance.decode, receiving._DECODER.decode):
            try:
                found.append(type(decode(data)).__name__)
            except RemoteError as error:
                found.append(type(error).__name__)
        assert isinstance(attendance.is_brief(data), bool)
        return "".join(found)

    said = [
        Said(_scheme(1), _scheme(2)),
        Said(_scheme(1), _scheme(2), (), firsts[0].root, (portions[0].header,), True),
    ]
    roll = attendance.encode(Roll({1: Dealt(bytes(32), bytes(32))}, (2,), (), False))
    evidence = msgspec.msgpack.encode([portions[0].encode().reveal()])
    return Prepared(check, (), [*(each.encode() for each in said), roll, evidence], Format.MSGPACK)


@GROUP.target("manifest", "the manifest of a content, from publishers", "brokers.content:Manifest.decode")
def manifest() -> Prepared:
    made = [
        prepare(bytes(16), b"content" * 99, strategy, _scheme(1), signing("publisher", 1))[0] for strategy in Strategy
    ]

    def check(data: bytes) -> object:
        read = Manifest.decode(data)
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


@GROUP.target("claims-language", "interests and publications as brokers match them", "brokers.language:language_of")
def claims_language() -> Prepared:
    claim = one(of_type(Claim))
    assert isinstance(claim, Claim)
    languages = [language_of("paper"), language_of("hardened")]

    def check(data: bytes) -> object:
        told = msgspec.structs.replace(claim, interest=data)
        found = []
        for language in languages:
            for read in (
                partial(language.read_subscription, told),
                partial(language.read_advertisement, told),
                partial(language.read_says, data),
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
        keys, language = keys_of(1, profile), language_of(profile)
        examples += [language.subscription(keys, Label(TOPIC)), language.says(keys, publication)]
    return Prepared(check, (), examples, Format.MSGPACK)


@GROUP.target("claims-record", "a client's record of claims it withdrew, from its disk", "brokers.renewing:_read")
def claims_record() -> Prepared:
    example = renewing._spelled({(bytes(16), 5): 2, (b"a" * 16, 6): 1})
    return Prepared(renewing._read, (TamperedError,), [example], Format.MSGPACK)
