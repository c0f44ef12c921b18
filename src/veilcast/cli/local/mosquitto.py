"""An MQTT broker on this computer: mosquitto with a configuration file. It represents any MQTT broker.

Mosquitto writes sessions and their queues to its disk from time to time, as brokers do: if it is killed, it loses what
it acknowledged since the last write.
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from veilcast.authority.secret_file import replace_file
from veilcast.cli.files import make_directory
from veilcast.errors import LocalError


def find_mosquitto() -> str:
    """Return the path of the program. Debian installs it where only root's PATH leads."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise LocalError("mosquitto is not installed; install it (apt install mosquitto), or use a broker that runs")
    return found


class Mosquitto:
    """One broker at an address of this computer, with its files in a directory. It can be restarted, and has its stored
    sessions then."""

    def __init__(self, directory: Path, address: str, more: str = "") -> None:
        """`more` has further lines for its configuration file."""
        self._directory, self._address, self._more = directory, address, more
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, within_s: float = 60.0) -> None:
        """Return when it answers."""
        host, _, port = self._address.rpartition(":")
        make_directory(self._directory)
        settings = self._directory / "mosquitto.conf"
        text = _SETTINGS.format(port=port, host=host, directory=self._directory.absolute(), user=getpass.getuser())
        replace_file(settings, (text + self._more).encode())
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own file of settings
                [*_with_us(), find_mosquitto(), "-c", str(settings)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + within_s
        while not self._answers(host, int(port)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                said = (self._directory / "log").read_text(errors="replace").splitlines()
                raise LocalError(f"mosquitto does not start: {said[-1] if said else 'it does not say why'}")
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        """End it as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def _answers(self, host: str, port: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError:
            return False
        return True


def _with_us() -> list[str]:
    """Return the command that ends the broker when this process ends, where the system has it."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "TERM"]


_SETTINGS: Final = """\
listener {port} {host}
user {user}
allow_anonymous true
set_tcp_nodelay true
persistence true
persistence_location {directory}/
autosave_interval 2
max_inflight_messages 0
max_queued_messages 100000
"""
_LOOK_S: Final = 0.02
_END_S: Final = 5.0
