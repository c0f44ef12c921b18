"""Insiders of the shell game: refuse, crawl, and lie about who stands next to them.

*Refusing.* A game needs the consent of everybody next to its first player. One hostile neighbour that always declines
keeps a node where it is, and a place that nobody leaves is as telling as in a mesh without the game.

*Crawling.* To take part means to be told names: of those next to the other player, and of who takes whose place. A
member that plays as often as it is let (its node is told to, see `make_eager`) gets to know more of V_a than neighbours
would ever show it.

*Bogus sets.* Whoever leaves a place names those whom its successor will stand next to. A liar names its friends, so
that honest nodes move to where there are none but them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from veilcast.machine import Address, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.wire.mesh import Message, SwapAnswer, SwapAsk, SwapCommit, SwapVote


class CrawlingInsider(ActiveInsider):
    """Writes down every name that games tell it."""

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
    """Declines to play, and declines that others do."""

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        if isinstance(message, SwapAnswer):
            return msgspec.structs.replace(message, agreed=False, outward=())
        if isinstance(message, SwapVote):
            return msgspec.structs.replace(message, locked=False)
        return message


class BogusSetInsider(CrawlingInsider):
    """Names friends instead of those who are next to it."""

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
        """As many friends as there were names."""
        return self._friends[: len(names)]


def make_eager(config: MeshConfig) -> MeshConfig:
    """What a node is told that plays all the time."""
    game = msgspec.structs.replace(config.shellgame, wait_us=config.heartbeat_us, rate=0.0, first="immediate")
    return msgspec.structs.replace(config, shellgame=game)
