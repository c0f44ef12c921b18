"""The files of a relay: a valid file is read completely, and every error names its file and key."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from veilcast.errors import ConfigError
from veilcast.node.config import parse_config
from veilcast.node.relay import RelaySettings, encode_server_line, load_server, parse_proxy, parse_server
from veilcast.relay.config import RateAllowance
from veilcast.relay.transformation_key import ServerKeys

PUBLIC = ServerKeys.draw(Random(1).randbytes).public()
LINE = encode_server_line(PUBLIC)
HOME = Path("/etc/veilcast")
SERVER = 'keyring = "k"\nlisten = "127.0.0.1:4100"\nkeys = "s"\n'
PROXY = f'keyring = "k"\nlisten = "127.0.0.1:4101"\nserver = "127.0.0.1:4100"\nserver_key = "{LINE}"\n'
MEMBER = 'mode = "relay"\nkeyring = "k"\n'
WAY = f'[relay]\nproxies = ["127.0.0.1:4101"]\nserver_key = "{LINE}"\n'


def test_a_server_is_read_with_its_paths_and_its_machines_settings() -> None:
    config = parse_server((SERVER + "[relay]\nleases_max = 7").encode(), HOME / "server.toml")
    assert (config.keyring, config.keys, config.state) == (str(HOME / "k"), str(HOME / "s"), str(HOME / "state"))
    assert (config.settings.leases_max, config.settings.profile) == (7, "hardened")


def test_a_proxy_is_read_with_its_server_and_its_limits() -> None:
    text = PROXY + 'mask = "m"\n[relay]\nbatch_us = 0\npublications = { every_us = 7, burst = 3 }'
    config = parse_proxy(text.encode(), HOME / "proxy.toml")
    assert (config.mask, config.server_addresses) == (str(HOME / "m"), ("127.0.0.1:4100",))
    assert (config.settings.batch_us, config.settings.publications) == (0, RateAllowance(7, 3))
    paper = parse_proxy((PROXY + 'profile = "paper"').encode(), HOME / "proxy.toml")
    assert (paper.mask, paper.settings.profile) == (None, "paper")


def test_a_member_has_proxies_to_call_and_no_address() -> None:
    config = parse_config((MEMBER + WAY + "records_max = 5").encode(), HOME / "node.toml")
    assert isinstance(config.settings, RelaySettings)
    assert (config.settings.proxies, config.settings.public) == (("127.0.0.1:4101",), PUBLIC)
    assert (config.settings.client.records_max, config.settings.client.profile) == (5, "hardened")
    assert (config.listen, config.public_address, config.contacts) == (None, "", ())


SERVERS = {
    SERVER.replace("keys", "key"): "key: unknown key",
    SERVER + "settings = 1": "settings: unknown key",
    SERVER + "[relay]\nprofile = 'paper'": "relay.profile: the profile is named once",
    SERVER + "[relay]\nleases = 1": "relay.leases: unknown key",
    SERVER + "[relay]\nleases_max = 'many'": "relay.leases_max: Expected `int`",
    SERVER + "[relay]\nleases_max = 0": "leases_max must be at least 1",
    SERVER.replace("127.0.0.1", "localhost"): "listen: 'localhost:4100' is not like",
    SERVER + 'profile = "soft"': "profile: 'soft' is none of hardened, paper",
}
PROXIES = {
    PROXY: "mask: needed",
    PROXY + 'mask = "m"\nprofile = "paper"': "mask: the papers' profile has no masks",
    PROXY.replace(LINE, LINE[:-2]) + 'mask = "m"': "server_key: not the line",
    PROXY.replace("0.1:4100", "0.1:0") + 'mask = "m"': "server: a port is a number",
}
MEMBERS = {
    MEMBER: "relay.proxies: needed",
    MEMBER + 'listen = "127.0.0.1:1"\n' + WAY: "listen: a node of mode 'relay' is called by nobody",
    MEMBER + 'peers = ["127.0.0.1:1"]\n' + WAY: "peers: a node of mode 'relay' is called by nobody",
    MEMBER + '[relay]\nproxies = ["127.0.0.1:1"]': "relay.server_key: needed",
    MEMBER + WAY.replace('["127.0.0.1:4101"]', "[]"): "relay.proxies: 1 to 8, the first to publish by",
    MEMBER + WAY.replace('["127.0.0.1:4101"]', "4"): "relay: Expected `array`",
    MEMBER + WAY + "copies = 2\n": "relay.copies: 2 need as many proxies to subscribe by",
    MEMBER + WAY.replace("127.0.0.1:4101", "proxy:1"): "relay.proxies[0]: 'proxy:1' is not like",
    MEMBER + WAY.replace(LINE, "x"): "relay.server_key: not the line",
    MEMBER + WAY + "colour = 1": "relay.colour: unknown key",
    MEMBER + WAY + "[mesh]": "mesh: the mode is 'relay'",
}


@pytest.mark.parametrize("text", SERVERS)
def test_every_mistake_of_a_servers_file_is_reported(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_server(text.encode(), HOME / "server.toml")
    assert str(told.value).startswith(f"{HOME}/server.toml: ")
    assert SERVERS[text] in str(told.value)


@pytest.mark.parametrize("text", PROXIES)
def test_every_mistake_of_a_proxys_file_is_reported(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_proxy(text.encode(), HOME / "proxy.toml")
    assert PROXIES[text] in str(told.value)


@pytest.mark.parametrize("text", MEMBERS)
def test_every_mistake_of_a_members_file_is_reported(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(text.encode(), HOME / "node.toml")
    assert MEMBERS[text] in str(told.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-c FILE names another"):
        load_server(tmp_path / "server.toml")
