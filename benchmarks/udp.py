"""What does it cost to take a datagram and send one: our driver, beside bare sockets and asyncio's own protocol?

Another process sends cells of 1,200 bytes in bursts and waits for as many back. Each contestant echoes them, by a
machine, a loop or a protocol that does nothing else. Counted is the processor time of this process for each datagram
received and answered: system calls, event loop and all. Contestants take turns, and the best turn of each counts.

Then: are cells on time while strangers flood the socket?
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import cast

from veilcast.machine import Address, Event, Frame
from veilcast.net.clock import SystemClock
from veilcast.net.udp import UdpDriver


class DatagramEchoMachine:
    """The least machine that answers."""

    def __init__(self, enough: Callable[[], object], count: int) -> None:
        self._frames: list[Frame] = []
        self._enough, self._left = enough, count

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._frames.append(Frame(source, data))
        self._left -= 1
        if not self._left:
            self._enough()

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None


class DatagramEchoProtocol(asyncio.DatagramProtocol):
    def __init__(self, enough: Callable[[], object], count: int) -> None:
        self._enough, self._left = enough, count

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._transport.sendto(data, address)
        self._left -= 1
        if not self._left:
            self._enough()


def by_driver(start: Callable[[int], None]) -> float:
    async def run() -> float:
        over = asyncio.Event()
        driver = UdpDriver(DatagramEchoMachine(over.set, CELLS), ["127.0.0.1:0"], lambda _: None)
        driver.open()
        start(int(driver.addresses[0].split(":")[1]))
        before = time.process_time()
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        await asyncio.sleep(0)
        spent = time.process_time() - before
        check(driver.counts.received == CELLS == driver.counts.sent)
        driver.close()
        return spent

    return asyncio.run(run())


def by_protocol(start: Callable[[int], None]) -> float:
    async def run() -> float:
        over = asyncio.Event()
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: DatagramEchoProtocol(over.set, CELLS), local_addr=("127.0.0.1", 0)
        )
        start(transport.get_extra_info("sockname")[1])
        before = time.process_time()
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        spent = time.process_time() - before
        transport.close()
        return spent

    return asyncio.run(run())


def by_sockets(start: Callable[[int], None]) -> float:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        # Patience by the system: Python's own would cost another system call a datagram.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE_S, 0))
        bound.bind(("127.0.0.1", 0))
        start(bound.getsockname()[1])
        before = time.process_time()
        for _ in range(CELLS):
            data, source = bound.recvfrom(2048)
            bound.sendto(data, source)
        return time.process_time() - before


def pump(orders: Connection) -> None:
    """The other process: for each port it is told, sends `CELLS` cells in bursts and checks what comes back."""
    cell = bytes(range(256)) * 4 + bytes(176)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        sender.settimeout(PATIENCE_S)
        while port := orders.recv():
            for _ in range(CELLS // BURST):
                for _ in range(BURST):
                    sender.sendto(cell, ("127.0.0.1", port))
                check(all(sender.recv(2048) == cell for _ in range(BURST)))
            orders.send("done")


def measure() -> dict[str, float]:
    """Microseconds a datagram, by contestant."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=pump, args=(theirs,), daemon=True)
    child.start()
    best = dict.fromkeys(CONTESTANTS, float("inf"))
    for _ in range(TURNS):
        for name, contestant in CONTESTANTS.items():
            best[name] = min(best[name], contestant(ours.send) / CELLS * 1e6)
            check(ours.recv() == "done")
    ours.send(0)
    child.join()
    return best


class Metronome(DatagramEchoMachine):
    """Sends a cell at every beat, and answers nobody."""

    def __init__(self, start: int) -> None:
        super().__init__(lambda: None, 0)
        self._beat = start
        self.late_us: list[int] = []

    def receive(self, data: bytes, source: Address, now: int) -> None:
        pass

    def handle_timer(self, now: int) -> None:
        self.late_us.append(now - self._beat)
        self._beat += BEAT_US
        self._frames.append(Frame(Address("127.0.0.1:9"), bytes(1200)))

    def next_timer(self) -> int | None:
        return self._beat


def flood(orders: Connection) -> None:
    """The other process: from many ports, as many datagrams a second as it is told, until told to end."""
    port, rate = orders.recv()
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SOURCES)]
    begun, sent = time.perf_counter(), 0
    while not orders.poll():
        while sent < (time.perf_counter() - begun) * rate:
            senders[sent % SOURCES].sendto(bytes(1200), ("127.0.0.1", port))
            sent += 1
        time.sleep(0.0005)
    for sender in senders:
        sender.close()
    orders.send(sent)


def under_flood(rate: int) -> dict[str, float]:
    """How late cells leave at a given rate of arriving datagrams."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=flood, args=(theirs,), daemon=True)
    child.start()

    async def run() -> dict[str, float]:
        clock = SystemClock()
        machine = Metronome(clock.now() + 100_000)
        driver = UdpDriver(machine, ["127.0.0.1:0"], lambda _: None, clock)
        driver.open()
        ours.send((int(driver.addresses[0].split(":")[1]), rate))
        await asyncio.sleep(FLOOD_S)
        ours.send("over")
        driver.close()
        late = sorted(machine.late_us)
        check(len(late) > FLOOD_S * 1e6 / BEAT_US * 0.9)
        return {
            "sent": ours.recv() / FLOOD_S,
            "received": driver.counts.received / FLOOD_S,
            "on_time": sum(lateness < QUARTER_US for lateness in late) / len(late),
            "p99_ms": late[len(late) * 99 // 100] / 1000,
        }

    found = asyncio.run(run())
    child.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    best = measure()
    floods = {rate: under_flood(rate) for rate in (0, 20_000)}
    if as_json:
        costs = {name: {"us": spent, "a_second": 1e6 / spent} for name, spent in best.items()}
        print(json.dumps({"costs": costs, "floods": floods}, indent=2))
        return
    print(f"{'a cell received and answered':<32}{'us':>8}{'a CPU-second':>14}{'of bare':>9}")
    bare = best["bare sockets"]
    for name, spent in best.items():
        print(f"  {name:<30}{spent:>8.1f}{1e6 / spent:>14,.0f}{bare / spent:>9.2f}")

    print(f"\n{'128 cells a second, under a flood of':<38}{'arriving':>10}{'on time':>9}{'p99 late':>10}")
    for rate, found in floods.items():
        print(
            f"  {rate:>7,} datagrams a second{'':<11}{found['received']:>10,.0f}{found['on_time']:>9.1%}"
            f"{found['p99_ms']:>7.1f} ms"
        )


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a result is wrong")


CONTESTANTS: dict[str, Callable[[Callable[[int], None]], float]] = {
    "bare sockets": by_sockets,
    "our driver": by_driver,
    "asyncio's datagram protocol": by_protocol,
}
CELLS = 64 * 300
BURST = 64
TURNS = 5
PATIENCE_S = 20
FLOOD_S = 4.0
SOURCES = 200
BEAT_US = 1_000_000 // 128
"""Eight links of 16 cells a second."""
QUARTER_US = 1_000_000 // 16 // 4
"""A cell is on time when it is not later than a quarter of its link's period."""

if __name__ == "__main__":
    main()
