"""The server around expiries and disk writes: confirmed requests stay confirmed."""

from __future__ import annotations

from random import Random

import msgspec

from support.relay_by_hand import ANNA, BEN, PROXY, SERVER, TOPIC, RelayByHand
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.machine import Publication, Record
from veilcast.relay.config import RelayServerConfig
from veilcast.relay.hardened import HardenedClientProfile
from veilcast.relay.server import LeaseRecord, PublicationRecord, RelayServer
from veilcast.relay.transformation_key import ServerKeys
from veilcast.sim.engine import START_US
from veilcast.topics import Label
from veilcast.wire import decode, encode
from veilcast.wire.relay import Lease, RelayDelivery, RequestReply, Submit


def test_a_lease_that_expires_during_a_write_receives_the_publication() -> None:
    """The publisher gets a confirmation, so the publication must not be lost with the lease."""
    relay = RelayByHand("hardened")
    relay.subscribe(BEN, TOPIC)
    relay.run(1_000_000)
    lease = next(message for each in relay.between(PROXY, SERVER) if isinstance(message := each.message, Lease))
    under_way = submitted(relay)
    server, last = relay.server, lease.until_us - 1
    server.receive(encode(under_way), PROXY, last)
    (record,) = [event.record for event in iter(server.next_event, None) if isinstance(event, Record)]
    server.handle_timer(lease.until_us)
    server.stored(record, lease.until_us)
    sent = [decode(frame.data) for frame in server.frames_to_send(lease.until_us, 100)]
    assert [type(message) for message in sent] == [RelayDelivery, RequestReply]
    assert isinstance(sent[0], RelayDelivery)
    assert sent[0].names == (lease.name,)


def test_the_backlog_of_a_returning_proxy_is_built_on_demand() -> None:
    """A server that sealed a copy for every subscriber at once would need memory for all of them."""
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


def submitted(relay: RelayByHand) -> Submit:
    """A publication of Anna's as the proxy forwards it."""
    profile, way = relay.clients[ANNA]._profile, relay.clients[ANNA]._publish_connection
    assert isinstance(profile, HardenedClientProfile)
    assert way.key is not None
    (period,) = profile.lease_periods(relay.now, 0)
    pending = PendingPublication(TOPIC, NumberedPublication(b"a stream", 1, Publication((Label(TOPIC).pair,), b"late")))
    submit = profile.build_submit(1, period, profile.topic_keys(TOPIC, period, relay.now), pending, way.key)
    moved = relay.proxy._profile.move_subjects(submit.subjects, relay.proxy._roster.transformation(ANNA))
    return Submit(1, moved, None, submit.sealed)
