"""The TCP connections of this process, as the system knows them (Linux)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Connection(NamedTuple):
    own: str
    other: str


def open_connections() -> list[Connection]:
    """All that are up and ours, by the addresses of both ends."""
    ours = {os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_there(number)}
    found = []
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        _, own, other, state, *rest = line.split()
        if state == _ESTABLISHED and f"socket:[{rest[5]}]" in ours:
            found.append(Connection(_address(own), _address(other)))
    return found


def internal_connections() -> list[Connection]:
    """Those of which we have both ends: one node of this process has called another, and nothing is between them."""
    found = set(open_connections())
    return [each for each in found if Connection(each.other, each.own) in found]


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(host))) + f":{int(port, 16)}"


def _is_there(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


_ESTABLISHED = "01"
