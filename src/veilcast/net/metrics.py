"""Metrics for Prometheus, on loopback: `GET /metrics` and nothing else.

The `Host` of a request must be our listening address or localhost, with any port. A web page in the member's browser
can make the name of its own site resolve to loopback (DNS rebinding) and then read what answers there; but the browser
sends that site's name.

A metric has a name from `METRICS` and no labels, so no topic and no peer can appear. The server reads one request of
bounded length in bounded time, answers, and closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address
from veilcast.net.address import format_address, listen_error, parse_address
from veilcast.net.private_socket import admit_last_clients

Kind: TypeAlias = Literal["counter", "gauge", "summary"]
Numbers: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns the current values by the names of `METRICS` without the prefix; a summary NAME has `NAME_sum` and
`NAME_count`."""


def render(numbers: Mapping[str, float]) -> str:
    """Return the text format of Prometheus (version 0.0.4)."""
    lines: list[str] = []
    left = dict(numbers)
    for metric, (kind, text) in METRICS.items():
        parts = [f"{metric}_sum", f"{metric}_count"] if kind == "summary" else [metric]
        known = [(part, left.pop(part)) for part in parts if part in left]
        if known:
            lines += [f"# HELP {PREFIX}{metric} {text}", f"# TYPE {PREFIX}{metric} {kind}"]
            lines += [f"{PREFIX}{part} {float(value)!r}" for part, value in known]
    if left:
        raise LocalError("a number that is no declared metric")
    return "".join(f"{line}\n" for line in lines)


class MetricsServer:
    def __init__(self, listen: str, numbers: Numbers) -> None:
        _, self._at = parse_address(listen)
        if not ipaddress.ip_address(self._at[0]).is_loopback:
            raise ConfigError(f"metrics: {listen} is not loopback; others must not see how busy this node is")
        self._numbers = numbers
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Address:
        assert self._server is not None
        return format_address(self._server.sockets[0].getsockname())

    async def open(self) -> None:
        try:
            self._server = await asyncio.start_server(self._answer, *self._at[:2], limit=REQUEST_MAX)
        except OSError as error:
            raise listen_error("metrics", self._at, error) from error

    async def close(self) -> None:
        if self._server is None:
            return
        await admit_last_clients(self._server)
        self._server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._answering) >= CLIENTS_MAX:
                return
            self._answering.add(task)
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(request))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # A request that does not come, or is none, gets no answer.
        finally:
            self._answering.discard(task)
            writer.close()
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(REQUEST_S):
                    await writer.wait_closed()
            writer.transport.abort()

    def _response(self, request: bytes) -> bytes:
        line, *fields = request.split(b"\r\n")
        match line.split(b" "):
            case _ if not self._is_for_us(fields):
                status, body = "421 Misdirected Request", b"this is another host\n"
            case [b"GET", b"/metrics", b"HTTP/1.0" | b"HTTP/1.1"]:
                status, body = "200 OK", render(self._numbers()).encode()
            case [b"GET", _, b"HTTP/1.0" | b"HTTP/1.1"]:
                status, body = "404 Not Found", b"only /metrics\n"
            case _:
                status, body = "405 Method Not Allowed", b"only GET\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body

    def _is_for_us(self, fields: list[bytes]) -> bool:
        named = [field.partition(b":")[2].strip() for field in fields if field.lower().startswith(b"host:")]
        host = named[0].decode("ascii", "replace").lower() if len(named) == 1 else ""
        own = f"[{self._at[0]}]" if ":" in self._at[0] else self._at[0]
        return re.fullmatch(rf"(localhost|{re.escape(own)})(:[0-9]{{1,5}})?", host, re.ASCII) is not None


METRICS: Final[dict[str, tuple[Kind, str]]] = {
    "datagrams_received_total": ("counter", "Datagrams received from any sender."),
    "datagrams_sent_total": ("counter", "Datagrams that the system accepted for sending."),
    "datagrams_blocked_total": ("counter", "Datagrams dropped because the system did not accept them at once."),
    "datagrams_undeliverable_total": ("counter", "Datagrams dropped because their address cannot be reached."),
    "timer_lateness_seconds": ("summary", "Delay of timers after their deadline."),
    "callback_faults_total": ("counter", "Faults in callbacks of veilcast that it survived."),
    "control_clients": ("gauge", "Clients on the control socket."),
    "cells_sent_total": ("counter", "Cells sent on all links, padding included."),
    "cells_padding_total": ("counter", "Cells sent that carried nothing but padding."),
    "queue_age_seconds": ("gauge", "Age of the oldest message that waits for a cell."),
    "swaps_total": ("counter", "Places in meshes that this node has swapped with others."),
    "delivery_latency_seconds": ("summary", "Time from a publication at this node to its settlement."),
    "outbox_records": ("gauge", "Publications on the disk that are not settled."),
    "inbox_notes": ("gauge", "Notes that no client has acknowledged."),
    "records_received_total": ("counter", "Records received on streams."),
    "records_sent_total": ("counter", "Records sent to peers on streams."),
    "records_undeliverable_total": (
        "counter",
        "Records dropped because their peer has no stream, or they are too long.",
    ),
    "streams_up": ("gauge", "Streams that are up."),
    "streams_accepted_total": ("counter", "Inbound connections, let in or not."),
    "streams_ended_total": ("counter", "Streams, handshakes and calls that ended, for any reason."),
    "relay_leases": ("gauge", "Leases at a relay's host."),
    "relay_members": ("gauge", "Members that a proxy has let in, present or not."),
    "relay_held": ("gauge", "Publications that a server stores for subscribers."),
    "relay_given_up_total": (
        "counter",
        "Publications that some subscriber never received because the server ran out of room or time.",
    ),
    "relay_refused_total": ("counter", "Requests that a relay's host refused or could not decode."),
    "tree_listed": ("gauge", "Nodes that a directory lists."),
    "tree_refused_total": ("counter", "Requests that a directory refused or could not decode."),
    "brokers_claims": ("gauge", "Advertisements and subscriptions that a broker knows."),
    "brokers_clients": ("gauge", "Members that a broker remembers."),
    "brokers_contents": ("gauge", "Publications that are on their way through a broker."),
    "brokers_keys": ("gauge", "Keys that are on their way through a broker."),
    "brokers_refused_total": ("counter", "Messages that a broker refused or could not decode."),
    "machine_faults_total": ("counter", "Messages and timers that veilcast failed on and dropped."),
}
"""Every metric. Append only; the documentation has the same table."""

PREFIX: Final = "veilcast_"
REQUEST_MAX: Final = 4096
REQUEST_S: Final = 5.0
CLIENTS_MAX: Final = 8
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
