"""Handing: a holder's side of a hop, once for each next node: it deals, shows what is in dispute, and erases.

Pure; what is to be sent comes back. A share is dealt once to each branch, with fresh randomness for each, and is erased
in the same step: whoever needs it again gets another attempt from the publisher. What was dealt stays for disputes, as
long as one can come (`hop.show_us`), or until all replicas of the branch say that they have their share.

A portion is shown only if more replicas ask for it than can lie: one of them does not, so the replica whose portion it
is has signed that it lacks it. And never those of more replicas than can lie: if so many lack theirs, some are honest,
delay has broken its bound, and another attempt is better than to show their portions to liars.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilcast.brokers.hop import show_us
from veilcast.brokers.routes import Branch, Outgoing, replicas
from veilcast.brokers.sharing.redistribution import Handed, Holding, hand_on
from veilcast.brokers.sharing.scheme import Place, Roster, Scheme
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError
from veilcast.machine import Address, Entropy
from veilcast.wire.brokers import Disputed, LastShare, NextShare, Taken


class Handing:
    """Of one key. Bounded: by the branches, which are claims, and their sizes."""

    def __init__(self, advertisement: bytes, roster: Roster, bound_us: int) -> None:
        self._advertisement, self._roster, self._bound_us = advertisement, roster, bound_us
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
                self._dealt[branch] = _Dealt(handed, now + show_us(self._bound_us, branch.tolerated))
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
                return [outgoing for replica in said.replicas for outgoing in self._show(scheme, dealt, replica, place)]
        return []

    def handle(self, now: int) -> None:
        for scheme in [scheme for scheme, dealt in self._dealt.items() if dealt.until <= now]:
            self._erase(scheme)

    def next_us(self) -> int | None:
        return min((dealt.until for dealt in self._dealt.values()), default=None)

    def _show(self, scheme: Scheme, dealt: _Dealt, replica: int, asking: Place) -> list[Outgoing]:
        asked = dealt.asked.setdefault(replica, {})
        asked[asking.index] = None
        if len(asked) <= scheme.tolerated or replica in dealt.shown or len(dealt.shown) >= scheme.tolerated:
            return []
        dealt.shown[replica] = None
        shown = NextShare(self._advertisement, dealt.handed.portion(replica).encode().reveal())
        return [Outgoing(place, shown) for place in replicas(scheme)]

    def _deliver(self, holding: Holding, readers: Sequence[Address]) -> list[Outgoing]:
        last = LastShare(self._advertisement, holding.delivery().encode().reveal())
        return [Outgoing(reader, last) for reader in readers]

    def _under(self, scheme: Scheme, source: Place) -> Place | None:
        return source if source.scheme == scheme else self._roster.find(scheme, self._roster.key(source))

    def _erase(self, scheme: Scheme) -> None:
        self._dealt.pop(scheme).handed.erase()


class _Dealt:
    def __init__(self, handed: Handed, until: int) -> None:
        self.handed, self.until = handed, until
        self.taken: dict[int, None] = {}
        self.asked: dict[int, dict[int, None]] = {}
        self.shown: dict[int, None] = {}
