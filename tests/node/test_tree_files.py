"""The files of a tree: a valid file is read completely, and every error names its file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilcast.crypto.onion_keys import OnionKey
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.node.config import parse_config
from veilcast.node.tor_table import TorTable
from veilcast.node.tree import TreeSettings, load_directory, parse_directory

HOST = OnionKey(Secret(b"s" * 32)).host
HOME = Path("/etc/veilcast")
DIRECTORY = 'keyring = "k"\n'
MEMBER = 'mode = "tree"\nkeyring = "k"\n'
WAY = f'[tree]\ndirectory = "{HOST}:80"\n'
PLAIN = "[tor]\ndanger_off = true\n"


def test_a_directory_is_read_with_its_tor_and_its_machines_settings() -> None:
    text = DIRECTORY + '[tor]\nnetwork = "t/network.json"\n[tree]\nlease_us = 7'
    config = parse_directory(text.encode(), HOME / "directory.toml")
    assert (config.tor.network, config.settings.lease_us) == (str(HOME / "t/network.json"), 7)
    assert parse_directory(DIRECTORY.encode(), HOME / "directory.toml").tor == TorTable()


def test_a_member_has_a_directory_and_no_address() -> None:
    config = parse_config((MEMBER + WAY + "chain = 5").encode(), HOME / "node.toml")
    assert isinstance(config.settings, TreeSettings)
    assert (config.settings.directories, config.settings.node.chain) == ((f"{HOST}:80",), 5)
    assert (config.settings.node.profile, config.listen, config.public_address, config.tor) == (
        "hardened",
        None,
        "",
        TorTable(),
    )


def test_a_tor_that_runs_is_named_by_its_control_port_and_cookie() -> None:
    for control in ("127.0.0.1:9051", "[::1]:9051", "unix:/run/tor/control"):
        config = parse_config(
            (MEMBER + WAY + f'[tor]\ncontrol = "{control}"\ncookie = "c"').encode(), HOME / "node.toml"
        )
        assert (config.tor.control, config.tor.cookie) == (control, str(HOME / "c"))


def test_without_tor_addresses_are_numbers() -> None:
    text = MEMBER + 'listen = "127.0.0.1:4001"\n' + PLAIN + '[tree]\ndirectory = "127.0.0.1:4000"'
    config = parse_config(text.encode(), HOME / "node.toml")
    assert (config.public_address, config.settings.directories) == ("127.0.0.1:4001", ("127.0.0.1:4000",))


DIRECTORIES = {
    DIRECTORY + "colour = 1": "colour: unknown key",
    DIRECTORY + "settings = 1": "settings: unknown key",
    DIRECTORY + "[tree]\nlease_us = 0": "lease_us must be at least 1",
    DIRECTORY + "[tree]\ndirectory = 'x'": "tree.directory: unknown key",
    DIRECTORY + "[tor]\nsocks = 1": "tor.socks: unknown key",
    DIRECTORY + 'listen = "127.0.0.1:1"': "listen: this process is reached at its onion service",
    DIRECTORY + PLAIN: "listen: needed, and not there, since tor.danger_off",
    DIRECTORY + 'listen = "0.0.0.0:1"\n' + PLAIN: "listen: 0.0.0.0:1 is no address that others could be told",
}
MEMBERS = {
    MEMBER: "tree.directory: needed",
    MEMBER + f'[tree]\ndirectory = ["{HOST}:80", "{HOST}:80"]': "tree.directory names a directory twice",
    MEMBER + f'[tree]\ndirectory = ["{HOST}:80"]\nneeded = 2': "tree.needed must be from 1 to 1",
    MEMBER + "[tree]\ndirectory = []": "tree.directory: needed, and not there",
    MEMBER + "[tree]\ndirectory = 4": "tree.directory: must be an address, or a list of addresses",
    MEMBER + WAY.replace(HOST, "example.org"): "tree.directory: 'example.org:80' is not like abc...xyz.onion:80",
    MEMBER + WAY.replace(HOST[:9], "a" * 9): "is not like abc...xyz.onion:80; copy it whole",
    MEMBER + WAY.replace(":80", ":0"): "tree.directory: a port is a number",
    MEMBER + WAY.replace(":80", ""): "tree.directory: ",
    MEMBER + WAY + "colour = 1": "tree.colour: unknown key",
    MEMBER + WAY + "profile = 'paper'": "tree.profile: the profile is named once",
    MEMBER + WAY + "[mesh]": "mesh: the mode is 'tree'",
    MEMBER + 'listen = "127.0.0.1:1"\n' + WAY: "listen: this process is reached at its onion service",
    MEMBER + 'peers = ["127.0.0.1:1"]\n' + WAY: "peers: a node of mode 'tree' is reached at its onion service",
    MEMBER + 'listen = "127.0.0.1:1"\n' + WAY + PLAIN: "tree.directory: ",
    MEMBER + WAY + '[tor]\ncookie = "c"': "tor.cookie: of use only with tor.control",
    MEMBER + WAY + '[tor]\ncontrol = "10.0.0.1:9051"': "tor.control: Tor must run on this machine",
    MEMBER + WAY + '[tor]\ncontrol = "tor"': "tor.control: 'tor' is not like",
    MEMBER + WAY + '[tor]\ncontrol = "127.0.0.1:1"\nnetwork = "n"': "tor.network: there is a tor.control too",
    'keyring = "k"\nlisten = "127.0.0.1:1"\n' + PLAIN: "tor: a node of mode 'mesh' uses no Tor",
}


@pytest.mark.parametrize("text", DIRECTORIES)
def test_every_mistake_of_a_directorys_file_is_reported(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_directory(text.encode(), HOME / "directory.toml")
    assert str(told.value).startswith(f"{HOME}/directory.toml: ")
    assert DIRECTORIES[text] in str(told.value)


@pytest.mark.parametrize("text", MEMBERS)
def test_every_mistake_of_a_members_file_is_reported(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(text.encode(), HOME / "node.toml")
    assert MEMBERS[text] in str(told.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-c FILE names another"):
        load_directory(tmp_path / "directory.toml")
