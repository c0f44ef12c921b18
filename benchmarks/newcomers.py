"""Do newcomers get into a TLS host while strangers open connections, and how long does it take?

A host listens on loopback in this process; a second process opens bare TCP connections at a rate, and holds the last
900 of them. With `--hello` each sends a first message, which the host answers, and nothing more. Newcomers come one
after another. A newcomer's round trip is made up: it waits that long between the host's answer and its own last
message, and with `--late-hello` also between the connection and its first message.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import multiprocessing
import socket
import ssl
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from veilcast.net.streams import TlsStreamDriver
from veilcast.net.tls import StreamIdentity, client_context

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.scripted_machine import ScriptedMachine
from support.tls_parties import TlsParties


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 800, 1500], help="bare connections a second")
    parser.add_argument("--delays", type=int, nargs="+", default=[20, 200, 400], help="round trips, in milliseconds")
    parser.add_argument("--newcomers", type=int, default=5, help="of each round trip (5)")
    parser.add_argument("--late-hello", action="store_true", help="wait a round trip before the first message, too")
    parser.add_argument("--hello", action="store_true", help="the flood sends first messages")
    parser.add_argument("--same-host", action="store_true", help="newcomers come from the address of the flood")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    rows = [asyncio.run(measure(rate, options)) for rate in options.rates]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'asked':>8}{'opened':>8}{'host CPU':>10}" + "".join(f"{delay:>12} ms" for delay in options.delays))
    for row in rows:
        told = "".join(f"{row['through'][str(delay)]:>10} of {options.newcomers}" for delay in options.delays)
        print(f"{row['rate']:>6}/s{row['opened']:>6.0f}/s{row['cpu']:>10.0%}{told}")


async def measure(rate: int, options: argparse.Namespace) -> dict[str, Any]:
    crowd = TlsParties()
    member = crowd.member("newcomer")
    host = TlsStreamDriver(ScriptedMachine(), listen=["127.0.0.1:0"], identity=crowd.proxy(), act_on=lambda _: None)
    host.open()
    try:
        port = int(host.addresses[0].rpartition(":")[2])
        end = multiprocessing.Event()
        flood = multiprocessing.Process(target=open_connections, args=(port, rate, options.hello, end), daemon=True)
        flood.start()
        await asyncio.sleep(WARM_UP_S)
        before, cpu, start = host.numbers()["streams_accepted_total"], time.process_time(), time.monotonic()
        through = {}
        for delay in options.delays:
            came = [await comes(port, member, delay / 1000, options) for _ in range(options.newcomers)]
            through[str(delay)] = sum(came)
        took = time.monotonic() - start
        opened = (host.numbers()["streams_accepted_total"] - before) / took
        busy = (time.process_time() - cpu) / took
        end.set()
        await asyncio.to_thread(flood.join)
    finally:
        host.close()
    return {"rate": rate, "opened": opened, "cpu": busy, "through": through}


async def comes(port: int, identity: StreamIdentity, delay_s: float, options: argparse.Namespace) -> bool:
    """Whether a newcomer is welcomed: the host answers its last message with a record."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await _comes(port, identity, delay_s, options)
    except (OSError, ssl.SSLError, TimeoutError, asyncio.IncompleteReadError):
        return False


async def _comes(port: int, identity: StreamIdentity, delay_s: float, options: argparse.Namespace) -> bool:
    source = "127.0.0.1" if options.same_host else "127.0.7.7"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context(identity).wrap_bio(incoming, outgoing)
        if options.late_hello:
            await asyncio.sleep(delay_s)
        while True:
            done = False
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            if done:
                await asyncio.sleep(delay_s)
            writer.write(outgoing.read())
            data = await reader.read(1 << 16)
            if done or not data:
                return bool(data)
            incoming.write(data)
    finally:
        writer.close()


def first_message() -> bytes:
    """The first bytes of a stranger without a certificate."""
    context, outgoing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def open_connections(port: int, rate: int, hello: bool, end: Event) -> None:
    held: collections.deque[socket.socket] = collections.deque()
    first = first_message() if hello else b""
    start, opened = time.monotonic(), 0
    while not end.is_set():
        while opened < (time.monotonic() - start) * rate:
            opened += 1
            made = socket.socket()
            made.setblocking(False)
            with contextlib.suppress(OSError):
                made.connect_ex(("127.0.0.1", port))
                made.send(first)
            held.append(made)
            if len(held) > HELD:
                held.popleft().close()
        time.sleep(0.001)
    for made in held:
        made.close()


HELD = 900
"""Connections that the flood holds open, fewer than the files that a process has at first."""
WARM_UP_S = 2.0
TIMEOUT_S = 6.0


if __name__ == "__main__":
    main()
