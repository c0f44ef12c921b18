"""The proxy by itself: what it refuses, what it forgets, and where each of its tables ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from veilcast.crypto.group import Scalar
from veilcast.errors import LocalError, TamperedError
from veilcast.machine import Address, Connect, Listen, Record, Settled
from veilcast.relay.config import RateAllowance, RelayProxyConfig
from veilcast.relay.enrolment import ServerKeys, begin_enrolment
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.proxy import RelayProxy
from veilcast.wire import decode, encode
from veilcast.wire.geometry import LEASE_NAME
from veilcast.wire.mesh import Message
from veilcast.wire.relay import (
    Blind,
    Blinded,
    EnrolClient,
    Lease,
    Receipt,
    RelayDelivery,
    Release,
    ReplyCode,
    RequestReply,
    Resume,
    Submit,
)

SERVER, ANNA, BOB = Address("server"), Address("anna"), Address("bob")
ENTROPY = Random(1).randbytes
KEYS = ServerKeys.draw(ENTROPY)
MASK = Scalar.draw(ENTROPY)
HOUR_US = 3_600_000_000
UPLOAD = (KEYS.y.public().encode() + KEYS.k_r.public().encode(),)
"""A pair of points, as good as any."""


class Desk:
    """A proxy with everything at hand: its disk, and whom it speaks to."""

    def __init__(self, records: dict[int, bytes] | None = None, **settings: Any) -> None:
        config = RelayProxyConfig(**{"batch_us": 0, **settings})
        self.disk = dict(records or {})
        self.proxy = RelayProxy(config, KEYS.public(), SERVER, MASK, Random(2), Random(3).randbytes, 0, self.disk)
        self.now, self.number = 0, 0
        self.sent: list[tuple[Address, Message]] = []
        self.events: list[Any] = []
        self.step()
        for peer in (SERVER, ANNA, BOB):
            self.proxy.peer_up(peer, 0)

    def step(self) -> list[tuple[Address, Message]]:
        """Write what is to be written, and give what was sent."""
        out = []
        while True:
            out += [(frame.destination, decode(frame.data)) for frame in self.proxy.frames_to_send(self.now, 100)]
            event = self.proxy.next_event()
            if event is None:
                return out
            self.events.append(event)
            if isinstance(event, Record):
                self.disk[event.record] = event.data
                self.proxy.stored(event.record, self.now)
            elif isinstance(event, Settled):
                self.disk.pop(event.record, None)

    def tell(self, source: Address, message: Message) -> list[tuple[Address, Message]]:
        self.proxy.receive(encode(message), source, self.now)
        return self.step()

    def refusal(self, source: Address, message: Any) -> ReplyCode:
        [(target, reply)] = self.tell(source, message)
        assert target == source
        assert isinstance(reply, RequestReply)
        assert reply.number == message.number
        return ReplyCode(reply.code)

    def enrol(self, client: Address) -> None:
        begun = begin_enrolment(KEYS.public(), ENTROPY)
        [(_, blind)] = self.tell(client, EnrolClient(1, begun.ratio.reveal(), begun.claim.encode(), begun.sealed))
        assert isinstance(blind, Blind)
        share = HardenedServerProfile(KEYS, ENTROPY, lambda pairs: []).answer_enrolment(blind.sealed)
        assert self.tell(SERVER, Blinded(blind.number, share)) == [(client, RequestReply(1, ReplyCode.DONE))]

    def lease(self, client: Address, name: bytes, until_us: int = HOUR_US) -> bytes:
        """The pseudonym that the server is told."""
        [(target, lease)] = self.tell(client, Lease(2, name, until_us, (UPLOAD,), b"key"))
        assert target == SERVER
        assert isinstance(lease, Lease)
        self.tell(SERVER, RequestReply(lease.number, ReplyCode.DONE))
        return lease.name


def name(number: int) -> bytes:
    return number.to_bytes(LEASE_NAME, "big")


def submit(number: int = 3) -> Submit:
    return Submit(number, (UPLOAD,), None, b"sealed")


def test_it_asks_for_its_server_and_for_members() -> None:
    assert Desk().events[:2] == [Listen("member"), Connect(SERVER)]


def test_a_stranger_is_told_to_enrol() -> None:
    desk = Desk()
    for request in (
        Lease(2, name(1), HOUR_US, (UPLOAD,), b"key"),
        submit(),
        Resume(4, name(1)),
        Release(5, name(1), ()),
    ):
        assert desk.refusal(ANNA, request) is ReplyCode.UNKNOWN


def test_the_server_sees_neither_the_client_s_number_nor_its_name_nor_its_points() -> None:
    desk = Desk()
    desk.enrol(ANNA)
    pseudonym = desk.lease(ANNA, name(1))
    assert pseudonym != name(1)
    assert desk.lease(ANNA, name(1)) == pseudonym
    assert desk.lease(ANNA, name(2)) != pseudonym
    [(_, sent)] = desk.tell(ANNA, submit(3))
    assert isinstance(sent, Submit)
    assert sent.subjects != (UPLOAD,)
    assert sent.number != 3


def test_a_delivery_goes_to_whose_pseudonym_it_is_for_and_its_receipt_back() -> None:
    desk = Desk()
    desk.enrol(ANNA)
    pseudonym = desk.lease(ANNA, name(1))
    ticket = bytes(16)
    assert desk.tell(SERVER, RelayDelivery((pseudonym,), ticket, None, b"note")) == [
        (ANNA, RelayDelivery((name(1),), ticket, None, b"note"))
    ]
    assert desk.tell(ANNA, Receipt(name(1), ticket)) == [(SERVER, Receipt(pseudonym, ticket))]
    assert desk.tell(ANNA, Receipt(name(9), ticket)) == []
    desk.proxy.peer_lost(ANNA, 0)
    assert desk.tell(SERVER, RelayDelivery((pseudonym, name(7)), ticket, None, b"note")) == []
    assert desk.proxy.undeliverable == 2


def test_a_proxy_that_starts_again_knows_its_clients_and_their_pseudonyms() -> None:
    desk = Desk()
    desk.enrol(ANNA)
    pseudonym = desk.lease(ANNA, name(1))
    again = Desk(desk.disk)
    assert again.lease(ANNA, name(1)) == pseudonym
    with pytest.raises(TamperedError):
        Desk({1: b"\xc1"})


def test_a_pseudonym_is_forgotten_with_its_lease_and_the_time_for_which_the_server_holds_things() -> None:
    desk = Desk(retention_us=1_000)
    desk.enrol(ANNA)
    first = desk.lease(ANNA, name(1), until_us=5_000)
    desk.now = 5_999
    desk.proxy.handle_timer(desk.now)
    assert desk.lease(ANNA, name(1), until_us=5_000) == first
    desk.now = 6_000
    desk.proxy.handle_timer(desk.now)
    desk.step()
    assert desk.proxy.sizes()["leases"] == 0
    assert len(desk.disk) == 1


def test_what_the_server_does_not_know_is_forgotten_here_too() -> None:
    desk = Desk()
    desk.enrol(ANNA)
    desk.lease(ANNA, name(1))
    [(_, resume)] = desk.tell(ANNA, Resume(7, name(1)))
    assert isinstance(resume, Resume)
    assert desk.tell(SERVER, RequestReply(resume.number, ReplyCode.UNKNOWN)) == [
        (ANNA, RequestReply(7, ReplyCode.UNKNOWN))
    ]
    assert desk.proxy.sizes()["leases"] == 0
    assert desk.refusal(ANNA, Resume(8, name(1))) is ReplyCode.UNKNOWN


def test_no_client_publishes_faster_than_it_may_and_others_do_not_pay_for_it() -> None:
    desk = Desk(publications=RateAllowance(1_000_000, 2))
    desk.enrol(ANNA)
    desk.enrol(BOB)
    sent = [desk.tell(ANNA, submit(number))[0] for number in range(10, 13)]
    assert [target for target, _ in sent] == [SERVER, SERVER, ANNA]
    assert sent[2][1] == RequestReply(12, ReplyCode.LIMITED)
    assert desk.tell(BOB, submit())[0][0] == SERVER
    desk.now = 1_000_000
    assert desk.tell(ANNA, submit())[0][0] == SERVER


@pytest.mark.parametrize(
    "settings",
    [{"requests": RateAllowance(1_000_000, 2)}, {"volume": RateAllowance(1_000_000, 2)}, {"leases_each": 1}],
)
def test_no_client_asks_for_more_than_it_may(settings: dict[str, Any]) -> None:
    desk = Desk(**settings)
    desk.enrol(ANNA)
    desk.lease(ANNA, name(1))
    assert desk.refusal(ANNA, Lease(5, name(2), HOUR_US, (UPLOAD,), b"key")) is ReplyCode.LIMITED


def test_no_request_has_more_subjects_than_it_may() -> None:
    desk = Desk(subjects_each=2)
    desk.enrol(ANNA)
    assert desk.refusal(ANNA, Submit(3, (UPLOAD * 2, UPLOAD), None, b"sealed")) is ReplyCode.LIMITED
    assert desk.tell(ANNA, Submit(3, (UPLOAD * 2,), None, b"sealed"))[0][0] == SERVER


def test_there_is_room_for_so_many_clients_and_no_more() -> None:
    desk = Desk(clients_max=1)
    desk.enrol(ANNA)
    desk.enrol(ANNA)
    desk.lease(ANNA, name(1))  # Who has none can come back as somebody new.
    begun = begin_enrolment(KEYS.public(), ENTROPY)
    [(_, blind)] = desk.tell(BOB, EnrolClient(1, begun.ratio.reveal(), begun.claim.encode(), begun.sealed))
    assert isinstance(blind, Blind)
    share = HardenedServerProfile(KEYS, ENTROPY, lambda pairs: []).answer_enrolment(blind.sealed)
    assert desk.tell(SERVER, Blinded(blind.number, share)) == [(BOB, RequestReply(1, ReplyCode.FULL))]
    assert desk.proxy.sizes()["clients"] == desk.proxy.sizes()["limits"] == 1


def test_so_many_requests_are_under_way_and_those_that_nobody_answers_make_room() -> None:
    desk = Desk(flight_max=2, request_us=1_000)
    desk.enrol(ANNA)
    for number in (3, 4):
        assert desk.tell(ANNA, submit(number))[0][0] == SERVER
    assert desk.refusal(ANNA, submit(5)) is ReplyCode.FULL
    assert desk.proxy.sizes()["flying"] == 2
    desk.now = 1_000
    assert desk.tell(ANNA, submit(6))[0][0] == SERVER


def test_points_that_are_none_are_malformed() -> None:
    desk = Desk()
    desk.enrol(ANNA)
    assert desk.refusal(ANNA, Submit(3, ((bytes(64),),), None, b"sealed")) is ReplyCode.MALFORMED
    assert desk.refusal(ANNA, Submit(3, (UPLOAD,), bytes(64), b"sealed")) is ReplyCode.MALFORMED


def test_a_server_with_a_key_of_its_own_for_one_client_is_found_out() -> None:
    """Or it would know that client's subjects from all others, whatever pseudonym they come under."""
    desk, other = Desk(), ServerKeys(Scalar.draw(ENTROPY), KEYS.y, KEYS.box)
    begun = begin_enrolment(KEYS.public(), ENTROPY)
    [(_, blind)] = desk.tell(ANNA, EnrolClient(1, begun.ratio.reveal(), begun.claim.encode(), begun.sealed))
    assert isinstance(blind, Blind)
    share = HardenedServerProfile(other, ENTROPY, lambda pairs: []).answer_enrolment(blind.sealed)
    assert desk.tell(SERVER, Blinded(blind.number, share)) == [(ANNA, RequestReply(1, ReplyCode.MALFORMED))]
    assert desk.refusal(ANNA, submit()) is ReplyCode.UNKNOWN


@pytest.mark.parametrize("data", [b"", b"\x40", b"\xff\xff", encode(RequestReply(1, 0)), encode(Blinded(1, bytes(32)))])
@pytest.mark.parametrize("source", [SERVER, ANNA])
def test_garbage_changes_nothing(data: bytes, source: Address) -> None:
    desk = Desk()
    desk.proxy.receive(data, source, 0)
    assert desk.step() == []
    assert sum(desk.proxy.refused.values()) == 1


def test_a_proxy_has_a_mask_exactly_when_it_is_hardened() -> None:
    rng = Random(1)
    for profile, mask in (("paper", MASK), ("hardened", None)):
        config = RelayProxyConfig(profile=profile)  # type: ignore[arg-type]
        with pytest.raises(LocalError, match="mask"):
            RelayProxy(config, KEYS.public(), SERVER, mask, rng, rng.randbytes, 0)


def test_what_waits_for_its_batch_leaves_in_an_order_of_chance() -> None:
    desk = Desk(batch_us=1_000)
    for number in range(20):
        assert desk.tell(ANNA, EnrolClient(number, KEYS.k_r.reveal(), None, name(number))) == []
    desk.now = 1_000
    assert desk.proxy.next_timer() == desk.now
    desk.proxy.handle_timer(desk.now)
    sent = [(blind.number, blind.sealed) for _, blind in desk.step() if isinstance(blind, Blind)]
    assert sorted(sealed for _, sealed in sent) == [name(number) for number in range(20)]
    assert [sealed for _, sealed in sent] != [name(number) for number in range(20)]
    assert [number for number, _ in sent] == sorted(number for number, _ in sent), "numbers tell the new order only"
