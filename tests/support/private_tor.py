"""One private Tor network for all tests that need one, whichever worker they run in.

The first to ask for it starts it, and others wait meanwhile. It ends when the tests have: the process that started the
workers ends it, and if that dies the network notices by itself.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from support.waits import HANG_S
from veilcast.errors import LocalError
from veilcast.net import tor_testnet
from veilcast.net.tor_process import find_program


def reason_to_skip() -> str | None:
    """Why there can be none."""
    try:
        find_program("tor")
        find_program("tor-gencert")
    except LocalError as error:
        return str(error)
    return None


def shared_network(base: Path) -> Path:
    """The file that names it, of one that is up. `base` is the temporary directory of all workers."""
    home = base / "tor"
    home.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not tor_testnet.network_file(home).exists():
            worker = "PYTEST_XDIST_WORKER" in os.environ
            # With four relays, one that is killed would be on the way of every other circuit.
            tor_testnet.start_network(home, relays=8, owner=os.getppid() if worker else os.getpid(), within_s=HANG_S)
    finally:
        os.close(descriptor)
    return tor_testnet.network_file(home)


def end_network(base: Path) -> None:
    if tor_testnet.network_file(base / "tor").exists():
        tor_testnet.stop_network(base / "tor")
