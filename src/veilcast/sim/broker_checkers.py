"""Checkers of secret forwarding: what Byzantine brokers can put together, and who is called a liar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from veilcast.brokers.sharing.scheme import Place
from veilcast.machine import Address, Frame
from veilcast.sim.adversaries import innermost
from veilcast.sim.broker_adversaries import lies_of
from veilcast.sim.broker_pool import Pool
from veilcast.sim.broker_streams import opened
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.wire.brokers import TYPE_BYTES, FirstShare, Item, LastShare, NextShare, Push, Spoken

if TYPE_CHECKING:
    from veilcast.sim.world import World


class Secret(Checker):
    """All Byzantine brokers of all nodes, with whatever they ever got or sent, know no key of any publication.

    What was lost on its way to them counts as theirs, too. `keys` says of how many keys that was found.
    """

    def __init__(self, byzantine: Iterable[Address], hardened: bool) -> None:
        self._byzantine = dict.fromkeys(byzantine)
        self._truth, self._theirs = Pool(hardened), Pool(hardened)
        self.keys = 0

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            message = opened(frame.data) if frame.data[0] == _ITEM else None
            if not isinstance(message, Item) or message.cargo[0] not in _SHARES:
                continue
            cargo = opened(message.cargo)
            if cargo is not None:
                self._truth.take(cargo)
                if address in self._byzantine or frame.destination in self._byzantine:
                    self._theirs.take(cargo)

    def on_end(self, world: World) -> None:
        self._truth.complete()
        keys = self._truth.keys()
        self.keys = len(keys)
        self._theirs.learn(self._truth)
        for name, known in self._theirs.keys().items():
            if keys.get(name) == known:
                raise ViolationError(f"{len(self._byzantine)} Byzantine brokers know the key {name.hex()}")


class Named(Checker):
    """Whoever is proven to lie does; and, if that is asked for, whoever told an honest broker a lie that can be proven
    is named. A reader that has what it wanted does not look at what else comes.

    `suspects` says whom a machine holds for proven.
    """

    def __init__(
        self,
        who: Mapping[Place, Address],
        liars: Sequence[Address],
        witnesses: Sequence[Address],
        suspects: Callable[[Any], Iterable[Place]],
        all_of_them: bool = False,
    ) -> None:
        self._who, self._liars, self._all = who, liars, all_of_them
        self._witnesses, self._suspects = witnesses, suspects

    def on_end(self, world: World) -> None:
        named: dict[Address, Address] = {}
        for witness in self._witnesses:
            machine = world.machine(witness)
            for place in self._suspects(innermost(machine)) if machine is not None else ():
                named[self._who[place]] = witness
        for name, witness in named.items():
            if name not in self._liars:
                raise ViolationError(f"{witness} calls an honest broker a liar: {name}")
        brokers = tuple(self._who.values())
        for liar in self._liars:
            lies = lies_of(world.machine(liar)) if self._all and liar not in named else {}
            victims = [told for told in lies if lies[told] and told in brokers and told not in self._liars]
            if victims:
                raise ViolationError(f"{liar} lied to {victims[0]}, and nobody says so")


_ITEM: Final = next(number for number, kind in TYPE_BYTES.items() if kind is Item)
_SHARES: Final = bytes(
    number for number, kind in TYPE_BYTES.items() if kind in (FirstShare, NextShare, LastShare, Spoken, Push)
)
"""By these a frame is known before it is decoded."""
