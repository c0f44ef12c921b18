from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import random
import resource
import socket
from typing import Any

import pytest

from support.scripted_machine import ScriptedMachine
from support.tls_parties import QUICK_LIMITS, TlsParties, run_driver, run_host, tls_name_of, wait_until
from support.waits import HANG_S
from veilcast.errors import ConfigError, ForgedError, StorageError
from veilcast.machine import Address, Connect, Disconnect, Event, Frame, Listen, Settled
from veilcast.net import close_reasons
from veilcast.net.outbound import OutboundStreams
from veilcast.net.stream_limits import StreamLimits
from veilcast.net.stream_setup import PeerIdentity
from veilcast.net.streams import TlsStreamDriver
from veilcast.net.tls import TlsSetup

CROWD = TlsParties()
PROXY, ALICE, BOB = CROWD.proxy(), CROWD.ring("alice"), CROWD.ring("bob")


def run(test: Any) -> None:
    asyncio.run(test)


def call(driver: TlsStreamDriver, machine: ScriptedMachine, host: TlsStreamDriver) -> Address:
    peer = host.addresses[0]
    machine.events.append(Connect(peer))
    driver.touch()
    return peer


def test_records_of_any_size_arrive_whole_and_in_order_both_ways() -> None:
    sizes = [1, 2, 100, 16_383, 16_384, 16_385, QUICK_LIMITS.record_max, 3]
    records = [bytes([index]) * size for index, size in enumerate(sizes)]

    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            peer, name = call(caller, there, host), tls_name_of(ALICE)
            await wait_until(lambda: there.peers and here.peers)
            assert (here.peers, there.peers) == ([("up", name)], [("up", peer)])
            there.frames = [Frame(peer, record) for record in records]
            here.frames = [Frame(name, record) for record in reversed(records)]
            caller.touch()
            host.touch()
            await wait_until(lambda: len(here.got) == len(there.got) == len(records))
            assert here.got == [(name, record) for record in records]
            assert there.got == [(peer, record) for record in reversed(records)]
            assert caller.counts.sent == host.counts.received == len(records)
            assert (caller.counts.undeliverable, caller.reasons) == (0, {})

    run(test())


def test_many_small_records_take_many_turns_and_none_is_lost() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            peer = call(caller, there, host)
            await wait_until(lambda: there.peers)
            there.frames = [Frame(peer, index.to_bytes(4, "big")) for index in range(3_000)]
            caller.touch()
            await wait_until(lambda: len(here.got) == 3_000)
            assert [int.from_bytes(data, "big") for _, data in here.got] == list(range(3_000))

    run(test())


@pytest.mark.parametrize("host_text", ["127.0.0.1:0", "[::1]:0"])
def test_a_caller_has_the_same_name_whenever_it_comes(host_text: str) -> None:
    async def test() -> None:
        here = ScriptedMachine()
        async with run_driver(here, PROXY, [host_text]) as host:
            for times in (1, 2):
                there = ScriptedMachine()
                async with run_driver(there, CROWD.identity(ALICE)) as caller:
                    call(caller, there, host)
                    await wait_until(lambda times=times: len(here.peers) == 2 * times - 1)  # type: ignore[misc]
                await wait_until(lambda times=times: len(here.peers) == 2 * times)  # type: ignore[misc]
            assert here.peers == [("up", tls_name_of(ALICE)), ("lost", tls_name_of(ALICE))] * 2

    run(test())


def test_an_absent_peer_is_called_until_it_answers_and_again_after_a_loss() -> None:
    async def test() -> None:
        with socket.socket() as place:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{place.getsockname()[1]}"
        there = ScriptedMachine()
        async with run_driver(there, CROWD.identity(ALICE)) as caller:
            there.events.append(Connect(Address(address)))
            caller.touch()
            await wait_until(lambda: len(there.peers) >= 3)
            assert set(there.peers) == {("lost", address)}
            assert caller.reasons[close_reasons.UNREACHABLE] >= 3
            assert [(peer.up, peer.reason) for peer in caller.peers()] == [(False, close_reasons.UNREACHABLE)]
            for _ in range(2):
                there.peers.clear()
                async with run_driver(ScriptedMachine(), PROXY, [address]):
                    await wait_until(lambda: ("up", address) in there.peers)
                    assert [(peer.up, peer.reason) for peer in caller.peers()] == [(True, "")]
                await wait_until(lambda: there.peers[-1][0] == "lost")

    run(test())


NOWHERE = Address("nowhere")


class FiredTimer:
    """A timer that has fired."""

    def cancel(self) -> None:
        pass


class UnreachablePeer:
    """Calls of an unreachable peer, without waiting: the pauses that are asked of the loop."""

    def __init__(self, seed: int) -> None:
        self.pauses: list[float] = []
        self.now = 0
        limits, ends_of = StreamLimits(), close_reasons.CloseReasons(lambda: self.now)
        alice, rng = CROWD.identity(ALICE), random.Random(seed)
        self.calls = OutboundStreams(
            TlsSetup(alice), limits, rng, lambda: self.now, ends_of, lambda *_: None, lambda _: None
        )
        self.calls.open(self)  # type: ignore[arg-type]
        self.calls.want(NOWHERE)

    def call_later(self, after: float, *_: object) -> Any:
        self.pauses.append(after)
        return FiredTimer()

    def fail(self) -> float:
        self.calls._dial(NOWHERE)
        return self.pauses[-1]

    def stand(self, for_us: int) -> float:
        """Let the peer answer, stay up for this long, and be lost."""
        call = self.calls._calls[NOWHERE]
        call.timer, call.since_us, self.now = None, self.now, self.now + for_us
        self.calls.redial_later(NOWHERE, close_reasons.CLOSED)
        return self.pauses[-1]


def test_pauses_between_calls_grow_and_differ_between_callers() -> None:
    one, other = UnreachablePeer(1), UnreachablePeer(2)
    for failures in range(1, 12):
        longest = min(0.25 * 2**failures, 30.0)
        pause = one.fail()
        assert longest / 2 <= pause <= longest
        assert pause != other.fail()
    assert pause >= 15.0


def test_a_peer_that_was_up_longer_than_its_pause_is_called_again_soon() -> None:
    dialler = UnreachablePeer(1)
    for _ in range(5):
        dialler.fail()
    assert dialler.stand(5_000_000) >= 8.0  # 16 s were next: it came and went, and nothing is better for it.
    assert dialler.stand(30_000_000) <= 0.25
    assert dialler.fail() <= 0.5


def test_a_peer_that_is_no_longer_wanted_is_left_and_not_called_again() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            peer = call(caller, there, host)
            await wait_until(lambda: there.peers)
            there.events.append(Disconnect(peer))
            caller.touch()
            await wait_until(lambda: here.peers == [("up", tls_name_of(ALICE)), ("lost", tls_name_of(ALICE))])
            assert host.reasons == {close_reasons.CLOSED: 1}
            assert there.peers == [("up", peer)]
            assert caller.peers() == []
            there.events += [Connect(Address("127.0.0.1:1")), Disconnect(Address("127.0.0.1:1"))]
            caller.touch()  # Left while the call is under way.
            await wait_until(lambda: not there.events)
            assert caller.peers() == []

    run(test())


def test_a_host_can_send_a_caller_away() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            call(caller, there, host)
            await wait_until(lambda: here.peers)
            here.events.append(Disconnect(tls_name_of(ALICE)))
            host.touch()
            await wait_until(lambda: [what for what, _ in there.peers[:2]] == ["up", "lost"])
            assert [what for what, _ in here.peers[:1]] == ["up"]

    run(test())


def test_a_new_stream_of_a_member_takes_the_place_of_its_old_one() -> None:
    """The old stream may be dead without notice; the peer that has the key is the member."""

    async def test() -> None:
        here, first, second = ScriptedMachine(), ScriptedMachine(), ScriptedMachine()
        slow = dataclasses.replace(QUICK_LIMITS, backoff_s=30.0, backoff_max_s=30.0)
        async with (
            run_host(here, PROXY) as host,
            run_driver(first, CROWD.identity(ALICE), limits=slow) as one,
            run_driver(second, CROWD.identity(ALICE)) as two,
        ):
            peer = call(one, first, host)
            await wait_until(lambda: first.peers)
            call(two, second, host)
            await wait_until(lambda: second.peers and len(first.peers) == 2)
            assert here.peers == [(what, tls_name_of(ALICE)) for what in ("up", "lost", "up")]
            assert host.reasons == {close_reasons.REPLACED: 1}
            here.frames = [Frame(tls_name_of(ALICE), b"to the new one")]
            host.touch()
            await wait_until(lambda: second.got)
            assert second.got == [(peer, b"to the new one")]
            assert first.got == []

    run(test())


def test_there_is_room_for_so_many_callers_and_no_more() -> None:
    async def test() -> None:
        here, first, second = ScriptedMachine(), ScriptedMachine(), ScriptedMachine()
        async with (
            run_host(here, PROXY, dataclasses.replace(QUICK_LIMITS, callers=1)) as host,
            run_driver(first, CROWD.identity(ALICE)) as one,
            run_driver(second, CROWD.identity(BOB)) as two,
        ):
            peer = call(one, first, host)
            await wait_until(lambda: first.peers)
            call(two, second, host)
            await wait_until(lambda: second.peers)
            assert second.peers[0] == ("lost", peer)
            assert host.reasons[close_reasons.FULL] >= 1
            assert set(two.reasons) == {close_reasons.REFUSED}
            one.close()
            await wait_until(lambda: ("up", peer) in second.peers)

    run(test())


def test_more_peers_than_it_may_call_are_lost_at_once() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with run_driver(
            machine, CROWD.identity(ALICE), limits=dataclasses.replace(QUICK_LIMITS, calls=2, backoff_s=30.0)
        ) as driver:
            places = [Address(f"127.0.0.1:{port}") for port in (1, 2, 3)]
            machine.events += [Connect(place) for place in places]
            driver.touch()
            await wait_until(lambda: ("lost", places[2]) in machine.peers)
            assert [peer.peer for peer in driver.peers()] == places[:2]

    run(test())


def test_frames_without_a_way_are_counted_and_nothing_else() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            peer = call(caller, there, host)
            await wait_until(lambda: there.peers)
            there.frames = [
                Frame(Address("member:unknown"), b"x"),
                Frame(peer, b""),
                Frame(peer, bytes(QUICK_LIMITS.record_max + 1)),
                Frame(peer, b"good"),
            ]
            caller.touch()
            await wait_until(lambda: here.got)
            assert [data for _, data in here.got] == [b"good"]
            assert caller.counts.undeliverable == 3

    run(test())


def test_a_machine_that_fails_on_a_record_keeps_its_stream_and_gets_the_next_record() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()

        def on_receive(data: bytes) -> None:
            if data == b"bad":
                raise ZeroDivisionError

        here.on_receive = on_receive
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            peer = call(caller, there, host)
            await wait_until(lambda: there.peers)
            there.frames = [Frame(peer, b"bad"), Frame(peer, b"good")]
            caller.touch()
            await wait_until(lambda: here.got and here.got[-1][1] == b"good")
            assert [data for _, data in here.got] == [b"bad", b"good"]
            assert [what for what, _ in there.peers] == ["up"]
            assert host.numbers()["machine_faults_total"] == host.faults.count == 1
            assert not host.reasons

    run(test())


def test_draining_waits_until_all_has_gone_out() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        patient = dataclasses.replace(QUICK_LIMITS, patience_s=HANG_S)
        async with run_host(here, PROXY, patient) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            call(caller, there, host)
            await wait_until(lambda: here.peers)
            here.frames = [Frame(tls_name_of(ALICE), bytes(QUICK_LIMITS.record_max))] * 400

            async def finish() -> None:
                await wait_until(lambda: len(host._backlog))

            host.touch()
            assert await host.drain(finish, HANG_S)
            await wait_until(lambda: len(there.peers) >= 2)
            assert len(there.got) == 400

    run(test())


def test_a_machine_that_writes_faster_than_its_peer_reads_waits_and_drops_no_peer() -> None:
    """Far more than may gather. Without the waiting the peer would be dropped, quick as it is."""
    limits = dataclasses.replace(QUICK_LIMITS, write_max=1 << 20)
    count = 64 * limits.write_max // limits.record_max

    async def reasons(patience_s: float) -> Any:
        here, there, patient = ScriptedMachine(), ScriptedMachine(), dataclasses.replace(limits, patience_s=patience_s)
        async with run_host(here, PROXY, patient) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            call(caller, there, host)
            await wait_until(lambda: here.peers)
            here.frames = [Frame(tls_name_of(ALICE), bytes(limits.record_max))] * count
            host.touch()
            await wait_until(lambda: len(there.got) == count or host.reasons)
            return host.reasons

    assert asyncio.run(reasons(10.0)) == {}
    assert asyncio.run(reasons(0.0)) == {close_reasons.SLOW: 1}


class RevocablePeer:
    """A peer identity that is valid until the test changes it."""

    def __init__(self, guest: PeerIdentity) -> None:
        self.name = guest.name
        self.welcome = True

    def check(self, now: int) -> None:
        if not self.welcome:
            raise ForgedError("its time is over")


@pytest.mark.parametrize("side", ["callers", "hosts"])
def test_a_peer_whose_certificate_is_over_is_dropped_at_the_next_review(side: str) -> None:
    async def test() -> None:
        guests: list[RevocablePeer] = []

        def fickle(identity: Any) -> Any:
            judge = getattr(identity, side)

            def judged(certificate: bytes) -> RevocablePeer:
                guests.append(RevocablePeer(judge(certificate)))
                return guests[-1]

            return dataclasses.replace(identity, **{side: judged})

        here, there = ScriptedMachine(), ScriptedMachine()
        often = dataclasses.replace(QUICK_LIMITS, review_s=0.01)
        alice = CROWD.identity(ALICE)
        async with (
            run_host(here, fickle(PROXY) if side == "callers" else PROXY, often) as host,
            run_driver(there, fickle(alice) if side == "hosts" else alice, limits=often) as caller,
        ):
            call(caller, there, host)
            await wait_until(lambda: there.peers)
            guests[0].welcome = False
            judging = host if side == "callers" else caller
            await wait_until(lambda: judging.reasons["its time is over"])
            await wait_until(lambda: len(there.peers) >= 2 and len(here.peers) >= 2)
            assert here.peers[1][0] == there.peers[1][0] == "lost"

    run(test())


def test_a_peer_revoked_while_connected_is_dropped_at_the_next_review() -> None:
    async def test() -> None:
        crowd = TlsParties()
        here, there = ScriptedMachine(), ScriptedMachine()
        mallory = crowd.member("mallory")
        async with (
            run_host(here, crowd.proxy(), dataclasses.replace(QUICK_LIMITS, review_s=0.01)) as host,
            run_driver(there, mallory) as caller,
        ):
            call(caller, there, host)
            await wait_until(lambda: here.peers)
            crowd.revoke("mallory")
            await wait_until(lambda: caller.reasons[close_reasons.REFUSED])
            assert len(here.peers) == 2
            assert set(host.reasons) == {"the key has been revoked"}

    run(test())


def test_the_log_has_reasons_and_no_peers(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with run_driver(machine, CROWD.identity(ALICE)) as driver:
            machine.events.append(Connect(Address("127.0.0.1:1")))
            driver.touch()
            await wait_until(lambda: driver.reasons[close_reasons.UNREACHABLE] > close_reasons.LINES_PER_MINUTE + 1)

    with caplog.at_level(logging.INFO, "veilcast.streams"):
        run(test())
    lines = [record.getMessage() for record in caplog.records]
    assert set(lines) == {f"a stream ended: {close_reasons.UNREACHABLE}"}
    assert len(lines) <= 2 * close_reasons.LINES_PER_MINUTE  # A minute may have passed.


def test_events_that_do_not_concern_peers_go_to_the_owner() -> None:
    async def test() -> None:
        machine, told = ScriptedMachine(), list[Event]()
        async with run_driver(machine, CROWD.identity(ALICE), act_on=told.append) as driver:
            machine.events += [Listen("member"), Settled(3)]
            driver.touch()
            await wait_until(lambda: told)
            assert told == [Settled(3)]

    run(test())


def test_a_port_in_use_is_reported_in_one_line_and_nothing_stays_open() -> None:
    async def test() -> None:
        async with run_host(ScriptedMachine(), PROXY) as host:
            second = TlsStreamDriver(
                ScriptedMachine(), listen=["[::1]:0", host.addresses[0]], identity=PROXY, act_on=lambda _: None
            )
            with pytest.raises(StorageError, match=r"listen: cannot use 127.*; .* stop that one first"):
                second.open()
            assert second.addresses == ()

    run(test())


def test_when_the_system_has_no_sockets_left_callers_wait_and_come_in_later(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [errno.EMFILE, errno.ENOBUFS, errno.ECONNABORTED]

    def exhausted(bound: socket.socket) -> Any:
        if failures:
            raise OSError(failures.pop(0), "")
        return accept(bound)

    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            call(caller, there, host)
            await wait_until(lambda: there.peers)
            assert there.peers == [("up", host.addresses[0])]
            assert host.reasons == {close_reasons.EXHAUSTED: 2}

    monkeypatch.setattr("veilcast.net.inbound.REST_S", 0.01)
    monkeypatch.setattr(socket.socket, "accept", exhausted)
    run(test())


def test_a_host_asks_the_system_for_as_many_sockets_as_it_may_need_and_can_get() -> None:
    async def test() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        few = min(soft, 128)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
            async with run_host(ScriptedMachine(), PROXY, dataclasses.replace(QUICK_LIMITS, callers=few, handshakes=9)):
                assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    run(test())


def test_limits_that_leave_no_room_for_a_record_are_refused() -> None:
    with pytest.raises(ConfigError, match="write_max"):
        StreamLimits(record_max=1 << 20, write_max=1 << 20)
    limits = StreamLimits()
    assert limits.high_water + limits.frames_per_turn * limits.record_max <= limits.write_max


def test_numbers_tell_how_many_streams_there_are() -> None:
    async def test() -> None:
        here, there = ScriptedMachine(), ScriptedMachine()
        async with run_host(here, PROXY) as host, run_driver(there, CROWD.identity(ALICE)) as caller:
            call(caller, there, host)
            await wait_until(lambda: there.peers)
            assert host.numbers()["streams_up"] == host.numbers()["streams_accepted_total"] == 1
            caller.close()
            await wait_until(lambda: len(here.peers) == 2)
            assert (host.numbers()["streams_up"], host.numbers()["streams_ended_total"]) == (0, 1)

    run(test())
