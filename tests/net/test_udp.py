from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support.scripted_machine import ScriptedMachine
from support.waits import HANG_S
from veilcast.errors import ConfigError, StorageError
from veilcast.machine import Address, Connect, Delivered, Disconnect, Event, Frame, Machine
from veilcast.net import udp
from veilcast.net.driver import FRAMES, RETRY_US
from veilcast.net.udp import UdpDriver
from veilcast.sim.flood import ID_SIZE, FloodNode

WAITING = 5 * udp.BATCH


@contextlib.asynccontextmanager
async def running(
    machine: Machine, *listen: str, act_on: Callable[[Event], object] = lambda _: None
) -> AsyncIterator[UdpDriver]:
    driver = UdpDriver(machine, listen or ["127.0.0.1:0"], act_on)
    driver.open()
    try:
        async with asyncio.timeout(HANG_S):
            yield driver
    finally:
        driver.close()


def run(test: Any) -> None:
    asyncio.run(test)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_flood_reaches_every_node_once_over_real_sockets(host: str) -> None:
    async def test() -> None:
        machines = [FloodNode() for _ in range(4)]
        got: list[list[bytes]] = [[] for _ in machines]
        everywhere = asyncio.Event()

        def hear(index: int) -> Callable[[Event], None]:
            def act_on(event: Event) -> None:
                assert isinstance(event, Delivered)
                got[index].append(event.note.publication.body)
                if all(len(bodies) == 3 for bodies in got):
                    everywhere.set()

            return act_on

        async with contextlib.AsyncExitStack() as stack:
            drivers = [
                await stack.enter_async_context(running(machine, f"{host}:0", act_on=hear(index)))
                for index, machine in enumerate(machines)
            ]
            for index, machine in enumerate(machines):  # A ring.
                for step in (1, -1):
                    machine.peer_up(drivers[(index + step) % 4].addresses[0], drivers[index].now())
            for index in range(3):
                machines[index].publish(bytes([index]) * ID_SIZE, b"%d" % index)
                drivers[index].touch()
            await everywhere.wait()
        assert all(sorted(bodies) == [b"0", b"1", b"2"] for bodies in got)

    run(test())


def test_a_node_listens_on_both_families_and_answers_each_from_its_own_socket() -> None:
    async def test() -> None:
        machine = FloodNode()
        async with running(machine, "127.0.0.1:0", "[::1]:0") as driver:
            four, six = driver.addresses
            assert four.startswith("127.0.0.1:")
            assert six.startswith("[::1]:")
            ears = [ScriptedMachine(), ScriptedMachine()]
            heard = asyncio.Event()
            for ear in ears:
                ear.on_receive = lambda _: heard.set() if all(ear.calls for ear in ears) else None
            async with running(ears[0], "127.0.0.1:0") as one, running(ears[1], "[::1]:0") as two:
                machine.peer_up(one.addresses[0], 0)
                machine.peer_up(two.addresses[0], 0)
                machine.publish(bytes(ID_SIZE), b"both")
                driver.touch()
                await heard.wait()

    run(test())


def test_a_timer_runs_at_its_time_and_not_before() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        ran = asyncio.Event()
        async with running(machine) as driver:
            due = driver.now() + 20_000

            def on_timer(now: int) -> None:
                machine.due = None
                ran.set()

            machine.on_timer, machine.due = on_timer, due
            driver.touch()
            await ran.wait()
            assert [kind for kind, _ in machine.calls] == ["timer"]
            assert machine.calls[0][1] >= due
            assert driver.counts.timers == 1
            assert driver.counts.late_us == machine.calls[0][1] - due

    run(test())


def test_a_deadline_that_moves_away_and_back_wakes_the_machine_only_when_it_is_due() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        ran = asyncio.Event()
        async with running(machine) as driver:
            start = driver.now()
            for offset in (10_000, 30_000, 20_000):
                machine.due = start + offset
                driver._turn(driver.now())

            def on_timer(now: int) -> None:
                machine.due = None
                ran.set()

            machine.on_timer = on_timer
            await ran.wait()
            assert len(machine.calls) == 1
            assert machine.calls[0][1] >= start + 20_000

    run(test())


def test_a_timer_that_stays_due_does_not_take_the_whole_loop() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        machine.on_timer = lambda now: None
        enough = asyncio.Event()
        async with running(machine) as driver:
            machine.due = driver.now()
            driver.touch()
            asyncio.get_running_loop().call_later(0.05, enough.set)
            await enough.wait()
            times = [now for _, now in machine.calls]
            assert times
            assert all(later - earlier >= RETRY_US for earlier, later in itertools.pairwise(times))

    run(test())


def test_one_turn_takes_no_more_than_a_batch_and_timers_run_between_batches() -> None:
    """Everything waits in the socket before the loop looks; a timer is due from the start. It must run after the
    first batch, and with the batch planted larger it does not: so it is the batch that keeps cells on time."""

    async def received_before_the_timer(batch: int) -> int:
        machine = ScriptedMachine()
        done = asyncio.Event()
        machine.on_receive = lambda _: done.set() if _count(machine, "receive") == WAITING else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(udp, "BATCH", batch)
            async with running(machine) as driver:
                await asyncio.sleep(0)
                with _sender(driver) as send:
                    for _ in range(WAITING):
                        send(b"x" * 100)
                    machine.due = 0
                    driver._arm(driver.now())
                    await done.wait()
        return [kind for kind, _ in machine.calls].index("timer")

    assert asyncio.run(received_before_the_timer(udp.BATCH)) <= udp.BATCH
    assert asyncio.run(received_before_the_timer(WAITING)) == WAITING


def test_many_frames_go_out_over_several_turns() -> None:
    async def test() -> None:
        machine, ear = ScriptedMachine(), ScriptedMachine()
        total = FRAMES * 2 + 10
        async with running(machine) as driver, running(ear) as other:
            machine.frames = [Frame(other.addresses[0], b"x")] * total
            driver._turn(driver.now())
            assert len(machine.frames) == total - FRAMES
            while machine.frames:
                await asyncio.sleep(0)
            assert driver.counts.sent + driver.counts.blocked == total

    run(test())


@pytest.mark.parametrize("text", ["", "nonsense", "localhost:1", "127.0.0.1:0", "[::1]:4000", "a" * 1000])
def test_a_destination_that_cannot_be_sent_to_is_counted_and_nothing_else(text: str) -> None:
    async def test() -> None:
        machine, ear = ScriptedMachine(), ScriptedMachine()
        heard = asyncio.Event()
        ear.on_receive = lambda _: heard.set()
        async with running(machine) as driver, running(ear) as other:
            machine.frames = [Frame(Address(text), b"x"), Frame(other.addresses[0], b"y")]
            driver.touch()
            await heard.wait()
            assert driver.counts.undeliverable == 1
            assert driver.counts.sent == 1

    run(test())


def test_an_address_without_a_listener_disturbs_nothing() -> None:
    async def test() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            nobody = Address(f"127.0.0.1:{gone.getsockname()[1]}")
        machine, ear = ScriptedMachine(), ScriptedMachine()
        heard = asyncio.Event()
        ear.on_receive = lambda _: heard.set()
        async with running(machine) as driver, running(ear) as other:
            machine.frames = [Frame(nobody, b"x")] * 3 + [Frame(other.addresses[0], b"y")]
            driver.touch()
            await heard.wait()

    run(test())


class FailingSocket:
    """A socket whose next calls fail as the test says; the other calls are real."""

    def __init__(self, real: socket.socket, *errors: OSError) -> None:
        self._real, self._errors = real, list(errors)

    def recvfrom(self, size: int) -> Any:
        if self._errors:
            raise self._errors.pop(0)
        return self._real.recvfrom(size)

    def sendto(self, data: bytes, address: Any) -> int:
        raise self._errors.pop(0)


def test_icmp_errors_are_ignored_and_later_datagrams_are_received() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with running(machine) as driver:
            (real,) = driver._sockets.values()
            with _sender(driver) as send:
                send(b"after the errors")
                refused = ConnectionRefusedError(errno.ECONNREFUSED, "")
                driver._readable(FailingSocket(real, refused, OSError(errno.EHOSTUNREACH, "")))  # type: ignore[arg-type]
                assert _count(machine, "receive") == 1

    run(test())


def test_a_send_that_would_block_is_dropped_and_counted() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        async with running(machine) as driver:
            (real,) = driver._sockets.values()
            peer = Address("127.0.0.1:9")
            trouble = FailingSocket(real, BlockingIOError(), OSError(errno.ENETUNREACH, ""))
            driver._targets[peer] = (trouble.sendto, ("127.0.0.1", 9))
            driver._send([Frame(peer, b"1"), Frame(peer, b"2")])
            assert (driver.counts.blocked, driver.counts.undeliverable, driver.counts.sent) == (1, 1, 0)

    run(test())


def test_strangers_cannot_make_the_address_tables_grow() -> None:
    async def test() -> None:
        async with running(ScriptedMachine()) as driver:
            for index in range(udp.ADDRESSES_MAX * 3):
                driver._name((f"10.0.{index >> 8}.{index & 255}", 1))
                driver._target(Address(f"10.0.{index >> 8}.{index & 255}:1"))
                assert len(driver._names) <= udp.ADDRESSES_MAX
                assert len(driver._targets) <= udp.ADDRESSES_MAX

    run(test())


def test_a_machine_that_fails_on_a_datagram_is_counted_and_gets_the_next_one() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        good = asyncio.Event()

        def on_receive(data: bytes) -> None:
            if data == b"bad":
                raise ZeroDivisionError
            good.set()

        machine.on_receive = on_receive
        async with running(machine) as driver:
            with _sender(driver) as send:
                send(b"bad")
                send(b"good")
                await good.wait()
            assert driver.numbers()["machine_faults_total"] == driver.faults.count == 1

    run(test())


def test_a_way_to_a_peer_is_there_as_soon_as_it_is_asked_for() -> None:
    async def test() -> None:
        machine = ScriptedMachine()
        told: list[Event] = []
        async with running(machine, act_on=told.append) as driver:
            machine.events = [Connect(Address("127.0.0.1:4")), Connect(Address("?")), Disconnect(Address("?"))]
            driver._turn(driver.now())
        assert machine.peers == [("up", "127.0.0.1:4"), ("lost", "?")]
        assert told == []

    run(test())


def test_draining_lets_the_owner_finish_while_the_machine_runs_on_and_sends_its_last_word() -> None:
    async def test() -> None:
        machine, ear = ScriptedMachine(), ScriptedMachine()
        heard, ticked = asyncio.Event(), asyncio.Event()
        ear.on_receive = lambda _: heard.set()

        def on_timer(now: int) -> None:
            machine.due = None
            ticked.set()

        machine.on_timer = on_timer
        async with running(machine) as driver, running(ear) as other:
            machine.due = driver.now() + 5_000
            driver.touch()

            async def finish() -> None:
                await ticked.wait()
                machine.frames.append(Frame(other.addresses[0], b"goodbye"))

            assert await driver.drain(finish, HANG_S)
            assert driver.addresses == ()
            await heard.wait()

    run(test())


def test_an_owner_that_does_not_finish_is_not_waited_for() -> None:
    async def test() -> None:
        async with running(ScriptedMachine()) as driver:

            async def finish() -> None:
                await asyncio.Event().wait()

            assert not await driver.drain(finish, 0.01)
            assert driver.addresses == ()
            driver.touch()  # Harmless when all is over.

    run(test())


def test_a_port_in_use_is_reported_in_one_line_and_nothing_stays_open() -> None:
    async def test() -> None:
        async with running(ScriptedMachine()) as driver:
            second = UdpDriver(ScriptedMachine(), ["[::1]:0", driver.addresses[0]], lambda _: None)
            with pytest.raises(StorageError, match=r"listen: cannot use 127.*; .* stop that one first"):
                second.open()
            assert second.addresses == ()

    run(test())


def test_two_addresses_of_one_family_are_refused() -> None:
    with pytest.raises(ConfigError, match="listen"):
        UdpDriver(ScriptedMachine(), ["127.0.0.1:0", "127.0.0.2:0"], lambda _: None)


def _count(machine: ScriptedMachine, kind: str) -> int:
    return sum(called == kind for called, _ in machine.calls)


@contextlib.contextmanager
def _sender(driver: UdpDriver) -> Any:
    host, port = driver.addresses[0].rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        yield lambda data: sender.sendto(data, (host, int(port)))
