"""A mode from outside the package: one module and one entry point, and nodes, local networks and clients use it."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.live_network import LiveNetwork
from support.waits import HANG_S
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.local.network import NetworkPlan, lay_out
from veilcast.errors import ConfigError
from veilcast.net.service import ServiceSetup
from veilcast.node.modes import MODES, mode_of


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installed distribution that adds the mode `flood`."""
    metadata = tmp_path / "site" / "veilcast_flood-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: veilcast-flood\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[veilcast.modes]\nflood = support.flood_mode:ENTRY\n")
    monkeypatch.syspath_prepend(str(metadata.parent))
    return tmp_path / "network"


class FloodNetwork(LiveNetwork):
    def service(self, name: str) -> AbstractContextManager[ServiceSetup[Any]]:
        return compose(*self.member(name))


def test_a_publication_reaches_every_subscriber_of_a_local_network_of_the_new_mode(installed: Path) -> None:
    async def test() -> None:
        network = FloodNetwork(installed, NetworkPlan(4, mode="flood", profile="paper", subscribers=2))
        try:
            async with asyncio.timeout(HANG_S):
                await network.start(*network.names())
                for name in network.subscribers:
                    async with network.client(name) as me:
                        await me.subscribe(network.net.topic, keep=True).start()
                await network.publish("hello")
                assert [await network.read(name, 1) for name in network.subscribers] == [["hello"], ["hello"]]
        finally:
            await network.end()

    asyncio.run(test())


def test_a_plan_of_the_new_mode_refuses_options_of_other_modes(installed: Path) -> None:
    with pytest.raises(ConfigError, match=r"--no-tor is of the tree"):
        NetworkPlan(3, mode="flood", subscribers=1, tor=False)
    with pytest.raises(ConfigError, match=r"--pf, --sg and --topology are of the mesh, not of mode 'flood'"):
        NetworkPlan(3, mode="flood", profile="paper", subscribers=1, cover=True)
    network = lay_out(installed, NetworkPlan(3, mode="flood", subscribers=1), Context(), Random(os.urandom(8)))
    assert network.hosts == ()


def test_without_the_package_there_is_no_such_mode() -> None:
    with pytest.raises(ConfigError, match="there is no mode 'flood', only mesh, relay, tree, foil, brokers"):
        mode_of("flood")
    assert "flood" not in MODES
