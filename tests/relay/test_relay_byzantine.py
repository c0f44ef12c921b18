"""Members, proxies and servers that do not keep to the protocol, and what they gain by it."""

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
from veilcast.relay.enrolment import begin_enrolment, check_transformation
from veilcast.relay.hardened import _SUBMIT
from veilcast.relay.roster import ClientRoster
from veilcast.topics import Label
from veilcast.wire import encode
from veilcast.wire.geometry import MOMENT_MAX, NOTE_ID
from veilcast.wire.mesh import Message
from veilcast.wire.relay import EnrolClient, Lease, Receipt, RelayDelivery, ReplyCode, RequestReply, Submit

Profile: TypeAlias = Literal["paper", "hardened"]
each_profile = pytest.mark.parametrize("profile", ["paper", "hardened"])


@each_profile
def test_nobody_takes_the_place_of_a_publication_that_is_still_to_come(profile: Profile) -> None:
    """A reader knows the stream and can count. What it sends in the next place must not pass for what comes there."""
    table = RelayByHand(profile)
    table.subscribe(BEN, TOPIC)
    table.run(1_000_000)
    anna, ben = table.clients[ANNA], table.clients[BEN]
    planted = NumberedPublication(anna._records._stream, 1, Publication((Label(TOPIC).pair,), b"planted"))
    ben._submit(1, PendingPublication(TOPIC, planted), table.now)
    table.run(1_000_000)
    table.publish(ANNA, TOPIC, b"true")
    table.run(1_000_000)
    assert table.notes[BEN] == [b"planted", b"true"]


@pytest.mark.parametrize("told", [True, False])
def test_a_proxy_that_sends_the_subjects_of_a_subscription_as_a_publication_s_reaches_nobody(told: bool) -> None:
    """By the deliveries it would know who else wants the same. Only who is told the bond could."""
    table = RelayByHand("hardened")
    for name in (ANNA, BEN):
        table.subscribe(name, TOPIC)
    table.run(1_000_000)
    lease = next(message for each in table.between(PROXY, SERVER) if isinstance(message := each.message, Lease))
    bond = table.server._part.open_lease(lease).bond
    assert bond is not None
    guess = bond.reveal() if told else Scalar.draw(Random("guess").randbytes).reveal()
    inside = guess + bytes(NOTE_ID) + MOMENT_MAX.to_bytes(8, "big") + b"nothing"
    boxed = wrap_for_server(table.public.box, inside, purpose=_SUBMIT, entropy=Random("box").randbytes)
    sent_before = len(deliveries(table))
    table.server.receive(encode(Submit(1, lease.subjects, None, boxed)), PROXY, table.now)
    table.run(1_000_000)
    assert (len(deliveries(table)) > sent_before) == told


def test_of_two_enrolments_in_one_batch_the_one_that_was_asked_for_last_counts() -> None:
    """A member that starts again within a batch: under the key of its earlier life its subjects would mean nothing."""
    table, entropy = RelayByHand("hardened"), Random("begun").randbytes
    table.run(1_000_000)
    for trial in range(8):
        begun = [begin_enrolment(table.public, entropy) for _ in range(2)]
        for place, each in enumerate(begun):
            enrol = table.clients[ANNA]._part.build_enrol(10 * trial + place, each)
            table.proxy.receive(encode(enrol), ANNA, table.now)
        table.run(1_000_000)
        check_transformation(table.proxy._roster.transformation(ANNA), begun[-1].claim, table.public)


def test_a_member_gives_no_more_receipts_than_it_was_given_notes() -> None:
    """They are not counted as requests are, for a reader may be given many notes; so they must not cost more."""
    table = RelayByHand("hardened")
    table.subscribe(BEN, TOPIC)
    table.run(1_000_000)
    for _ in range(3):
        table.publish(ANNA, TOPIC, b"a note")
    table.run(1_000_000)
    given = next(each.data for each in table.between(BEN, PROXY) if isinstance(each.message, Receipt))
    for _ in range(100):
        table.proxy.receive(given, BEN, table.now)
    table.run(1_000_000)
    assert len([each for each in table.between(PROXY, SERVER) if isinstance(each.message, Receipt)]) == 3
    assert table.proxy.refused["ExcessError"] == 100


def test_a_full_proxy_gives_the_place_of_who_has_no_lease_to_who_comes() -> None:
    table = RelayByHand("hardened", proxy=RelayProxyConfig(batch_us=1000, clients_max=1))
    table.run(1_000)
    (first,) = (name for name in (ANNA, BEN) if name in table.proxy._roster)
    (second,) = {ANNA, BEN} - {first}
    table.subscribe(second, TOPIC)
    table.run(10_000_000)
    assert table.proxy.sizes()["clients"] == 1
    assert second in table.proxy._roster
    table.publish(first, TOPIC, b"waits")
    table.run(10_000_000)
    assert second in table.proxy._roster, "whoever has a lease keeps its place"
    assert ReplyCode.FULL in table.clients[first].refusals()


def test_a_lease_without_an_end_is_not_written_down() -> None:
    table = RelayByHand("hardened")
    table.subscribe(BEN, TOPIC)
    table.run(1_000_000)
    lease = next(message for each in table.between(BEN, PROXY) if isinstance(message := each.message, Lease))
    known = table.proxy.sizes()["leases"]
    endless = msgspec.structs.replace(lease, number=0, name=bytes(16), until_us=MOMENT_MAX)
    table.proxy.receive(encode(endless), BEN, table.now)
    table.run(1_000_000)
    assert table.proxy.refused["MALFORMED"] == 1
    assert table.proxy.sizes()["leases"] == known


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_a_proxy_cannot_say_in_the_server_s_place_that_something_is_done(profile: Profile) -> None:
    """What a member was told is done it would never send again. In `paper` there is nothing to know the server by."""
    table = RelayByHand(profile)
    table.subscribe(BEN, TOPIC)
    table.run(1_000_000)
    table.server.receive, received = lambda *_: None, table.server.receive  # type: ignore[method-assign]
    table.publish(ANNA, TOPIC, b"swallowed?")
    table.subscribe(ANNA, TOPIC)
    table.run(100_000)
    for each in list(table.between(ANNA, PROXY)):
        if isinstance(each.message, Submit | Lease):
            table.clients[ANNA].receive(
                encode(RequestReply(each.message.number, ReplyCode.DONE, bytes(16))), PROXY, table.now
            )
    table.server.receive = received  # type: ignore[method-assign]
    table.run(30_000_000)
    assert table.notes[BEN] == ([b"swallowed?"] if profile == "hardened" else [])
    assert (table.clients[ANNA].refused["ForgedError"] > 1) == (profile == "hardened")


def test_a_proxy_that_forgets_whom_it_has_let_in_is_asked_again_and_again_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once the first time: it may have lost its disk. But every enrolment makes proxy, server and member compute."""
    table = RelayByHand("hardened")
    table.run(1_000_000)
    since = table.now
    table.publish(BEN, TOPIC, b"waits")
    with monkeypatch.context() as patch:
        patch.setattr(ClientRoster, "__contains__", lambda *_: False)
        table.run(1_000_000)
        assert len(enrolments(table, since)) == 1
        table.run(300_000_000)
        assert 3 < len(enrolments(table, since)) < 12
    table.subscribe(ANNA, TOPIC)
    table.run(100_000_000)
    assert table.notes[ANNA] == [b"waits"]


def enrolments(table: RelayByHand, since: int) -> list[SentFrame]:
    return [each for each in table.between(BEN, PROXY) if each.now >= since and isinstance(each.message, EnrolClient)]


def deliveries(table: RelayByHand) -> list[Message]:
    return [each.message for each in table.between(SERVER, PROXY) if isinstance(each.message, RelayDelivery)]
