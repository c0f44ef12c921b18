"""The files of an overlay: a valid file is read completely, and every error names its file and key."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from veilcast.brokers.overlay import BrokerOverlay, sign_overlay
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, ForgedError, PassphraseError, StaleError, StorageError, TamperedError
from veilcast.node.broker_overlay import (
    MAGIC,
    BrokerPublic,
    decode_broker_line,
    decode_operator_line,
    encode_broker_line,
    encode_operator_line,
    load_overlay,
    parse_broker,
    read_operator_key,
    read_signed,
    write_operator_key,
    write_signed,
)

ENTROPY = Random(5).randbytes
OPERATOR = SigningKey.generate(ENTROPY)
LINE = encode_operator_line(OPERATOR.public)
HOME = Path("/etc/veilcast")
BROKER = f'keyring = "k"\nlisten = "127.0.0.1:4200"\noverlay = "o"\noperator = "{LINE}"\n'


def line(number: int) -> str:
    return encode_broker_line(BrokerPublic(bytes([number]) * 32, bytes([number]) * 16))


def described(sizes: dict[str, int], links: str = "[]", first: int = 1, top: str = "") -> str:
    text, number = f"{top}links = {links}\n", first
    for name, size in sizes.items():
        text += f'[[nodes]]\nname = "{name}"\nreplicas = [\n'
        for _ in range(size):
            text += f'  {{ broker = "{line(number)}", address = "127.0.0.{number}:4200" }},\n'
            number += 1
        text += "]\n"
    return text


def load(tmp_path: Path, text: str, before: BrokerOverlay | None = None) -> BrokerOverlay:
    path = tmp_path / "overlay.toml"
    path.write_text(text)
    return load_overlay(path, before)


def test_a_broker_is_read_with_its_paths_and_its_machines_settings() -> None:
    config = parse_broker((BROKER + '[brokers]\nbound_us = 7\nstrategy = "coded"').encode(), HOME / "broker.toml")
    assert (config.keyring, config.overlay, config.state) == (str(HOME / "k"), str(HOME / "o"), str(HOME / "state"))
    assert (config.settings.bound_us, config.settings.strategy, config.settings.profile) == (7, "coded", "hardened")
    assert (config.operator_key, config.control_path) == (OPERATOR.public, HOME / "state" / "control.sock")


BROKERS = {
    BROKER.replace("overlay", "overlays"): "overlays: unknown key",
    BROKER.replace("127.0.0.1", "localhost"): "listen: 'localhost:4200' is not like",
    BROKER.replace(LINE, LINE[:-1]): "operator: not the line that `veilcast brokers overlay init` printed",
    BROKER + "[brokers]\nprofile = 'paper'": "brokers.profile: the profile is named once",
    BROKER + "[brokers]\nbound_us = 0": "brokers.bound_us must be at least 1",
    BROKER + "[brokers]\nbound_us = 4000000": "brokers.hold_us must be at least 40 times brokers.bound_us",
    BROKER + "[brokers]\nstrategy = 'none'": "brokers.strategy: ",
}


@pytest.mark.parametrize("text", BROKERS)
def test_every_mistake_in_a_brokers_file_is_reported_with_its_key(text: str) -> None:
    with pytest.raises(ConfigError, match=f"broker.toml: {BROKERS[text].split(':')[0]}") as told:
        parse_broker(text.encode(), HOME / "broker.toml")
    assert BROKERS[text] in str(told.value)


def test_an_overlay_pins_each_address_to_a_broker(tmp_path: Path) -> None:
    overlay = load(tmp_path, described({"a": 3, "b": 3}, '[["a", "b"]]'))
    assert (overlay.version, [node.version for node in overlay.nodes]) == (1, [1, 1])
    replica = overlay.node("b").replicas[0]
    caller = "broker:" + "04" * 16
    assert (replica.key, replica.caller, replica.address) == (b"\4" * 32, caller, f"{caller}@127.0.0.4:4200")


def test_a_node_whose_replicas_change_has_a_new_scheme_and_others_keep_theirs(tmp_path: Path) -> None:
    before = load(tmp_path, described({"a": 3, "b": 3}, '[["a", "b"]]'))
    after = load(tmp_path, described({"a": 3, "b": 5}, '[["a", "b"]]'), before)
    assert (after.version, {node.name: node.version for node in after.nodes}) == (2, {"a": 1, "b": 2})
    before.check_successor(after)


def test_two_overlays_of_one_operator_differ_and_each_keeps_its_origin(tmp_path: Path) -> None:
    text = described({"a": 3, "b": 3}, '[["a", "b"]]')
    one, other = load(tmp_path, text), load(tmp_path, text)
    after = load(tmp_path, described({"a": 3, "b": 5}, '[["a", "b"]]'), one)
    assert one.origin == after.origin != other.origin
    with pytest.raises(StaleError, match="another overlay"):
        other.check_successor(after)


OVERLAYS = {
    described({"a": 4}): "'a' has 4 replicas: an even node tolerates no more Byzantine replicas than one of 3",
    described({"a": 1}): "'a' has 1 of at least 3 replicas: with fewer, one Byzantine replica reads or stops "
    "everything",
    described({"a": 0}): "'a' has no replica",
    described({"a": 3, "b": 3}): "a gap in the overlay: no link leads from 'a' to 'b'",
    described({"a": 3, "b": 3, "c": 3}, '[["a","b"],["b","c"],["c","a"]]'): "the links make a cycle: c - b - a - c",
    described({"a": 3}, '[["a", "z"]]'): "a link leads to 'z', and there is no such virtual node",
    described({"a": 3}).replace("127.0.0.1:", "127.0.0.2:"): "nodes.a.replicas[1]: two replicas have one address",
    described({"a": 3}).replace(line(1), line(2)): "replicas[0] and nodes.a.replicas[1]: two replicas have one key",
    described({"a": 3, "b": 3}, '[["a", "b"], ["b", "a"]]'): "links[1]: links[0] links 'b' and 'a' already",
    described({"a": 3, "b": 3}, '[["a", "b"], ["b", "b"]]'): "links[1]: 'b' is linked to itself; name another",
    described({"a": 3}).replace(line(1), line(1)[:-1]): "nodes.a.replicas[0].broker: not the line that",
    described({"a": 3}).replace("127.0.0.2", "host"): "nodes.a.replicas[1].address: 'host:4200' is not like",
    described({"a": 3}).replace("127.0.0.2", "0.0.0.0"): "nodes.a.replicas[1].address: at 0.0.0.0:4200 a broker",
    described({"a": 3}).replace("127.0.0.2", "[::]"): "; name the one by which others reach it",
    described({"a": 3}, top="size = 3\n"): "size: unknown key",
    described({"a": 3}, top='profile = "soft"\n'): "profile: 'soft' is none of hardened, paper",
    "nodes = 3": "nodes: Expected `array`",
    "nodes = [": "not a TOML file",
}


@pytest.mark.parametrize("text", OVERLAYS, ids=lambda text: OVERLAYS[text][:40])
def test_every_mistake_in_an_overlay_is_reported_with_the_reason(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        load(tmp_path, text)
    assert OVERLAYS[text] in str(told.value)
    assert "overlay.toml: " in str(told.value)


def test_the_papers_profile_takes_an_even_node_as_the_paper_does(tmp_path: Path) -> None:
    assert len(load(tmp_path, described({"a": 2}, top='profile = "paper"\n')).nodes[0].replicas) == 2


def test_an_overlay_keeps_its_profile_from_version_to_version(tmp_path: Path) -> None:
    first = load(tmp_path, described({"a": 3}, top='profile = "paper"\n'))
    assert first.profile == "paper"
    with pytest.raises(ConfigError, match="changes replicas, and not the profile"):
        load(tmp_path, described({"a": 3}), first)


def test_a_signed_overlay_is_read_only_with_its_operators_line(tmp_path: Path) -> None:
    signed = sign_overlay(load(tmp_path, described({"a": 3})), OPERATOR)
    path = tmp_path / "signed"
    write_signed(path, signed)
    assert read_signed(path, OPERATOR.public) == signed
    other = SigningKey.generate(ENTROPY)
    with pytest.raises(ForgedError, match="signed: not signed by this operator"):
        read_signed(path, other.public)
    data = path.read_bytes()
    for spoilt in (data[:-70] + bytes([data[-70] ^ 1]) + data[-69:], data[:-1], MAGIC, b"", b"anything"):
        path.write_bytes(spoilt)
        with pytest.raises((ForgedError, TamperedError), match="signed: "):
            read_signed(path, OPERATOR.public)
    with pytest.raises(StorageError, match="cannot read"):
        read_signed(tmp_path / "none", OPERATOR.public)


def test_the_operators_key_opens_with_its_passphrase_alone(tmp_path: Path) -> None:
    path, secret = tmp_path / "key", Secret(b"correct horse")
    write_operator_key(path, OPERATOR, secret, cost=PassphraseCost(1, 1), entropy=ENTROPY)
    assert read_operator_key(path, secret).public == OPERATOR.public
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(PassphraseError, match="key: "):
        read_operator_key(path, Secret(b"wrong"))


@pytest.mark.parametrize("at", range(20, 60, 7))
def test_a_slip_in_a_line_is_noticed_and_no_line_is_taken_for_another(at: int) -> None:
    good = line(9)
    slipped = good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :]
    for text in (slipped, good[:at], LINE, ""):
        with pytest.raises(ConfigError, match="replicas: not the line"):
            decode_broker_line("replicas", text)
    with pytest.raises(ConfigError, match="operator: not the line"):
        decode_operator_line("operator", good)


@pytest.mark.parametrize("printed", ["{}", '"{}"', "'{}'", 'key = "{}"', "key={}", '  key = "{}"\n'])
def test_a_line_is_taken_with_the_key_and_the_quotes_that_it_was_printed_with(printed: str) -> None:
    assert decode_operator_line("--operator", printed.format(LINE)) == OPERATOR.public
    assert decode_broker_line("replicas", printed.format(line(9))) == decode_broker_line("replicas", line(9))
    whole = BROKER.replace(f'"{LINE}"', json.dumps(printed.format(LINE)))
    assert parse_broker(whole.encode(), HOME / "broker.toml").operator_key == OPERATOR.public


@pytest.mark.parametrize("spoilt", ['key = "{}', '{}"', "\"{}'", "a key = {}", "{0} {0}", "= {}"])
def test_other_text_around_a_line_is_an_error(spoilt: str) -> None:
    with pytest.raises(ConfigError, match="--operator: not the line"):
        decode_operator_line("--operator", spoilt.format(LINE))


def test_a_repository_is_described_beside_the_nodes_and_follows_as_they_do(tmp_path: Path) -> None:
    def shelves(*numbers: int) -> str:
        lines = "".join(f'{{ broker = "{line(n)}", address = "127.0.0.{n}:4200" }},' for n in numbers)
        return f"repository = [{lines}]\n"

    first = load(tmp_path, described({"a": 3}, top=shelves(11, 12, 13)))
    assert first.repository is not None
    assert first.repository.scheme.size == 3
    second = load(tmp_path, described({"a": 3}, top=shelves(11, 12, 14)), first)
    assert second.repository is not None
    assert (second.repository.version, second.nodes[0].version) == (2, 1)
    first.check_successor(second)
    for text, reason in {
        described({"a": 3}, top=shelves(11, 12)): "the repository has 2 of at least 3 replicas",
        described({"a": 3}, top=shelves(1, 12, 13)): r"and repository\[0\]: two replicas have one address, 127",
        described({"repository": 3}, top=shelves(11, 12, 13)): "two virtual nodes have one name",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            load(tmp_path, text)
