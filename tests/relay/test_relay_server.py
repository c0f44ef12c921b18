"""The server by itself: what it keeps, what it refuses, and where each of its tables ends."""

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
from veilcast.relay.enrolment import ServerKeys
from veilcast.relay.hardened import opening_proof
from veilcast.relay.mailboxes import SUBSCRIBER_BYTES
from veilcast.relay.server import RelayServer
from veilcast.relay.subject_tags import bind_subject_key
from veilcast.wire import decode, encode
from veilcast.wire.mesh import Message
from veilcast.wire.relay import Blind, Lease, Receipt, RelayDelivery, Release, ReplyCode, RequestReply, Resume, Submit

PROXY, OTHER = Address("proxy"), Address("other")
ENTROPY = Random(1).randbytes
KEYS = ServerKeys.draw(ENTROPY)
PUBLIC = KEYS.public()
MINUTE_US = 60_000_000
KEY = bytes(range(32))
BOND = Scalar.draw(ENTROPY)


class Bench:
    """A server with its disk, which writes when it is told to."""

    def __init__(self, records: dict[int, bytes] | None = None, now: int = 0, **settings: Any) -> None:
        self.disk, self.now, self.number = dict(records or {}), now, 0
        self.unwritten: list[Record] = []
        self.settled: list[int] = []
        config = RelayServerConfig(**{"leases_max": 100, "columns_max": 400, **settings})
        self.server = RelayServer(config, KEYS, Random(2), ENTROPY, now, self.disk)
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
        """The code of the answer, and all else that was sent with it, once all is on the disk."""
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
    """For the server alone, with what binds subjects to it."""
    return wrap_for_server(PUBLIC.box, BOND.reveal() + inside, purpose=purpose, entropy=ENTROPY)


def moved(word: bytes) -> bytes:
    """A subject as the proxy hands it on."""
    return encrypt(Point.hash(word, b"test") * KEYS.k_r, bind_subject_key(PUBLIC.subject, BOND), ENTROPY).encode()


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_it_asks_for_proxies() -> None:
    assert Bench().first == Listen("proxy")


def test_a_publication_goes_to_those_who_have_one_of_its_subjects_in_each_group() -> None:
    bench = Bench()
    bench.lease(name(1), b"a", b"b")
    bench.lease(name(2), b"b")
    code, sent = bench.submit(b"p", b"b", b"c")
    assert code is ReplyCode.DONE
    [delivery] = sent
    assert isinstance(delivery, RelayDelivery)
    assert delivery.names == (name(2),)
    assert open_at_subscriber(Sealer(Secret(KEY)), delivery.sealed) == bytes(10)
    assert len(bench.submit(b"q", b"a", b"b")[1]) == 2


def test_nothing_is_answered_or_sent_before_it_is_on_the_disk() -> None:
    bench = Bench()
    bench.lease(name(1), b"a")
    assert bench.tell(bench.submission(b"p", b"a")) == []
    assert [type(each) for each in bench.write()] == [RelayDelivery, RequestReply]


def test_a_server_that_starts_again_has_its_leases_and_sends_what_waits() -> None:
    bench = Bench()
    bench.lease(name(1), b"a")
    _, [first] = bench.submit(b"p", b"a")
    again = Bench(bench.disk)
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
        Bench({1: b"\xc1"})


def test_a_repeat_is_answered_and_not_delivered_again() -> None:
    bench = Bench()
    bench.lease(name(1), b"a")
    _, [delivery] = bench.submit(b"p", b"a")
    assert bench.submit(b"p", b"a") == (ReplyCode.DONE, [])
    assert isinstance(delivery, RelayDelivery)
    bench.tell(Receipt(name(1), delivery.ticket))
    assert bench.submit(b"p", b"a") == (ReplyCode.DONE, [])
    assert bench.submit(b"nobody's", b"z") == (ReplyCode.DONE, [])
    assert bench.unwritten == []


def test_a_lease_that_comes_again_as_it_was_is_not_written_again() -> None:
    bench = Bench()
    sealed = boxed(KEY, b"vc/relay-lease")
    lease = Lease(1, name(1), MINUTE_US, ((moved(b"a"),),), sealed)
    assert bench.tell(lease) == []
    assert bench.tell(lease) == []
    assert len(bench.unwritten) == 1
    done = RequestReply(1, ReplyCode.DONE, opening_proof(KEY))
    assert bench.write() == [done, done]
    assert bench.tell(lease) == [done]


def test_a_lease_ends_with_its_time_but_not_what_waits_under_it() -> None:
    bench = Bench(retention_us=MINUTE_US)
    bench.lease(name(1), b"a", until_us=1_000)
    bench.lease(name(2), b"a", until_us=1_000)
    _, sent = bench.submit(b"p", b"a")
    assert isinstance(sent[0], RelayDelivery)
    bench.tell(Receipt(name(1), sent[0].ticket))
    bench.now = 1_000
    assert bench.server.next_timer() == 1_000
    bench.server.handle_timer(bench.now)
    bench.take()
    assert bench.submit(b"q", b"a") == (ReplyCode.DONE, [])
    assert bench.ask(Resume(9, name(1))) == (ReplyCode.UNKNOWN, [])
    code, [again] = bench.ask(Resume(9, name(2)))
    assert code is ReplyCode.DONE
    assert isinstance(again, RelayDelivery)
    revived = Bench(bench.disk, now=2_000)
    assert revived.server.sizes()["leases"] == 1, "also in another life"
    revived.tell(Receipt(name(2), again.ticket))
    assert revived.disk == {}


def test_a_publication_is_given_up_when_it_was_held_for_long_enough() -> None:
    bench = Bench(retention_us=1_000)
    bench.lease(name(1), b"a")
    bench.submit(b"p", b"a")
    bench.now = 1_000
    bench.server.handle_timer(bench.now)
    bench.take()
    assert bench.server.sizes()["held"] == 0
    assert bench.server.abandoned == 1
    assert len(bench.disk) == 1
    assert bench.ask(Resume(9, name(1))) == (ReplyCode.DONE, [])


def test_a_released_lease_is_gone_with_what_waits_for_it() -> None:
    bench = Bench()
    bench.lease(name(1), b"a")
    bench.submit(b"p", b"a")
    assert bench.ask(Release(5, name(1), ())) == (ReplyCode.DONE, [])
    assert bench.disk == {}
    assert bench.ask(Release(5, name(1), ())) == (ReplyCode.DONE, [])


def test_a_window_is_under_way_and_the_next_leaves_with_a_receipt() -> None:
    bench = Bench(window=2)
    bench.lease(name(1), b"a")
    sent = [bench.submit(b"%d" % number, b"a")[1] for number in range(4)]
    assert [len(each) for each in sent] == [1, 1, 0, 0]
    assert isinstance(sent[0][0], RelayDelivery)
    assert len(bench.tell(Receipt(name(1), sent[0][0].ticket))) == 1
    assert bench.tell(Receipt(name(1), sent[0][0].ticket)) == []
    assert len(bench.ask(Resume(9, name(1)))[1]) == 2


def test_what_a_proxy_may_have_missed_is_sent_again_when_it_is_back() -> None:
    bench = Bench()
    bench.lease(name(1), b"a")
    bench.server.peer_lost(PROXY, 0)
    assert bench.submit(b"p", b"a") == (ReplyCode.DONE, [])
    bench.server.peer_up(PROXY, 0)
    assert len(bench.take()) == 1


def test_no_more_waits_for_one_lease_than_may_and_the_oldest_is_given_up() -> None:
    bench = Bench(waiting_max=2)
    bench.lease(name(1), b"a")
    for number in range(3):
        bench.submit(b"%d" % number, b"a")
    assert bench.server.sizes()["waiting"] == bench.server.sizes()["held"] == 2
    assert bench.server.abandoned == 1


def test_a_full_server_says_so_and_takes_again_what_it_has() -> None:
    bench = Bench(leases_max=2, held_max=1, remembered_max=1)
    assert [bench.lease(name(number), b"a")[0] for number in (1, 2, 3)] == [
        ReplyCode.DONE,
        ReplyCode.DONE,
        ReplyCode.FULL,
    ]
    assert bench.lease(name(1), b"b")[0] is ReplyCode.DONE
    assert bench.submit(b"p", b"a")[0] is ReplyCode.DONE
    assert bench.submit(b"q", b"a")[0] is ReplyCode.FULL
    assert bench.submit(b"p", b"a")[0] is ReplyCode.DONE
    for number in range(3):
        bench.submit(b"%d" % number, b"z")
    assert bench.server.sizes()["remembered"] == 1
    assert bench.server.refused["FULL"] == 2


def test_columns_and_bytes_are_bounded_too() -> None:
    assert Bench(columns_max=2).lease(name(1), b"a", b"b", b"c")[0] is ReplyCode.FULL
    bench = Bench(held_bytes_max=15 + SUBSCRIBER_BYTES)
    bench.lease(name(1), b"a")
    assert bench.submit(b"p", b"a")[0] is ReplyCode.DONE
    assert bench.submit(b"q", b"a")[0] is ReplyCode.FULL


def test_what_is_held_takes_room_for_each_who_lacks_it() -> None:
    bench = Bench(held_bytes_max=40 + 4 * SUBSCRIBER_BYTES)
    for number in (1, 2, 3):
        bench.lease(name(number), b"a")
    _, sent = bench.submit(b"p", b"a")
    assert bench.submit(b"q", b"a")[0] is ReplyCode.FULL
    for delivery in sent[:2]:
        assert isinstance(delivery, RelayDelivery)
        bench.tell(Receipt(delivery.names[0], delivery.ticket))
    assert bench.submit(b"q", b"a")[0] is ReplyCode.DONE


def test_one_proxy_cannot_fill_the_server_for_the_others() -> None:
    bench = Bench(leases_each=2, columns_each=5)
    for number in (1, 2):
        assert bench.lease(name(number), b"a", b"b", by=OTHER)[0] is ReplyCode.DONE
    assert bench.lease(name(3), b"a", by=OTHER)[0] is ReplyCode.FULL
    assert bench.lease(name(4), b"a", by=PROXY)[0] is ReplyCode.DONE
    assert bench.lease(name(1), b"a", b"b", b"c", by=OTHER)[0] is ReplyCode.DONE, "a lease of its own may grow"
    assert bench.lease(name(1), b"a", b"b", b"c", b"d", by=OTHER)[0] is ReplyCode.FULL, "to where its columns end"
    again = Bench(bench.disk, leases_each=2, columns_each=5)
    assert again.lease(name(3), b"a", by=OTHER)[0] is ReplyCode.FULL, "also in another life"
    assert again.lease(name(2), b"z", until_us=9, by=OTHER)[0] is ReplyCode.DONE
    assert again.lease(name(2), b"z", until_us=10, by=PROXY)[0] is ReplyCode.DONE, "whose reader has changed its proxy"
    assert again.lease(name(3), b"a", by=OTHER)[0] is ReplyCode.DONE
    for number in (1, 2, 3, 4):
        again.ask(Release(9, name(number), ()))
    assert len(again.server._leases_by) == len(again.server._columns_by) == 0


@pytest.mark.parametrize("each", [{"held_each": 1}, {"held_bytes_each": 15 + SUBSCRIBER_BYTES}])
def test_what_came_by_one_proxy_takes_no_more_than_its_share_of_the_room(each: dict[str, Any]) -> None:
    bench = Bench(**each)
    bench.lease(name(1), b"a")
    _, [delivery] = bench.submit(b"p", b"a", by=OTHER)
    assert bench.submit(b"q", b"a", by=OTHER)[0] is ReplyCode.FULL
    assert bench.submit(b"r", b"a", by=PROXY)[0] is ReplyCode.DONE
    again = Bench(bench.disk, **each)
    assert again.submit(b"q", b"a", by=OTHER)[0] is ReplyCode.FULL
    assert isinstance(delivery, RelayDelivery)
    again.tell(Receipt(name(1), delivery.ticket))
    assert again.submit(b"q", b"a", by=OTHER)[0] is ReplyCode.DONE


def test_a_publication_that_was_under_way_for_too_long_is_left_for_its_repeat() -> None:
    """Its readers are known by other tags by now; to say that it is done would lose it."""
    bench = Bench()
    bench.now = 500
    assert bench.tell(bench.submission(b"p", b"a", until_us=500)) == []
    assert bench.server.refused["StaleError"] == 1
    bench.lease(name(1), b"a")
    assert len(bench.submit(b"p", b"a")[1]) == 1


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
def test_what_could_never_be_granted_is_malformed(message: Any) -> None:
    bench = Bench()
    assert bench.ask(message) == (ReplyCode.MALFORMED, [])
    assert bench.unwritten == []


def test_a_lease_that_nothing_could_match_or_that_would_never_end_is_malformed() -> None:
    bench = Bench(lease_us_max=MINUTE_US)
    assert bench.lease(name(1))[0] is ReplyCode.MALFORMED
    assert bench.lease(name(1), b"a", until_us=0)[0] is ReplyCode.MALFORMED
    assert bench.lease(name(1), b"a", until_us=MINUTE_US + 1)[0] is ReplyCode.MALFORMED
    sealed = boxed(KEY, b"vc/relay-lease")
    assert bench.ask(Lease(1, name(1), 9, ((bytes(64),),), sealed))[0] is ReplyCode.MALFORMED
    short = boxed(b"short", b"vc/relay-lease")
    assert bench.ask(Lease(1, name(1), 9, ((moved(b"a"),),), short))[0] is ReplyCode.MALFORMED


@pytest.mark.parametrize("data", [b"", b"\x46", b"\xff\xff", encode(RequestReply(1, 0))])
def test_garbage_changes_nothing(data: bytes) -> None:
    bench = Bench()
    bench.server.receive(data, OTHER, 0)
    assert bench.take() == []
    assert sum(bench.server.refused.values()) == 1


def test_a_share_leads_to_the_server_s_key() -> None:
    blind = Scalar.draw(ENTROPY)
    sealed = wrap_for_server(PUBLIC.box, blind.reveal(), purpose=b"vc/relay-join", entropy=ENTROPY)
    [blinded] = Bench().tell(Blind(1, sealed))
    share: bytes = blinded.share  # type: ignore[attr-defined]
    assert Scalar(share) * blind == KEYS.k_r
