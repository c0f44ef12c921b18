"""A private socket leaves nothing open, whenever it is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
import warnings
from pathlib import Path

import pytest

from veilcast.net.metrics import MetricsServer
from veilcast.net.private_socket import PrivateSocket


async def serve_until_cancelled(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        writer.close()


async def close_after(turns: int, path: Path) -> None:
    """A client comes, and the socket is closed after so many turns of the loop."""
    opened = PrivateSocket(path, serve_until_cancelled, 1024)
    await opened.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        await opened.close()


@pytest.mark.parametrize("turns", range(8))
def test_a_socket_that_is_closed_while_a_client_comes_leaves_no_stream_open(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(close_after(turns, Path(folder, "s")))
        # What is left open warns when it is collected, and pytest makes an error of the warning.
        gc.collect()


async def close_metrics_after(turns: int) -> None:
    opened = MetricsServer("127.0.0.1:0", dict)
    await opened.open()
    host, _, port = opened.address.rpartition(":")
    with socket.create_connection((host, int(port))):
        for _ in range(turns):
            await asyncio.sleep(0)
        await opened.close()


@pytest.mark.parametrize("turns", range(8))
def test_so_does_the_server_of_metrics(turns: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(close_metrics_after(turns))
        gc.collect()
