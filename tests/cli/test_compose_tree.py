"""The directory and nodes of a tree, from the files of a local one to what can be served; here without Tor."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.secret_file import read_private_file
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.local import network, tree
from veilcast.cli.local.network import NetworkPlan
from veilcast.crypto.onion_keys import read_host
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, StorageError
from veilcast.net.metrics import render
from veilcast.node import config as node_config
from veilcast.node.tree import TreeSettings, load_directory


class IdleDriver:
    """A driver that drives nothing."""

    def touch(self) -> None: ...

    def now(self) -> int:
        return 0


def lay_out(directory: Path, *, tor: bool) -> network.LocalNetwork:
    plan = NetworkPlan(nodes=3, mode="tree", subscribers=2, tor=tor, epoch_us=HOUR_US, life_us=HOUR_US)
    return network.lay_out(directory, plan, Context(cost=PassphraseCost(1, 1)), Random(1))


@pytest.mark.parametrize("tor", [True, False])
def test_the_directory_and_the_members_can_read_the_written_files(tor: bool, disk: Path) -> None:
    net = lay_out(disk, tor=tor)
    directory = load_directory(disk / "directory" / "directory.toml")
    assert directory.tor.danger_off == (not tor)
    for number in range(net.plan.nodes):
        config = node_config.load_config(network.node_file(disk, number))
        assert isinstance(config.settings, TreeSettings)
        if tor:
            assert read_host(config.settings.directories[0].removesuffix(":80"))
            assert (config.listen, config.tor.network) == (
                None,
                str(disk / "01" / "../testnet/network.json").replace("01", f"{number + 1:02}"),
            )
        else:
            assert (config.settings.directories, config.listen) == ((directory.listen,), net.addresses[number])
    network.remove_network(disk, net)
    assert not disk.exists()


def test_a_directory_shows_numbers_that_are_declared_and_is_one_processs_at_a_time(disk: Path) -> None:
    lay_out(disk, tor=False)
    with tree.compose_host(disk, tree.DIRECTORY, None) as station:
        shown = station.make_service(IdleDriver()).numbers()  # type: ignore[arg-type]
        assert render(shown)
        assert shown["tree_listed"] == 0
        with pytest.raises(StorageError, match="in use"), tree.compose_host(disk, tree.DIRECTORY, None):
            pass


def test_a_member_is_known_by_its_public_address(disk: Path) -> None:
    net = lay_out(disk, tor=False)
    config = node_config.load_config(network.node_file(disk, 0))
    assert config.passphrase_file is not None
    with compose(config, Secret(read_private_file(Path(config.passphrase_file)))) as service:
        assert service.address == net.addresses[0]


def test_keys_of_another_mode_are_refused() -> None:
    with pytest.raises(ConfigError, match="--no-tor is of the tree"):
        NetworkPlan(nodes=3, tor=False, publishers=1, subscribers=1)
    with pytest.raises(ConfigError, match="are of the mesh, not of mode 'tree'"):
        NetworkPlan(nodes=3, mode="tree", profile="paper", cover=True, subscribers=1)
