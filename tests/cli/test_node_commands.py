"""The commands of a running node: the node, which keeps everything in memory, and `sub` in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest

from support.waits import HANG_S, wait_until
from veilcast.authority.secret_file import lock_directory
from veilcast.cli import passphrase
from veilcast.cli.commands import parse
from veilcast.cli.context import Context
from veilcast.cli.input_checks import parse_value
from veilcast.cli.main import main
from veilcast.cli.phrases import format_duration
from veilcast.cli.status import anonymity_warning
from veilcast.cli.sub import as_json, as_line, parse_interest
from veilcast.errors import ConfigError, PassphraseError
from veilcast.machine import Note, Publication
from veilcast.net.control_protocol import Status
from veilcast.node.config import parse_config
from veilcast.node.relay import encode_server_line
from veilcast.relay.transformation_key import ServerKeys
from veilcast.topics import All, Conjunction, Equal, Label, Range

TESTS = str(Path(__file__).parents[1])
NODE = """
import contextlib, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.memory_node import MemoryNode
from veilcast.cli import main, node
from veilcast.net.service import NodeSetup
from veilcast.net.udp import udp_driver
from veilcast.sim.flood import FloodNode

@contextlib.contextmanager
def compose(config, passphrase, around, anonymous, warn):
    assert passphrase.reveal() == b"correct horse"
    members = int((Path(config.state) / "members").read_text())
    yield NodeSetup(machine=FloodNode(), make_service=lambda driver: MemoryNode(members=members),
                    make_driver=udp_driver("127.0.0.1:0"), control=config.control_path)

node.compose = compose
sys.exit(main.main(sys.argv[2:]))
"""


class Home:
    """A directory with a node's configuration, and the commands that are run in it."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory, self.capsys = directory, capsys

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILCAST_")}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(arguments, cwd=self.directory, env=kept, text=True, **{**streams, **options})

    def command(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-m", "veilcast.cli.main", *arguments, **options)

    def run(self, *arguments: str, given: bytes = b"") -> tuple[int, str, str]:
        """Run a command without a process; returns its exit code and output."""
        code = main(list(arguments), Context(read_input=lambda: given))
        out, err = self.capsys.readouterr()
        return code, out, err

    @contextlib.contextmanager
    def node(self, *arguments: str, members: int = 24, **options: Any) -> Iterator[subprocess.Popen[str]]:
        (self.directory / "members").write_text(str(members))
        child = self.start(sys.executable, "-c", NODE, TESTS, "node", "run", *arguments, **options)
        try:
            assert "listening" in line_of(child.stdout)
            yield child
        finally:
            child.kill()
            child.communicate()


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@pytest.fixture
def home(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VEILCAST_NODE", raising=False)
    (tmp_path / "node.toml").write_text('keyring = "keyring"\nlisten = "127.0.0.1:4000"\nstate = "."\n')
    (tmp_path / "keyring").touch()
    write_private(tmp_path / "keyring.passphrase")
    return Home(tmp_path, capsys)


def test_notes_are_printed_line_by_line_and_acknowledged(home: Home) -> None:
    with home.node("--json") as node:
        # Kept, so that nothing depends on which of the two commands is there first.
        reader = home.command("sub", "weather", "--keep", "--json", "--count", "3")
        until_subscribed(home)
        assert line_of(reader.stderr) == SUBSCRIBED
        (home.directory / "body").write_bytes(b"\xff\x00")
        assert home.run("pub", "weather", "-m", "sunny", "--value", "temp=21.5")[0] == 0
        assert home.run("pub", "weather", given=b"two\nlines")[0] == 0
        code, out, _ = home.run("pub", "weather", "--file", "body", "--json")
        assert (code, json.loads(out)) == (0, {"published": 2, "delay": None})
        out, err = reader.communicate(timeout=HANG_S)
        notes = [json.loads(line) for line in out.splitlines()]
        assert (reader.returncode, err) == (0, "")
        assert [note.get("body") for note in notes] == ["sunny", "two\nlines", None]
        assert notes[0]["pairs"] == [["topic", "weather"], ["temp", 21.5]]
        assert notes[2]["base64"] == "/wA="
        assert json.loads(home.run("status", "--json")[1])["inbox"] == 0
        node.send_signal(signal.SIGTERM)
        out, err = node.communicate(timeout=HANG_S)
        assert (node.returncode, json.loads(out)) == (0, {"drained": True})
        assert "weather" not in err
        assert "sunny" not in err


def test_neither_topic_nor_text_of_a_failed_request_reaches_the_log_of_the_node(home: Home) -> None:
    with home.node() as node:
        code, _, err = home.run("pub", "bug", "-m", "planted plaintext")
        assert (code, err) == (1, "veilcast: the node failed to do this; its log has the cause\n")
        assert home.run("pub", "nobody/knows", "-m", "x")[0] == 8
        assert home.run("node", "stop")[0] == 0
        _, log = node.communicate(timeout=HANG_S)
        assert "ZeroDivisionError at" in log
        assert not [planted for planted in ("secret", "planted", "nobody", "bug") if planted in log]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_ends_a_subscription_cleanly_and_output_is_flushed(end: signal.Signals, home: Home) -> None:
    with home.node():
        reader = home.command("sub", "--range", "temp", "20..25")
        until_subscribed(home)
        assert line_of(reader.stderr) == SUBSCRIBED
        home.run("pub", "weather", "-m", "sunny", "--value", "temp=20")
        assert line_of(reader.stdout) == "sunny\n"
        reader.send_signal(end)
        out, err = reader.communicate(timeout=HANG_S)
        assert (reader.returncode, out, err) == (130, "", "veilcast: interrupted\n")
        assert json.loads(home.run("status", "--json")[1])["subscriptions"] == 0


def test_sigterm_ends_a_subscription_that_a_script_has_put_into_the_background(home: Home) -> None:
    """There Ctrl-C is ignored."""
    with home.node():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        reader = home.command("sub", "weather")
        signal.signal(signal.SIGINT, before)
        until_subscribed(home)
        assert line_of(reader.stderr) == SUBSCRIBED
        reader.send_signal(signal.SIGINT)
        home.run("pub", "weather", "-m", "sunny")
        assert line_of(reader.stdout) == "sunny\n"
        reader.send_signal(signal.SIGTERM)
        out, err = reader.communicate(timeout=HANG_S)
        assert (reader.returncode, out, err) == (130, "", "veilcast: interrupted\n")
        assert json.loads(home.run("status", "--json")[1])["subscriptions"] == 0


def test_the_end_of_the_node_during_a_subscription_is_reported_in_one_line(home: Home) -> None:
    with home.node() as node:
        reader = home.command("sub", "weather")
        until_subscribed(home)
        assert line_of(reader.stderr) == SUBSCRIBED
        node.kill()
        _, err = reader.communicate(timeout=HANG_S)
        assert reader.returncode == 14
        told = "and its log says why; start it again: what it had not confirmed may be lost"
        assert err == f"veilcast: the node has gone away, {told}\n"
    code, out, err = home.run("status", "--json")
    assert (code, json.loads(out)["error"]) == (14, "unreachable")
    assert "veilcast node run -c" in err


@pytest.mark.parametrize(("members", "warned"), [(19, True), (20, False)])
def test_status_shows_how_well_the_member_is_hidden_and_warns_below_twenty(
    home: Home, members: int, warned: bool
) -> None:
    with home.node(members=members):
        assert "nothing is read here" in home.run("status")[1]
        reader = home.command("sub", "weather")
        until_subscribed(home)
        _, out, _ = home.run("status")
        reader.terminate()
        reader.communicate(timeout=HANG_S)
        assert f"{members} members" in out
        assert all(line in out for line in ("\n  1 overdue ", "\n  3 lapsed ", "\n  refused      2 notes, since"))
        assert "78% of the others" in out
        assert ("warning:" in out) is warned
        data = json.loads(home.run("status", "--json")[1])
        assert (data["members"], data["cover_share"]) == (members, 0.78)
        assert (data["warning"] is not None) is warned
        assert "192.0.2.7:4000" in home.run("peers")[1]
        assert json.loads(home.run("peers", "--json")[1])["peers"][0]["up"] is True


def test_hindrances_are_printed_by_pub_sub_and_status(home: Home) -> None:
    with home.node(members=21):  # As `desk` has it.
        code, out, err = home.run("pub", "weather", "-m", "sunny")
        assert (code, out[:9], err) == (0, "published", "veilcast: the node goes on trying, but nobody answers\n")
        assert "\nhindered       nobody answers\n" in home.run("status")[1]
        assert json.loads(home.run("status", "--json")[1])["hindrances"] == ["nobody answers"]


@pytest.mark.parametrize(
    ("members", "told", "row"),
    [
        (31, r"veilcast: it waits: the lots are drawn; subscribers have it in about \d+ h\n", "in about"),
        (32, r"veilcast: it waits: the relay does not answer; how long that lasts is not known\n", "is not known"),
        (33, "", "it is on its way; subscribers have it in about 1 s"),
    ],
)
def test_the_reason_of_a_delay_is_printed_by_pub_and_status(home: Home, members: int, told: str, row: str) -> None:
    with home.node(members=members):  # As `desk` has it.
        code, out, err = home.run("pub", "weather", "-m", "sunny")
        assert (code, out[:9]) == (0, "published")
        assert re.fullmatch(told, err)
        shown = next(line for line in home.run("status")[1].splitlines() if line.startswith("outbox"))
        assert shown.startswith("outbox         1 publication under way: ")
        assert row in shown
        data = json.loads(home.run("pub", "weather", "-m", "sunny", "--json")[1])
        assert data["delay"] == json.loads(home.run("status", "--json")[1])["delay"]


@pytest.mark.parametrize(("us", "told"), [(0, "1 s"), (94_600_000, "95 s"), (181_000_000, "3 min")])
def test_a_duration_is_spelled_no_more_exactly_than_an_estimate_is(us: int, told: str) -> None:
    assert format_duration(us) == told


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ("later", "notes come from 2100-01-01 00:00:00 UTC on"),
        ("unheard", "no publisher is known there yet"),
    ],
)
def test_a_waiting_subscription_prints_when_it_is_ready(home: Home, topic: str, told: str) -> None:
    with home.node():
        reader = home.command("sub", topic, "--count", "1")
        assert told in line_of(reader.stderr)
        assert told in home.run("status")[1]
        assert len(json.loads(home.run("status", "--json")[1])["waiting"]) == 1
        assert home.run("pub", topic, "-m", "at last")[0] == 0
        assert reader.communicate(timeout=HANG_S) == ("at last\n", "")


def test_a_node_stops_when_it_is_asked_to(home: Home) -> None:
    with home.node() as node:
        assert home.run("node", "stop")[0] == 0
        out, _ = node.communicate(timeout=HANG_S)
        assert node.returncode == 0
        assert "has gone out" in out


def test_a_second_node_on_the_same_place_is_refused_in_one_line(home: Home) -> None:
    with home.node():
        second = home.start(sys.executable, "-c", NODE, TESTS, "node", "run")
        _, err = second.communicate(timeout=HANG_S)
        assert second.returncode == 15
        assert err.startswith("veilcast: control: this one runs already, and answers at")
        assert "stop it first" in err
        assert len(err.splitlines()) == 1
        assert home.run("status")[0] == 0


def test_no_passphrase_is_asked_for_a_node_that_runs_already(home: Home) -> None:
    (home.directory / "keyring.passphrase").unlink()

    def asked(prompt: str) -> str:
        raise AssertionError(prompt)

    with lock_directory(home.directory):
        code = main(["node", "run"], Context(has_terminal=lambda: True, ask_secret=asked))
    told = "veilcast: . is in use by another node; stop that one first, or name another directory\n"
    assert (code, home.capsys.readouterr().err) == (4, told)


def test_the_passphrase_comes_from_a_descriptor(home: Home) -> None:
    (home.directory / "keyring.passphrase").unlink()
    read, write = os.pipe()
    os.write(write, b"correct horse\n")
    os.close(write)
    with home.node("--passphrase-fd", str(read), pass_fds=(read,)):
        os.close(read)


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_a_descriptor_without_a_passphrase_is_refused(content: bytes) -> None:
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    with pytest.raises(PassphraseError, match="holds no passphrase"):
        passphrase.read_descriptor(read)
    with pytest.raises(PassphraseError, match="cannot read"):
        passphrase.read_descriptor(read)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("sub", "name a TOPIC"),
        ("sub a --count 0", "--count must be between"),
        ("sub --range temp 20", "write LOW..HIGH"),
        ("sub --range temp ..", "write LOW..HIGH"),
        ("sub --range temp a..b", "write LOW..HIGH"),
        ("sub --range temp 25..20", "range of 'temp' is empty"),
        ("sub --range temp -10..-20", "range of 'temp' is empty"),
        ("sub --where price>50", "predicates: cannot read 'price>50'; write [attribute,operator,value]"),
        ("sub --where [price,>,50],", "predicates: one is missing; write [attribute,operator,value]"),
        ("sub --where [class,>,bar]", "'class' is compared with a string: only ="),
        ("sub --where [price,!=,5]", "an operator is one of = < <= > >=, not '!='"),
        ("sub --where [price,>,60],[price,<,50]", "range of 'price' is empty"),
        ("pub a -m x --value temp", "write NAME=VALUE"),
        ("pub a -m x", "there is no node.toml"),
        ("status -c none.toml", "there is no none.toml"),
        ("node run", "there is no node.toml"),
        ("node new --keyring k --listen a.example:4000", "listen: 'a.example:4000' is not like"),
        ("node new --keyring k --listen 0.0.0.0:4000", "address: needed"),
        ("node new --keyring k", "in a mesh; --proxy and --server-key, in a relay; or --directory"),
        ("node new --keyring k --listen 192.0.2.1:1 --proxy 192.0.2.2:1", "in a mesh; --proxy"),
        ("node new --keyring k --proxy 192.0.2.2:1 --server-key x", "relay.server_key: not the line"),
    ],
)
def test_a_mistake_of_the_user_is_reported_in_one_line(
    arguments: str,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VEILCAST_NODE", raising=False)
    monkeypatch.setattr("veilcast.net.log.set_up", lambda: None)
    assert main(arguments.split()) != 0
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("address", [None, "203.0.113.7:4000"])
def test_a_new_file_is_one_that_a_node_can_run_with(
    address: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [] if address is None else ["--address", address]
    keyring = 'a "b".keys'
    places = ["--listen", "192.0.2.1:4000", "--peer", "192.0.2.2:1", *named]
    assert main(["node", "new", "--keyring", keyring, *places]) == 0
    out, err = capsys.readouterr()
    config = parse_config(out.encode(), tmp_path / "node.toml")
    assert (config.keyring, config.public_address) == (str(tmp_path / keyring), address or "192.0.2.1:4000")
    assert (config.contacts, config.rate, err) == (("192.0.2.2:1",), 4, "")


def test_a_new_file_for_a_relay_is_one_that_a_node_can_run_with(capsys: pytest.CaptureFixture[str]) -> None:
    line = encode_server_line(ServerKeys.draw(Random(1).randbytes).public())
    assert main(["node", "new", "--keyring", "k", "--proxy", "192.0.2.1:4100", "--server-key", line]) == 0
    config = parse_config(capsys.readouterr().out.encode(), Path("node.toml"))
    assert (config.mode, config.settings.proxies) == ("relay", ("192.0.2.1:4100",))


def test_a_file_without_peers_is_for_the_first_node_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "new", "--keyring", "k", "--listen", "192.0.2.1:4000"]) == 0
    assert "right for the first one only" in capsys.readouterr().err


def test_a_keyring_that_is_not_there_is_reported_before_a_passphrase_is_asked_for(home: Home) -> None:
    (home.directory / "keyring").unlink()
    code, _, err = home.run("node", "run")
    assert (code, err.startswith("veilcast: keyring: there is no")) == (4, True)


def test_a_membership_that_is_over_is_the_first_thing_to_be_warned_of() -> None:
    status = Status(
        mode="mesh",
        profile="hardened",
        members=24,
        cover_share=0.78,
        neighbours=5,
        subscriptions=0,
        outbox=0,
        overdue=0,
        refused=0,
        lapsed=0,
        inbox=0,
        waiting={},
        uptime_s=0.0,
        member_until_us=7,
    )
    assert anonymity_warning(status, 6) is None
    assert "the membership is over" in str(anonymity_warning(status, 7))


def test_options_become_an_interest() -> None:
    def interest(*options: str) -> Conjunction:
        return parse_interest(parse(["sub", *options]))

    assert interest("news") == Label("news")
    assert interest("--range", "temp", "20..25") == Range("temp", 20, 25)
    assert interest("--range", "temp", "-10..5", "news") == All(Label("news"), Range("temp", -10, 5))
    assert interest("news", "--range", "temp", "-1.5..") == All(Label("news"), Range("temp", -1.5, None))
    assert interest("--range", "temp", "-.5..-.25") == Range("temp", -0.5, -0.25)
    assert interest("--range", "temp", "..-1e3") == Range("temp", None, -1000.0)
    price = Range("price", -50, None, low_open=True)
    assert interest("--where", "[class,=,bar],[price,>,-50]").constraints == (Equal("class", "bar"), price)
    several = ("news", "--range", "temp", "-10..5", "--where", "[class,=,bar]", "--where", "[price,>,-50]")
    assert interest(*several) == All(Label("news"), Range("temp", -10, 5), All(Equal("class", "bar"), price))
    with pytest.raises(ConfigError):
        interest()


def test_a_value_is_a_number_if_it_looks_like_one_and_text_in_quotes() -> None:
    assert parse_value("temp=-21.5") == ("temp", -21.5)
    assert parse_value("class=bar") == ("class", "bar")
    assert parse_value("zip='80331'") == ("zip", "80331")
    assert parse_value('zip="80331"') == ("zip", "80331")
    assert parse_value("name=O'Neill") == ("name", "O'Neill")


def test_nothing_in_a_note_can_steer_a_terminal_or_break_a_line() -> None:
    note = Note(b"\x01", Publication((("topic", "t"),), "a\nb\x1b[2J\u202e\u00e9".encode() + b"\xff"))
    assert as_line(note) == "a\\nb\\x1b[2J\\u202e\u00e9\\xff"
    assert "\n" not in as_json(note)


def write_private(path: Path) -> None:
    path.write_text("correct horse\n")
    path.chmod(0o600)


def until_subscribed(home: Home) -> None:
    wait_until(lambda: json.loads(home.run("status", "--json")[1])["subscriptions"])


SUBSCRIBED = "veilcast: subscribed; notes that are published from now on come here\n"
