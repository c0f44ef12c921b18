"""The server alone: what it stores and refuses, and the bound of each table."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from veilcast.crypto.group import Point, Scalar, encrypt
from veilcast.crypto.seal import Sealer
from veilcast.crypto.secret import Secret
from veilcast.errors import TamperedError
from veilcast.machine import Address, Listen, Record, Settled
from veilcast.relay.body_encryption import open_at_subscriber, wrap_for_server
from veilcast.relay.config import RelayServerConfig
from veilcast.relay.hardened import opening_proof
from veilcast.relay.mailboxes import SUBSCRIBER_BYTES
from veilcast.relay.server import RelayServer
from veilcast.relay.subject_tags import bind_subject_key
from veilcast.relay.transformation_key import ServerKeys
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.relay import Blind, Lease, Receipt, RelayDelivery, Release, ReplyCode, RequestReply, Resume, Submit

PROXY, OTHER = Address("proxy"), Address("other")
ENTROPY = Random(1).randbytes
KEYS = ServerKeys.draw(ENTROPY)
PUBLIC = KEYS.public()
MINUTE_US = 60_000_000
KEY = bytes(range(32))
BOND = Scalar.draw(ENTROPY)


class ServerHost:
    """A server with a disk that writes on command."""

    def __init__(
        self, records: dict[int, bytes] | None = None, now: int = 0, *, shared: bool = False, **settings: Any
    ) -> None:
        self.disk, self.now, self.number = dict(records or {}), now, 0
        self.unwritten: list[Record] = []
        self.settled: list[int] = []
        config = RelayServerConfig(**{"leases_max": 100, "columns_max": 400, **settings})
        self.server = RelayServer(config, KEYS, Random(2), ENTROPY, now, self.disk, shared=shared)
        self.first = self.server.next_event()
        self.server.peer_up(PROXY, now)

    def tell(self, message: Message, source: Address = PROXY) -> list[Message]:
        self.server.receive(encode(message), source, self.now)
        return self.take()

    def take(self) -> list[Message]:
        while (event := self.server.next_event()) is not None:
            if isinstance(event, Record):
                self.unwritten.append(event)
            elif isinstance(event, Settled):
                self.settled.append(event.record)
                self.disk.pop(event.record, None)
        return [decode(frame.data) for frame in self.server.frames_to_send(self.now, 10_000)]

    def write(self) -> list[Message]:
        for record in self.unwritten:
            self.disk[record.record] = record.data
            self.server.stored(record.record, self.now)
        self.unwritten = []
        return self.take()

    def ask(self, message: Any, by: Address = PROXY) -> tuple[ReplyCode, list[Message]]:
        """The code of the answer and all other messages, once all writes are durable."""
        sent = [*self.tell(message, by), *self.write()]
        [reply] = [each for each in sent if isinstance(each, RequestReply)]
        return ReplyCode(reply.code), [each for each in sent if not isinstance(each, RequestReply)]

    def lease(
        self, name: bytes, *words: bytes, until_us: int = MINUTE_US, by: Address = PROXY
    ) -> tuple[ReplyCode, list[Message]]:
        self.number += 1
        sealed = boxed(KEY, b"vc/relay-lease")
        return self.ask(Lease(self.number, name, until_us, tuple((moved(word),) for word in words), sealed), by)

    def submit(self, publication: bytes, *words: bytes, by: Address = PROXY) -> tuple[ReplyCode, list[Message]]:
        return self.ask(self.submission(publication, *words), by)

    def submission(self, publication: bytes, *words: bytes, until_us: int = MINUTE_US, size: int = 10) -> Submit:
        self.number += 1
        head = publication.ljust(16, b"\0") + until_us.to_bytes(8, "big")
        sealed = boxed(head + bytes(size), b"vc/relay-submit")
        return Submit(self.number, (tuple(moved(word) for word in words),), None, sealed)


def boxed(inside: bytes, purpose: bytes) -> bytes:
    """A box for the server, with the bond of its subjects."""
    return wrap_for_server(PUBLIC.box, BOND.reveal() + inside, purpose=purpose, entropy=ENTROPY)


def moved(word: bytes) -> bytes:
    """A subject as the proxy forwards it."""
    return encrypt(Point.hash(word, b"test") * KEYS.k_r, bind_subject_key(PUBLIC.subject, BOND), ENTROPY).encode()


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_server_listens_for_proxies() -> None:
    assert ServerHost().first == Listen("proxy")


def test_a_publication_matches_leases_with_a_subject_of_each_group() -> None:
    host = ServerHost()
    host.lease(name(1), b"a", b"b")
    host.lease(name(2), b"b")
    code, sent = host.submit(b"p", b"b", b"c")
    assert code is ReplyCode.DONE
    [delivery] = sent
    assert isinstance(delivery, RelayDelivery)
    assert delivery.names == (name(2),)
    assert open_at_subscriber(Sealer(Secret(KEY)), delivery.sealed) == bytes(10)
    assert len(host.submit(b"q", b"a", b"b")[1]) == 2


def test_nothing_is_confirmed_or_delivered_before_it_is_durable() -> None:
    host = ServerHost()
    host.lease(name(1), b"a")
    assert host.tell(host.submission(b"p", b"a")) == []
    assert [type(each) for each in host.write()] == [RelayDelivery, RequestReply]


def test_a_restarted_server_has_its_leases_and_delivers_waiting_publications() -> None:
    host = ServerHost()
    host.lease(name(1), b"a")
    _, [first] = host.submit(b"p", b"a")
    again = ServerHost(host.disk)
    [delivery] = again.take()
    assert isinstance(delivery, RelayDelivery)
    assert isinstance(first, RelayDelivery)
    assert delivery.ticket == first.ticket, "a receipt counts in any life"
    assert delivery.sealed != first.sealed, "and yet nothing repeats"
    again.tell(Receipt(name(1), first.ticket))
    assert again.server.sizes()["held"] == 0
    assert len(again.disk) == 1
    assert again.submit(b"q", b"a")[1] != []
    with pytest.raises(TamperedError):
        ServerHost({1: b"\xc1"})


def test_a_repeated_publication_is_confirmed_and_not_delivered_again() -> None:
    host = ServerHost()
    host.lease(name(1), b"a")
    _, [delivery] = host.submit(b"p", b"a")
    assert host.submit(b"p", b"a") == (ReplyCode.DONE, [])
    assert isinstance(delivery, RelayDelivery)
    host.tell(Receipt(name(1), delivery.ticket))
    assert host.submit(b"p", b"a") == (ReplyCode.DONE, [])
    assert host.submit(b"nobody's", b"z") == (ReplyCode.DONE, [])
    assert host.unwritten == []


def test_an_unchanged_lease_is_not_written_again() -> None:
    host = ServerHost()
    sealed = boxed(KEY, b"vc/relay-lease")
    lease = Lease(1, name(1), MINUTE_US, ((moved(b"a"),),), sealed)
    assert host.tell(lease) == []
    assert host.tell(lease) == []
    assert len(host.unwritten) == 1
    done = RequestReply(1, ReplyCode.DONE, opening_proof(KEY))
    assert host.write() == [done, done]
    assert host.tell(lease) == [done]


def test_publications_waiting_under_an_expired_lease_stay() -> None:
    host = ServerHost(retention_us=MINUTE_US)
    host.lease(name(1), b"a", until_us=1_000)
    host.lease(name(2), b"a", until_us=1_000)
    _, sent = host.submit(b"p", b"a")
    assert isinstance(sent[0], RelayDelivery)
    host.tell(Receipt(name(1), sent[0].ticket))
    host.now = 1_000
    assert host.server.next_timer() == 1_000
    host.server.handle_timer(host.now)
    host.take()
    assert host.submit(b"q", b"a") == (ReplyCode.DONE, [])
    assert host.ask(Resume(9, name(1))) == (ReplyCode.UNKNOWN, [])
    code, [again] = host.ask(Resume(9, name(2)))
    assert code is ReplyCode.DONE
    assert isinstance(again, RelayDelivery)
    revived = ServerHost(host.disk, now=2_000)
    assert revived.server.sizes()["leases"] == 1, "also in another life"
    revived.tell(Receipt(name(2), again.ticket))
    assert revived.disk == {}


def test_a_publication_is_abandoned_after_its_retention_time() -> None:
    host = ServerHost(retention_us=1_000)
    host.lease(name(1), b"a")
    host.submit(b"p", b"a")
    host.now = 1_000
    host.server.handle_timer(host.now)
    host.take()
    assert host.server.sizes()["held"] == 0
    assert host.server.abandoned == 1
    assert len(host.disk) == 1
    assert host.ask(Resume(9, name(1))) == (ReplyCode.DONE, [])


def test_a_released_lease_discards_its_waiting_publications() -> None:
    host = ServerHost()
    host.lease(name(1), b"a")
    host.submit(b"p", b"a")
    assert host.ask(Release(5, name(1), ())) == (ReplyCode.DONE, [])
    assert host.disk == {}
    assert host.ask(Release(5, name(1), ())) == (ReplyCode.DONE, [])


def test_a_receipt_releases_the_next_delivery_of_the_window() -> None:
    host = ServerHost(window=2)
    host.lease(name(1), b"a")
    sent = [host.submit(b"%d" % number, b"a")[1] for number in range(4)]
    assert [len(each) for each in sent] == [1, 1, 0, 0]
    assert isinstance(sent[0][0], RelayDelivery)
    assert len(host.tell(Receipt(name(1), sent[0][0].ticket))) == 1
    assert host.tell(Receipt(name(1), sent[0][0].ticket)) == []
    assert len(host.ask(Resume(9, name(1)))[1]) == 2


def test_deliveries_to_an_absent_proxy_are_sent_again_on_its_return() -> None:
    host = ServerHost()
    host.lease(name(1), b"a")
    host.server.peer_lost(PROXY, 0)
    assert host.submit(b"p", b"a") == (ReplyCode.DONE, [])
    host.server.peer_up(PROXY, 0)
    assert len(host.take()) == 1


def test_a_lease_queue_is_bounded_and_evicts_the_oldest() -> None:
    host = ServerHost(waiting_max=2)
    host.lease(name(1), b"a")
    for number in range(3):
        host.submit(b"%d" % number, b"a")
    assert host.server.sizes()["waiting"] == host.server.sizes()["held"] == 2
    assert host.server.abandoned == 1


def test_a_full_server_refuses_new_leases_and_accepts_known_ones() -> None:
    host = ServerHost(leases_max=2, held_max=1, remembered_max=1)
    assert [host.lease(name(number), b"a")[0] for number in (1, 2, 3)] == [
        ReplyCode.DONE,
        ReplyCode.DONE,
        ReplyCode.FULL,
    ]
    assert host.lease(name(1), b"b")[0] is ReplyCode.DONE
    assert host.submit(b"p", b"a")[0] is ReplyCode.DONE
    assert host.submit(b"q", b"a")[0] is ReplyCode.FULL
    assert host.submit(b"p", b"a")[0] is ReplyCode.DONE
    for number in range(3):
        host.submit(b"%d" % number, b"z")
    assert host.server.sizes()["remembered"] == 1
    assert host.server.refused["FULL"] == 2


def test_columns_and_bytes_are_bounded() -> None:
    assert ServerHost(columns_max=2).lease(name(1), b"a", b"b", b"c")[0] is ReplyCode.FULL
    host = ServerHost(held_bytes_max=15 + SUBSCRIBER_BYTES)
    host.lease(name(1), b"a")
    assert host.submit(b"p", b"a")[0] is ReplyCode.DONE
    assert host.submit(b"q", b"a")[0] is ReplyCode.FULL


def test_a_held_publication_counts_bytes_for_each_pending_subscriber() -> None:
    host = ServerHost(held_bytes_max=40 + 4 * SUBSCRIBER_BYTES)
    for number in (1, 2, 3):
        host.lease(name(number), b"a")
    _, sent = host.submit(b"p", b"a")
    assert host.submit(b"q", b"a")[0] is ReplyCode.FULL
    for delivery in sent[:2]:
        assert isinstance(delivery, RelayDelivery)
        host.tell(Receipt(delivery.names[0], delivery.ticket))
    assert host.submit(b"q", b"a")[0] is ReplyCode.DONE


def test_one_proxy_cannot_fill_the_server_for_the_others() -> None:
    host = ServerHost(leases_each=2, columns_each=5)
    for number in (1, 2):
        assert host.lease(name(number), b"a", b"b", by=OTHER)[0] is ReplyCode.DONE
    assert host.lease(name(3), b"a", by=OTHER)[0] is ReplyCode.FULL
    assert host.lease(name(4), b"a", by=PROXY)[0] is ReplyCode.DONE
    assert host.lease(name(1), b"a", b"b", b"c", by=OTHER)[0] is ReplyCode.DONE, "a lease of its own may grow"
    assert host.lease(name(1), b"a", b"b", b"c", b"d", by=OTHER)[0] is ReplyCode.FULL, "to where its columns end"
    again = ServerHost(host.disk, leases_each=2, columns_each=5)
    assert again.lease(name(3), b"a", by=OTHER)[0] is ReplyCode.FULL, "also in another life"
    assert again.lease(name(2), b"z", until_us=9, by=OTHER)[0] is ReplyCode.DONE
    assert again.lease(name(2), b"z", until_us=10, by=PROXY)[0] is ReplyCode.DONE, "whose reader has changed its proxy"
    assert again.lease(name(3), b"a", by=OTHER)[0] is ReplyCode.DONE
    for number in (1, 2, 3, 4):
        again.ask(Release(9, name(number), ()))
    assert len(again.server._lease_quota) == len(again.server._column_quota) == 0


@pytest.mark.parametrize("each", [{"held_each": 1}, {"held_bytes_each": 15 + SUBSCRIBER_BYTES}])
def test_publications_of_one_proxy_stay_within_its_quota(each: dict[str, Any]) -> None:
    host = ServerHost(**each)
    host.lease(name(1), b"a")
    _, [delivery] = host.submit(b"p", b"a", by=OTHER)
    assert host.submit(b"q", b"a", by=OTHER)[0] is ReplyCode.FULL
    assert host.submit(b"r", b"a", by=PROXY)[0] is ReplyCode.DONE
    again = ServerHost(host.disk, **each)
    assert again.submit(b"q", b"a", by=OTHER)[0] is ReplyCode.FULL
    assert isinstance(delivery, RelayDelivery)
    again.tell(Receipt(name(1), delivery.ticket))
    assert again.submit(b"q", b"a", by=OTHER)[0] is ReplyCode.DONE


def test_a_publication_of_an_expired_epoch_is_left_to_its_repetition() -> None:
    """Its subscribers have other tags by now; a confirmation would lose it."""
    host = ServerHost()
    host.now = 500
    assert host.tell(host.submission(b"p", b"a", until_us=500)) == []
    assert host.server.refused["StaleError"] == 1
    host.lease(name(1), b"a")
    assert len(host.submit(b"p", b"a")[1]) == 1


@pytest.mark.parametrize(
    "message",
    [
        Blind(1, b"box"),
        Lease(1, name(1), MINUTE_US, ((moved(b"a"),),), None),
        Lease(1, name(1), MINUTE_US, ((moved(b"a"),),), b"no box"),
        Submit(1, ((moved(b"a"),),), None, b"no box"),
        Submit(1, ((moved(b"a"),),), bytes(64), b"no box"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_impossible_request_is_malformed(message: Any) -> None:
    host = ServerHost()
    assert host.ask(message) == (ReplyCode.MALFORMED, [])
    assert host.unwritten == []


def test_a_lease_that_matches_nothing_or_never_ends_is_malformed() -> None:
    host = ServerHost(lease_us_max=MINUTE_US)
    assert host.lease(name(1))[0] is ReplyCode.MALFORMED
    assert host.lease(name(1), b"a", until_us=0)[0] is ReplyCode.MALFORMED
    assert host.lease(name(1), b"a", until_us=MINUTE_US + 1)[0] is ReplyCode.MALFORMED
    sealed = boxed(KEY, b"vc/relay-lease")
    assert host.ask(Lease(1, name(1), 9, ((bytes(64),),), sealed))[0] is ReplyCode.MALFORMED
    short = boxed(b"short", b"vc/relay-lease")
    assert host.ask(Lease(1, name(1), 9, ((moved(b"a"),),), short))[0] is ReplyCode.MALFORMED


@pytest.mark.parametrize("data", [b"", b"\x46", b"\xff\xff", encode(RequestReply(1, 0))])
def test_garbage_changes_nothing(data: bytes) -> None:
    host = ServerHost()
    host.server.receive(data, OTHER, 0)
    assert host.take() == []
    assert sum(host.server.refused.values()) == 1


def test_an_enrolment_answer_leads_to_the_servers_key() -> None:
    blind = Scalar.draw(ENTROPY)
    sealed = wrap_for_server(PUBLIC.box, blind.reveal(), purpose=b"vc/relay-join", entropy=ENTROPY)
    [blinded] = ServerHost().tell(Blind(1, sealed))
    share: bytes = blinded.share  # type: ignore[attr-defined]
    assert Scalar(share) * blind == KEYS.k_r


def test_a_server_on_shared_records_confirms_no_publication_without_a_write() -> None:
    """Another server may have the records by now, with leases that this one does not know. Then the write fails."""
    host = ServerHost(shared=True)
    for _ in range(2):
        publication = host.submission(b"for nobody here", b"a")
        for asked in (publication, publication):  # Asked again, too.
            assert host.tell(asked) == []
        assert [type(each) for each in host.write()] == [RequestReply, RequestReply]
    assert len(host.disk) == 1
    again = ServerHost(host.disk, shared=True)
    assert again.tell(again.submission(b"for nobody, again", b"a")) == []
    again.write()
    assert len(again.disk) == 1, "one record of ownership is enough"
    assert len(ServerHost(again.disk).tell(again.submission(b"alone", b"a"))) == 1, "a server of its own need not write"
