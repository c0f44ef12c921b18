"""A mesh member that forges hash chains for an advertisement of another publisher."""

from __future__ import annotations

from collections import deque
from random import Random

import msgspec

from veilcast.crypto import hash_chain
from veilcast.crypto.hash_chain import Anchor
from veilcast.machine import Address, Frame, Machine
from veilcast.mesh.advertisements import replace_chain_value
from veilcast.mesh.heartbeat import NUMBERS, read_heartbeat
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode, encode, pad
from veilcast.wire.mesh import Advert, Heartbeat


class ChainForger(MachineWrapper):
    """Starts fresh chains for the first advertisement it receives: `count` of them to each neighbour, from `start_us`
    on.

    The signed parts are genuine, and the values are its own. An anchor gets the end of the forger's chain and keeps the
    signature of the received one. They leave `each` at a time with the node's own heartbeats, one to a heartbeat, all
    numbered in one row, so that none stands out by its number or its size.
    """

    def __init__(self, inner: Machine, rng: Random, *, count: int, each: int, start_us: int) -> None:
        super().__init__(inner)
        self._rng, self._count, self._each, self._start_us = rng, count, each, start_us
        self._overheard: Advert | None = None
        self._forged: dict[Address, int] = {}
        self._numbers: dict[Address, int] = {}
        self._out: deque[Frame] = deque()

    @property
    def done(self) -> bool:
        """True if every neighbour has got all its forged chains."""
        return bool(self._forged) and all(count == self._count for count in self._forged.values())

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if self._overheard is None and data[:1] == b"\0":
            riders = [decode(rider) for rider in read_heartbeat(data, len(data)).riders]
            self._overheard = next((rider for rider in riders if isinstance(rider, Advert)), None)
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        for frame in self._frames_of_inner(now, limit):
            if frame.data[:1] != b"\0":
                self._out.append(frame)
                continue
            size, name = len(frame.data), frame.destination
            self._say(name, read_heartbeat(frame.data, size).riders, size)
            if self._overheard is not None and now >= self._start_us:
                for _ in range(min(self._each, self._count - self._forged.get(name, 0))):
                    self._forged[name] = self._forged.get(name, 0) + 1
                    self._say(name, (encode(self._forge(self._overheard)),), size)
        return [self._out.popleft() for _ in range(min(limit, len(self._out)))]

    def _say(self, name: Address, riders: tuple[bytes, ...], size: int) -> None:
        self._numbers[name] = number = (self._numbers.get(name, 0) + 1) % NUMBERS
        self._out.append(Frame(name, pad(encode(Heartbeat(number, riders)), size)))

    def _forge(self, overheard: Advert) -> Advert:
        value, anchor = self._rng.randbytes(hash_chain.VALUE), overheard.anchor
        if anchor is None:
            return replace_chain_value(overheard, value)
        end = hash_chain.advance_chain(value, anchor.length)
        return msgspec.structs.replace(
            overheard, value=value, anchor=Anchor(end, anchor.length, anchor.expires_us, anchor.signature)
        )
