"""A network in user space that loses datagrams between nodes.

Each node has a face, the address that others know; the network listens there, and the node itself listens at home. A
datagram to a face is lost, or forwarded from the sender's face to the other's home. So every node sees all others under
the addresses that it knows, and nothing bypasses the network.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from random import Random

from veilcast.machine import Address


def home_address(face: Address) -> str:
    """The address where the node with this face listens."""
    first, _, rest = face.removeprefix("127.").partition(".")
    return f"127.{100 + int(first)}.{rest}"


class LossyNetwork:
    """`loss` is the share of datagrams that is lost, each way."""

    def __init__(self, faces: Iterable[Address], loss: float, rng: Random) -> None:
        self._faces, self._loss, self._rng = tuple(faces), loss, rng
        self._sockets: dict[socket.socket, tuple[str, int]] = {}
        self._senders: dict[tuple[str, int], socket.socket] = {}
        self.taken = self.lost = 0

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        for face in self._faces:
            bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            bound.bind(_pair(face))
            behind = self._sockets[bound] = _pair(home_address(face))
            self._senders[behind] = bound
            self._loop.add_reader(bound, self._pass_on, bound)

    def close(self) -> None:
        for bound in self._sockets:
            self._loop.remove_reader(bound)
            bound.close()
        self._sockets.clear()

    def _pass_on(self, face: socket.socket) -> None:
        target, chance, loss = self._sockets[face], self._rng.random, self._loss
        for _ in range(BATCH):
            try:
                data, source = face.recvfrom(2048)
            except BlockingIOError:
                return
            except OSError:
                continue  # Somebody did not listen.
            self.taken += 1
            sender = self._senders.get(source)
            if sender is None or chance() < loss:
                self.lost += 1
                continue
            try:
                sender.sendto(data, target)
            except OSError:
                self.lost += 1


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


BATCH = 64
BUFFER = 1 << 20
