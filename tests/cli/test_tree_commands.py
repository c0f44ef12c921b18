"""`veilcast tree directory ...`: the printed line is correct, and errors take one line with their exit code."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole, derive_onion_key
from veilcast.authority.secret_file import read_secret, replace_file, write_secret
from veilcast.cli.context import Context
from veilcast.cli.files import passphrase_file
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.net import tor_process
from veilcast.node.config import parse_config

CHEAP = PassphraseCost(1, 1)
SECRET = Secret(b"correct horse")
CONTEXT = Context(cost=CHEAP, has_terminal=lambda: False)
HOUR_US = 3_600_000_000


def grant(path: Path, standing: TlsRole) -> None:
    now = epoch_of(CONTEXT.now_us(), HOUR_US)
    _, keyring = issuer.grant_ready(issuer.create(HOUR_US, os.urandom), "x", [], now, 3, os.urandom, standing)
    write_secret(path, keyring, SECRET, cost=CHEAP, entropy=os.urandom)
    replace_file(passphrase_file(path), SECRET.reveal())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments), CONTEXT)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("veilcast.net.log.set_up", lambda *_: None)
    grant(tmp_path / "directory.keys", "directory")
    grant(tmp_path / "member.keys", "member")
    return tmp_path


def test_a_directorys_line_is_its_keyrings_and_fits_a_nodes_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "tree", "directory", "init", "--keyring", "directory.keys", "--json")
    address = json.loads(out)["directory"]
    keyring = read_secret(home / "directory.keys", Keyring, SECRET)
    assert (code, address) == (0, f"{derive_onion_key(keyring.membership.link).host}:80")
    _, out, _ = run(capsys, "tree", "directory", "init", "--keyring", "directory.keys")
    assert out.splitlines() == ["tell everybody:", f'directory = "{address}"']
    code, out, _ = run(capsys, "node", "new", "--keyring", "member.keys", "--directory", address)
    assert (code, parse_config(out.encode(), home / "node.toml").settings.directories) == (0, (address,))
    code, _, err = run(capsys, "node", "new", "--keyring", "k", "--directory", address, "--directory", address)
    assert (code, "tree.directory names a directory twice" in err) == (3, True)


def test_a_node_is_of_one_mode(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (
        [],
        ["--listen", "127.0.0.1:1", "--directory", "x"],
        ["--proxy", "127.0.0.1:1", "--directory", "x"],
    ):
        code, _, err = run(capsys, "node", "new", "--keyring", "k", *options)
        assert (code, "or --directory, in a tree" in err) == (3, True)
    code, _, err = run(capsys, "node", "new", "--keyring", "k", "--directory", "example.org:80")
    assert (code, "copy it whole" in err) == (3, True)


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    code, _, err = run(capsys, *command)
    assert len(err.splitlines()) == 1, err
    return code, err


def test_a_directory_reports_bad_inputs_before_tor_starts(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(program: str = "tor") -> str:
        raise AssertionError(program)

    monkeypatch.setattr(tor_process, "find_program", never)
    file = home / "directory.toml"
    command = ("tree", "directory", "run")
    code, err = refused(capsys, *command)
    assert (code, "-c FILE names another" in err) == (3, True)
    file.write_text('keyring = "none.keys"')
    code, err = refused(capsys, *command)
    assert (code, "the authority grants one" in err) == (4, True)
    file.write_text('keyring = "member.keys"')
    code, err = refused(capsys, *command)
    assert (code, "the keyring is for a member, not for a directory" in err) == (11, True)
    code, err = refused(capsys, "tree", "directory", "init", "--keyring", "member.keys")
    assert (code, "not for a directory" in err) == (11, True)
    code, err = refused(capsys, "tree", "directory", "init", "--keyring", "none.keys")
    assert (code, "cannot read none.keys: there is no such file" in err) == (4, True)
    file.write_text('keyring = "directory.keys"\n[tor]\nnetwork = "nowhere.json"')
    code, err = refused(capsys, *command)
    assert (code, "tor.network: there is no nowhere.json; `veilcast tree testnet up` makes one" in err) == (3, True)


def test_a_node_reports_its_hindrances(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = read_secret(home / "directory.keys", Keyring, SECRET)
    way = f'mode = "tree"\n[tree]\ndirectory = "{derive_onion_key(keyring.membership.link).host}:80"\n'
    (home / "node.toml").write_text('keyring = "directory.keys"\n' + way)
    code, err = refused(capsys, "node", "run")
    assert (code, "the keyring is for a directory, not for a member" in err) == (11, True)
    (home / "node.toml").write_text('keyring = "member.keys"\n' + way)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    code, err = refused(capsys, "node", "run")
    assert (code, "there is no `tor` here; install it: apt install tor" in err) == (15, True)
    (home / "node.toml").write_text('keyring = "member.keys"\n' + way + '[tor]\ncontrol = "127.0.0.1:1"')
    code, err = refused(capsys, "node", "run")
    assert (code, "127.0.0.1:1" in err) == (14, True)


def test_the_keys_of_a_node_are_not_left_open_where_tor_keeps_its_files(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "directory.toml").write_text('keyring = "directory.keys"')
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert refused(capsys, "tree", "directory", "run")[0] == 15
    assert (home / "state").stat().st_mode & 0o077 == 0
