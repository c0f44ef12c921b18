"""Active insiders in a mesh: a member whose node works correctly, and whose script reads and changes its messages.

A member knows the keys of its links. So a script reads every received message, in heartbeats or alone. It may drop or
change every message that its node sends. It may also add messages of its own to heartbeats with free space, invisibly
to outsiders.

A coalition that besieges a victim must be next to it. So the roles of an infiltrated mesh are given, and not drawn as
in a plain population. The seed still draws the neighbourhood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from veilcast.machine import Address, Frame, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.geometry import LENGTH_PREFIX
from veilcast.wire.mesh import Advert, Heartbeat


class ActiveInsider(MachineWrapper):
    """The base of all scripts; by itself it only listens. Its topic is the first one that it receives an advertisement
    for."""

    def __init__(self, inner: Machine) -> None:
        super().__init__(inner)
        self.token = b""
        self._words: dict[Address, list[bytes]] = {}
        self._out: list[Frame] = []

    def on_message(self, message: Message, source: Address, now: int) -> None:
        """A message has arrived; the node receives it next."""

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        """The message to send in place of this one; None drops it."""
        return message

    def add_to_heartbeat(self, message: Message, destination: Address) -> None:
        """Send a message with the next heartbeat that has space for it."""
        self._words.setdefault(destination, []).append(encode(message))

    def send(self, message: Message, destination: Address) -> None:
        """Send a message at once and alone, as notes travel."""
        self._out.append(Frame(destination, encode(message)))

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if data[:1] != b"\0":
            self._listen(data, source, now)
        elif not _is_idle(data):
            for rider in read_heartbeat(data, len(data)).riders:
                self._listen(rider, source, now)
        super().receive(data, source, now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        for frame in self._frames_of_inner(now, limit):
            self._out += self._beat(frame, now) if frame.data[:1] == b"\0" else self._note(frame, now)
        sent, self._out = self._out[:limit], self._out[limit:]
        return sent

    def _listen(self, data: bytes, source: Address, now: int) -> None:
        message = decode(data)
        if isinstance(message, Advert):
            self.token = self.token or message.token
        self.on_message(message, source, now)

    def _note(self, frame: Frame, now: int) -> list[Frame]:
        said = self.rewrite(decode(frame.data), frame.destination, now)
        return [] if said is None else [Frame(frame.destination, encode(said))]

    def _beat(self, frame: Frame, now: int) -> list[Frame]:
        words = self._words.get(frame.destination)
        if _is_idle(frame.data) and not words:
            return [frame]
        size = len(frame.data)
        beat = read_heartbeat(frame.data, size)
        edited = (self.rewrite(decode(rider), frame.destination, now) for rider in beat.riders)
        riders = [encode(message) for message in edited if message is not None]
        while words and sum(map(len, riders)) + len(words[0]) + _AIR * (len(riders) + 2) <= size:
            riders.append(words.pop(0))
        return [Frame(frame.destination, pad(encode(Heartbeat(beat.number, tuple(riders))), size))]


InsiderScript: TypeAlias = Callable[[Machine, Birth], Machine]
"""Wraps an honest node."""


class InfiltratedPopulation(MeshPopulation, frozen=True, kw_only=True, tag="infiltrated"):
    """A mesh in which the publisher, the subscribers and the coalition are given, and a script wraps each insider."""

    publisher: Address
    subscriber_addresses: tuple[Address, ...]
    coalition: tuple[Address, ...]
    script: InsiderScript
    coalition_subscribes: bool = False
    """True if the insiders subscribe to the topic, too, so as to be in its mesh."""
    coalition_config: MeshConfig | None = None
    """Configuration of the insiders' nodes, if it differs."""

    def roles(self, seed: int) -> tuple[Address, tuple[Address, ...]]:
        return self.publisher, (
            *self.subscriber_addresses,
            *self.coalition,
        ) if self.coalition_subscribes else self.subscriber_addresses

    def neighbours_of(self, seed: int) -> dict[Address, list[Address]]:
        """The neighbours of every node."""
        neighbours: dict[Address, list[Address]] = {address: [] for address in self.addresses()}
        for u, v in self._graph(seed):
            neighbours[u].append(v)
            neighbours[v].append(u)
        return neighbours

    def _started(self, owner: MeshNodeOwner, address: Address) -> MachineFactory:
        if address not in self.coalition:
            return owner.start

        def start(birth: Birth) -> Machine:
            return self.script(owner.with_config(self.coalition_config or self.mesh).start(birth), birth)

        return start


def _is_idle(data: bytes) -> bool:
    return int.from_bytes(data[:LENGTH_PREFIX], "big") < _IDLE


_IDLE: Final = 12
"""Most bytes of a heartbeat without riders."""
_AIR: Final = 8
"""Bytes of overhead for each rider, and for the list of riders."""
