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
        places: Mapping[Address, Place],
        liars: Sequence[Address],
        witnesses: Sequence[Address],
        suspects: Callable[[Any], Iterable[Place]],
        all_of_them: bool = False,
    ) -> None:
        self._places, self._liars, self._all = places, liars, all_of_them
        self._witnesses, self._suspects = witnesses, suspects

    def on_end(self, world: World) -> None:
        byzantine = {self._places[liar]: liar for liar in self._liars}
        named: dict[Place, Address] = {}
        for witness in self._witnesses:
            machine = world.machine(witness)
            if machine is not None:
                named |= dict.fromkeys(self._suspects(innermost(machine)), witness)
        for place, witness in named.items():
            if place not in byzantine:
                raise ViolationError(f"{witness} calls an honest broker a liar: {_told(place, self._places)}")
        for place, liar in byzantine.items():
            lies = lies_of(world.machine(liar)) if self._all and place not in named else {}
            victims = [told for told in lies if lies[told] and told in self._places and told not in self._liars]
            if victims:
                raise ViolationError(f"{liar} lied to {victims[0]}, and nobody says so")


def _told(place: Place, places: Mapping[Address, Place]) -> str:
    return next((address for address, each in places.items() if each == place), repr(place))


_ITEM: Final = next(number for number, kind in TYPE_BYTES.items() if kind is Item)
_SHARES: Final = bytes(
    number for number, kind in TYPE_BYTES.items() if kind in (FirstShare, NextShare, LastShare, Spoken, Push)
)
"""By these a frame is known before it is decoded."""
