"""`veilcast invite` and `veilcast join`: from a code to a keyring and a node's file, and how that fails."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.invitation_pair import make_offer
from support.invited_member import Invitation, make_context, run_command
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_private_file, read_secret
from veilcast.cli import invite, join
from veilcast.cli.files import format_toml
from veilcast.cli.shared_network import SharedNetwork, parse_offer, read_network
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.onion_keys import host_of
from veilcast.crypto.secret import Secret
from veilcast.errors import (
    AuthorityError,
    ConfigError,
    ExpiredError,
    LocalError,
    StorageError,
    UnreachableError,
    VeilcastError,
)
from veilcast.invitation.code import draw_code
from veilcast.machine import Address
from veilcast.node.config import load_config, parse_config


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in ("VEILCAST_PASSPHRASE_FILE", "VEILCAST_NODE", "VEILCAST_AUTHORITY"):
        monkeypatch.delenv(variable, raising=False)
    run_command("authority", "init", "authority")
    return tmp_path / "authority"


def state_of(directory: Path) -> Authority:
    return read_secret(
        directory / "authority.locked", Authority, Secret(read_private_file(directory / "passphrase").strip())
    )


def keyring_of(directory: Path) -> Keyring:
    secret = Secret(read_private_file(directory / "member.keys.passphrase").strip())
    return read_secret(directory / "member.keys", Keyring, secret)


def test_one_person_joins_with_a_code_and_nothing_else(authority: Path) -> None:
    invitation = Invitation(authority, "--role", "publisher")
    joined = run_command("join", invitation.code, "--dir", "anna")
    granted = invitation.report()
    anna = Path("anna")
    keyring = keyring_of(anna)
    assert joined.data is not None
    assert granted.data is not None
    assert joined.data["authority"] == fingerprint(keyring.root).hex() == fingerprint(state_of(authority).root).hex()
    assert [(record.topic, grant.role) for grant, record in keyring.records()] == [("news/eu", "publisher")]
    assert granted.data["member"] == "member-1"
    assert load_config(anna / "node.toml").public_address == granted.data["address"] == joined.data["address"]
    assert sorted(path.name for path in anna.iterdir()) == ["member.keys", "member.keys.passphrase", "node.toml"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in anna.iterdir())


def test_the_second_member_of_a_mesh_calls_the_first(authority: Path) -> None:
    for name in ("anna", "ben"):
        invitation = Invitation(authority)
        run_command("join", invitation.code, "--dir", name, "--listen", f"127.0.0.{len(name)}:4000")
        invitation.report()
    assert load_config(Path("anna/node.toml")).peers == ()
    assert load_config(Path("ben/node.toml")).peers == ("127.0.0.4:4000",)
    assert sorted(state_of(authority).members) == ["member-1", "member-2"]


def test_a_member_without_a_topic_joins_to_enlarge_the_group(authority: Path) -> None:
    invitation = Invitation(authority, topic="")
    report = run_command("join", invitation.code, "--dir", "cleo")
    assert report.data is not None
    assert (report.data["topic"], report.data["role"]) == ("", "")
    assert keyring_of(Path("cleo")).grants == ()


def test_a_sub_authority_invites_while_the_root_stays_offline(authority: Path) -> None:
    run_command("authority", "delegate", str(authority), "--group", "news", "--out", "delegate", "--days", "3")
    authority.rename(authority.with_name("offline"))
    invitation = Invitation(Path("delegate"))
    run_command("join", invitation.code, "--dir", "anna")
    invitation.report()
    keyring = keyring_of(Path("anna"))
    assert keyring.root == state_of(Path("offline")).root
    assert keyring.membership.certificate.delegation is not None
    with pytest.raises(AuthorityError, match="speaks for news"):
        Invitation(Path("delegate"), topic="chess/club")


def test_a_delegate_cannot_invite_for_longer_than_its_own_time(authority: Path) -> None:
    run_command("authority", "delegate", str(authority), "--group", "news", "--out", "delegate", "--days", "1")
    invitation = Invitation(Path("delegate"), "--days", "2")
    with pytest.raises(AuthorityError, match="the authority refuses: this sub-authority's delegation ends"):
        run_command("join", invitation.code, "--dir", "anna")
    with pytest.raises(AuthorityError, match="nothing was granted"):
        invitation.report()
    assert not Path("anna/member.keys").exists()


@pytest.mark.parametrize("form", ["{}", "veilcast:{}", "{upper}"])
def test_a_code_is_typed_in_any_form(form: str, authority: Path) -> None:
    invitation = Invitation(authority)
    text = form.format(invitation.code, upper=invitation.code.upper().replace("-", " "))
    run_command("join", *text.split(), "--dir", "anna")
    assert invitation.report().data is not None
    assert invitation.told["link"] == f"veilcast:{invitation.code}"


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_code_comes_from_the_terminal_or_a_pipe_where_nobody_else_sees_it(words: list[str], authority: Path) -> None:
    invitation = Invitation(authority)
    code = invitation.code

    def ask(prompt: str) -> str:
        return code if prompt == "code: " else "secret"

    source: dict[str, Any] = {"read_input": lambda: code.encode() + b"\n"}
    if not words:
        source = {"has_terminal": lambda: True, "ask_secret": ask}
    run_command("join", *words, "--dir", "anna", context=make_context(**source))
    invitation.report()


def test_the_settings_of_a_node_go_along_and_its_own_paths_do_not(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "overlay.signed").write_bytes(b"signed")
    (tmp_path / "second").write_bytes(b"other")
    table = {
        "mode": "brokers",
        "keyring": "secret.keys",
        "passphrase_file": "secret.passphrase",
        "control": "socket",
        "metrics": {"listen": "127.0.0.1:9100"},
        "brokers": {
            "overlay": "overlay.signed",
            "operator": "veilcast-operator-HJZwLhoo-_k19dskp4YKcblNFM7JtQLUtLGi5FWPrak1PWPe",
            "edge": "north",
            "also": [
                {
                    "overlay": "second",
                    "operator": "veilcast-operator-HJZwLhoo-_k19dskp4YKcblNFM7JtQLUtLGi5FWPrak1PWPe",
                    "edge": "south",
                }
            ],
        },
    }
    (tmp_path / "node.toml").write_text(format_toml(table))
    invitation = Invitation(authority)  # It finds node.toml in this directory.
    run_command("join", invitation.code, "--dir", "anna")
    invitation.report()
    made = tomllib.loads(Path("anna/node.toml").read_text())
    assert sorted(made) == ["brokers", "keyring", "mode"]
    assert made["brokers"] == table["brokers"]
    assert Path("anna/overlay.signed").read_bytes() == b"signed"
    assert Path("anna/second").read_bytes() == b"other"
    (tmp_path / "node.toml").unlink()
    again = Invitation(authority)  # The authority remembers.
    run_command("join", again.code, "--dir", "ben")
    assert tomllib.loads(Path("ben/node.toml").read_text()) == made


def test_the_login_at_a_broker_is_each_members_own(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.login").write_text("user\npassword\n")
    (tmp_path / "mine.login").chmod(0o600)
    table = {"mode": "foil", "keyring": "k", "foil": {"broker": "mqtt://127.0.0.1:1883", "login": "mine.login"}}
    (tmp_path / "f.toml").write_text(format_toml(table))
    network = read_network(tmp_path / "f.toml")
    assert network == SharedNetwork({"mode": "foil", "foil": {"broker": "mqtt://127.0.0.1:1883"}}, {})


@pytest.mark.parametrize(
    "text",
    ['keyring = "x"', 'passphrase_file = "/etc/passwd"', 'control = "/tmp/s"', "[tor]\ndanger_off = true", "[log]"],
)
def test_an_offer_that_sets_more_than_members_share_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="each member's own"):
        parse_offer(make_offer(network=f'mode = "tree"\n{text}\n'))


@pytest.mark.parametrize(
    "text", ["peers = 3", "rate = 1979-05-27", "[mesh]\nx = [1, {y = 2}]", "mesh = [[{a = 1979-05-27}]]"]
)
def test_an_offer_that_no_file_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has no usable"):
        parse_offer(make_offer(network=f'mode = "mesh"\n{text}\n'))


@pytest.mark.parametrize(
    "name", ["../x", "a/b", ".ssh", "node.toml", "member.keys", "member.keys.passphrase", "", "a\0b"]
)
def test_an_offer_with_a_file_that_could_overwrite_another_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="could be a path"):
        parse_offer(make_offer(files={name: b"x"}))


def test_a_wrong_code_voids_the_invitation_and_both_sides_say_so(authority: Path) -> None:
    invitation = Invitation(authority)
    wrong = draw_code(Address(invitation.told["place"]), lambda size: bytes(size)).format()
    with pytest.raises(AuthorityError, match="the code is wrong, and the invitation is void now; ask for another one"):
        run_command("join", wrong, "--dir", "eve")
    with pytest.raises(
        AuthorityError, match="wrong code, so the invitation is void; nothing was granted: invite again"
    ):
        invitation.report()
    assert state_of(authority).members == {}
    assert not Path("eve/node.toml").exists()


def test_a_mistyped_code_does_not_touch_the_invitation(authority: Path) -> None:
    invitation = Invitation(authority)
    words = invitation.code.split("-")
    with pytest.raises(ConfigError, match="the invitation still stands"):
        run_command("join", "-".join([*words[:1], *words[2:], words[1]]), "--dir", "anna")
    run_command("join", invitation.code, "--dir", "anna")
    invitation.report()


def test_a_used_code_is_refused_because_nobody_waits_there(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invitation = Invitation(authority)
    run_command("join", invitation.code, "--dir", "anna")
    invitation.report()
    monkeypatch.setattr(join, "PATIENCE_US", 100_000)
    with pytest.raises(UnreachableError, match=r"nobody answers at 127.0.0.1:.*; ask whether the inviter still waits"):
        run_command("join", invitation.code, "--dir", "ben")
    assert not Path("ben/node.toml").exists()


def test_an_invitation_that_nobody_takes_expires(authority: Path) -> None:
    invitation = Invitation(authority, "--minutes", "0.0001")
    with pytest.raises(ExpiredError, match="nobody joined in time; nothing was granted: invite again"):
        invitation.report()
    assert not (authority / "network").exists()


def test_a_join_that_was_interrupted_asks_the_same_again(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails when the keyring is to be written: the authority has granted, and the joiner has nothing."""
    invitation = Invitation(authority)

    def fail(*_: Any) -> None:
        raise StorageError("cannot write anna/member.keys: No space left on device")

    monkeypatch.setattr(join._Guest, "_store", fail)
    with pytest.raises(StorageError, match="No space"):
        run_command("join", invitation.code, "--dir", "anna")
    asked = read_private_file(Path("anna/member.keys.asking"))
    monkeypatch.undo()
    run_command("join", invitation.code, "--dir", str(authority.parent / "anna"))
    assert invitation.report().data is not None
    assert not (authority.parent / "anna/member.keys.asking").exists()
    assert asked
    assert list(state_of(authority).members) == ["member-1"]


def test_an_inviter_that_hears_nothing_after_the_grant_says_so(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("veilcast.invitation.inviter.CONFIRM_US", 200_000)
    invitation = Invitation(authority)

    def fail(*_: Any) -> None:
        raise StorageError("full")

    monkeypatch.setattr(join._Guest, "_store", fail)
    with pytest.raises(StorageError, match="full"):
        run_command("join", invitation.code, "--dir", "anna")
    with pytest.raises(UnreachableError, match="revoke member-1 and invite again"):
        invitation.report()


def test_a_directory_with_a_node_is_left_alone(authority: Path) -> None:
    Path("node.toml").write_text("mine")
    code = draw_code(Address("127.0.0.1:9"), lambda size: bytes(size)).format()
    with pytest.raises(StorageError, match=r"node.toml is there already.*--dir"):
        run_command("join", code)
    assert Path("node.toml").read_text() == "mine"


def test_a_clock_that_is_wrong_is_told(authority: Path) -> None:
    warnings: list[str] = []
    invitation = Invitation(authority)
    context = make_context(warn=warnings.append, now_us=lambda: make_context().now_us() - 95_000_000)
    run_command("join", invitation.code, "--dir", "anna", context=context)
    invitation.report()
    assert any("s behind the inviter's; set it, or no link will open" in line for line in warnings)


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        (["invite", "x", "--authority", "nowhere"], ConfigError, "nowhere holds no authority; name its directory"),
        (["invite", "--role", "publisher"], ConfigError, "--role goes with a topic"),
        (["invite", "/"], LocalError, "topic"),
        (["invite", "x", "--listen", "host:1"], ConfigError, "no address and port"),
        (["invite", "x", "--listen", "192.0.2.7:0"], StorageError, "name an address that this machine has"),
        (["invite", "x", "--address", "example.org:1"], ConfigError, "no address for an invitation"),
        (["invite", "x", "-c", "none.toml"], ConfigError, "cannot read none.toml"),
        (["join", "lusab"], ConfigError, "nothing was sent"),
        (["join", "hello"], ConfigError, "nothing was sent"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_the_next_step(
    words: list[str], kind: type[VeilcastError], text: str, authority: Path
) -> None:
    with pytest.raises(kind, match=text) as refused:
        run_command(*words)
    assert "\n" not in str(refused.value)


def test_a_rendezvous_that_does_not_answer_is_told(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invite, "OPEN_US", 100_000)
    with pytest.raises(UnreachableError, match="the rendezvous does not answer; no code was made"):
        run_command("invite", "news/eu", "--authority", str(authority), "--via", "127.0.0.1:9")
    for words, text in (
        (["--via", "127.0.0.1:9", "--listen", "127.0.0.1:0"], "leave --listen and --address away"),
        (["--via", "127.0.0.1:9", "--minutes", "90"], "60 minutes at most"),
        (["--via", "example.org:9"], "no address for an invitation"),
    ):
        with pytest.raises(ConfigError, match=text):
            run_command("invite", "news/eu", "--authority", str(authority), *words)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('address = "127.0.0.1:1"', "rendezvous.address: of use only with"),
        ('listen = "0.0.0.0:4001"', "rendezvous.address: needed"),
        ('listen = "example.org:1"', "rendezvous.listen"),
        ("port = 3", "rendezvous.port: unknown key"),
    ],
)
def test_a_rendezvous_that_nobody_could_call_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_config(f'keyring = "k"\nlisten = "127.0.0.1:1"\n[rendezvous]\n{text}\n'.encode(), Path("node.toml"))


def test_a_node_behind_tor_offers_no_rendezvous_at_its_address() -> None:
    table = 'mode = "tree"\nkeyring = "k"\n[tree]\ndirectory = "{}:80"\n[rendezvous]\nlisten = "127.0.0.1:1"\n'
    with pytest.raises(ConfigError, match="would show the address that Tor hides"):
        parse_config(table.format(host_of(bytes(range(32)))).encode(), Path("node.toml"))


def test_a_revoked_member_is_not_invited_under_its_name(authority: Path) -> None:
    invitation = Invitation(authority, "--member", "mallory")
    run_command("join", invitation.code, "--dir", "m")
    invitation.report()
    run_command("authority", "revoke", str(authority), "--member", "mallory")
    with pytest.raises(AuthorityError, match="has been revoked"):
        Invitation(authority, "--member", "mallory")


def test_people_are_told_the_command_to_type_and_what_was_joined(authority: Path) -> None:
    said: list[str] = []
    invitation = Invitation(authority)
    report = run_command("join", invitation.code, "--dir", "anna")
    assert report.lines[0].startswith("joined: subscriber of news/eu until ")
    assert report.lines[1].startswith("hidden: an observer of your line sees that you take part")
    assert report.lines[2] == "warning: the group has at most 1 member; below 20 members expect to be guessed"
    assert report.lines[3].endswith("start the node: veilcast node run -c anna/node.toml")
    words = ["invite", "news/eu", "--authority", str(authority), "--listen", "127.0.0.1:0", "--minutes", "0.0001"]
    with pytest.raises(ExpiredError):
        run_command(*words, context=make_context(say=said.append))
    assert said[0].startswith("one person can join until ")
    assert said[1].startswith("  veilcast join ")


def test_now_starts_the_node_with_the_passphrase_of_the_join(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, Secret]] = []
    monkeypatch.setattr("veilcast.cli.node.run_node", lambda config, secret, *_: started.append((config, secret)))
    invitation = Invitation(authority)
    run_command("join", invitation.code, "--dir", "anna", "--now")
    (config, secret), *_ = started
    assert config.mode == "mesh"
    assert secret.reveal() == read_private_file(Path("anna/member.keys.passphrase")).strip()


def test_no_log_and_no_file_has_the_code(authority: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    invitation = Invitation(authority)
    run_command("join", invitation.code, "--dir", "anna")
    invitation.report()
    words = invitation.code.split("-")
    everything = caplog.text + "".join(
        path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()
    )
    assert invitation.code not in everything
    assert "-".join(words[1:3]) not in everything
