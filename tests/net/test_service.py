from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from support.memory_node import MemoryNode
from support.waits import HANG_S
from veilcast import LocalError, connect
from veilcast.net.address import parse_address
from veilcast.net.driver import MachineDriver
from veilcast.net.service import NodeSetup, serve
from veilcast.net.udp import udp_driver
from veilcast.sim.flood import FloodNode


def in_service(
    directory: Path, test: Callable[[MemoryNode, NodeSetup], Awaitable[None]], drain_s: float = HANG_S
) -> tuple[bool, MemoryNode]:
    """Run a test beside a running service; returns True if the service drained when the test stopped it."""

    async def run() -> tuple[bool, MemoryNode]:
        node, ready = MemoryNode(), asyncio.Event()
        (directory / "node.toml").write_text('state = "."')
        service = NodeSetup(
            machine=FloodNode(),
            make_service=lambda driver: node,
            make_driver=udp_driver("127.0.0.1:0"),
            control=directory / "control.sock",
            metrics="127.0.0.1:0",
            drain_s=drain_s,
        )
        async with asyncio.timeout(HANG_S):
            running = asyncio.ensure_future(serve(service, lambda _: ready.set()))
            await ready.wait()
            await test(node, service)
            return await running, node

    return asyncio.run(run())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_owner_finish_while_clients_are_served(tmp_path: Path, number: signal.Signals) -> None:
    async def test(node: MemoryNode, _: NodeSetup) -> None:
        node.hold_finish.clear()
        async with connect(tmp_path / "node.toml") as me:
            os.kill(os.getpid(), number)
            while not (await me.status()).draining:
                pass
            with pytest.raises(LocalError, match="stopping"):
                await me.publish("news")
        node.hold_finish.set()

    drained, node = in_service(tmp_path, test)
    assert drained
    assert node.finished.is_set()
    assert not (tmp_path / "control.sock").exists()


def test_a_node_that_a_script_has_put_into_the_background_goes_on_at_ctrl_c(tmp_path: Path) -> None:
    async def test(node: MemoryNode, _: NodeSetup) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        async with connect(tmp_path / "node.toml") as me:
            assert not (await me.status()).draining
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert in_service(tmp_path, test)[0]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async def test(node: MemoryNode, _: NodeSetup) -> None:
        node.hold_finish.clear()
        os.kill(os.getpid(), signal.SIGTERM)
        while not node.draining:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)

    drained, node = in_service(tmp_path, test)
    assert not drained
    assert not node.finished.is_set()


def test_an_owner_that_does_not_finish_is_left_behind(tmp_path: Path) -> None:
    async def test(node: MemoryNode, _: NodeSetup) -> None:
        node.hold_finish.clear()
        async with connect(tmp_path / "node.toml") as me:
            await me.stop()

    drained, _ = in_service(tmp_path, test, drain_s=0.05)
    assert not drained


def test_a_second_node_on_the_same_socket_does_not_start_and_the_first_runs_on(tmp_path: Path) -> None:
    async def test(node: MemoryNode, service: NodeSetup) -> None:
        with pytest.raises(LocalError, match="runs already"):
            await serve(service)
        async with connect(tmp_path / "node.toml") as me:
            await me.stop()

    assert in_service(tmp_path, test)[0]


def test_the_metrics_have_the_numbers_of_the_service_and_of_the_sockets(tmp_path: Path) -> None:
    async def run() -> str:
        node, drivers, started = MemoryNode(), list[MachineDriver](), asyncio.Event()

        def ready(driver: MachineDriver) -> None:
            drivers.append(driver)
            started.set()

        port = _free_port()
        service = NodeSetup(
            machine=FloodNode(),
            make_service=lambda driver: node,
            make_driver=udp_driver("127.0.0.1:0"),
            control=tmp_path / "control.sock",
            metrics=f"127.0.0.1:{port}",
        )
        async with asyncio.timeout(HANG_S):
            running = asyncio.ensure_future(serve(service, ready))
            await started.wait()
            assert parse_address(drivers[0].addresses[0])[1][1] > 0
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
            os.kill(os.getpid(), signal.SIGTERM)
            await running
        return text

    text = asyncio.run(run())
    assert "veilcast_cells_sent_total 7.0" in text
    assert "veilcast_datagrams_received_total 0.0" in text
    assert "veilcast_control_clients 0.0" in text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
