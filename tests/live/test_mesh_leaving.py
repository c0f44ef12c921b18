"""`node stop` on a running member: its neighbours are told before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.live_network import LiveNetwork
from support.waits import HANG_S, until
from veilcast.cli.compose import compose
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.main import main
from veilcast.machine import Address
from veilcast.mesh.certified import CertifiedNeighbourhood
from veilcast.mesh.neighbourhood import FixedNeighbourhood
from veilcast.mesh.node import MeshNode
from veilcast.net.service import ServiceSetup, serve_until
from veilcast.sim.wrappers import unwrap
from veilcast.wire.base import Message
from veilcast.wire.mesh import Replace


class LiveMesh(LiveNetwork):
    """Members take the time that they need to finish, as in service."""

    def __init__(self, directory: Path, plan: NetworkPlan) -> None:
        super().__init__(directory, plan)
        self.nodes: dict[str, MeshNode] = {}

    @contextmanager
    def service(self, name: str) -> Iterator[ServiceSetup[Any]]:
        with compose(*self.member(name)) as made:
            node = self.nodes[name] = unwrap(made.machine)
            assert isinstance(node, MeshNode)
            yield made

    async def _serve(self, name: str, stop: asyncio.Event, ready: asyncio.Event) -> bool:
        with self.service(name) as setup:
            return await serve_until(setup, stop, asyncio.Event(), lambda _: ready.set())


@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_a_node_that_is_stopped_tells_its_neighbours(
    profile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Address] = []
    for kind in (FixedNeighbourhood, CertifiedNeighbourhood):

        def hear(self: Any, message: Message, source: Address, now: int, hear: Any = kind.on_message) -> None:
            hear(self, message, source, now)
            if isinstance(message, Replace):
                told.append(source)

        monkeypatch.setattr(kind, "on_message", hear)

    async def drive() -> None:
        house = LiveMesh(tmp_path, NetworkPlan(3, profile=profile, subscribers=1))
        async with asyncio.timeout(HANG_S):
            await house.start(*house.names())
            leaver = house.others[0]
            address = Address(house.member(leaver)[0].listen or "")
            await until(lambda: any(house.nodes[name].knows(address) for name in house.names()))
            await until(lambda: house.nodes[leaver].neighbourhood.sizes()["neighbours"])
            assert await asyncio.to_thread(main, ["node", "stop", "-c", str(house.file(leaver))]) == 0
            await until(lambda: address in told)
            await house.end()

    asyncio.run(drive())
    assert "the node finishes" in capsys.readouterr().out
