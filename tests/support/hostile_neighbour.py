"""The worst that a member may send to one of its neighbours, beside all that an honest member sends.

It is a member with links like all others, and its own machine's messages travel correctly. So losses come from its
traffic, and not from its silence. (It also sends no repeated greetings: a greeted node forgets what the other told it,
so such a parent would starve its children as a silent one does.) To its target it sends further heartbeats with
subscriptions to unknown topics and forged chains, and between them new notes and stems whose wrong signatures must be
verified.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from veilcast.errors import RemoteError
from veilcast.lab.runs.mesh.loopback_network import LoopbackPopulation
from veilcast.link.config import LinkConfig
from veilcast.machine import Address, Frame
from veilcast.mesh.heartbeat import NUMBERS, read_heartbeat
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode, encode, pad
from veilcast.wire.mesh import Advert, Heartbeat, Notify, Stem, Subscribe


class HostileNeighbour(MachineWrapper):
    """Wraps a mesh node, inside its links."""

    def __init__(self, inner: Any, target: Address, rng: Random) -> None:
        super().__init__(inner)
        self._target, self._rng = target, rng
        self._advert: Advert | None = None
        self._number = 0
        self._out: deque[Frame] = deque()
        self.sent = 0

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if data[:1] == b"\0":
            with suppress(RemoteError):
                for message in map(decode, read_heartbeat(data, len(data)).riders):
                    self._advert = message if isinstance(message, Advert) else self._advert
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        for frame in self._frames_of_inner(now, limit):
            if frame.data[:1] != b"\0" or frame.destination != self._target:
                self._out.append(frame)
                continue
            size = len(frame.data)
            self._beat(size, read_heartbeat(frame.data, size).riders)
            for _ in range(BEATS):
                self._beat(size, self._demands())
            if self._advert is not None:
                self._forge(self._advert)
        self.sent += min(limit, len(self._out))
        return [self._out.popleft() for _ in range(min(limit, len(self._out)))]

    def _beat(self, size: int, riders: tuple[bytes, ...]) -> None:
        self._number = (self._number + 1) % NUMBERS
        self._out.append(Frame(self._target, pad(encode(Heartbeat(self._number, riders)), size)))

    def _demands(self) -> tuple[bytes, ...]:
        riders = [encode(Subscribe(self._rng.randbytes(TOKEN))) for _ in range(TOPICS)]
        if self._advert is not None:
            riders.append(encode(msgspec.structs.replace(self._advert, value=self._random(self._advert.value))))
        return tuple(riders)

    def _forge(self, advert: Advert) -> None:
        """Notes of an existing topic, and stems with them; only the signatures are wrong."""
        for _ in range(NOTES):
            sealed, signature = self._rng.randbytes(SEALED), self._rng.randbytes(SIGNATURE)
            forged = encode(Notify(advert.token, sealed, signature, advert.certificate, advert.cell))
            self._out += [Frame(self._target, forged), Frame(self._target, encode(Stem(True, forged)))]

    def _random(self, genuine: bytes) -> bytes:
        return self._rng.randbytes(len(genuine))


def choose_hostile(population: LoopbackPopulation, seed: int, count: int) -> tuple[Address, list[Address]]:
    """A subscriber, and this many of its neighbours that neither subscribe nor publish, in a ring of neighbours."""
    publisher, readers = population.roles(seed)
    addresses, reach = population.addresses(), population.neighbours // 2
    place = addresses.index(readers[0])
    around = [addresses[(place + step) % len(addresses)] for step in (*range(-reach, 0), *range(1, reach + 1))]
    others = [address for address in around if address != publisher and address not in readers]
    if len(others) < count:
        raise ValueError("too few neighbours with nothing else to do")
    return readers[0], others[:count]


def make_hostile(machine: Any, target: Address, seed: int) -> Any:
    """Make a node with links hostile to another, at the highest allowed rate."""
    machine.inner = HostileNeighbour(machine.inner, target, Random(seed))
    machine._rate = LinkConfig("cells", 16).rate
    return machine


BEATS = 2
"""Further heartbeats for each of its own."""
TOKEN, SIGNATURE, SEALED = 32, 64, 200
TOPICS = 8
NOTES = 5
"""Notes with each heartbeat, and as many stems: as many as fit into its cells, twice a second, beside its own messages.
"""
