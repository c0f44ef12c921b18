"""Insiders of the shell game: they refuse swaps, crawl for names, and lie about their neighbours.

*Refusing.* A swap needs the consent of all neighbours of its first player. One hostile neighbour that always declines
keeps a node in its place, which is then as telling as in a mesh without the game.

*Crawling.* The players of a swap learn names: the other player's neighbours, and the successors of moved nodes. A
member that plays as often as allowed (see `make_eager`) learns more of V_a than its neighbours would ever show it.

*Bogus sets.* A node that leaves its place names the neighbours of its successor. The insider names members of its
coalition, so that honest nodes move next to insiders only.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from veilcast.machine import Address, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.base import Message
from veilcast.wire.mesh import SwapAnswer, SwapAsk, SwapCommit, SwapVote


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
