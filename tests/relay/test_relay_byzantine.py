"""Members, proxies and servers that violate the protocol, and what they gain."""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

import msgspec
import pytest

from support.relay_by_hand import ANNA, BEN, PROXY, SERVER, TOPIC, RelayByHand, SentFrame
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.crypto.group import Scalar
from veilcast.machine import Publication
from veilcast.relay.body_encryption import wrap_for_server
from veilcast.relay.config import RelayProxyConfig
from veilcast.relay.hardened import _SUBMIT
from veilcast.relay.roster import ClientRoster
from veilcast.relay.transformation_key import begin_enrolment, check_transformation
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import MOMENT_MAX, NOTE_ID
from veilcast.wire.relay import EnrolClient, Lease, Receipt, RelayDelivery, ReplyCode, RequestReply, Submit

Profile: TypeAlias = Literal["paper", "hardened"]
each_profile = pytest.mark.parametrize("profile", ["paper", "hardened"])


@each_profile
def test_no_member_can_predict_and_occupy_the_id_of_a_future_publication(profile: Profile) -> None:
    """A subscriber knows the stream and can count. A publication that it sends in the next place must not pass for
    the real one."""
    relay = RelayByHand(profile)
    relay.subscribe(BEN, TOPIC)
    relay.run(1_000_000)
    anna, ben = relay.clients[ANNA], relay.clients[BEN]
    planted = NumberedPublication(anna._outbox._stream, 1, Publication((Label(TOPIC).pair,), b"planted"))
    ben._send(1, PendingPublication(TOPIC, planted), relay.now)
    relay.run(1_000_000)
    relay.publish(ANNA, TOPIC, b"true")
    relay.run(1_000_000)
    assert relay.notes[BEN] == [b"planted", b"true"]


@pytest.mark.parametrize("told", [True, False])
def test_subjects_of_a_subscription_replayed_in_a_publication_match_nothing(told: bool) -> None:
    """Otherwise the deliveries would show which clients share the subscription. Only a party that knows the bond
    could do it."""
    relay = RelayByHand("hardened")
    for name in (ANNA, BEN):
        relay.subscribe(name, TOPIC)
    relay.run(1_000_000)
    lease = next(message for each in relay.between(PROXY, SERVER) if isinstance(message := each.message, Lease))
    bond = relay.server._profile.open_lease(lease).bond
    assert bond is not None
    guess = bond.reveal() if told else Scalar.draw(Random("guess").randbytes).reveal()
    inside = guess + bytes(NOTE_ID) + MOMENT_MAX.to_bytes(8, "big") + b"nothing"
    boxed = wrap_for_server(relay.public.box, inside, purpose=_SUBMIT, entropy=Random("box").randbytes)
    sent_before = len(deliveries(relay))
    relay.server.receive(encode(Submit(1, lease.subjects, None, boxed)), PROXY, relay.now)
    relay.run(1_000_000)
    assert (len(deliveries(relay)) > sent_before) == told


def test_of_two_enrolments_in_one_batch_the_last_requested_counts() -> None:
    """A member restarts within a batch: under the key of its earlier run its subjects would mean nothing."""
    relay, entropy = RelayByHand("hardened"), Random("begun").randbytes
    relay.run(1_000_000)
    for trial in range(8):
        begun = [begin_enrolment(relay.public, entropy) for _ in range(2)]
        for place, each in enumerate(begun):
            enrol = relay.clients[ANNA]._profile.build_enrol(10 * trial + place, each)
            relay.proxy.receive(encode(enrol), ANNA, relay.now)
        relay.run(1_000_000)
        check_transformation(relay.proxy._roster.transformation(ANNA), begun[-1].claim, relay.public)


def test_a_member_cannot_send_more_receipts_than_it_had_deliveries() -> None:
    """Receipts are not limited like requests, because a subscriber may get many notifications; so they must not cost
    more."""
    relay = RelayByHand("hardened")
    relay.subscribe(BEN, TOPIC)
    relay.run(1_000_000)
    for _ in range(3):
        relay.publish(ANNA, TOPIC, b"a note")
    relay.run(1_000_000)
    given = next(each.data for each in relay.between(BEN, PROXY) if isinstance(each.message, Receipt))
    for _ in range(100):
        relay.proxy.receive(given, BEN, relay.now)
    relay.run(1_000_000)
    assert len([each for each in relay.between(PROXY, SERVER) if isinstance(each.message, Receipt)]) == 3
    assert relay.proxy.refused["ExcessError"] == 100


def test_a_full_proxy_replaces_a_client_without_leases() -> None:
    relay = RelayByHand("hardened", proxy=RelayProxyConfig(batch_us=1000, clients_max=1))
    relay.run(1_000)
    (first,) = (name for name in (ANNA, BEN) if name in relay.proxy._roster)
    (second,) = {ANNA, BEN} - {first}
    relay.subscribe(second, TOPIC)
    relay.run(10_000_000)
    assert relay.proxy.sizes()["clients"] == 1
    assert second in relay.proxy._roster
    relay.publish(first, TOPIC, b"waits")
    relay.run(10_000_000)
    assert second in relay.proxy._roster, "whoever has a lease keeps its place"
    assert ReplyCode.FULL in relay.clients[first].refusals()


def test_a_lease_without_an_end_is_not_stored() -> None:
    relay = RelayByHand("hardened")
    relay.subscribe(BEN, TOPIC)
    relay.run(1_000_000)
    lease = next(message for each in relay.between(BEN, PROXY) if isinstance(message := each.message, Lease))
    known = relay.proxy.sizes()["leases"]
    endless = msgspec.structs.replace(lease, number=0, name=bytes(16), until_us=MOMENT_MAX)
    relay.proxy.receive(encode(endless), BEN, relay.now)
    relay.run(1_000_000)
    assert relay.proxy.refused["MALFORMED"] == 1
    assert relay.proxy.sizes()["leases"] == known


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_a_proxy_cannot_confirm_a_request_in_the_servers_place(profile: Profile) -> None:
    """A member never repeats a confirmed request. In `paper` nothing identifies the server."""
    relay = RelayByHand(profile)
    relay.subscribe(BEN, TOPIC)
    relay.run(1_000_000)
    relay.server.receive, received = lambda *_: None, relay.server.receive  # type: ignore[method-assign]
    relay.publish(ANNA, TOPIC, b"swallowed?")
    relay.subscribe(ANNA, TOPIC)
    relay.run(100_000)
    for each in list(relay.between(ANNA, PROXY)):
        if isinstance(each.message, Submit | Lease):
            relay.clients[ANNA].receive(
                encode(RequestReply(each.message.number, ReplyCode.DONE, bytes(16))), PROXY, relay.now
            )
    relay.server.receive = received  # type: ignore[method-assign]
    relay.run(30_000_000)
    assert relay.notes[BEN] == ([b"swallowed?"] if profile == "hardened" else [])
    assert (relay.clients[ANNA].refused["ForgedError"] > 1) == (profile == "hardened")


def test_a_client_of_a_forgetful_proxy_enrols_again_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first time at once, because the proxy may have lost its disk. But every enrolment costs proxy, server and
    member computation."""
    relay = RelayByHand("hardened")
    relay.run(1_000_000)
    since = relay.now
    relay.publish(BEN, TOPIC, b"waits")
    with monkeypatch.context() as patch:
        patch.setattr(ClientRoster, "__contains__", lambda *_: False)
        relay.run(1_000_000)
        assert len(enrolments(relay, since)) == 1
        relay.run(300_000_000)
        assert 3 < len(enrolments(relay, since)) < 12
    relay.subscribe(ANNA, TOPIC)
    relay.run(100_000_000)
    assert relay.notes[ANNA] == [b"waits"]


def enrolments(relay: RelayByHand, since: int) -> list[SentFrame]:
    return [each for each in relay.between(BEN, PROXY) if each.now >= since and isinstance(each.message, EnrolClient)]


def deliveries(relay: RelayByHand) -> list[Message]:
    return [each.message for each in relay.between(SERVER, PROXY) if isinstance(each.message, RelayDelivery)]
