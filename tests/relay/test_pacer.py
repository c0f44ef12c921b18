"""Paced streams have one record size and one interval, and deliver every message."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.relay_network import CLIENT_CONFIG, PROXY_CONFIG, TOPIC, RelayNetwork
from veilcast.errors import MalformedError, RemoteError, StaleError
from veilcast.machine import Address
from veilcast.observe import CellRow, ObservationRow
from veilcast.relay.pacer import Pacer
from veilcast.topics import Label
from veilcast.wire.geometry import MESSAGE_MAX

PEER = Address("peer")


def pacer(size: int = 64, backlog_max: int = 100) -> Pacer:
    made = Pacer(Random(1), period_us=10, record_bytes=size, backlog_max=backlog_max)
    made.stream_up(PEER, 0)
    return made


@settings(max_examples=50)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.integers(40, 300))
def test_messages_survive_any_cut_into_records(messages: list[bytes], size: int) -> None:
    here, there, out, now = pacer(size), pacer(size), [], 0
    for message in messages:
        assert here.put(PEER, message)
    while len(here) or now < 50:
        now += 10
        for frame in here.handle(now):
            assert len(frame.data) == size
            out += there.unpack_record(PEER, frame.data)
    assert out == messages


def test_a_record_leaves_at_every_interval_with_or_without_a_message() -> None:
    one = pacer()
    beats = [now for now in range(200) if one.handle(now)]
    assert {late - early for early, late in pairwise(beats)} == {10}


@pytest.mark.parametrize("back", range(81, 91))
def test_a_late_or_missed_record_does_not_shift_later_ones(back: int) -> None:
    one, other = pacer(), pacer()
    beats = [now for now in range(200) if one.handle(now)]
    late = [now for now in range(200) if not 50 <= now < back and other.handle(now)]
    assert late == [beat for beat in beats if beat < 50] + [back] + [beat for beat in beats if beat > back]


def test_a_stream_with_a_lost_or_repeated_record_is_refused() -> None:
    here, there = pacer(), pacer()
    records = [here.handle(now)[0].data for now in (20, 40, 60)]
    there.unpack_record(PEER, records[0])
    for wrong in (records[0], records[2]):
        with pytest.raises(StaleError):
            there.unpack_record(PEER, wrong)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        bytes(63),
        bytes(63) + b"\1",
        (0).to_bytes(4, "big") + (59).to_bytes(2, "big") + bytes(58),
        (0).to_bytes(4, "big") + (4).to_bytes(2, "big") + (MESSAGE_MAX + 1).to_bytes(4, "big") + bytes(54),
    ],
)
def test_an_invalid_record_is_refused(record: bytes) -> None:
    with pytest.raises(MalformedError):
        pacer().unpack_record(PEER, record)


def test_the_backlog_is_bounded_and_needs_a_stream() -> None:
    one = pacer(backlog_max=2)
    assert [one.put(PEER, b"x" * 100) for _ in range(3)] == [True, True, False]
    assert len(one) == 2
    assert not one.put(Address("nobody"), b"x")
    one.stream_down(PEER)
    assert not one.put(PEER, b"x")
    with pytest.raises(RemoteError):
        one.unpack_record(PEER, bytes(64))
    assert one.next_us() is None


def test_an_observer_of_a_paced_client_cannot_tell_whether_it_publishes() -> None:
    """Compares sizes and times of all traffic of c0 in two worlds that differ only in its publications."""
    rate = {"rate_us": 200_000, "record_bytes": 1024}
    seen = []
    for busy in (False, True):
        rows: list[ObservationRow] = []
        network = RelayNetwork(
            client=msgspec.structs.replace(CLIENT_CONFIG, **rate),
            proxy=msgspec.structs.replace(PROXY_CONFIG, **rate),
            recorder=Rows(rows),
        )
        if busy:
            network.subscribe("c0", Label(TOPIC))
            network.run(3)
            network.publish("c0", b"x" * 3_000)
            network.run(7)
            assert network.heard_by("c0") == [b"x" * 3_000]
        else:
            network.run(10)
        cells = [row for row in rows if isinstance(row, CellRow) and "c0" in (row.src, row.dst)]
        assert {cell.size for cell in cells} == {1024}
        seen.append([(cell.t_us, cell.src, cell.dst) for cell in cells])
    assert len(seen[0]) > 150
    assert seen[0] == seen[1]


class Rows:
    def __init__(self, rows: list[ObservationRow]) -> None:
        self.append = rows.append
