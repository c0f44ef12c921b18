"""Checkers of secret forwarding: Byzantine brokers together know no key, and only liars are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.machine import Address, Frame
from veilcast.sim.brokers.adversaries import provable_lies
from veilcast.sim.brokers.rewritten_streams import decode_or_none
from veilcast.sim.brokers.share_pool import SharePool
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.sim.wrappers import unwrap
from veilcast.wire.brokers import TYPE_BYTES, AgreementWord, FirstShare, LastShare, NextShare, PushShare, SessionItem

if TYPE_CHECKING:
    from veilcast.sim.world import World


class KeySecrecy(Checker):
    """All Byzantine brokers of all nodes together know no key of any publication.

    They know every share that one of them sent or was sent; lost messages count, too. `keys` is the number of keys that
    were checked.
    """

    def __init__(self, byzantine: Iterable[Address], hardened: bool) -> None:
        self._byzantine = dict.fromkeys(byzantine)
        self._truth, self._theirs = SharePool(hardened), SharePool(hardened)
        self.keys = 0

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            message = decode_or_none(frame.data) if frame.data[0] == _ITEM else None
            if not isinstance(message, SessionItem) or message.cargo[0] not in _SHARES:
                continue
            cargo = decode_or_none(message.cargo)
            if cargo is not None:
                self._truth.add_message(cargo)
                if address in self._byzantine or frame.destination in self._byzantine:
                    self._theirs.add_message(cargo)

    def on_end(self, world: World) -> None:
        self._truth.interpolate_all()
        keys = self._truth.keys()
        self.keys = len(keys)
        self._theirs.derive_all(self._truth)
        for name, known in self._theirs.keys().items():
            if keys.get(name) == known:
                raise ViolationError(f"{len(self._byzantine)} Byzantine brokers know the key {name.hex()}")


class LiarsNamed(Checker):
    """Every replica that is named as a proven liar is one. With `all_of_them`, every replica that told an honest broker
    a provable lie is named.

    Lies to clients do not count: a client that has its publication ignores further messages. `suspects` reads the named
    replicas from a machine.
    """

    def __init__(
        self,
        owners: Mapping[ReplicaId, Address],
        liars: Sequence[Address],
        witnesses: Sequence[Address],
        suspects: Callable[[Any], Iterable[ReplicaId]],
        all_of_them: bool = False,
    ) -> None:
        self._owners, self._liars, self._all = owners, liars, all_of_them
        self._witnesses, self._suspects = witnesses, suspects

    def on_end(self, world: World) -> None:
        named: dict[Address, Address] = {}
        for witness in self._witnesses:
            machine = world.machine(witness)
            for place in self._suspects(unwrap(machine)) if machine is not None else ():
                named[self._owners[place]] = witness
        for name, witness in named.items():
            if name not in self._liars:
                raise ViolationError(f"{witness} calls an honest broker a liar: {name}")
        brokers = tuple(self._owners.values())
        for liar in self._liars:
            lies = provable_lies(world.machine(liar)) if self._all and liar not in named else {}
            victims = [victim for victim in lies if lies[victim] and victim in brokers and victim not in self._liars]
            if victims:
                raise ViolationError(f"{liar} lied to {victims[0]}, and nobody says so")


_ITEM: Final = next(number for number, kind in TYPE_BYTES.items() if kind is SessionItem)
_SHARES: Final = bytes(
    number
    for number, kind in TYPE_BYTES.items()
    if kind in (FirstShare, NextShare, LastShare, AgreementWord, PushShare)
)
"""Type bytes of the messages that carry shares. A frame is recognised by them before it is decoded."""
