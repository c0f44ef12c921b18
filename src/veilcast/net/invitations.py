"""Runs the machine of an invitation to its end, on plain streams or through Tor; and finds addresses of this computer.

The machines seal what they send themselves, so the streams carry their frames as they are. An inviter is called by
anybody, each caller under a name that says nothing (`net.onion`); a joiner calls one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from veilcast.errors import VeilcastError
from veilcast.machine import Event, Machine
from veilcast.net.address import SocketAddress, format_address, listen_error, parse_address
from veilcast.net.clock import SystemClock
from veilcast.net.inbound import open_listener
from veilcast.net.onion import DirectDialer, OnionDriver
from veilcast.net.stream_limits import StreamLimits


async def run_to_end(
    machine: Machine,
    handle: Callable[[Event, int], bool],
    clock: SystemClock,
    listener: socket.socket | None = None,
) -> None:
    """Run the machine until `handle` returns True for an event, and then until everything is sent.

    `handle` gets the time of the event. What it raises ends the run.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def act_on(event: Event) -> None:
        if over.done():
            return
        try:
            is_last = handle(event, clock.now())
        except VeilcastError as error:
            over.set_exception(error)
        else:
            if is_last:
                over.set_result(None)

    driver = OnionDriver(
        machine,
        listen=[] if listener is None else [listener],
        reach=DirectDialer(),
        act_on=act_on,
        clock=clock,
        limits=LIMITS,
    )
    driver.open()
    try:
        await over
    finally:
        await driver.drain(_nothing, FLUSH_S)


async def serve_callers(machine: Machine, listen: str, key: str, clock: SystemClock) -> None:
    """Serve everybody who calls, without end. `key` is the key of the file, for an error."""
    listener, _ = listen_at(listen, key)
    driver = OnionDriver(
        machine,
        listen=[listener],
        reach=DirectDialer(),
        act_on=lambda event: None,
        clock=clock,
        limits=LIMITS,
    )
    driver.open()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        driver.close()


def listen_at(text: str, key: str = "--listen") -> tuple[socket.socket, str]:
    """Open a listening socket, and return it with its address; port 0 means any free port."""
    family, address = parse_address(text)
    try:
        bound = open_listener(family, address)
    except OSError as error:
        raise listen_error(key, address, error) from error
    return bound, format_address(bound.getsockname())


def own_host(towards: str | None = None) -> str:
    """The address of this computer from which it would call another, without a port; loopback if it has no network.

    Nothing is sent: the system only chooses a route.
    """
    for text in ([] if towards is None else [towards]) + list(_ANYWHERE):
        family, address = parse_address(text)
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return format_address(_with_port(probe.getsockname(), 0)).rpartition(":")[0]
    return "127.0.0.1"


def free_udp_address(host: str, first_port: int) -> str:
    """The first address of this host, from a port on, at which no other process of this computer listens."""
    for port in range(first_port, first_port + PORTS_TRIED):
        text = f"{host}:{port}"
        family, address = parse_address(text)
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
            return text
    return f"{host}:{first_port}"


def _with_port(address: SocketAddress, port: int) -> SocketAddress:
    return (address[0], port) if len(address) == 2 else (address[0], port, 0, 0)


async def _nothing() -> None:
    """Everything that is to be sent is with the driver already."""


FLUSH_S: Final = 5.0
PORTS_TRIED: Final = 100
_ANYWHERE: Final = ("192.0.2.1:9", "[2001:db8::1]:9")
LIMITS: Final = StreamLimits(
    write_max=4 << 20,
    waiting_max=16 << 20,
    callers=64,
    calls=4,
    handshakes=64,
    handshake_s=10.0,
    backoff_s=0.25,
    backoff_max_s=4.0,
)
"""An invitation has one joiner; all other callers are strangers."""
