"""One `tor` process and its directory, from a few options to a control connection and to its end; and private networks.

The directory identifies the process. It contains `torrc`, rewritten at every start; `control` and `cookie`, which allow
their reader to give commands; and `log`. A process that proves to know the cookie is the Tor of this directory. So a
Tor that another process started is ended by a command, never by a process id, which may belong to another process by
now.

A private Tor network on loopback is described by a file that names its directory authorities. A Tor that joins a
private network never talks to the public one.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, LocalError, StorageError, UnreachableError
from veilcast.net.tor_control import TorControl


class VotingSchedule(NamedTuple):
    """When the authorities agree: every `every_s` seconds, after `vote_s` seconds for votes and `spread_s` for
    signatures."""

    every_s: int
    vote_s: int
    spread_s: int


class PrivateNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The authorities of a private network, each in the form of Tor's option DirAuthority; every Tor of the network
    needs them."""

    authorities: tuple[str, ...]

    def __post_init__(self) -> None:
        for line in self.authorities:
            match = AUTHORITY.fullmatch(line)
            if match is None or not ipaddress.IPv4Address(match["host"]).is_loopback:
                raise ValueError("authorities: each is a directory authority on loopback")
        if not self.authorities:
            raise ValueError("authorities: there are none")

    def options(self) -> list[str]:
        """Return the torrc lines of every Tor of this network."""
        return [
            "TestingTorNetwork 1",
            *(f"DirAuthority {line}" for line in self.authorities),
            f"V3AuthVotingInterval {VOTING.every_s}",
            f"V3AuthVoteDelay {VOTING.vote_s}",
            f"V3AuthDistDelay {VOTING.spread_s}",
            # On loopback a circuit is built at once, and the timeout that Tor learns from that is too short when the
            # computer is busy: Tor would abandon circuits under way and build others, without end.
            "LearnCircuitBuildTimeout 0",
            f"CircuitBuildTimeout {CIRCUIT_S}",
        ]


def read_network(path: Path) -> PrivateNetwork:
    try:
        return _DECODER.decode(path.read_bytes(), path)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


_DECODER: Final = JsonDecoder(PrivateNetwork, ConfigError, "is no file of a private Tor network")
AUTHORITY: Final = re.compile(
    r"[A-Za-z0-9]{1,19} orport=[0-9]{1,5} no-v2 v3ident=[0-9A-F]{40}"
    r" (?P<host>(?:[0-9]{1,3}\.){3}[0-9]{1,3}):[0-9]{1,5} [0-9A-F]{40}",
    re.ASCII,
)
VOTING: Final = VotingSchedule(20, 4, 4)
CIRCUIT_S: Final = 20
"""Seconds; an overloaded computer builds a circuit within this time."""


def find_program(program: str = "tor") -> str:
    """Return the path of a program. Raises `LocalError`, with what to install, if it is missing."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/bin:/opt/homebrew/bin")
    if found is None:
        raise LocalError(f"there is no `{program}` here; install it: apt install tor, or brew install tor")
    return found


class TorProcess:
    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "log"
        self._control, self._cookie = self.directory / "control", self.directory / "cookie"
        self._child: subprocess.Popen[bytes] | None = None

    def read_torrc(self) -> list[str]:
        """Return the lines of the last torrc; empty if this Tor was never started."""
        try:
            return (self.directory / "torrc").read_text().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error.strerror}") from error

    def remove_data(self) -> None:
        """Remove all that this Tor has learned. It must not run."""
        self._must_be_down()
        shutil.rmtree(self.directory / "data", ignore_errors=True)

    def start(self, options: Sequence[str]) -> None:
        """Start with these lines in torrc. The process listens on loopback, and goes on when this process ends."""
        place = self.directory
        find_program()
        self._must_be_down()
        own = [
            f"DataDirectory {quote_path(place / 'data')}",
            "ControlPort 127.0.0.1:auto",
            f"ControlPortWriteToFile {quote_path(self._control)}",
            "CookieAuthentication 1",
            f"CookieAuthFile {quote_path(self._cookie)}",
            "Log notice stdout",
        ]
        try:
            (place / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
            place.chmod(0o700)
            (place / "torrc").write_text("\n".join([*own, *options, ""]))
        except OSError as error:
            raise StorageError(f"cannot write {place}: {error.strerror}") from error
        self.start_again()

    def start_again(self) -> None:
        """Start with the last torrc."""
        tor, place = find_program(), self.directory
        self._must_be_down()
        try:
            for stale in (self._control, self._cookie):
                stale.unlink(missing_ok=True)
            log = self.log.open("wb")
        except OSError as error:
            raise StorageError(f"cannot write {place}: {error.strerror}") from error
        with log:
            self._child = subprocess.Popen(  # noqa: S603 - the program we looked for
                [tor, "-f", str(place / "torrc"), "--defaults-torrc", "/dev/null"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the starting process, which ends Tor in order.
                start_new_session=True,
            )

    def control(self, within_s: float = 0.0) -> TorControl:
        """Return a control connection; waits up to `within_s` seconds while Tor is starting."""
        deadline = time.monotonic() + within_s
        while True:
            # It writes each whole or not at all, when it listens; either may be the first, and both go when it ends.
            try:
                where = self._control.read_text().strip().removeprefix("PORT=") if self._cookie.exists() else ""
            except OSError:
                where = ""
            if where:
                return TorControl(where, self._cookie)
            if self._child is not None and self._child.poll() is not None:
                raise LocalError(f"tor ended at once: {self.last_warning()}")
            if time.monotonic() > deadline:
                raise UnreachableError(f"no tor runs in {self.directory}")
            time.sleep(LOOK_S)

    def last_warning(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        # Tor logs the cause as a warning, and then an error without it.
        warnings = [line.partition("[warn] ")[2] for line in lines if "[warn] " in line]
        return warnings[-1] if warnings else f"{self.log} may have a reason"

    def detach(self) -> None:
        """Let the process go on when this process ends; `halt` ends it."""
        if self._child is not None:
            self._child.returncode = 0  # Or it would be reported as forgotten.
            self._child = None

    def end(self) -> None:
        """End the process if this process started it."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None

    def halt(self) -> bool:
        """End the process, whatever process started it. Returns True if there was one, after it has ended."""
        try:
            control = self.control()
        except UnreachableError:
            return False
        with control:
            pid = int(control.value("process/pid"))
            control.ask("SIGNAL HALT")
            if not _has_ended(control):
                # Its threads may wait for one another for ever. Its connection stands, so the number is still its own.
                os.kill(pid, signal.SIGKILL)
                _has_ended(control)
        return True

    def _must_be_down(self) -> None:
        if self._answers():
            raise StorageError(f"another tor runs in {self.directory}; end the process that started it")

    def _answers(self) -> bool:
        try:
            self.control().close()
        except LocalError:
            return False
        return True


def _has_ended(control: TorControl) -> bool:
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        try:
            control.drop_events()
        except LocalError:
            return True
        time.sleep(LOOK_S)
    return False


def quote_path(path: Path) -> str:
    """Quote a path for torrc."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


LOOK_S: Final = 0.05
END_S: Final = 3.0
