"""What does it cost to take a record from a TLS stream and send one: our driver, beside a bare asyncio TLS echo?

Another process, a member, sends records and waits for as many back. Each contestant echoes them: our driver with a
machine that does nothing else; asyncio's TLS with a protocol that sends back whatever bytes come, which is the least
there can be; and asyncio's streams, which read record by record, as a server is usually written. All have the same
certificates and TLS 1.3 contexts. Counted is the processor time of this process for each record received and answered.
Contestants take turns, and the best turn of each counts.

Then: what does it cost to let a member in, from the connection to the welcome?
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple, cast

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.role import TlsRole
from veilcast.authority.tls_identity import TlsIdentity
from veilcast.machine import Address, Event, Frame
from veilcast.net.clock import SystemClock
from veilcast.net.records import PREFIX, WELCOME, encode_record
from veilcast.net.streams import TlsStreamDriver
from veilcast.net.tls import StreamIdentity, client_context, server_context


class Load(NamedTuple):
    """`total` records of `size` bytes, `window` of them on their way at a time."""

    size: int
    window: int
    total: int


class StreamEchoMachine:
    """The least machine that answers."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._frames.append(Frame(source, data))

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None


class StreamEchoProtocol(asyncio.Protocol):
    """Sends back whatever comes, in whatever pieces."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(encode_record(WELCOME))

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@asynccontextmanager
async def by_driver(host: StreamIdentity) -> AsyncIterator[int]:
    driver = TlsStreamDriver(StreamEchoMachine(), listen=["127.0.0.1:0"], identity=host, act_on=lambda _: None)
    driver.open()
    yield int(driver.addresses[0].split(":")[1])
    driver.close()


@asynccontextmanager
async def by_protocol(host: StreamIdentity) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(StreamEchoProtocol, "127.0.0.1", 0, ssl=server_context(host))
    yield server.sockets[0].getsockname()[1]
    server.close()


@asynccontextmanager
async def by_streams(host: StreamIdentity) -> AsyncIterator[int]:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_record(WELCOME))
        try:
            while True:
                (length,) = struct.unpack(">I", await reader.readexactly(PREFIX))
                writer.write(encode_record(await reader.readexactly(length)))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=server_context(host), limit=1 << 20)
    yield server.sockets[0].getsockname()[1]
    server.close()


def member(orders: Connection, identity: StreamIdentity) -> None:
    """The other process. For each port and load it is told, it calls, sends, and checks what comes back."""
    context = client_context(identity)
    while order := orders.recv():
        port, load = order
        if load is None:
            for _ in range(VISITS):
                _call(context, port).close()
            orders.send(None)
            continue
        line, record = _call(context, port), encode_record(os.urandom(load.size))
        orders.send("ready")
        orders.recv()
        burst, answer = record * load.window, bytearray(len(record) * load.window)
        for _ in range(load.total // load.window):
            line.sendall(burst)
            view = memoryview(answer)
            while view:
                view = view[line.recv_into(view) :]
            check(answer == burst)
        orders.send("done")
        orders.recv()
        line.close()


def measure(contestant: Contestant, host: StreamIdentity, orders: Connection, load: Load) -> float:
    """Processor seconds a record."""

    async def run() -> float:
        async with contestant(host) as port:
            orders.send((port, load))
            await _heard(orders)
            before = time.process_time()
            orders.send("go")
            await _heard(orders)
            spent = time.process_time() - before
            orders.send("over")
            return spent / load.total

    return asyncio.run(run())


def measure_visits(contestant: Contestant, host: StreamIdentity, orders: Connection) -> float:
    """Processor seconds a member who comes, is judged, let in, and leaves."""

    async def run() -> float:
        async with contestant(host) as port:
            before = time.process_time()
            orders.send((port, None))
            await _heard(orders)
            return (time.process_time() - before) / VISITS

    return asyncio.run(run())


async def _heard(orders: Connection) -> None:
    """Let the loop run until the other process says something."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(orders.fileno(), heard.set)
    await asyncio.wait_for(heard.wait(), PATIENCE_S)
    loop.remove_reader(orders.fileno())
    orders.recv()


def _call(context: ssl.SSLContext, port: int) -> ssl.SSLSocket:
    line = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    check(line.recv(PREFIX) == encode_record(WELCOME))
    return line


def identities() -> tuple[StreamIdentity, StreamIdentity]:
    """A proxy's and a member's."""
    authority = issuer.create(HOUR_US, os.urandom)
    authority, host = _identity(authority, "proxy")
    authority, guest = _identity(authority, "member")
    return host, guest


def _identity(authority: Authority, standing: TlsRole) -> tuple[Authority, StreamIdentity]:
    epoch = epoch_of(SystemClock().now(), HOUR_US)
    authority, keyring = issuer.grant_ready(authority, standing, [], epoch, 24, os.urandom, standing)
    party = TlsIdentity(keyring)
    return authority, StreamIdentity(
        chain=party.chain,
        key=party.key.reveal(),
        anchor=party.anchor,
        callers=party.make_judge("member"),
        hosts=party.make_judge("proxy"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    as_json = parser.parse_args().json
    host, guest = identities()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=member, args=(theirs, guest), daemon=True)
    child.start()
    costs = {what: dict.fromkeys(CONTESTANTS, float("inf")) for what in (*LOADS, VISIT)}
    for _ in range(TURNS):
        for name, contestant in CONTESTANTS.items():
            for what, load in LOADS.items():
                costs[what][name] = min(costs[what][name], measure(contestant, host, ours, load))
            costs[VISIT][name] = min(costs[VISIT][name], measure_visits(contestant, host, ours))
    ours.send(None)
    child.join()
    if as_json:
        print(json.dumps({what: {name: spent * 1e6 for name, spent in by.items()} for what, by in costs.items()}))
        return
    for what, by in costs.items():
        print(f"{what:<44}{'us':>9}{'a CPU-second':>14}{'MB':>8}{'of bare':>9}")
        for name, spent in by.items():
            volume = f"{LOADS[what].size / spent / 1e6:>8,.0f}" if what in LOADS else f"{'':>8}"
            print(f"  {name:<42}{spent * 1e6:>9.1f}{1 / spent:>14,.0f}{volume}{by[BARE] / spent:>9.2f}")


def check(right: bool) -> None:
    if not right:
        raise SystemExit("a result is wrong")


Contestant = Callable[[StreamIdentity], AbstractAsyncContextManager[int]]
BARE = "asyncio's TLS, bytes echoed"
CONTESTANTS: dict[str, Contestant] = {
    BARE: by_protocol,
    "asyncio's TLS streams, record by record": by_streams,
    "our driver, records and a machine": by_driver,
}
LOADS = {
    "records of 1 KiB, 64 at a time": Load(1 << 10, 64, 12_800),
    "records of 1 KiB, one at a time": Load(1 << 10, 1, 2_000),
    "records of 64 KiB, 8 at a time": Load(1 << 16, 8, 1_600),
}
VISIT = "members let in"
VISITS = 100
TURNS = 3
PATIENCE_S = 60

if __name__ == "__main__":
    main()
