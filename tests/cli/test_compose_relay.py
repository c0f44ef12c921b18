"""From the files of a relay on one machine to its parts: hosts, members, and the numbers that they show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.vault import read_private
from veilcast.cli import localnet
from veilcast.cli.compose import compose
from veilcast.cli.context import Context
from veilcast.cli.localnet import Plan
from veilcast.cli.localrelay import HOSTS, composed
from veilcast.crypto.passphrase import Cost
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, StorageError
from veilcast.net.metrics import render
from veilcast.node import config as node_config
from veilcast.node.relay_files import load_proxy
from veilcast.node.relay_member import RelaySettings


class Still:
    """A driver that drives nothing."""

    def now(self) -> int:
        return 0

    def touch(self) -> None: ...


@pytest.fixture(params=["hardened", "paper"])
def relay(request: pytest.FixtureRequest, disk: Path) -> Path:
    profile: Literal["hardened", "paper"] = request.param
    plan = Plan(nodes=3, mode="relay", profile=profile, subscribers=2, epoch_us=HOUR_US, life_us=HOUR_US)
    localnet.lay_out(disk, plan, Context(cost=Cost(1, 1)), Random(1))
    return disk


def test_what_is_laid_out_is_what_hosts_and_members_read(relay: Path) -> None:
    net, proxy = localnet.read_net(relay), load_proxy(relay / "proxy" / "proxy.toml")
    assert (proxy.server_address, proxy.listen) == net.hosts
    assert (proxy.mask is None) == (net.plan.profile == "paper")
    for number in range(net.plan.nodes):
        config = node_config.load(localnet.node_file(relay, number))
        assert isinstance(config.settings, RelaySettings)
        assert (config.settings.proxies, config.listen) == ((proxy.listen,), None)
    localnet.clear(relay, net)
    assert not relay.exists()


def test_hosts_show_numbers_that_are_declared_and_nothing_else(relay: Path) -> None:
    shown = dict[str, Mapping[str, float]]()
    for name in HOSTS:
        with composed(relay, name) as station:
            shown[name] = station.hire(Still()).numbers()  # type: ignore[arg-type]
            assert render(shown[name])
    assert shown["server"]["relay_held"] == shown["proxy"]["relay_members"] == 0


def test_a_hosts_state_is_one_processs_at_a_time(relay: Path) -> None:
    with composed(relay, "server"), pytest.raises(StorageError, match="in use"), composed(relay, "server"):
        pass


def test_a_host_is_no_member(relay: Path) -> None:
    member = relay / "01"
    (member / "keys").write_bytes((relay / "proxy" / "keys").read_bytes())
    config = node_config.load(member / "node.toml")
    secret = Secret(read_private(member / "keys.passphrase"))
    with pytest.raises(AuthorityError, match="for a proxy, not for a member"), compose(config, secret):
        pass
