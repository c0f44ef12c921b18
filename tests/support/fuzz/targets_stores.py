"""Targets: records on a node's own disk, by the machines and the stores that read them again."""

from __future__ import annotations

import msgspec

from support.fuzz.fuzz_target import Format, Group, Prepared
from support.fuzz.targets_wire import one
from veilcast.errors import TamperedError
from veilcast.machine import Publication
from veilcast.mesh.neighbour_record import NeighbourRecord, RelayRecord, read_neighbour_record
from veilcast.node import sealed_slots, store
from veilcast.node.member_records import decode_interest
from veilcast.relay import roster, server
from veilcast.topics import Equal, Label, Range
from veilcast.tree import directory, guards
from veilcast.wire.geometry import NODE

GROUP = Group()


def _examples(*kinds: type[msgspec.Struct]) -> list[bytes]:
    """A value of each kind, as simple as its fields allow."""
    return [msgspec.msgpack.encode(_simple(kind)) for kind in kinds]


def _simple(kind: type[msgspec.Struct]) -> msgspec.Struct:
    from hypothesis import strategies as st

    return one(st.from_type(kind))


@GROUP.target("interest-record", "subscriptions of a node, from its disk", "node.member_records:decode_interest")
def interest() -> Prepared:
    made = [(Equal("topic", "news"),), (Equal("topic", "news"), Range("a", 1, 2.5)), Label("news").constraints]
    return Prepared(decode_interest, (TamperedError,), [msgspec.msgpack.encode(each) for each in made], Format.MSGPACK)


@GROUP.target(
    "notification-record",
    "notifications that wait, from the node's disk",
    "node.store:_DECODER",
    "node.sealed_slots:_DECODER",
)
def notification() -> Prepared:
    def check(data: bytes) -> object:
        found = []
        for decoder in (store._DECODER, sealed_slots._DECODER):
            try:
                found.append(type(decoder.decode(data)).__name__)
            except TamperedError as error:
                found.append(type(error).__name__)
        return "".join(found)

    publication = Publication((Label("news").pair, ("a", 1.5)), b"body")
    examples = [msgspec.msgpack.encode(publication), msgspec.msgpack.encode((sealed_slots.EMPTY, b"data"))]
    return Prepared(check, (), examples, Format.MSGPACK, prefixes=(b"", b"\x83\xa1z"))


@GROUP.target(
    "neighbour-record",
    "anchors and first relay of a mesh node, from its disk",
    "mesh.neighbour_record:read_neighbour_record",
)
def neighbours() -> Prepared:
    made = [NeighbourRecord(["a:1"], RelayRecord(b"k" * 32, "a:1", 0, 5)).encode(), msgspec.msgpack.encode(["a", "b"])]
    return Prepared(read_neighbour_record, (TamperedError,), made, Format.MSGPACK)


@GROUP.target("guards-record", "guards of a tree node, from its disk", "tree.guards:_read")
def guard_places() -> Prepared:
    example = msgspec.msgpack.encode([[b"n" * NODE], [], [b"m" * NODE] * 2])
    return Prepared(guards._read, (TamperedError,), [example], Format.MSGPACK)


@GROUP.target("directory-record", "nodes that a directory has listed, from its disk", "tree.directory:_DECODER")
def listed_nodes() -> Prepared:
    kept = directory.NodeRecord("a.onion:80", bytes(32), 1, bytes(32), 2)
    return Prepared(directory._DECODER.decode, (TamperedError,), [msgspec.msgpack.encode(kept)], Format.MSGPACK)


@GROUP.target(
    "relay-records",
    "clients and leases of proxy and server, from their disks",
    "relay.roster:decode_roster_record",
    "relay.server:decode_server_record",
)
def relay_records() -> Prepared:
    def check(data: bytes) -> object:
        found = []
        for read in (roster.decode_roster_record, server.decode_server_record):
            try:
                found.append(type(read(data)).__name__)
            except TamperedError as error:
                found.append(type(error).__name__)
        return "".join(found)

    examples = _examples(roster.EnrolledClient, roster.LeasePseudonym, server.LeaseRecord, server.PublicationRecord)
    return Prepared(check, (), examples, Format.MSGPACK)
