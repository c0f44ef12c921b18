"""The table `brokers` of a member's file: a valid table is read completely, and every error names its key."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from veilcast.authority.topic_record import Profile
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, sign_overlay
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, ForgedError
from veilcast.node.broker_overlay import encode_operator_line, write_signed
from veilcast.node.brokers import BrokerPath, BrokersSettings, read_overlays
from veilcast.node.config import NodeConfig, parse_config

HOME = Path("/etc/veilcast")
OPERATOR = SigningKey.generate(Random(3).randbytes)
LINE = encode_operator_line(OPERATOR.public)
FILE = f'mode = "brokers"\nkeyring = "k"\n[brokers]\noverlay = "o"\noperator = "{LINE}"\nedge = "north"\n'
ALSO = f'[[brokers.also]]\noverlay = "p"\noperator = "{LINE}"\nedge = "west"\n'


def read(text: str, home: Path = HOME) -> NodeConfig:
    return parse_config(text.encode(), home / "node.toml")


def signed(path: Path, *sizes: int, name: str = "north", profile: Profile = "hardened", first: int = 0) -> None:
    """Sign an overlay of nodes with these numbers of replicas. With `first`, the first node has the same replicas under
    any name."""

    def replica(at: int, i: int) -> Replica:
        return Replica(bytes([first + at, i]) * 16, f"broker:{first + at}{i}@1.2.3.4:{i}", f"broker:{first + at}{i}")

    nodes = tuple(
        NodeEntry(f"{name}{at or ''}", 1, tuple(replica(at, i) for i in range(size))) for at, size in enumerate(sizes)
    )
    links = tuple((nodes[0].name, node.name) for node in nodes[1:])
    write_signed(path, sign_overlay(BrokerOverlay(1, nodes, links, profile=profile), OPERATOR))


def test_a_member_has_an_overlay_an_edge_and_no_address() -> None:
    config = read(FILE + "refresh_messages = 5\n")
    assert isinstance(config.settings, BrokersSettings)
    assert config.settings.ways == (BrokerPath("brokers", str(HOME / "o"), OPERATOR.public, "north"),)
    assert config.settings.client.refresh_messages == 5
    assert (config.listen, config.public_address, config.contacts) == (None, "", ())


MISTAKES = {
    FILE.replace('overlay = "o"\n', ""): "brokers.overlay: needed, and not there",
    FILE.replace('edge = "north"\n', ""): "brokers.edge: needed, and not there",
    FILE.replace('"north"', "3"): "brokers.edge: must be a text",
    FILE.replace(LINE, LINE + "A"): "brokers.operator: not the line",
    FILE + "records = 3": "brokers.records: unknown key",
    FILE + "records_max = 0": "brokers.records_max must be at least 1",
    FILE + "profile = 'paper'": "brokers.profile: the profile is named once",
    FILE.replace(
        "keyring", 'listen = "127.0.0.1:4000"\nkeyring'
    ): "listen: a node of mode 'brokers' is called by nobody",
    FILE.replace("brokers]", "relay]"): "relay: the mode is 'brokers'",
    FILE + "also = 3": "brokers.also: must be tables, each headed [[brokers.also]]",
    FILE + ALSO.replace('edge = "west"\n', ""): "brokers.also[0].edge: needed, and not there",
    FILE + ALSO + ALSO.replace(LINE, "x"): "brokers.also[1].operator: not the line",
    FILE + ALSO + "records_max = 3\n": "brokers.also[0].records_max: unknown key",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_every_mistake_is_reported_with_its_key(text: str) -> None:
    with pytest.raises(ConfigError) as told:
        read(text)
    assert f"node.toml: {MISTAKES[text]}" in str(told.value)


def test_the_overlay_is_of_the_operator_and_has_the_edge_node(tmp_path: Path) -> None:
    settings = read(FILE, tmp_path).settings
    signed(tmp_path / "o", 3, 3)
    assert [each.verify(OPERATOR.public).version for each in read_overlays(settings)] == [1]
    elsewhere = read(FILE.replace('"north"', '"east"'), tmp_path).settings
    with pytest.raises(ConfigError, match="no virtual node is called 'east', only north, north1"):
        read_overlays(elsewhere)
    other = encode_operator_line(SigningKey.generate(Random(4).randbytes).public)
    with pytest.raises(ForgedError, match="not signed by this operator"):
        read_overlays(read(FILE.replace(LINE, other), tmp_path).settings)


def test_a_member_of_two_overlays_has_two_paths_that_have_no_broker_in_common(tmp_path: Path) -> None:
    settings = read(FILE + ALSO, tmp_path).settings
    assert [(Path(way.overlay).parent, way.edge) for way in settings.ways] == [(tmp_path, "north"), (tmp_path, "west")]
    signed(tmp_path / "o", 3, 3)
    signed(tmp_path / "p", 3, name="west", first=1)
    with pytest.raises(ConfigError) as told:
        read_overlays(settings)
    assert str(told.value) == (
        "brokers.also[0].overlay: the broker at 1.2.3.4:0 is in brokers.overlay, too; paths have no broker in common"
    )
    signed(tmp_path / "p", 3, name="west", first=2)
    assert len(read_overlays(settings)) == 2
    signed(tmp_path / "p", 3, name="south", first=2)
    with pytest.raises(ConfigError, match=r"brokers\.also\[0\]\.edge: no virtual node is called 'west', only south"):
        read_overlays(settings)


def test_a_hardened_member_uses_no_overlay_with_an_even_node(tmp_path: Path) -> None:
    signed(tmp_path / "o", 3, 2)
    with pytest.raises(ConfigError, match="'north1' has 2 of at least 3 replicas"):
        read_overlays(read(FILE, tmp_path).settings)
    signed(tmp_path / "o", 3, 2, profile="paper")
    assert read_overlays(read('profile = "paper"\n' + FILE, tmp_path).settings)


@pytest.mark.parametrize(("theirs", "mine"), [("hardened", "paper"), ("paper", "hardened")])
def test_a_member_of_another_profile_than_the_overlay_is_refused_at_the_start(
    theirs: Profile, mine: Profile, tmp_path: Path
) -> None:
    """They would call one another and be called, and nothing would ever arrive."""
    signed(tmp_path / "o", 3, profile=theirs)
    with pytest.raises(ConfigError, match=f'o is of the profile "{theirs}".* say profile = "{theirs}"'):
        read_overlays(read(f'profile = "{mine}"\n' + FILE, tmp_path).settings)
