from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from support.waits import HANG_S, until
from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.net import metrics
from veilcast.net.address import parse_address
from veilcast.net.metrics import METRICS, MetricsServer, render

DOCUMENT = Path(__file__).parents[2] / "docs" / "member.md"


def with_server(test: Callable[[MetricsServer], Awaitable[None]], listen: str = "127.0.0.1:0") -> None:
    async def run() -> None:
        server = MetricsServer(listen, lambda: {"cells_sent_total": 7, "queue_age_seconds": 0.25})
        await server.open()
        try:
            async with asyncio.timeout(HANG_S):
                await test(server)
        finally:
            await server.close()

    asyncio.run(run())


async def ask(server: MetricsServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*parse_address(server.address)[1][:2])
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:
        return b""  # Closed with what was sent unread.
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"])
def test_a_scrape_receives_the_current_values(listen: str) -> None:
    async def test(server: MetricsServer) -> None:
        head, body = (await ask(server, f"GET /metrics HTTP/1.1\r\nHost: {server.address}\r\n\r\n".encode())).split(
            b"\r\n\r\n"
        )
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"# TYPE veilcast_cells_sent_total counter\nveilcast_cells_sent_total 7.0\n" in body
        assert b"veilcast_queue_age_seconds 0.25\n" in body

    with_server(test, listen)


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"GET / HTTP/1.1", b"404"), (b"POST /metrics HTTP/1.1", b"405"), (b"GET /metrics", b"405"), (b"\xff", b"405")],
)
def test_nothing_else_is_served(line: bytes, status: bytes) -> None:
    async def test(server: MetricsServer) -> None:
        assert (await ask(server, line + b"\r\nHost: localhost\r\n\r\n")).split(b" ")[1] == status

    with_server(test)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9100", "localhost", "localhost:1", "LocalHost:9100", "  localhost  "],
)
def test_a_request_that_names_us_is_answered_by_any_port(host: str) -> None:
    async def test(server: MetricsServer) -> None:
        request = f"GET /metrics HTTP/1.1\r\nAccept: */*\r\nhost:{host}\r\n\r\n"
        assert (await ask(server, request.encode())).split(b" ")[1] == b"200"

    with_server(test)


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "Host:\r\n",
        "Host: evil.example:9100\r\n",
        "Host: evil.example\r\nHost: localhost\r\n",
        "Host: localhost\r\nHost: localhost\r\n",
        "Host: localhost.evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Host: 127.0.0.2\r\n",
        "Host: 127x0x0x1\r\n",
        "Host: localhost:9100@evil.example\r\n",
        "Host: localhost:\r\n",
        "Host: localh\u00f6st\r\n",
        "X-Host: localhost\r\n",
        "Host : localhost\r\n",
    ],
)
@pytest.mark.parametrize("line", ["GET /metrics HTTP/1.1", "GET /metrics HTTP/1.0", "GET /other HTTP/1.1"])
def test_a_page_whose_name_points_at_loopback_reads_nothing(line: str, fields: str) -> None:
    """DNS rebinding: the browser connects here, and sends the name of the page's own site."""

    async def test(server: MetricsServer) -> None:
        answer = await ask(server, f"{line}\r\n{fields}\r\n".encode())
        assert answer.split(b" ")[1] == b"421"
        assert b"veilcast" not in answer

    with_server(test)


def test_a_request_that_has_no_end_is_not_kept() -> None:
    async def test(server: MetricsServer) -> None:
        assert await ask(server, b"x" * (metrics.REQUEST_MAX * 3)) == b""

    with_server(test)


def test_a_request_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 0.01)

    async def test(server: MetricsServer) -> None:
        assert await ask(server, b"GET /metrics HTTP/1.1\r\n") == b""

    with_server(test)


def test_there_is_an_end_to_clients() -> None:
    async def test(server: MetricsServer) -> None:
        idle = [
            await asyncio.open_connection(*parse_address(server.address)[1][:2]) for _ in range(metrics.CLIENTS_MAX)
        ]
        await until(lambda: len(server._answering) == metrics.CLIENTS_MAX)
        assert await ask(server, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        for _, writer in idle:
            writer.close()
            await writer.wait_closed()

    with_server(test)


@pytest.mark.parametrize("listen", ["0.0.0.0:9100", "192.0.2.1:9100", "[::]:9100"])
def test_an_address_that_others_can_reach_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match="not loopback"):
        MetricsServer(listen, dict)


def test_a_port_in_use_is_reported_in_one_line() -> None:
    async def test(server: MetricsServer) -> None:
        with pytest.raises(StorageError, match=r"metrics: cannot use \S+: [^;\[\(]+; "):
            await MetricsServer(server.address, dict).open()

    with_server(test)


def test_a_number_without_a_declaration_is_refused_so_no_name_can_carry_a_topic() -> None:
    with pytest.raises(LocalError):
        render({"cells_of_news_eu_total": 1})


def test_every_metric_is_documented_as_it_is_served() -> None:
    rows = re.findall(r"^\| `veilcast_(\w+)` \| (\w+) \| (.+?) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert {name: (kind, text) for name, kind, text in rows} == METRICS


def test_all_metrics_together_are_well_formed() -> None:
    numbers: dict[str, float] = {}
    for name, (kind, _) in METRICS.items():
        numbers |= {f"{name}_sum": 1.5, f"{name}_count": 2} if kind == "summary" else {name: 3}
    for line in render(numbers).splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) veilcast_[a-z_]+ .+|veilcast_[a-z_]+ [0-9.e+-]+", line)
