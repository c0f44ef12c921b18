"""From the files of a relay on one machine to its parts: hosts, members, and the numbers that they show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.secret_file import read_private_file
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.local import network
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.local.relay import HOSTS, compose_host
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, StorageError
from veilcast.net.metrics import render
from veilcast.node import config as node_config
from veilcast.node.relay import RelaySettings, load_proxy


class IdleDriver:
    """A driver that drives nothing."""

    def now(self) -> int:
        return 0

    def touch(self) -> None: ...


@pytest.fixture(params=["hardened", "paper"])
def relay(request: pytest.FixtureRequest, disk: Path) -> Path:
    profile: Literal["hardened", "paper"] = request.param
    plan = NetworkPlan(nodes=3, mode="relay", profile=profile, subscribers=2, epoch_us=HOUR_US, life_us=HOUR_US)
    network.lay_out(disk, plan, Context(cost=PassphraseCost(1, 1)), Random(1))
    return disk


def test_hosts_and_members_can_read_the_written_files(relay: Path) -> None:
    net, proxy = network.read_network(relay), load_proxy(relay / "proxy" / "proxy.toml")
    assert (*proxy.server_addresses, proxy.listen) == net.hosts
    assert (proxy.mask is None) == (net.plan.profile == "paper")
    for number in range(net.plan.nodes):
        config = node_config.load_config(network.node_file(relay, number))
        assert isinstance(config.settings, RelaySettings)
        assert (config.settings.proxies, config.listen) == ((proxy.listen,), None)
    network.remove_network(relay, net)
    assert not relay.exists()


def test_hosts_show_numbers_that_are_declared_and_nothing_else(relay: Path) -> None:
    shown = dict[str, Mapping[str, float]]()
    for name in HOSTS:
        with compose_host(relay, name) as station:
            shown[name] = station.make_service(IdleDriver()).numbers()  # type: ignore[arg-type]
            assert render(shown[name])
    assert shown["server"]["relay_held"] == shown["proxy"]["relay_members"] == 0


def test_a_hosts_state_is_one_processs_at_a_time(relay: Path) -> None:
    with compose_host(relay, "server"), pytest.raises(StorageError, match="in use"), compose_host(relay, "server"):
        pass


def test_a_host_is_no_member(relay: Path) -> None:
    member = relay / "01"
    (member / "keys").write_bytes((relay / "proxy" / "keys").read_bytes())
    config = node_config.load_config(member / "node.toml")
    secret = Secret(read_private_file(member / "keys.passphrase"))
    with pytest.raises(AuthorityError, match="for a proxy, not for a member"), compose(config, secret):
        pass
