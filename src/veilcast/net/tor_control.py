"""The control port of a Tor: one command after another, each with an answer, and events in between.

A line of an answer is a code of three digits and "-", "+" or " ", for: more lines follow, data follows, last line. A
process that can read the cookie file may give commands. With SAFECOOKIE both sides prove that they know the cookie, and
neither sends it: so a stranger that listens at Tor's old port does not learn the cookie, and the process that answers
is the Tor whose file we read. (Tor's control-spec, sections 2 and 3.24.)

If the configuration names no cookie file, the answering process names it. So the file must belong to us or to the
system: another user of this computer could name a file of its own, and would receive the keys of our onion services.
For the same reason a Tor without any lock is used only at a socket that belongs to us or to the system.

Without asyncio. An answer is limited in lines, in bytes and in total time, including the events between its lines: the
listening process may be no Tor, and has proved nothing before the end of SAFECOOKIE.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import stat
import sys
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Final

from veilcast.errors import ConfigError, LocalError, StorageError, UnreachableError
from veilcast.net.address import parse_address


class TorControl:
    """A control connection on which we may give commands."""

    def __init__(self, where: str, cookie: Path | None = None) -> None:
        """`where` is "127.0.0.1:9051" or "unix:/run/tor/control". Without a `cookie`, Tor says where its cookie file
        is."""
        self.events: deque[str] = deque(maxlen=EVENTS)
        """Events, the oldest first, without their codes."""
        self._buffer = bytearray()
        self._budget = _Budget(0.0)
        self._socket = _connect(where)
        try:
            self._log_in(cookie)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TorControl:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, command: str) -> list[str]:
        """Give a command; returns the lines of the answer without their codes. Raises `LocalError` if Tor refuses."""
        if "\r" in command or "\n" in command:
            raise LocalError("a command for Tor is one line")
        try:
            self._socket.settimeout(ANSWER_S)
            self._socket.sendall(command.encode("ascii") + b"\r\n")
            return self._answer(ANSWER_S)
        except TimeoutError as error:
            raise LocalError("Tor does not answer") from error
        except OSError as error:
            raise LocalError(GONE) from error

    def value(self, name: str) -> str:
        """Return a value of GETINFO."""
        return self.ask(f"GETINFO {name}")[0].removeprefix(f"{name}=")

    def await_event(self, within_s: float) -> str:
        """Return the next event. Raises `TimeoutError` if none comes."""
        deadline = time.monotonic() + within_s
        while not self.events:
            try:
                self._answer(max(0.001, deadline - time.monotonic()), events_too=True)
            except ConnectionError as error:
                raise LocalError(GONE) from error
        return self.events.popleft()

    def drop_events(self) -> None:
        """Read the events that have arrived, and drop them. Raises `LocalError` if the connection has ended."""
        self._socket.setblocking(False)  # MSG_DONTWAIT would not keep Python from waiting until the timeout.
        try:
            for _ in range(LOOKS):
                data = self._socket.recv(READ)
                self._buffer += data
                del self._buffer[: self._buffer.rfind(b"\n") + 1]
                if not data or len(self._buffer) > ANSWER_BYTES:
                    break
            else:
                return  # There may be more, and other work to do before it.
        except BlockingIOError:
            return
        except OSError:
            pass
        raise LocalError(GONE)

    # --- lines ------------------------------------------------------------------------------------------------

    def _answer(self, within_s: float, *, events_too: bool = False) -> list[str]:
        """Read up to the last line of an answer; with `events_too`, an event ends it, too. Raises `TimeoutError` if
        that takes longer than `within_s`."""
        self._budget = _Budget(within_s)
        lines: list[str] = []
        while True:
            code, more, text = self._line()
            if more == "+":
                parts = [text]
                while (part := self._text()) != ".":
                    parts.append(part.removeprefix("."))
                text = "\n".join(parts)
            lines.append(text)
            if more != " ":
                continue
            if not code.startswith("6"):
                break
            self.events.append("\n".join(lines)[:EVENT_MAX])
            if events_too:
                return []
            lines.clear()
        if not code.startswith("2"):
            # The command is not repeated here: it may contain a key.
            raise LocalError(f"Tor refuses: {code} {_printable(text)}")
        return lines

    def _line(self) -> tuple[str, str, str]:
        match = LINE.fullmatch(self._text())
        if match is None:
            raise LocalError(NO_TOR)
        return match["code"], match["more"], match["text"]

    def _text(self) -> str:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > ANSWER_BYTES:
                raise LocalError(NO_TOR)
            self._socket.settimeout(self._budget.seconds_left())
            data = self._socket.recv(READ)
            if not data:
                raise ConnectionResetError
            self._buffer += data
        line = self._buffer[:end].decode("ascii", "replace")
        del self._buffer[: end + 2]
        self._budget.charge(end + 2)
        return line

    # --- authentication----------------------------------------------------------------------------------------

    def _log_in(self, cookie: Path | None) -> None:
        said = "\n".join(self.ask("PROTOCOLINFO 1"))
        methods = re.search(r"^AUTH METHODS=([A-Z,]+)", said, re.MULTILINE)
        known = [] if methods is None else methods[1].split(",")
        if "NULL" in known and cookie is None and self._socket.family == socket.AF_UNIX:
            self.ask("AUTHENTICATE")
        elif "SAFECOOKIE" in known:
            named = re.search(r'COOKIEFILE="((?:[^"\\]|\\.)*)"', said)
            path = cookie or Path(re.sub(r"\\(.)", r"\1", named[1]) if named else "")
            self._prove(_read_cookie(path, configured=cookie is not None))
        else:
            raise ConfigError("nothing shows that this is our Tor; set CookieAuthentication 1 in its torrc")

    def _prove(self, cookie: bytes) -> None:
        ours = secrets.token_bytes(32)
        said = self.ask(f"AUTHCHALLENGE SAFECOOKIE {ours.hex()}")[0]
        match = re.fullmatch(r"AUTHCHALLENGE SERVERHASH=([0-9A-F]{64}) SERVERNONCE=([0-9A-F]{64})", said)
        if match is None:
            raise LocalError(NO_TOR)
        talk = cookie + ours + bytes.fromhex(match[2])
        if not hmac.compare_digest(hmac.digest(_SERVER, talk, "sha256"), bytes.fromhex(match[1])):
            raise LocalError("what listens there is not the Tor whose cookie we have")
        self.ask(f"AUTHENTICATE {hmac.digest(_CONTROLLER, talk, 'sha256').hex()}")


class _Budget:
    """The rest of the limits of one answer."""

    def __init__(self, within_s: float) -> None:
        self._deadline = time.monotonic() + within_s
        self._lines, self._bytes = ANSWER_LINES, ANSWER_BYTES

    def seconds_left(self) -> float:
        """Return the seconds that are left. Raises `TimeoutError` if the time is over."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def charge(self, size: int) -> None:
        """Count one line of `size` bytes. Raises if the answer is too large or too late."""
        self._lines -= 1
        self._bytes -= size
        if self._lines < 0 or self._bytes < 0:
            raise LocalError(NO_TOR)
        self.seconds_left()


def _connect(where: str) -> socket.socket:
    if where.startswith("unix:"):
        made, address = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), where.removeprefix("unix:")
    else:
        family, address = parse_address(where)  # type: ignore[assignment]
        made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(ANSWER_S)
    try:
        made.connect(address)
        if where.startswith("unix:"):
            _check_owner(os.stat(where.removeprefix("unix:")), where, "tor.control")
    except OSError as error:
        made.close()
        raise UnreachableError(f"no Tor answers at {where}: {error.strerror or error}") from error
    except ConfigError:
        made.close()
        raise
    return made


def _read_cookie(path: Path, *, configured: bool) -> bytes:
    """Read a cookie file. `configured` is True if our configuration names the file. Otherwise a stranger may have named
    it, so the file can be a pipe, or endless."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            cookie = file.read(COOKIE + 1) if stat.S_ISREG(status.st_mode) else b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise StorageError(
            f"cannot read Tor's cookie {path}: {reason}; on Debian, members of the group debian-tor may read it"
        ) from error
    if not configured:
        _check_owner(status, path, "tor.cookie")
    if len(cookie) != COOKIE:
        raise StorageError(f"{path} is no cookie of Tor")
    return cookie


def _check_owner(status: os.stat_result, path: object, key: str) -> None:
    """Raise `ConfigError` if the file belongs to another user of this computer. System accounts have low ids."""
    if status.st_uid >= FIRST_USER and status.st_uid != os.geteuid():
        raise ConfigError(f"{key}: {path} belongs to another user of this machine; is it Tor that answers there?")


def _printable(text: str) -> str:
    return "".join(part if part.isprintable() else " " for part in text)[:200]


LINE: Final = re.compile(r"(?P<code>[0-9]{3})(?P<more>[-+ ])(?P<text>.*)", re.ASCII)
READ: Final = 4096
COOKIE: Final = 32
FIRST_USER: Final = 500 if sys.platform == "darwin" else 1000
"""The lowest id of the accounts of people."""
ANSWER_S: Final = 60.0
"""Seconds for a whole answer."""
ANSWER_BYTES: Final = 1 << 20
ANSWER_LINES: Final = 1 << 14
EVENT_MAX: Final = 4096
"""Characters that are stored of an event; those that we ask for are a tenth as long."""
LOOKS: Final = 64
"""Reads of unawaited events in one call."""
EVENTS: Final = 1024
GONE: Final = "Tor has ended, or does not listen to us any longer"
NO_TOR: Final = "what listens there is no control port of Tor"
_SERVER: Final = b"Tor safe cookie authentication server-to-controller hash"
_CONTROLLER: Final = b"Tor safe cookie authentication controller-to-server hash"
