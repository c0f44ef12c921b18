"""The node's file: every error names its key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.mesh.config import MeshConfig
from veilcast.node.config import NodeConfig, load_config, parse_config

LEAST = 'keyring = "k"\nlisten = "127.0.0.1:4000"\n'
PATH = Path("/etc/veilcast/node.toml")


def read(text: str) -> NodeConfig:
    return parse_config(text.encode(), PATH)


def test_the_least_file_is_a_hardened_member_of_a_mesh() -> None:
    config = read(LEAST)
    assert (config.mode, config.profile, config.rate, config.public_address) == (
        "mesh",
        "hardened",
        4,
        "127.0.0.1:4000",
    )
    assert isinstance(config.settings, MeshConfig)
    assert (config.settings.profile, config.settings.membership) == ("hardened", "certified")
    assert config.control_path == PATH.parent / "state" / "control.sock"


def test_paths_are_relative_to_the_file() -> None:
    config = read(LEAST + 'state = "s"\ncontrol = "/run/c"\npassphrase_file = "p"\n[log]\nfile = "l"')
    places = (config.keyring, config.state, config.control, config.passphrase_file, config.log.file)
    assert places == ("/etc/veilcast/k", "/etc/veilcast/s", "/run/c", "/etc/veilcast/p", "/etc/veilcast/l")


def test_the_modes_own_table_is_read_into_its_settings() -> None:
    text = 'profile = "paper"\npeers = ["[::1]:4001"]\n'
    config = read(LEAST + text + '[mesh]\nneighbours_max = 20\nmembership = "fixed"\n[mesh.cover]\nmu = 0.5')
    assert (config.settings.neighbours_max, config.settings.membership, config.settings.cover.mu) == (20, "fixed", 0.5)
    assert (config.settings.profile, config.contacts) == ("paper", ("[::1]:4001",))


MISTAKES = {
    'listen = "127.0.0.1:1"': "keyring: needed",
    'keyring = "k"': "listen: needed",
    LEAST + "colour = 1": "colour: unknown key",
    LEAST + "rate = 5": "rate: 5 is none of 1, 4, 16",
    LEAST + 'rate = "4"': "rate: ",
    LEAST + 'mode = "relays"': "mode: there is no mode 'relays', only mesh",
    LEAST + 'profile = "soft"': "profile: 'soft' is none of hardened, paper",
    LEAST + "settings = 1": "settings: unknown key",
    LEAST + "[limits]\nunread = 0": "limits.unread: must be at least 1",
    LEAST + "[limits]\nreads = 0": "limits.reads: unknown key",
    LEAST + '[log]\nlevel = "loud"': "log.level: 'loud' is none of debug, error, info, warning",
    LEAST + "[mesh]\nmembership = 'open'": "mesh.membership: Invalid enum value 'open'",
    LEAST + '[metrics]\nlisten = "10.0.0.1:9000"': "metrics.listen: metrics are for this machine",
    LEAST + "[mesh]\nd_maximum = 3": "mesh.d_maximum: unknown key",
    LEAST + "[mesh.hardening]\nonward = 'x'": "mesh.hardening.onward: ",
    LEAST + "[mesh]\nneighbours_max = 0": "mesh.neighbours_max",
    LEAST + "[mesh]\nprofile = 'paper'": "mesh.profile: the profile is named once",
    LEAST + 'peers = ["a.example:4000"]': "peers[0]: 'a.example:4000' is not like",
    LEAST + 'peers = ["127.0.0.2:1", "127.0.0.1:4000"]': "peers[1]: 127.0.0.1:4000 is this node's own",
    LEAST + "peers = [1]": "peers[0]: ",
    LEAST + 'passphrase_file = "p"\npassphrase_fd = 3': "passphrase_fd: there is a passphrase_file too",
    LEAST + "passphrase_fd = -1": "passphrase_fd: must not be negative",
    LEAST + 'address = "0.0.0.0:4000"': "address: 0.0.0.0:4000 is no address",
    'keyring = "k"\nlisten = "0.0.0.0:4000"': "address: needed",
    'keyring = "k"\nlisten = "127.0.0.1:70000"': "listen: a port is",
    'keyring = "k"\nlisten = "127.0.0.1:04000"': "listen: write 127.0.0.1:4000 for",
    'keyring = "k"\nlisten = "[::0:1]:4000"': "listen: write [::1]:4000 for",
    'keyring = "k"\nlisten = "::1"': "listen: ",
    'keyring = "k"\nlisten = ""': "listen: ",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_every_mistake_is_reported_with_its_file_and_key(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    assert str(error.value).startswith(f"{PATH}: {MISTAKES[text]}")
    assert "\n" not in str(error.value)


def test_invalid_toml_and_a_missing_file_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.toml: not a TOML file"):
        read("keyring = ")
    with pytest.raises(ConfigError, match=r"cannot read .*; is the name right. -c FILE names another"):
        load_config(tmp_path / "node.toml")


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_parsed_or_a_config_error(text: str) -> None:
    for content in (text, LEAST + text, f'keyring = "k"\nlisten = {text!r}'):
        try:
            read(content)
        except ConfigError as error:
            assert str(error).startswith(str(PATH))  # noqa: PT017
