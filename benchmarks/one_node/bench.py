"""A node on a bench: its neighbours are played, its clock is ours, and the time that it takes is measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from random import Random
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring, check_publisher_chain
from veilcast.core import publication
from veilcast.core.publication import NumberedPublication
from veilcast.crypto import certificate, vrf
from veilcast.crypto.secret import Secret
from veilcast.machine import Address, Delivered, Frame, Publication
from veilcast.mesh import advertisements, credentials, roots
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.mesh.node import MeshNode
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC, address_prefix
from veilcast.topics import Label
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.mesh import Heartbeat, Notify, Stem, StemReceipt

Item: TypeAlias = tuple[str, tuple[Message, ...]]
"""Sender and messages, in one heartbeat or in a separate frame."""


class Bench:
    """A node whose neighbours beat as it does, and a clock that moves with its beats."""

    def __init__(
        self, config: MeshConfig, keyring: Keyring, neighbours: str = "parent child x y", name: str = "me"
    ) -> None:
        rng, self.now, self.config = Random(1), START_US, config
        self.around = [Address(other) for other in neighbours.split()] if config.membership == "fixed" else []
        contacts = [Address(other) for other in neighbours.split()]
        self.node = MeshNode(config, keyring, rng, rng.randbytes, contacts, self.now, Address(name), address_prefix)
        self._numbers: Counter[str] = Counter()
        self.said: list[Frame] = []
        self.read = 0

    def frame(self, source: str, *messages: Message) -> bytes:
        if messages and isinstance(messages[0], Notify | Stem | StemReceipt):
            return encode(messages[0])
        self._numbers[source] += 1
        beat = Heartbeat(self._numbers[source], tuple(map(encode, messages)))
        return pad(encode(beat), self.config.heartbeat_bytes)

    def take(self, data: bytes, source: str) -> None:
        """The work of a driver with one frame, and of a subscriber with one note."""
        self.node.receive(data, Address(source), self.now)
        self.node.frames_to_send(self.now, 64)
        while (event := self.node.next_event()) is not None:
            if isinstance(event, Delivered):
                self.node.acknowledge(event.note.id, self.now)
                self.read += 1

    def say(self) -> None:
        self.now = self.node.next_timer() or 0
        self.node.handle_timer(self.now)
        self.said = self.node.frames_to_send(self.now, 64)

    def hear(self, source: str, *messages: Message) -> None:
        self.take(self.frame(source, *messages), source)

    def hear_all(self) -> None:
        for name in self.around:
            self.hear(name)

    def told(self, name: str) -> list[Message]:
        """The messages to this neighbour in the last heartbeat."""
        beats = [frame.data for frame in self.said if frame.destination == name]
        return [decode(rider) for data in beats for rider in read_heartbeat(data, self.config.heartbeat_bytes).riders]


class Work(NamedTuple):
    name: str
    bench: Callable[[], Bench]
    items: Callable[[Bench], Iterator[Item]]
    crypto: bool = False
    checked: bool = False
    """Whether what was believed is forgotten before each frame."""
    at_once: int = 8
    """Frames between two beats of the node's own."""


def rate_without(work: Work) -> int | None:
    """As `rate`, where every function of `_CRYPTO` knows all that it is asked."""
    if not work.crypto:
        return None
    with ExitStack() as stack:
        for module, name in _CRYPTO:
            stack.enter_context(patch.object(module, name, from_memory(getattr(module, name))))
        rate(work)
        return rate(work)


def rate(work: Work) -> int:
    return round(max(one_round(work) for _ in range(3)))


def one_round(work: Work) -> float:
    bench, handled, spent = work.bench(), 0, 0.0
    items = work.items(bench)
    while True:
        bench.hear_all()
        chunk = [
            (bench.frame(source, *messages), source, max(1, len(messages)))
            for source, messages in islice(items, work.at_once)
        ]
        if not chunk:
            break
        start = time.process_time()
        for data, source, count in chunk:
            if work.checked:
                forget()
            bench.take(data, source)
            handled += count
        bench.say()
        spent += time.process_time() - start
    refused = {name: count for name, count in bench.node.refused.items() if count}
    assert not refused or (work.name.endswith("forged") and list(refused) == ["ForgedError"]), (work.name, refused)
    assert bench.read == (handled if "read" in work.name else bench.read), work.name
    return handled / spent


def forget() -> None:
    for memory in (advertisements._check, roots._check_candidacy, check_publisher_chain):
        memory.cache_clear()


def from_memory(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def recall(*arguments: Any, **named: Any) -> Any:
        key = tuple(value.reveal() if isinstance(value, Secret) else value for value in arguments)
        if key not in known:
            known[key] = function(*arguments, **named)
        return known[key]

    return recall


def same(source: str, *messages: Message, times: int = 1_000) -> Callable[[Bench], Iterator[Item]]:
    def items(bench: Bench) -> Iterator[Item]:
        for _ in range(times):
            yield source, messages

    return items


def note_content(number: int) -> NumberedPublication:
    return NumberedPublication(b"stream 1", number, Publication((Label(TOPIC).pair,), b"x" * 100))


EPOCH = epoch_of(START_US, HOUR_US)
_CRYPTO: tuple[tuple[Any, str], ...] = (
    (advertisements, "verify"),
    (certificate, "verify"),
    (publication, "verify"),
    (publication, "unseal"),
    (credentials, "agree"),
    (vrf, "check"),
)
