"""The proxy alone, passing all on at once: what it refuses and forgets, and the bound of each table."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from veilcast.crypto.group import Scalar
from veilcast.errors import LocalError, TamperedError
from veilcast.machine import Address, Connect, Listen, Record, Settled
from veilcast.relay.config import RateAllowance, RelayProxyConfig
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.proxy import RelayProxy
from veilcast.relay.transformation_key import ServerKeys, begin_enrolment
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import LEASE_NAME
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

SERVER, STANDBY, ANNA, BOB = Address("server"), Address("standby"), Address("anna"), Address("bob")
ENTROPY = Random(1).randbytes
KEYS = ServerKeys.draw(ENTROPY)
MASK = Scalar.draw(ENTROPY)
HOUR_US = 3_600_000_000
UPLOAD = (KEYS.y.public().encode() + KEYS.k_r.public().encode(),)
"""An arbitrary pair of points."""


class ProxyHost:
    """A proxy with its disk and its peers."""

    def __init__(
        self, records: dict[int, bytes] | None = None, servers: tuple[Address, ...] = (SERVER,), **settings: Any
    ) -> None:
        config = RelayProxyConfig(**{"batch_us": 0, "holds_presence": False, **settings})
        self.disk = dict(records or {})
        self.proxy = RelayProxy(config, KEYS.public(), servers, MASK, Random(2), Random(3).randbytes, 0, self.disk)
        self.now, self.number = 0, 0
        self.sent: list[tuple[Address, Message]] = []
        self.events: list[Any] = []
        self.step()
        for peer in (SERVER, ANNA, BOB):
            self.proxy.peer_up(peer, 0)

    def step(self) -> list[tuple[Address, Message]]:
        """Complete pending writes, and return the messages sent."""
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
        """Lease, and return the pseudonym that the server receives."""
        [(target, lease)] = self.tell(client, Lease(2, name, until_us, (UPLOAD,), b"key"))
        assert target == SERVER
        assert isinstance(lease, Lease)
        self.tell(SERVER, RequestReply(lease.number, ReplyCode.DONE))
        return lease.name


def name(number: int) -> bytes:
    return number.to_bytes(LEASE_NAME, "big")


def submit(number: int = 3) -> Submit:
    return Submit(number, (UPLOAD,), None, b"sealed")


def test_a_proxy_connects_to_its_server_and_listens_for_members() -> None:
    assert ProxyHost().events[:2] == [Listen("member"), Connect(SERVER)]


def test_requests_go_to_the_server_that_has_taken_over() -> None:
    host = ProxyHost(servers=(SERVER, STANDBY))
    assert host.events[:3] == [Listen("member"), Connect(SERVER), Connect(STANDBY)]
    host.enrol(ANNA)
    pseudonym = host.lease(ANNA, name(1))
    host.proxy.peer_lost(SERVER, 0)
    assert host.tell(ANNA, submit(4)) == [], "nobody serves; the client asks again"
    host.proxy.peer_up(STANDBY, 0)
    [(target, submitted)] = host.tell(ANNA, submit(4))
    assert (target, type(submitted)) == (STANDBY, Submit)
    assert isinstance(submitted, Submit)
    done = RequestReply(submitted.number, ReplyCode.DONE)
    assert host.tell(STANDBY, done) == [(ANNA, RequestReply(4, ReplyCode.DONE))]
    delivery = RelayDelivery((pseudonym,), bytes(16), None, b"sealed")
    assert host.tell(STANDBY, delivery) == [(ANNA, RelayDelivery((name(1),), bytes(16), None, b"sealed"))]
    host.proxy.peer_up(SERVER, 0)
    host.proxy.peer_lost(SERVER, 0)
    assert host.tell(ANNA, submit(5))[0][0] == STANDBY, "the one that is left"


def test_an_unknown_client_is_asked_to_enrol() -> None:
    host = ProxyHost()
    for request in (
        Lease(2, name(1), HOUR_US, (UPLOAD,), b"key"),
        submit(),
        Resume(4, name(1)),
        Release(5, name(1), ()),
    ):
        assert host.refusal(ANNA, request) is ReplyCode.UNKNOWN


def test_the_server_sees_neither_the_client_s_number_nor_its_name_nor_its_points() -> None:
    host = ProxyHost()
    host.enrol(ANNA)
    pseudonym = host.lease(ANNA, name(1))
    assert pseudonym != name(1)
    assert host.lease(ANNA, name(1)) == pseudonym
    assert host.lease(ANNA, name(2)) != pseudonym
    [(_, sent)] = host.tell(ANNA, submit(3))
    assert isinstance(sent, Submit)
    assert sent.subjects != (UPLOAD,)
    assert sent.number != 3


def test_a_delivery_reaches_the_owner_of_its_pseudonym_and_the_receipt_returns() -> None:
    host = ProxyHost()
    host.enrol(ANNA)
    pseudonym = host.lease(ANNA, name(1))
    ticket = bytes(16)
    assert host.tell(SERVER, RelayDelivery((pseudonym,), ticket, None, b"note")) == [
        (ANNA, RelayDelivery((name(1),), ticket, None, b"note"))
    ]
    assert host.tell(ANNA, Receipt(name(1), ticket)) == [(SERVER, Receipt(pseudonym, ticket))]
    assert host.tell(ANNA, Receipt(name(9), ticket)) == []
    host.proxy.peer_lost(ANNA, 0)
    assert host.tell(SERVER, RelayDelivery((pseudonym, name(7)), ticket, None, b"note")) == []
    assert host.proxy.undeliverable == 2


def test_a_restarted_proxy_knows_its_clients_and_their_pseudonyms() -> None:
    host = ProxyHost()
    host.enrol(ANNA)
    pseudonym = host.lease(ANNA, name(1))
    again = ProxyHost(host.disk)
    assert again.lease(ANNA, name(1)) == pseudonym
    with pytest.raises(TamperedError):
        ProxyHost({1: b"\xc1"})


def test_a_pseudonym_is_forgotten_after_its_lease_and_the_retention_time() -> None:
    host = ProxyHost(retention_us=1_000)
    host.enrol(ANNA)
    first = host.lease(ANNA, name(1), until_us=5_000)
    host.now = 5_999
    host.proxy.handle_timer(host.now)
    assert host.lease(ANNA, name(1), until_us=5_000) == first
    host.now = 6_000
    host.proxy.handle_timer(host.now)
    host.step()
    assert host.proxy.sizes()["leases"] == 0
    assert len(host.disk) == 1


def test_a_lease_unknown_to_the_server_is_forgotten_by_the_proxy() -> None:
    host = ProxyHost()
    host.enrol(ANNA)
    host.lease(ANNA, name(1))
    [(_, resume)] = host.tell(ANNA, Resume(7, name(1)))
    assert isinstance(resume, Resume)
    assert host.tell(SERVER, RequestReply(resume.number, ReplyCode.UNKNOWN)) == [
        (ANNA, RequestReply(7, ReplyCode.UNKNOWN))
    ]
    assert host.proxy.sizes()["leases"] == 0
    assert host.refusal(ANNA, Resume(8, name(1))) is ReplyCode.UNKNOWN


def test_publications_are_rate_limited_for_each_client() -> None:
    host = ProxyHost(publications=RateAllowance(1_000_000, 2))
    host.enrol(ANNA)
    host.enrol(BOB)
    sent = [host.tell(ANNA, submit(number))[0] for number in range(10, 13)]
    assert [target for target, _ in sent] == [SERVER, SERVER, ANNA]
    assert sent[2][1] == RequestReply(12, ReplyCode.LIMITED)
    assert host.tell(BOB, submit())[0][0] == SERVER
    host.now = 1_000_000
    assert host.tell(ANNA, submit())[0][0] == SERVER


@pytest.mark.parametrize(
    "settings",
    [{"requests": RateAllowance(1_000_000, 2)}, {"volume": RateAllowance(1_000_000, 2)}, {"leases_each": 1}],
)
def test_requests_of_a_client_are_limited(settings: dict[str, Any]) -> None:
    host = ProxyHost(**settings)
    host.enrol(ANNA)
    host.lease(ANNA, name(1))
    assert host.refusal(ANNA, Lease(5, name(2), HOUR_US, (UPLOAD,), b"key")) is ReplyCode.LIMITED


def test_the_subjects_of_a_request_are_limited() -> None:
    host = ProxyHost(subjects_each=2)
    host.enrol(ANNA)
    assert host.refusal(ANNA, Submit(3, (UPLOAD * 2, UPLOAD), None, b"sealed")) is ReplyCode.LIMITED
    assert host.tell(ANNA, Submit(3, (UPLOAD * 2,), None, b"sealed"))[0][0] == SERVER


def test_the_number_of_clients_is_bounded() -> None:
    host = ProxyHost(clients_max=1)
    host.enrol(ANNA)
    host.enrol(ANNA)
    host.lease(ANNA, name(1))  # Who has none can come back as somebody new.
    begun = begin_enrolment(KEYS.public(), ENTROPY)
    [(_, blind)] = host.tell(BOB, EnrolClient(1, begun.ratio.reveal(), begun.claim.encode(), begun.sealed))
    assert isinstance(blind, Blind)
    share = HardenedServerProfile(KEYS, ENTROPY, lambda pairs: []).answer_enrolment(blind.sealed)
    assert host.tell(SERVER, Blinded(blind.number, share)) == [(BOB, RequestReply(1, ReplyCode.FULL))]
    assert host.proxy.sizes()["clients"] == host.proxy.sizes()["limits"] == 1


def test_requests_in_flight_are_bounded_and_unanswered_ones_expire() -> None:
    host = ProxyHost(flight_max=2, request_us=1_000)
    host.enrol(ANNA)
    for number in (3, 4):
        assert host.tell(ANNA, submit(number))[0][0] == SERVER
    assert host.refusal(ANNA, submit(5)) is ReplyCode.FULL
    assert host.proxy.sizes()["flying"] == 2
    host.now = 1_000
    assert host.tell(ANNA, submit(6))[0][0] == SERVER


def test_invalid_points_are_malformed() -> None:
    host = ProxyHost()
    host.enrol(ANNA)
    assert host.refusal(ANNA, Submit(3, ((bytes(64),),), None, b"sealed")) is ReplyCode.MALFORMED
    assert host.refusal(ANNA, Submit(3, (UPLOAD,), bytes(64), b"sealed")) is ReplyCode.MALFORMED


def test_a_server_with_a_special_key_for_one_client_is_detected() -> None:
    """Otherwise the server could tell that client's subjects from all others, under any pseudonym."""
    host, other = ProxyHost(), ServerKeys(Scalar.draw(ENTROPY), KEYS.y, KEYS.box)
    begun = begin_enrolment(KEYS.public(), ENTROPY)
    [(_, blind)] = host.tell(ANNA, EnrolClient(1, begun.ratio.reveal(), begun.claim.encode(), begun.sealed))
    assert isinstance(blind, Blind)
    share = HardenedServerProfile(other, ENTROPY, lambda pairs: []).answer_enrolment(blind.sealed)
    assert host.tell(SERVER, Blinded(blind.number, share)) == [(ANNA, RequestReply(1, ReplyCode.MALFORMED))]
    assert host.refusal(ANNA, submit()) is ReplyCode.UNKNOWN


@pytest.mark.parametrize("data", [b"", b"\x40", b"\xff\xff", encode(RequestReply(1, 0)), encode(Blinded(1, bytes(32)))])
@pytest.mark.parametrize("source", [SERVER, ANNA])
def test_garbage_changes_nothing(data: bytes, source: Address) -> None:
    host = ProxyHost()
    host.proxy.receive(data, source, 0)
    assert host.step() == []
    assert sum(host.proxy.refused.values()) == 1


def test_a_proxy_has_a_mask_exactly_when_it_is_hardened() -> None:
    rng = Random(1)
    for profile, mask in (("paper", MASK), ("hardened", None)):
        config = RelayProxyConfig(profile=profile)  # type: ignore[arg-type]
        with pytest.raises(LocalError, match="mask"):
            RelayProxy(config, KEYS.public(), [SERVER], mask, rng, rng.randbytes, 0)


def test_a_proxy_forwards_a_batch_in_random_order() -> None:
    host = ProxyHost(batch_us=1_000)
    for number in range(20):
        assert host.tell(ANNA, EnrolClient(number, KEYS.k_r.reveal(), None, name(number))) == []
    host.now = 1_000
    assert host.proxy.next_timer() == host.now
    host.proxy.handle_timer(host.now)
    sent = [(blind.number, blind.sealed) for _, blind in host.step() if isinstance(blind, Blind)]
    assert sorted(sealed for _, sealed in sent) == [name(number) for number in range(20)]
    assert [sealed for _, sealed in sent] != [name(number) for number in range(20)]
    assert [number for number, _ in sent] == sorted(number for number, _ in sent), "numbers tell the new order only"
