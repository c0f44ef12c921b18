"""mosquitto as a broker, with members of our own making, or with its own, which are written in C."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from brokers.members import Joined
from brokers.mqtt import MqttDriver, MqttMember
from brokers.relay import Broker, free_ports


def is_here() -> bool:
    """Broker and clients; Debian's broker is where only root looks."""
    return _BROKER is not None and None not in map(shutil.which, ("mosquitto_pub", "mosquitto_sub"))


class Mosquitto(NamedTuple):
    broker: Broker
    port: int


@contextmanager
def mosquitto(directory: Path) -> Iterator[Mosquitto]:
    """In the clear, with no limits to what may wait, and with its own way to keep what does: now and then."""
    (port,) = free_ports(1)
    file = directory / "mosquitto.conf"
    file.write_text(_SETTINGS.format(port=port, directory=directory, user=getpass.getuser()))
    assert _BROKER is not None
    with subprocess.Popen([_BROKER, "-c", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _wait_for(port)
        try:
            yield Mosquitto(Broker({"broker": process.pid}, lambda number: _join(port, number)), port)
        finally:
            process.terminate()


class InC(NamedTuple):
    """Seconds in all, and of processor time."""

    seconds: float
    publisher_s: float
    readers_s: float


def carry_in_c(port: int, labels: list[str], readers: int, count: int) -> InC:
    """So many publications by `mosquitto_pub` on the first label, to so many of `mosquitto_sub` that want all labels."""
    at = ["-h", "127.0.0.1", "-p", str(port), "-q", "1"]
    wanted = [word for label in labels for word in ("-t", label)]
    subs = [
        subprocess.Popen(["mosquitto_sub", *at, *wanted, "-C", str(count), "-i", f"reader-{number}"], **_SILENT)
        for number in range(readers)
    ]
    time.sleep(1)  # They do not say when they are ready.
    lines = (b"." * 128 + b"\n") * count
    began = time.perf_counter()
    pub = subprocess.Popen(["mosquitto_pub", *at, "-t", labels[0], "-l"], stdin=subprocess.PIPE, **_SILENT)
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
        raise SystemExit(f"{process.args} failed")  # type: ignore[str-bytes-safe]
    return usage.ru_utime + usage.ru_stime


def _join(port: int, number: int) -> Joined:
    return Joined(MqttMember(f"member-{number}"), lambda machine, act_on: MqttDriver(machine, act_on, port))


def _wait_for(port: int) -> None:
    import socket

    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise SystemExit("mosquitto does not start")


_BROKER = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
_SILENT = {"stdout": subprocess.DEVNULL}
_SETTINGS = """listener {port} 127.0.0.1
user {user}
allow_anonymous true
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
persistence true
persistence_location {directory}/
"""
