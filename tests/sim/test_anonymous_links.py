"""Streams through an anonymous network tell the called host nothing of the caller."""

from __future__ import annotations

import pytest

from support.event_logger import EventLogger, LoggerPair
from veilcast.machine import Address, Connect, Disconnect
from veilcast.observe import CellRow, ObservationRow, TopologyRow
from veilcast.sim.links import LinkDelays
from veilcast.sim.world import ANONYMOUS_NETWORK, World

HOP, PROBE = Address("hop@b"), Address("probe@b")


@pytest.fixture
def pair() -> LoggerPair:
    return LoggerPair()


def call(pair: LoggerPair, peer: Address = HOP) -> Address:
    """Let a call b, and return the name that b has for the stream."""
    pair.ask(pair.a, Connect(peer))
    pair.world.run(100_000)
    assert pair.heard(pair.a) == [("up", peer)]
    ((notice, inbound),) = pair.heard(pair.b)
    assert notice == "up"
    return Address(str(inbound))


def send(pair: LoggerPair, source: Address, peer: Address, data: bytes) -> None:
    pair.world.call(source, lambda machine, now: machine.send(peer, data))
    pair.world.run(100_000)


def test_the_one_who_is_called_can_answer_and_knows_nothing_of_who_calls(pair: LoggerPair) -> None:
    inbound = call(pair)
    assert inbound == "in:0"
    send(pair, pair.a, HOP, b"ask")
    send(pair, pair.b, inbound, b"answer")
    assert [(source, data) for _, source, data in pair.at(pair.b).received] == [(inbound, b"ask")]
    assert [(source, data) for _, source, data in pair.at(pair.a).received] == [(HOP, b"answer")]


def test_two_purposes_are_two_streams_and_no_name_comes_back(pair: LoggerPair) -> None:
    first, second = call(pair), call(pair, PROBE)
    pair.ask(pair.a, Disconnect(HOP))
    pair.world.run(100_000)
    assert pair.heard(pair.b) == [("lost", first)]
    assert len({first, second, call(pair)}) == 3


def test_frames_without_a_stream_are_lost(pair: LoggerPair) -> None:
    send(pair, pair.a, HOP, b"too early")
    inbound = call(pair)
    pair.ask(pair.a, Disconnect(HOP))
    pair.world.run(100_000)
    send(pair, pair.a, HOP, b"too late")
    send(pair, pair.b, inbound, b"too late")
    assert not pair.at(pair.a).received
    assert not pair.at(pair.b).received
    assert pair.world.counts.lost == 3


def test_who_calls_twice_has_one_stream(pair: LoggerPair) -> None:
    for _ in range(2):
        pair.ask(pair.a, Connect(HOP))
    pair.world.run(100_000)
    assert pair.heard(pair.a) == [("up", HOP)] * 2
    ((_, inbound),) = pair.heard(pair.b)
    send(pair, pair.b, Address(str(inbound)), b"x")
    assert len(pair.at(pair.a).received) == 1


@pytest.mark.parametrize("trouble", ["dead", "blocked", "unknown"])
def test_a_call_that_reaches_nobody_is_answered(pair: LoggerPair, trouble: str) -> None:
    peer = HOP
    if trouble == "dead":
        pair.world.crash(pair.b)
    elif trouble == "blocked":
        pair.world.block(pair.b, pair.a)
    else:
        peer = Address("hop@nobody")
    pair.ask(pair.a, Connect(peer))
    pair.world.run(100_000)
    assert pair.heard(pair.a) == [("lost", peer)]
    if trouble == "blocked":
        pair.world.unblock(pair.b, pair.a)
        call(pair)


@pytest.mark.parametrize("who", ["caller", "called"])
def test_a_crash_ends_all_streams_and_the_other_end_hears_of_each(pair: LoggerPair, who: str) -> None:
    names = [call(pair), call(pair, PROBE)]
    victim, other = (pair.a, pair.b) if who == "caller" else (pair.b, pair.a)
    pair.world.crash(victim)
    pair.world.run(100_000)
    told = names if who == "caller" else [HOP, PROBE]
    assert sorted(str(about) for _, about in pair.heard(other)) == sorted(told)
    pair.world.restart(victim)
    pair.world.run(100_000)
    for name in names:
        send(pair, pair.b, name, b"x")
    assert not pair.at(pair.a).received


def test_a_cut_breaks_every_stream_between_two_and_both_are_told(pair: LoggerPair) -> None:
    names = [call(pair), call(pair, PROBE)]
    pair.world.cut(pair.b, pair.a)
    pair.world.run(100_000)
    assert pair.heard(pair.a) == [("lost", HOP), ("lost", PROBE)]
    assert pair.heard(pair.b) == [("lost", name) for name in names]


def test_a_partition_lies_across_streams_old_and_new(pair: LoggerPair) -> None:
    inbound = call(pair)
    pair.world.block(pair.a, pair.b)
    send(pair, pair.a, HOP, b"lost")
    send(pair, pair.b, inbound, b"arrives")
    assert not pair.at(pair.b).received
    assert len(pair.at(pair.a).received) == 1
    pair.world.unblock(pair.a, pair.b)
    send(pair, pair.a, HOP, b"arrives")
    assert len(pair.at(pair.b).received) == 1


def test_streams_that_have_ended_leave_nothing_behind(pair: LoggerPair) -> None:
    for number in range(50):
        peer = Address(f"probe-{number}@b")
        call(pair, peer)
        pair.ask(pair.a, Disconnect(peer))
        pair.world.run(100_000)
        pair.heard(pair.b)
    hosts = [pair.world._hosts[address] for address in (pair.a, pair.b)]
    assert all(len(host.links) <= 2 for host in hosts)
    assert len(pair.world._hosts) <= 3


def test_an_observer_sees_that_somebody_speaks_and_not_to_whom() -> None:
    rows: list[ObservationRow] = []

    class Keeper:
        def append(self, row: ObservationRow) -> None:
            rows.append(row)

    pair = LoggerPair()
    pair.world = World(seed=7, links=LinkDelays(latency_us=(1_000,)), recorder=Keeper())
    for address in (pair.a, pair.b):
        pair.world.add(address, lambda birth: EventLogger(birth.stored))
    pair.world.run(0)
    inbound = call(pair)
    send(pair, pair.a, HOP, b"ask")
    send(pair, pair.b, inbound, b"answer")
    pair.world.run(pair.world.epoch_us)
    assert [(row.src, row.dst) for row in rows if isinstance(row, CellRow)] == [
        (pair.a, ANONYMOUS_NETWORK),
        (pair.b, ANONYMOUS_NETWORK),
    ]
    assert not [row for row in rows if isinstance(row, TopologyRow)]
