from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.waits import HANG_S
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import make_request
from veilcast.authority.secret_file import read_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.authority.tls_identity import TlsIdentity
from veilcast.cli.context import Context
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret

HOUR = 3_600_000_000


class CommandRunner:
    """A person without a terminal: runs commands in one directory, at a time that the test chooses."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.capsys, self.epoch = directory, capsys, 1000

    def run(self, command: str) -> tuple[int, dict[str, Any], str]:
        context = Context(
            now_us=lambda: self.epoch * HOUR,
            has_terminal=lambda: False,
            cost=PassphraseCost(passes=1, memory_mib=1),
        )
        code = main([*command.split(), "--json"], context)
        out, err = self.capsys.readouterr()
        return code, json.loads(out), err

    def good(self, command: str) -> dict[str, Any]:
        code, data, err = self.run(command)
        assert code == 0, err
        return data


@pytest.fixture
def runner(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VEILCAST_PASSPHRASE_FILE", raising=False)
    return CommandRunner(tmp_path, capsys)


GRANT = "authority grant a --topic news/eu --role subscriber --member alice --out alice.keys --days 1"


def test_an_authority_is_made_and_grants_a_keyring_that_shows_itself(runner: CommandRunner) -> None:
    made = runner.good("authority init a")
    assert len(made["fingerprint"]) == 32
    granted = runner.good(GRANT)
    assert granted["grants"] == [{"topic": "news/eu", "role": "subscriber"}]
    assert granted["declared"] == ["news/eu"]
    shown = runner.good("authority show alice.keys")
    assert shown["grants"][0]["last_epoch"] == 1000 + 24 - 1
    listed = runner.good("authority show a")
    assert [member["member"] for member in listed["members"]] == ["alice"]
    assert shown["authority"] == made["fingerprint"] == listed["fingerprint"]


def test_every_secret_file_is_for_its_owner_alone(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good(GRANT)
    for name in ("a/authority.locked", "a/passphrase", "alice.keys", "alice.keys.passphrase"):
        assert (runner.directory / name).stat().st_mode & 0o077 == 0
    assert (runner.directory / "a").stat().st_mode & 0o077 == 0


def test_a_member_asks_with_its_own_keys_and_takes_the_answer_home(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good("authority request --topic news/eu --role publisher --keyring p.keys --out p.request --days 1")
    runner.good("authority grant a --member paul --request p.request --out p.answer --days 1")
    taken = runner.good("authority accept p.answer --keyring p.keys")
    assert [grant["role"] for grant in taken["grants"]] == ["publisher"]
    assert not (runner.directory / "p.keys.asking").exists()
    runner.good("authority request --topic chat --role subscriber --keyring p.keys --out q.request --days 1")
    runner.good("authority grant a --member paul --request q.request --out q.answer --days 1")
    taken = runner.good("authority accept q.answer --keyring p.keys")
    assert sorted(grant["topic"] for grant in taken["grants"]) == ["chat", "news/eu"]


def test_a_revocation_writes_a_bulletin_that_a_keyring_takes(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good(GRANT)
    runner.good("authority grant a --topic news/eu --role subscriber --member bob --out bob.keys --days 1")
    revoked = runner.good("authority revoke a --member bob")
    assert revoked["effective_epoch"] == 1001
    assert runner.good(f"authority apply {revoked['out']} --keyring alice.keys")["changed"] is True
    assert runner.good(f"authority apply {revoked['out']} --keyring alice.keys")["changed"] is False
    rotated = runner.good("authority rotate a --topic news/eu")
    assert rotated["bulletin"] == 2
    runner.good(f"authority apply {rotated['out']} --keyring alice.keys")
    runner.good(f"authority apply {revoked['out']} --keyring bob.keys")
    runner.epoch = 1002
    assert runner.run("authority show bob.keys")[0] == 10


def test_attributes_and_sub_authorities(runner: CommandRunner) -> None:
    runner.good("authority init a")
    declared = (
        "authority topic a weather --attribute temp:float:-40:60:12 --attribute floor:int:0:31 --attribute class:str"
    )
    assert runner.good(declared)["attributes"] == 3
    cut = runner.good("authority topic a air --attribute temp:float:-40:60:12:3 --attribute floor:int:0:31:5:1")
    assert cut["cells"] == 16
    runner.good("authority delegate a --group sports --out s")
    runner.good("authority grant s --topic sports/golf --role publisher --member gus --out gus.keys --days 1")
    assert runner.good("authority show gus.keys")["grants"][0]["topic"] == "sports/golf"
    assert runner.run("authority grant s --topic news/eu --role publisher --member gus --out x.keys")[0] == 11
    assert runner.run("authority grant a --topic sports/golf --role publisher --member gus --out x.keys")[0] == 11
    runner.good("authority revoke a --group sports")


def _snapshot(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("authority init a", 11, "refused"),
        ("authority init b --epoch 0.1", 3, "config"),
        ("authority grant nowhere --topic t --role subscriber --member m --out o", 4, "storage"),
        (GRANT, 4, "storage"),
        ("authority grant a --topic a//b --role subscriber --member m --out o", 3, "config"),
        ("authority grant a --member m --out o --topic t", 3, "config"),
        ("authority grant a --member m --out o --role publisher", 3, "config"),
        ("authority grant a --member m --out a --force", 4, "storage"),
        (f"authority grant a --member m --out {'o' * 300}", 4, "storage"),
        ("authority grant a --member m --out o --keyring-passphrase-file missing", 4, "storage"),
        ("authority grant a --member m --out o --request weekly.request", 11, "refused"),
        ("authority grant a --member m --out o --request good.request --topic other --role subscriber", 3, "config"),
        ("authority request --topic a//b --keyring new.keys --out new.request", 3, "config"),
        ("authority request --topic t --keyring new.keys --out new.request --days 1e6", 11, "refused"),
        ("authority delegate a --group sports --out s --days 1e12", 11, "refused"),
        ("authority revoke a --group sports --topic sports/golf", 3, "config"),
        ("authority revoke a --group sports --every-topic", 3, "config"),
        ("authority topic a t --attribute :str", 3, "config"),
        ("authority grant a --topic t --role subscriber --member m --out no/such/o", 4, "storage"),
        ("authority grant a --topic t --role subscriber --member m --out o --days 99999", 11, "refused"),
        ("authority grant a --member m --request junk --out o", 12, "forged"),
        ("authority topic a t --attribute temp:float:9:1", 3, "config"),
        ("authority topic a t --attribute temp", 3, "config"),
        ("authority topic a t --cover 2", 3, "config"),
        ("authority topic a t --cover 0.5 --privacy low", 3, "config"),
        ("authority topic a t --privacy low --members 10 --subscribers 11", 3, "config"),
        ("authority topic a t --subscribers 1", 3, "config"),
        ("authority topic a t --cover 0.5 --subscribers 1 --members 10", 3, "config"),
        ("authority revoke a --member nobody", 9, "unknown-member"),
        ("authority revoke a --member alice --topic sports", 8, "unknown-topic"),
        ("authority revoke a --group sports", 8, "unknown-topic"),
        ("authority rotate a --topic sports", 8, "unknown-topic"),
        ("authority show a --topic sports", 8, "unknown-topic"),
        ("authority show alice.keys --topic sports", 8, "unknown-topic"),
        ("authority show a --passphrase-file wrong", 6, "passphrase"),
        ("authority show a --passphrase-file wide", 5, "permissions"),
        ("authority show a --passphrase-file empty", 6, "passphrase"),
        ("authority show broken.keys", 7, "tampered"),
        ("authority show wide.keys", 5, "permissions"),
        ("authority show missing.keys", 4, "storage"),
        ("authority accept junk --keyring alice.keys", 11, "refused"),
        ("authority apply junk --keyring alice.keys", 12, "forged"),
    ],
)
def test_bad_input_gives_one_line_its_own_code_and_changes_nothing(
    command: str, code: int, error: str, runner: CommandRunner
) -> None:
    runner.good("authority init a")
    runner.good(GRANT)
    keys = (runner.directory / "alice.keys").read_bytes()
    secret = (runner.directory / "alice.keys.passphrase").read_bytes()
    for name, content, mode in (
        ("wrong", b"not it", 0o600),
        ("wide", b"x", 0o644),
        ("empty", b"\n", 0o600),
        ("junk", b"junk", 0o600),
        (
            "weekly.request",
            encode_struct(make_request("t", "subscriber", 7 * 24 * HOUR, 6, 1, os.urandom).request),
            0o600,
        ),
        ("good.request", encode_struct(make_request("t", "subscriber", HOUR, 1000, 24, os.urandom).request), 0o600),
        ("broken.keys", keys[:-5], 0o600),
        ("broken.keys.passphrase", secret, 0o600),
        ("wide.keys", keys, 0o644),
        ("wide.keys.passphrase", secret, 0o600),
    ):
        (runner.directory / name).write_bytes(content)
        (runner.directory / name).chmod(mode)
    before = _snapshot(runner.directory)
    got, data, err = runner.run(command)
    assert (got, data["error"]) == (code, error), err
    assert err.count("\n") == 1
    assert err.startswith("veilcast: ")
    assert _snapshot(runner.directory) == before


def test_an_expired_keyring_says_so_with_its_own_code(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good(GRANT)
    runner.epoch += 25
    code, data, _ = runner.run("authority show alice.keys")
    assert (code, data["error"]) == (10, "expired")


def test_no_passphrase_key_or_token_is_ever_printed(runner: CommandRunner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.good("authority init a")
    seen = []
    for command in (GRANT, "authority show a", "authority show alice.keys", "authority rotate a"):
        _, data, err = runner.run(command)
        seen.append(json.dumps(data) + err)
    secret = (runner.directory / "a" / "passphrase").read_text().strip()
    other = (runner.directory / "alice.keys.passphrase").read_text().strip()
    assert not [text for text in seen if secret in text or other in text]


def test_a_membership_alone_needs_neither_topic_nor_role(runner: CommandRunner) -> None:
    runner.good("authority init a")
    assert runner.good("authority grant a --member f --out f.keys --days 1")["grants"] == []
    assert runner.good("authority show f.keys")["grants"] == []
    runner.good("authority request --keyring g.keys --out g.request --days 1")
    runner.good("authority grant a --member g --request g.request --out g.answer --days 1")
    assert runner.good("authority accept g.answer --keyring g.keys")["grants"] == []


def test_requests_and_bulletins_show_themselves_without_a_passphrase(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good("authority request --topic news/eu --role publisher --keyring p.keys --out p.request --days 1")
    assert runner.good("authority show p.request")["request"]["epochs"] == 24
    runner.good(GRANT)
    revoked = runner.good("authority revoke a --member alice --every-topic")
    assert runner.good(f"authority show {revoked['out']}")["void"] == 1


def test_an_error_names_a_file_that_is_no_answer_to_the_request(runner: CommandRunner) -> None:
    runner.good("authority request --topic t --keyring p.keys --out p.request --days 1")
    for wrong in (b"junk", b"\0" * 400):
        (runner.directory / "wrong.answer").write_bytes(wrong)
        code, data, _ = runner.run("authority accept wrong.answer --keyring p.keys")
        assert (code, data["error"]) == (12, "forged")
        assert data["message"].startswith("wrong.answer is no answer to the request that waits here")


def test_an_answer_of_another_authority_is_refused_when_the_right_one_is_named(runner: CommandRunner) -> None:
    right = runner.good("authority init a")["fingerprint"]
    runner.good("authority init evil")
    runner.good("authority request --topic t --keyring p.keys --out p.request --days 1")
    runner.good("authority grant evil --member p --request p.request --out evil.answer --days 1")
    code, data, _ = runner.run(f"authority accept evil.answer --keyring p.keys --authority {right}")
    assert (code, data["error"]) == (11, "refused")
    runner.good("authority grant a --member p --request p.request --out p.answer --days 1")
    assert runner.good(f"authority accept p.answer --keyring p.keys --authority {right}")["authority"] == right


def test_a_first_keyring_says_which_authority_it_is_bound_to(runner: CommandRunner) -> None:
    right = runner.good("authority init a")["fingerprint"]
    runner.good("authority request --topic t --keyring p.keys --out p.request --days 1")
    runner.good("authority grant a --member p --request p.request --out p.answer --days 1")
    warnings: list[str] = []
    context = Context(
        now_us=lambda: 1000 * HOUR,
        has_terminal=lambda: False,
        warn=warnings.append,
        cost=PassphraseCost(passes=1, memory_mib=1),
    )
    assert main(["authority", "accept", "p.answer", "--keyring", "p.keys"], context) == 0
    assert any(right in warning for warning in warnings)


def test_a_waiting_request_is_not_overwritten_by_another(runner: CommandRunner) -> None:
    runner.good("authority request --topic t --keyring p.keys --out one.request --days 1")
    assert runner.run("authority request --topic u --keyring p.keys --out two.request --days 1")[0] == 11
    runner.good("authority request --topic u --keyring p.keys --out two.request --days 1 --force")


def test_declaring_a_topic_again_keeps_the_options_that_are_not_given(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good("authority topic a weather --attribute temp:float:-40:60")
    again = runner.good("authority topic a weather --cover 0.6")
    assert (again["attributes"], again["cover_share"]) == (1, 0.6)


def test_privacy_chooses_the_cover_of_a_topic(runner: CommandRunner) -> None:
    runner.good("authority init a")
    assert runner.good("authority topic a weather")["cover_share"] == 1
    assert runner.good("authority topic a weather --members 500")["cover_share"] == 0.9
    assert runner.good("authority topic a weather")["cover_share"] == 0.9
    assert runner.good("authority topic a weather --privacy medium")["cover_share"] == 0.55
    assert runner.good("authority topic a weather --privacy low --subscribers 5 --members 500")["cover_share"] == 0.25
    assert runner.good("authority topic a weather --privacy low --subscribers 100 --members 500")["cover_share"] == 1
    assert runner.good("authority topic a weather")["cover_share"] == 1


def test_a_bulletin_that_was_signed_but_not_written_is_written_by_the_next_command(runner: CommandRunner) -> None:
    runner.good("authority init a")
    runner.good(GRANT)
    path = Path(runner.good("authority rotate a")["out"])
    signed = path.read_bytes()
    path.unlink()
    runner.good("authority show a")
    assert path.read_bytes() == signed


@pytest.mark.parametrize("option", ["--days nan", "--days inf", "--days -5", "--days 0", "--days x"])
def test_a_number_that_is_none_is_a_usage_error(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(f"authority grant a --member m --out o {option}".split())
    assert exit_.value.code == 2
    assert "--days" in capsys.readouterr().err


def test_the_end_of_input_at_the_prompt_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ended(_: str) -> str:
        raise EOFError

    context = Context(has_terminal=lambda: True, ask_secret=ended)
    assert main(["authority", "init", str(tmp_path / "a")], context) == 6
    assert capsys.readouterr().err.count("\n") == 1


def test_an_environment_variable_names_the_passphrase_file_if_none_is_beside(
    runner: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runner.directory / "secret").write_text("of the authority\n")
    (runner.directory / "secret").chmod(0o600)
    monkeypatch.setenv("VEILCAST_PASSPHRASE_FILE", "secret")
    runner.good("authority init a")
    runner.good(GRANT)
    runner.good("authority show a")
    runner.good("authority show alice.keys")
    assert not (runner.directory / "a" / "passphrase").exists()


def test_a_passphrase_typed_twice_differently_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["one", "two"])
    context = Context(has_terminal=lambda: True, ask_secret=lambda _: next(answers), cost=PassphraseCost(1, 1))
    assert main(["authority", "init", str(tmp_path / "a")], context) == 6
    assert not (tmp_path / "a" / "authority.locked").exists()


def test_a_typed_passphrase_opens_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = Context(has_terminal=lambda: True, ask_secret=lambda _: "a typed secret", cost=PassphraseCost(1, 1))
    assert main(["authority", "init", str(tmp_path / "a")], context) == 0
    assert main(["authority", "show", str(tmp_path / "a")], context) == 0
    assert not (tmp_path / "a" / "passphrase").exists()
    assert "a typed secret" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["grant", "revoke", "delegate", "accept"])
def test_a_command_killed_at_any_write_is_repaired_by_calling_again(command: str, tmp_path: Path) -> None:
    """The command dies at its n-th flush or rename, for every n; everything still opens, and the command works then.

    The limit on time is for a test that hangs, on a machine however slow.
    """
    child = subprocess.run(
        [sys.executable, "-c", _DYING, command],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert child.returncode == 0, child.stderr
    codes = json.loads(child.stdout.splitlines()[-1])
    assert codes[0] == 9
    assert codes[-1] == 0
    assert len(codes) > 3


# One interpreter that forks for each command, and has imported all that commands need: to import it takes longer than
# a command does.
_DYING = """
import contextlib, glob, io, json, os, sys
from veilcast.cli.context import Context
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret

def dying(call, left):
    def counted(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)
        return call(*arguments, **options)
    return counted

def veilcast(command, die_at=0):
    child = os.fork()
    if child == 0:
        left = [die_at]
        for name in ("replace", "fsync"):
            setattr(os, name, dying(getattr(os, name), left))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(command.split(), CONTEXT))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def first(command):
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(command.split(), CONTEXT) == 0

def prepare(step):
    if command == "revoke":
        assert veilcast(COMMANDS["grant"].format(step)) == 0
    if command == "accept":
        assert veilcast(f"authority request --topic t --keyring m{step}.keys --out m{step}.request --days 1") == 0
        answer = f"--request m{step}.request --out m{step}.answer"
        assert veilcast(f"authority grant a --member m{step} {answer} --days 1") == 0

COMMANDS = {
    "grant": "authority grant a --topic t --role publisher --member m{0} --out m{0}.keys --days 1 --force",
    "revoke": "authority revoke a --member m{0}",
    "delegate": "authority delegate a --group g --out s{0}",
    "accept": "authority accept m{0}.answer --keyring m{0}.keys",
}
CONTEXT = Context(has_terminal=lambda: False, cost=PassphraseCost(1, 1))
command = sys.argv[1]
first("authority init a")
first("authority grant a --topic t --role subscriber --member bob --out bob.keys --days 9")
first("authority show a")
codes = []
for step in range(1, 30):
    prepare(step)
    line = COMMANDS[command].format(step)
    codes.append(veilcast(line, step))
    assert veilcast("authority show a") == 0
    if codes[-1] == 0:
        break
    # Either the killed command had done its work and says so, or it does it now.
    assert veilcast(line) in (0, 11)
    assert veilcast("authority show a") == 0
    if command in ("grant", "accept"):
        assert veilcast(f"authority show m{step}.keys") == 0
    if command == "delegate":
        assert veilcast(f"authority show s{step}") == 0
for path in sorted(glob.glob("a/bulletins/*.bulletin")):
    assert veilcast(f"authority apply {path} --keyring bob.keys") == 0
print(json.dumps(codes))
"""


@pytest.mark.parametrize("role", ["proxy", "server", "directory"])
def test_hosts_of_the_relay_are_let_in_by_their_role_with_a_ready_keyring_or_an_answer(
    runner: CommandRunner, role: str
) -> None:
    runner.good("authority init a")
    granted = runner.good(f"authority grant a --role {role} --member host --out host.keys")
    assert (granted["standing"], granted["grants"]) == (role, [])
    runner.good("authority request --keyring own.keys --out own.request")
    answered = runner.good(f"authority grant a --role {role} --member other --request own.request --out own.answer")
    assert answered["standing"] == role
    runner.good("authority accept own.answer --keyring own.keys")
    for name in ("host.keys", "own.keys"):
        assert runner.good(f"authority show {name}")["standing"] == role
        secret = Secret((runner.directory / f"{name}.passphrase").read_bytes().strip())
        assert TlsIdentity(read_secret(runner.directory / name, Keyring, secret)).role == role


def test_every_member_can_be_on_tls_streams_and_a_host_has_no_topics(runner: CommandRunner) -> None:
    runner.good("authority init a")
    assert runner.good(GRANT)["standing"] == "member"
    secret = Secret((runner.directory / "alice.keys.passphrase").read_bytes().strip())
    assert TlsIdentity(read_secret(runner.directory / "alice.keys", Keyring, secret)).role == "member"
    code, _, err = runner.run("authority grant a --topic news/eu --role proxy --member p --out p.keys")
    assert code != 0
    assert "leave --topic away" in err
