"""`veilcast relay ...`: keys are made once and printed correctly, and errors take one line with their exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole
from veilcast.authority.secret_file import read_secret, replace_file, write_secret
from veilcast.cli.context import Context
from veilcast.cli.files import passphrase_file
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.node.record_store import KeepRecord, RecordStore
from veilcast.node.relay import decode_server_line, encode_server_line, read_mask, read_server_keys
from veilcast.relay.roster import EnrolledClient, LeasePseudonym
from veilcast.relay.server import LeaseRecord
from veilcast.relay.transformation_key import ServerKeys

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


def store(home: Path, keyring: str, state: str) -> RecordStore:
    link = read_secret(home / keyring, Keyring, SECRET).membership.link
    return RecordStore.in_directory(home / state, link, os.urandom)


def test_an_operator_sees_what_the_servers_own_records_tell_while_it_runs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(home)
    with (home / "server.toml").open("a") as file:
        file.write('state = "state"\n')
    code, _, err = run(capsys, "relay", "server", "audit")
    assert (code, "has the host run with this file?" in err) == (4, True)
    leases = [LeaseRecord(b"%d" % n, b"", "proxy:pia", 7, ((bytes([n // 2]) * 16,),), b"") for n in range(4)]
    with store(home, "server.keys", "state") as records:
        records.write([KeepRecord(n, msgspec.msgpack.encode(lease)) for n, lease in enumerate(leases)])
        code, out, err = run(capsys, "relay", "server", "audit")
        assert (code, err) == (0, "")
        assert "leases         4, through proxy:pia 4\n" in out
        assert "interests      2 different ones; 2 leases want the same\n" in out
        assert "one member     each lease has a name of its own\n" in out
        found = json.loads(run(capsys, "relay", "server", "audit", "--json")[1])
        assert (found["leases"], found["most_leases_with_equal_tags"], found["publications"]) == (4, 2, 0)
    assert run(capsys, "relay", "server", "audit")[1] == out, "and while it does not run"


def test_an_operator_sees_what_the_proxys_own_records_tell(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grant(home / "proxy.keys", "proxy")
    line = encode_server_line(ServerKeys.draw(os.urandom).public())
    (home / "proxy.toml").write_text(
        f'keyring = "proxy.keys"\nlisten = "127.0.0.1:4100"\nserver = "127.0.0.1:4101"\nserver_key = "{line}"\n'
        'mask = "mask"\nstate = "state"\n'
    )
    entries = [EnrolledClient("member:anna", b"key", b""), EnrolledClient("member:ben", b"key", b"")]
    pseudonyms = [LeasePseudonym("member:anna", b"%d" % n, b"%d" % n, 7) for n in range(3)]
    with store(home, "proxy.keys", "state") as records:
        records.write([KeepRecord(n, msgspec.msgpack.encode(each)) for n, each in enumerate([*entries, *pseudonyms])])
        code, out, err = run(capsys, "relay", "proxy", "audit")
        assert (code, err) == (0, "")
        assert "members        2 by name; --json lists them\nleases         3, up to 3 of one member\n" in out
        found = json.loads(run(capsys, "relay", "proxy", "audit", "--json")[1])
        assert found["leases_by_client"] == {"member:anna": 3, "member:ben": 0}
    other = json.loads(run(capsys, "relay", "proxy", "audit", "-c", "server.toml", "--json")[1])
    assert other["error"] == "config"
