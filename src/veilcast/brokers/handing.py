"""Handing: a holder's side of a hop, once for each next node: it deals, shows what is in dispute, and erases.

Pure; what is to be sent comes back. A share is dealt once to each branch, with fresh randomness for each, and is erased
in the same step: whoever needs it again gets another attempt from the publisher. What was dealt stays for disputes, as
long as one can come (`hop.show_us`), or until all replicas of the branch say that they have their share.

A portion is shown only if more replicas ask for it than can lie: one of them does not, so the replica whose portion it
is has signed that it lacks it. And never those of more replicas than can lie: if so many lack theirs, some are honest,
delay has broken its bound, and another attempt is better than to show their portions to liars.

Who has acknowledged its portion in time has it, and lies. Who has not may be an honest one whose link has stalled, or a
liar who does not acknowledge: the first times in a while (`Strikes`) it is not shown, the dealing is out, and the
publisher tries again; then it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from veilcast.brokers.hop import show_us
from veilcast.brokers.queues import ACKNOWLEDGE_US
from veilcast.brokers.routes import Branch, Outgoing, Routes, replicas
from veilcast.brokers.sharing.redistribution import Handed, Holding, hand_on
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError
from veilcast.machine import Address, Entropy
from veilcast.wire.brokers import Disputed, LastShare, NextShare, Taken


class Handing:
    """Of one key. Bounded: by the branches, which are claims, and their sizes."""

    def __init__(self, advertisement: bytes, routes: Routes, roster: Roster, strikes: Strikes, bound_us: int) -> None:
        self._advertisement, self._routes, self._roster = advertisement, routes, roster
        self._strikes, self._bound_us = strikes, bound_us
        self._dealt: dict[Scheme, _Dealt] = {}

    def __len__(self) -> int:
        return len(self._dealt)

    def hand_on(
        self, holding: Holding, branches: Sequence[Branch], signing: SigningKey, entropy: Entropy, now: int
    ) -> list[Outgoing]:
        """To all branches, and nothing of it stays but what was dealt."""
        sent: list[Outgoing] = []
        readers = [branch for branch in branches if not isinstance(branch, Scheme)]
        if readers:
            sent += self._deliver(holding, readers)
        for branch in branches:
            if isinstance(branch, Scheme):
                handed = hand_on(holding, branch, signing, entropy)
                self._dealt[branch] = _Dealt(
                    handed,
                    now + _HEARD * self._bound_us + ACKNOWLEDGE_US,
                    now + show_us(self._bound_us, branch.tolerated),
                )
                sent += [
                    Outgoing(place, NextShare(self._advertisement, portion.encode().reveal()))
                    for place, portion in zip(replicas(branch), handed.portions, strict=True)
                ]
        holding.erase()
        return sent

    def taken(self, _said: Taken, source: Place) -> None:
        for scheme, dealt in list(self._dealt.items()):
            if (place := self._under(scheme, source)) is not None:
                dealt.taken[place.index] = None
                if len(dealt.taken) == scheme.size:
                    self._erase(scheme)

    def disputed(self, said: Disputed, source: Place, now: int) -> list[Outgoing]:
        """What is to be shown, to all replicas of the branch. Raises for what was never dealt, or is over."""
        self.handle(now)
        for scheme, dealt in self._dealt.items():
            place = self._under(scheme, source)
            if dealt.handed.header.name == said.name and place is not None:
                if max(said.replicas) > scheme.size:
                    raise ForgedError("no replica of the node has this index")
                return [
                    outgoing for replica in said.replicas for outgoing in self._show(scheme, dealt, replica, place, now)
                ]
        return []

    def handle(self, now: int) -> None:
        for scheme, dealt in self._dealt.items():
            if dealt.look_us is not None and dealt.look_us <= now:
                self._look(scheme, dealt)
        for scheme in [scheme for scheme, dealt in self._dealt.items() if dealt.until <= now]:
            self._erase(scheme)

    def next_us(self) -> int | None:
        return min((dealt.look_us or dealt.until for dealt in self._dealt.values()), default=None)

    def _look(self, scheme: Scheme, dealt: _Dealt) -> None:
        dealt.look_us = None
        dealt.late = {place.index: None for place in replicas(scheme) if self._is_late(place, dealt)}

    def _is_late(self, place: Place, dealt: _Dealt) -> bool:
        portion = dealt.handed.portion(place.index).encode().reveal()
        return place.index not in dealt.taken and self._routes.unheard(place, NextShare(self._advertisement, portion))

    def _show(self, scheme: Scheme, dealt: _Dealt, replica: int, asking: Place, now: int) -> list[Outgoing]:
        asked = dealt.asked.setdefault(replica, {})
        asked[asking.index] = None
        if len(asked) <= scheme.tolerated or replica in dealt.shown or len(dealt.shown) >= scheme.tolerated:
            return []
        dealt.shown[replica] = None
        if dealt.look_us is not None:
            self._look(scheme, dealt)
        denied = Place(scheme, replica)
        shown = NextShare(self._advertisement, dealt.handed.portion(replica).encode().reveal())
        if replica in dealt.late and self._strikes.give(self._roster.key(denied), now):
            return []
        return [Outgoing(place, shown) for place in replicas(scheme)]

    def _deliver(self, holding: Holding, readers: Sequence[Address]) -> list[Outgoing]:
        last = LastShare(self._advertisement, holding.delivery().encode().reveal())
        return [Outgoing(reader, last) for reader in readers]

    def _under(self, scheme: Scheme, source: Place) -> Place | None:
        return source if source.scheme == scheme else self._roster.find(scheme, self._roster.key(source))

    def _erase(self, scheme: Scheme) -> None:
        self._dealt.pop(scheme).handed.erase()


class Strikes:
    """How often replicas were given the benefit of the doubt, each so often in `keep_us`. Bounded: by the roster."""

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._given: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._given)

    def give(self, key: bytes, now: int) -> bool:
        """Whether there is one left; it is used up then."""
        for other in list(self._given):
            self._given[other] = [when for when in self._given[other] if when > now]
            if not self._given[other]:
                del self._given[other]
        given = self._given.get(key, [])
        if len(given) >= _STRIKES:
            return False
        self._given[key] = [*given, now + self._keep_us]
        return True


class _Dealt:
    def __init__(self, handed: Handed, look_us: int, until: int) -> None:
        self.handed, self.until = handed, until
        self.look_us: int | None = look_us
        """When we look who has not acknowledged its portion."""
        self.late: dict[int, None] = {}
        self.taken: dict[int, None] = {}
        self.asked: dict[int, dict[int, None]] = {}
        self.shown: dict[int, None] = {}


_STRIKES: Final = 2
_HEARD: Final = 2
"""Within so many times the bound on delay, and the time that queues take for it, honest ones acknowledge."""
