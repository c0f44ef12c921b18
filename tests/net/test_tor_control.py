from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from veilcast.errors import ConfigError, LocalError, StorageError, UnreachableError
from veilcast.net import tor_control
from veilcast.net.tor_control import TorControl

COOKIE, NONCE = bytes(range(32)), bytes(32)
Answers = Callable[[str], str]


@contextmanager
def port(answers: Answers) -> Iterator[str]:
    """Listens as a control port, and answers one connection, command by command; no answer ends it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as lines:
                for line in lines:
                    answer = answers(line.decode().strip())
                    if not answer:
                        return
                    lines.write(answer.encode())
                    lines.flush()

        thread = threading.Thread(target=serve)
        thread.start()
        host, number = server.getsockname()
        try:
            yield f"{host}:{number}"
        finally:
            thread.join()


class ScriptedTor:
    """Answers as a real Tor does, with a cookie, and then as the test says."""

    def __init__(self, path: Path, *answers: str, cookie: bytes = COOKIE) -> None:
        self.path, self.answers, self.cookie = path, list(answers), cookie
        self.asked: list[str] = []

    def __call__(self, command: str) -> str:
        self.asked.append(command)
        verb, *words = command.split()
        if verb == "PROTOCOLINFO":
            methods = f'AUTH METHODS=COOKIE,SAFECOOKIE COOKIEFILE="{self.path}"'
            return f'250-PROTOCOLINFO 1\r\n250-{methods}\r\n250-VERSION Tor="0.4.9.11"\r\n250 OK\r\n'
        if verb == "AUTHCHALLENGE":
            self.talk = self.cookie + bytes.fromhex(words[1]) + NONCE
            proof = hmac.digest(tor_control._SERVER, self.talk, "sha256").hex().upper()
            return f"250 AUTHCHALLENGE SERVERHASH={proof} SERVERNONCE={NONCE.hex()}\r\n"
        if verb == "AUTHENTICATE":
            right = hmac.digest(tor_control._CONTROLLER, self.talk, "sha256").hex()
            return "250 OK\r\n" if words == [right] else "515 Authentication failed\r\n"
        return self.answers.pop(0) if self.answers else ""


@pytest.fixture
def cookie(tmp_path: Path) -> Path:
    path = tmp_path / "cookie"
    path.write_bytes(COOKIE)
    return path


def test_both_sides_prove_to_know_the_cookie_and_neither_says_it(cookie: Path) -> None:
    tor = ScriptedTor(cookie, "250-version=0.4.9\r\n250 OK\r\n")
    with port(tor) as where, TorControl(where) as control:
        assert control.value("version") == "0.4.9"
    assert COOKIE.hex() not in " ".join(tor.asked).lower()


def test_a_process_without_the_cookie_gets_no_proof_from_us(cookie: Path) -> None:
    tor = ScriptedTor(cookie, cookie=bytes(32))
    with port(tor) as where, pytest.raises(LocalError, match="not the Tor whose cookie"):
        TorControl(where)
    assert not [command for command in tor.asked if command.startswith("AUTHENTICATE")]


def test_answers_of_many_lines_and_data_are_read_whole_and_events_kept_apart(cookie: Path) -> None:
    many = "650 HS_DESC UPLOADED abc\r\n650-A\r\n650 B\r\n250+ns/all=\r\nr one\r\n..two\r\n.\r\n250 OK\r\n"
    with port(ScriptedTor(cookie, many)) as where, TorControl(where) as control:
        assert control.ask("GETINFO ns/all") == ["ns/all=\nr one\n.two", "OK"]
        assert list(control.events) == ["HS_DESC UPLOADED abc", "A\nB"]
        assert control.await_event(0.0) == "HS_DESC UPLOADED abc"


def test_events_are_waited_for_so_long_and_no_longer(cookie: Path) -> None:
    with port(ScriptedTor(cookie)) as where, TorControl(where) as control, pytest.raises(TimeoutError):
        control.await_event(0.001)


def test_only_so_many_events_are_kept(cookie: Path) -> None:
    flood = "".join(f"650 EVENT {number}\r\n" for number in range(tor_control.EVENTS + 5)) + "250 OK\r\n"
    with port(ScriptedTor(cookie, flood)) as where, TorControl(where) as control:
        control.ask("SETEVENTS")
        assert len(control.events) == tor_control.EVENTS
        assert control.events[0] == "EVENT 5"


@pytest.mark.parametrize("answer", ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400\r\n", "25\r\n", "x" * (1 << 20) + "xx"])
def test_a_process_that_is_no_tor_is_recognized(answer: str) -> None:
    with port(lambda _: answer) as where, pytest.raises(LocalError, match="no control port"):
        TorControl(where)


def test_a_refusal_has_tor_s_reason_and_nothing_of_the_command(cookie: Path) -> None:
    with port(ScriptedTor(cookie, "512 Bad\x1b[31m arguments\r\n")) as where, TorControl(where) as control:
        with pytest.raises(LocalError) as refused:
            control.ask("ADD_ONION ED25519-V3:secret")
        assert str(refused.value) == "Tor refuses: 512 Bad [31m arguments"


def test_a_command_is_one_line(cookie: Path) -> None:
    with port(ScriptedTor(cookie)) as where, TorControl(where) as control, pytest.raises(LocalError, match="one line"):
        control.ask("GETINFO version\r\nSIGNAL HALT")


def test_the_end_of_tor_is_noticed_by_every_call(cookie: Path) -> None:
    uses: list[Callable[[TorControl], object]] = [
        lambda control: control.ask("GETINFO version"),
        lambda control: control.await_event(10.0),
    ]
    for use in uses:
        with port(ScriptedTor(cookie)) as where, TorControl(where) as control:
            control._socket.shutdown(socket.SHUT_WR)
            with pytest.raises(LocalError, match="has ended"):
                use(control)
            with pytest.raises(LocalError, match="has ended"):
                control.await_event(10.0)  # Who asks may fail before the other side has gone.
            with pytest.raises(LocalError, match="has ended"):
                control.drop_events()


def test_dropping_events_reads_what_has_arrived_and_never_waits(cookie: Path) -> None:
    many = "650 EVENT\r\n" * tor_control.READ
    with (
        port(ScriptedTor(cookie, f"250 OK\r\n{many}650 EV", "ENT\r\n250 version=1\r\n")) as where,
        TorControl(where) as control,
    ):
        control.ask("SETEVENTS")
        control.drop_events()
        assert len(control._buffer) < tor_control.READ
        assert control.value("version") == "1"


def open_tor(path: Path) -> None:
    """Connect to a Tor without any lock, at a socket of the file system."""
    answers = iter(["250-AUTH METHODS=NULL\r\n250 OK\r\n", "250 OK\r\n"])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as lines, contextlib.suppress(OSError):
                for _ in lines:
                    lines.write(next(answers).encode())
                    lines.flush()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            TorControl(f"unix:{path}").close()
        finally:
            thread.join()


def test_a_tor_without_any_lock_is_spoken_to_at_a_socket_of_ours(tmp_path: Path) -> None:
    open_tor(tmp_path / "control")


def test_a_tor_without_any_lock_gets_no_command_where_everybody_can_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may hold the private key of an onion service."""
    asked = []

    def answer(command: str) -> str:
        asked.append(command)
        return "250-AUTH METHODS=NULL\r\n250 OK\r\n"

    with port(answer) as where, pytest.raises(ConfigError, match="CookieAuthentication"):
        TorControl(where)
    assert asked == ["PROTOCOLINFO 1"]
    others(monkeypatch)
    with pytest.raises(ConfigError, match="another user"):
        open_tor(tmp_path / "control")


def others(patch: pytest.MonkeyPatch) -> None:
    """Make all files appear to belong to another user of the computer."""
    patch.setattr(tor_control, "FIRST_USER", 0)
    patch.setattr(os, "geteuid", lambda: 1 << 30)


def test_another_user_that_names_a_cookie_of_its_own_gets_no_command(
    cookie: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others(monkeypatch)
    tor = ScriptedTor(cookie)
    with port(tor) as where, pytest.raises(ConfigError, match="another user"):
        TorControl(where)
    assert tor.asked == ["PROTOCOLINFO 1"]
    with port(ScriptedTor(cookie)) as where:
        TorControl(where, cookie).close()


@pytest.mark.parametrize("kind", ["endless", "pipe", "large"])
def test_a_cookie_file_that_never_ends_is_not_read(tmp_path: Path, kind: str) -> None:
    """The process that listens at the port names the file."""
    path = Path("/dev/zero") if kind == "endless" else tmp_path / "cookie"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    tor = ScriptedTor(path)
    with port(tor) as where, pytest.raises(StorageError, match="no cookie of Tor"):
        TorControl(where)
    assert tor.asked == ["PROTOCOLINFO 1"]


def test_a_password_is_not_asked_for(tmp_path: Path) -> None:
    with (
        port(lambda _: "250-AUTH METHODS=HASHEDPASSWORD\r\n250 OK\r\n") as where,
        pytest.raises(ConfigError, match="CookieAuthentication"),
    ):
        TorControl(where)


@pytest.mark.parametrize("content", [None, b"short"])
def test_a_cookie_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cookie"
    if content is not None:
        path.write_bytes(content)
    with port(ScriptedTor(path)) as where, pytest.raises(StorageError, match="cookie"):
        TorControl(where)


@pytest.mark.parametrize("where", ["127.0.0.1:1", "unix:/nowhere/control"])
def test_a_port_without_a_listener_is_reported(where: str) -> None:
    with pytest.raises(UnreachableError, match="no Tor answers at"):
        TorControl(where)


@contextmanager
def endless(piece: str) -> Iterator[str]:
    """Listens as a control port, and answers the first command with this piece again and again, until we leave."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sent: list[int] = []

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                while True:
                    sent.append(connection.send(piece.encode()))

        thread = threading.Thread(target=serve)
        thread.start()
        host, number = server.getsockname()
        try:
            yield f"{host}:{number}"
        finally:
            thread.join()
        assert sum(sent) < 16 * tor_control.ANSWER_BYTES, "system buffers included"


@pytest.mark.parametrize(
    "piece",
    [
        "250-one more line\r\n" * 50,
        "250-\r\n" * 500,
        "250+data=\r\n" + "a line of data\r\n" * 100,
        "650 EVENT\r\n" * 100,
        "650-" + "x" * 8000 + "\r\n",
        "x" * 4096,
    ],
    ids=["lines", "empty lines", "data", "events", "long events", "no line"],
)
def test_an_answer_without_end_is_given_up(piece: str) -> None:
    with endless(piece) as where, pytest.raises(LocalError, match="no control port"):
        TorControl(where)


def test_an_answer_that_drips_has_one_time_limit_for_all_of_it(monkeypatch: pytest.MonkeyPatch, cookie: Path) -> None:
    """A second passes between any two looks at the clock, and every line comes at once."""
    seconds = itertools.count()
    monkeypatch.setattr(tor_control, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    drip = "250-line\r\n" * 100 + "250 OK\r\n"
    with port(lambda _: drip) as where, pytest.raises(LocalError, match="does not answer"):
        TorControl(where)


def test_long_events_are_cut(cookie: Path) -> None:
    flood = ("650 EVENT " + "x" * 100_000 + "\r\n") * 5 + "250 OK\r\n"
    with port(ScriptedTor(cookie, flood)) as where, TorControl(where) as control:
        control.ask("SETEVENTS")
        assert [len(event) for event in control.events] == [tor_control.EVENT_MAX] * 5


def test_unawaited_events_are_bounded_too(cookie: Path) -> None:
    """A line without an end, unasked: it is read in pieces, and then this is no Tor."""
    ours, theirs = socket.socketpair()
    with port(ScriptedTor(cookie)) as where, TorControl(where) as control, theirs:
        control._socket.close()
        control._socket = ours
        theirs.setblocking(False)

        def pump() -> None:
            for _ in range(4 * tor_control.ANSWER_BYTES // tor_control.READ):
                with contextlib.suppress(BlockingIOError):
                    theirs.send(b"x" * 65536)
                control.drop_events()

        with pytest.raises(LocalError):
            pump()
        assert len(control._buffer) <= tor_control.ANSWER_BYTES + tor_control.READ
