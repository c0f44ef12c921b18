"""`veilcast relay ...`: keys are made once and printed correctly, and errors take one line with their exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import replace_file, write_secret
from veilcast.cli.context import Context
from veilcast.cli.files import passphrase_file
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.node.relay import decode_server_line, encode_server_line, read_mask, read_server_keys

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
    grant(tmp_path / "server.keys", "server")
    return tmp_path


def test_a_servers_keys_are_made_once_and_its_line_is_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "relay", "server", "init", "secret", "--keyring", "server.keys", "--json")
    told = json.loads(out)
    public = read_server_keys(home / "secret", SECRET).public()
    assert (code, decode_server_line("server_key", told["server_key"])) == (0, public)
    assert (home / "secret").stat().st_mode & 0o077 == 0
    code, _, err = run(capsys, "relay", "server", "init", "secret", "--keyring", "server.keys")
    assert code == 4
    assert "secret is there already" in err
    code, out, _ = run(capsys, "relay", "server", "init", "other", "--keyring", "server.keys")
    line = encode_server_line(read_server_keys(home / "other", SECRET).public())
    assert out.splitlines()[1] == f'server_key = "{line}"'


def test_no_passphrase_is_asked_for_a_missing_keyring(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "relay", "server", "init", "secret", "--keyring", "none.keys")
    assert (code, "cannot read none.keys: there is no such file" in err) == (4, True)
    assert not (home / "secret").exists()


def test_a_mask_is_made_for_its_owner_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "relay", "proxy", "init", "mask")
    assert (code, "must not have it" in out) == (0, True)
    assert (home / "mask").stat().st_mode & 0o077 == 0
    assert read_mask(home / "mask").reveal() not in out.encode()
    assert run(capsys, "relay", "proxy", "init", "mask")[0] == 4


def write_server(home: Path, keyring: str = "server.keys", keys: str = "secret") -> None:
    text = f'keyring = "{keyring}"\nlisten = "127.0.0.1:4100"\nkeys = "{keys}"\n'
    (home / "server.toml").write_text(text)


def test_a_server_reports_bad_inputs_in_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> tuple[int, str]:
        code, _, err = run(capsys, "relay", "server", "run")
        assert len(err.splitlines()) == 1
        return code, err

    code, err = refused()
    assert (code, "-c FILE names another" in err) == (3, True)
    write_server(home, keyring="none.keys")
    code, err = refused()
    assert (code, "the authority grants one" in err) == (4, True)
    write_server(home)
    code, err = refused()
    assert (code, "cannot read" in err) == (4, True)
    run(capsys, "relay", "server", "init", "secret", "--keyring", "server.keys")
    grant(home / "member.keys", "member")
    write_server(home, keyring="member.keys")
    code, err = refused()
    assert (code, "the keyring is for a member, not for a server" in err) == (11, True)
    (home / "secret").write_bytes((home / "secret").read_bytes()[:-1] + b"x")
    code, err = refused()
    assert (code, "secret: " in err) == (7, True)
