"""A broker as a benchmark sees it, and its load."""

from __future__ import annotations

import socket
from typing import NamedTuple

from brokers.members import Join


class Stage(NamedTuple):
    """`readers` want every one of `size` labels; the other subscriptions want what nobody publishes."""

    subscriptions: int
    readers: int
    publications: int
    size: int = 25

    @property
    def labels(self) -> list[str]:
        return [f"label/{number}" for number in range(self.size)]

    @property
    def others(self) -> int:
        return self.subscriptions - self.readers * self.size


class Broker(NamedTuple):
    """One that runs: the processes it consists of, how to be its member, and the labels that a reader is to want
    besides, so that there are as many subscriptions as the stage says."""

    processes: dict[str, int]
    join: Join
    others: list[str]


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports
