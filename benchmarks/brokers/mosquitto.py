"""mosquitto as a broker, with members of our own making, or with its own, which are written in C."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from brokers.broker import Broker, Stage, free_ports
from brokers.members import Joined
from brokers.mqtt import MqttMember, drive
from veilcast.machine import Address


def is_here() -> bool:
    """Broker and clients; Debian's broker is where only root looks."""
    return _BROKER is not None and None not in map(shutil.which, ("mosquitto_pub", "mosquitto_sub"))


@contextmanager
def mosquitto(directory: Path, stage: Stage) -> Iterator[tuple[Broker, int]]:
    """A running mosquitto and its port. In the clear, without limits to what may wait, and it keeps what does in its
    own way: now and then."""
    (port,) = free_ports(1)
    file = directory / "mosquitto.conf"
    file.write_text(_SETTINGS.format(port=port, directory=directory, user=getpass.getuser()))
    assert _BROKER is not None
    with subprocess.Popen([_BROKER, "-c", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(port)
        try:
            others = [f"other/{number}" for number in range(stage.others)]
            yield Broker({"broker": process.pid}, lambda number: _join(port, number), others), port
        finally:
            process.terminate()


class InC(NamedTuple):
    """Seconds in all, and of processor time."""

    seconds: float
    publisher_s: float
    readers_s: float


def carry_in_c(port: int, stage: Stage) -> InC:
    """All publications by `mosquitto_pub` on the first label, to one `mosquitto_sub` for each reader."""
    at = ["-h", "127.0.0.1", "-p", str(port), "-q", "1"]
    wanted = [word for label in stage.labels for word in ("-t", label)]
    subs = [
        subprocess.Popen(["mosquitto_sub", *at, *wanted, "-C", str(stage.publications)], stdout=subprocess.DEVNULL)
        for _ in range(stage.readers)
    ]
    time.sleep(1)  # They do not say when they are ready.
    lines = (b"." * 128 + b"\n") * stage.publications
    began = time.perf_counter()
    pub = subprocess.Popen(["mosquitto_pub", *at, "-t", stage.labels[0], "-l"], stdin=subprocess.PIPE)
    assert pub.stdin is not None
    pub.stdin.write(lines)
    pub.stdin.close()
    publisher_s, *readers_s = [_reap(each) for each in (pub, *subs)]
    return InC(time.perf_counter() - began, publisher_s, sum(readers_s))


def _reap(process: subprocess.Popen[bytes]) -> float:
    """Wait for it; its processor time."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("a member in C has failed")
    return usage.ru_utime + usage.ru_stime


def _join(port: int, number: int) -> Joined:
    return Joined(MqttMember(f"member-{number}", Address(f"127.0.0.1:{port}")), drive)


def wait_for(port: int) -> None:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise SystemExit("the broker does not start")


_BROKER = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
_SETTINGS = """listener {port} 127.0.0.1
user {user}
allow_anonymous true
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
persistence true
persistence_location {directory}/
"""
