"""Attacks by insiders of a mesh: on its traffic, on the shell game, and by siege.

*Tagging.* A tag is a change that another insider recognises. Notes are sealed and signed, so a node that verifies drops
a changed note, and the only mark left is that the note is missing.

*Replay.* Another insider recognises the same note. A node that forwards a note for a second time shows all nodes below
it that a path leads there. A node that drops known notes shows nothing.

*Silence, to force re-parenting.* A node subscribes at one neighbour at a time, so a coalition sees of each node only
the subscriptions at its own members. If a parent falls silent, its children choose again, perhaps an insider, and every
choice is another test of who wants the topic. Insiders take turns: while some are silent, the others listen.

*Refusing.* A swap needs the consent of all neighbours of its first player. One hostile neighbour that always declines
keeps a node in its place, which is then as telling as in a mesh without the game.

*Crawling.* The players of a swap learn names: the other player's neighbours, and the successors of moved nodes. A
member that plays as often as allowed (see `make_eager`) learns more of V_a than its neighbours would ever show it.

*Bogus sets.* A node that leaves its place names the neighbours of its successor. The insider names members of its
coalition, so that honest nodes move next to insiders only.

*Siege.* A victim with hostile neighbours only (Sybils, n - 1 attack) has no node to hide among. A topic that the victim
subscribes to unprompted is one that it wants or covers. A note that it sends without having received it is its own: in
an n - 1 attack all other nodes belong to the coalition. No overlay can protect such a node. The defences are to prevent
the siege (see `mesh/certified.py`), and covers, which subscribe, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

import msgspec

from veilcast.core.publication import notification_id
from veilcast.machine import Address, Frame, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.base import Message
from veilcast.wire.mesh import Notify, Stem, Subscribe, SwapAnswer, SwapAsk, SwapCommit, SwapVote


class IntermittentInsider(ActiveInsider):
    """Silent in every other turn of `turn_us` from `start_us` on, in odd turns if `odd`. A turn of 0 means never."""

    def __init__(self, inner: Machine, start_us: int, turn_us: int, *, odd: bool) -> None:
        super().__init__(inner)
        self._start_us, self._turn_us, self._odd = start_us, turn_us, odd
        self.requesters: set[Address] = set()
        """Neighbours that subscribed to the topic. The number of times says little: a child subscribes again after each
        silence."""

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Subscribe):
            self.requesters.add(source)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = super().frames_to_send(now, limit)
        if not self._turn_us or now < self._start_us or (now - self._start_us) // self._turn_us % 2 != self._odd:
            return frames
        return []


class TaggingInsider(ActiveInsider):
    """Flips a bit in every note that it forwards."""

    def __init__(self, inner: Machine, rng: Random) -> None:
        super().__init__(inner)
        self._rng = rng
        self.tagged = 0

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if not isinstance(message, Notify):
            return message
        self.tagged += 1
        sealed = bytearray(message.sealed)
        sealed[self._rng.randrange(len(sealed))] ^= 1 << self._rng.randrange(8)
        return msgspec.structs.replace(message, sealed=bytes(sealed))


class ReplayingInsider(ActiveInsider):
    """Sends every note again, `later_us` after it was sent."""

    def __init__(self, inner: Machine, later_us: int) -> None:
        super().__init__(inner)
        self._later_us = later_us
        self._waiting: deque[tuple[int, Message, Address]] = deque(maxlen=_MEMORY)
        self.replayed = 0

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, Notify):
            self._waiting.append((now + self._later_us, message, destination))
        return message

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        while self._waiting and self._waiting[0][0] <= now:
            _, message, destination = self._waiting.popleft()
            self.replayed += 1
            self.send(message, destination)


class SiegeKnowledge:
    """The shared knowledge of besiegers. Only the length of a run bounds it."""

    def __init__(self, victims: Iterable[Address]) -> None:
        self.victims = frozenset(victims)
        self.given: set[tuple[Address, bytes]] = set()
        """Topics that a besieger subscribed to at a node, and notes that it sent there."""
        self.unprompted_requesters: set[Address] = set()
        """Nodes that subscribed to a topic unprompted."""
        self.originated: dict[Address, int] = {}
        """Number of notes that each node sent and no besieger had sent to it."""


class Besieger(ActiveInsider):
    """A besieger subscribes to nothing at a victim: what the victim then subscribes to is for its own sake."""

    def __init__(self, inner: Machine, siege: SiegeKnowledge) -> None:
        super().__init__(inner)
        self._siege = siege

    def on_message(self, message: Message, source: Address, now: int) -> None:
        given = self._siege.given
        if isinstance(message, Subscribe) and (source, message.token) not in given:
            self._siege.unprompted_requesters.add(source)
        elif isinstance(message, Notify | Stem) and (source, (name := _name(message))) not in given:
            given.add((source, name))
            self._siege.originated[source] = self._siege.originated.get(source, 0) + 1

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, Subscribe):
            if destination in self._siege.victims:
                return None
            self._siege.given.add((destination, message.token))
        elif isinstance(message, Notify | Stem):
            self._siege.given.add((destination, _name(message)))
        return message


class CrawlingInsider(ActiveInsider):
    """Records every name that swap messages contain."""

    def __init__(self, inner: Machine) -> None:
        super().__init__(inner)
        self.names: set[Address] = set()

    def on_message(self, message: Message, source: Address, now: int) -> None:
        match message:
            case SwapAsk():
                self.names.update((source, *map(Address, message.inward), *map(Address, message.outward)))
            case SwapAnswer():
                self.names.update((source, *map(Address, message.outward)))
            case SwapCommit():
                self.names.update((source, Address(message.successor)))


class RefusingInsider(CrawlingInsider):
    """Declines to swap, and declines the swaps of others."""

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, SwapAnswer):
            return msgspec.structs.replace(message, agreed=False, outward=())
        if isinstance(message, SwapVote):
            return msgspec.structs.replace(message, locked=False)
        return message


class BogusSetInsider(CrawlingInsider):
    """Names members of its coalition in place of its neighbours."""

    def __init__(self, inner: Machine, friends: Sequence[Address]) -> None:
        super().__init__(inner)
        self._friends = tuple(friends)

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, SwapAsk):
            return msgspec.structs.replace(
                message, inward=self._instead(message.inward), outward=self._instead(message.outward)
            )
        if isinstance(message, SwapAnswer) and message.agreed:
            return msgspec.structs.replace(message, outward=self._instead(message.outward))
        return message

    def _instead(self, names: Sequence[str]) -> tuple[Address, ...]:
        """Return one member of the coalition for each name."""
        return self._friends[: len(names)]


def make_eager(config: MeshConfig) -> MeshConfig:
    """The configuration of a node that swaps all the time."""
    game = msgspec.structs.replace(config.shellgame, wait_us=config.heartbeat_us, rate=0.0, first="immediate")
    return msgspec.structs.replace(config, shellgame=game)


def _name(message: Notify | Stem) -> bytes:
    return notification_id(message) if isinstance(message, Notify) else message.cargo


_MEMORY: Final = 4096
"""Most notes that wait to be sent again."""
