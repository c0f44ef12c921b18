"""The server at the edges of time and of its disk: what it has said is done stays so."""

from __future__ import annotations

from random import Random

import msgspec

from support.relay_by_hand import ANNA, BEN, PROXY, SERVER, TOPIC, RelayByHand
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.machine import Publication, Record
from veilcast.relay.config import RelayServerConfig
from veilcast.relay.enrolment import ServerKeys
from veilcast.relay.hardened import HardenedClientProfile
from veilcast.relay.server import LeaseRecord, PublicationRecord, RelayServer
from veilcast.sim.engine import START_US
from veilcast.topics import Label
from veilcast.wire import decode, encode
from veilcast.wire.relay import Lease, RelayDelivery, RequestReply, Submit


def test_a_lease_that_ends_while_a_publication_is_written_gets_it() -> None:
    """The publisher will be told that it is done: it must not be lost with the lease."""
    table = RelayByHand("hardened")
    table.subscribe(BEN, TOPIC)
    table.run(1_000_000)
    lease = next(message for each in table.between(PROXY, SERVER) if isinstance(message := each.message, Lease))
    under_way = submitted(table)
    server, last = table.server, lease.until_us - 1
    server.receive(encode(under_way), PROXY, last)
    (record,) = [event.record for event in iter(server.next_event, None) if isinstance(event, Record)]
    server.handle_timer(lease.until_us)
    server.stored(record, lease.until_us)
    sent = [decode(frame.data) for frame in server.frames_to_send(lease.until_us, 100)]
    assert [type(message) for message in sent] == [RelayDelivery, RequestReply]
    assert isinstance(sent[0], RelayDelivery)
    assert sent[0].names == (lease.name,)


def test_what_waits_for_a_proxy_that_is_back_is_made_as_it_is_asked_for() -> None:
    """A server that made a copy for every reader at once would need room for all of them at once."""
    names = [number.to_bytes(16, "big") for number in range(50)]
    standing = [LeaseRecord(name, b"", PROXY, START_US + 1, ((bytes(16),),), bytes(32)) for name in names]
    kept = PublicationRecord(bytes(16), None, b"sealed", tuple(names), START_US + 1)
    records = {number: msgspec.msgpack.encode(each) for number, each in enumerate([*standing, kept], 1)}
    entropy = Random(1).randbytes
    server = RelayServer(RelayServerConfig(), ServerKeys.draw(entropy), Random(2), entropy, START_US, records)
    server.peer_up(PROXY, START_US)
    sent = []
    while frames := server.frames_to_send(START_US, 8):
        assert len(frames) <= 8
        assert not server._frames
        sent += [decode(frame.data) for frame in frames]
    assert [each.names for each in sent if isinstance(each, RelayDelivery)] == [(name,) for name in names]


def submitted(table: RelayByHand) -> Submit:
    """A publication of Anna's as the proxy hands it on."""
    part, way = table.clients[ANNA]._part, table.clients[ANNA]._out
    assert isinstance(part, HardenedClientProfile)
    assert way.key is not None
    (span,) = part.lease_periods(table.now, 0)
    letter = PendingPublication(TOPIC, NumberedPublication(b"a stream", 1, Publication((Label(TOPIC).pair,), b"late")))
    submit = part.build_submit(1, span, part.topic_keys(TOPIC, span, table.now), letter, way.key)
    moved = table.proxy._part.move_subjects(submit.subjects, table.proxy._roster.transformation(ANNA))
    return Submit(1, moved, None, submit.sealed)
