"""Hops that were opened and have not begun: what was dealt of them waits, so much of each holder.

Pure bookkeeping. Who refuses what an honest holder deals, or loses it, will say that it lacks it, and the holder shows
it to liars. No time is safe after which it could go: a holder may be absent, so that liars are needed for a hop to
begin, and they deal when they like. And a publisher that lies can have honest holders deal what nobody else does.

So there is room for whatever an honest holder can deal. That holder remembers (`room`) as many passages as `done_max`,
each for longer than its key is fresh here, and takes up no more. Who has dealt more than that lies: nothing is lost
with what it deals, for liars have it already. All brokers of an overlay must have the same `done_max` for that.

So many hops would not fit if all of them were ready to begin. Those that changed last are. Of the others only what was
dealt stays, two kilobytes of each as a rule, and is checked again when it is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from veilcast.brokers.sharing.scheme import Place
from veilcast.crypto.secret import Secret
from veilcast.errors import ExcessError

Key = TypeVar("Key", bound=Hashable)


class Kept(NamedTuple):
    """A portion, encoded; what it is for, and whose key it is of."""

    portion: Secret
    advertisement: bytes
    publisher: bytes


class Opened(Generic[Key]):
    """Of each holder `each` hops, and two portions of each hop; `ready` hops that are not folded."""

    def __init__(self, each: int, ready: int) -> None:
        self._each, self._most = each, ready
        self._kept: dict[Key, dict[Place, dict[bytes, Kept]]] = {}
        """By hop, holder and name of the dealing."""
        self._counts: Counter[Place] = Counter()
        self._ready: dict[Key, None] = {}
        """The one that has not changed for longest comes first."""

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    @property
    def folded(self) -> int:
        return len(self._kept) - len(self._ready)

    def check(self, key: Key, holder: Place) -> None:
        """Raise unless there is room for what this holder deals."""
        if holder not in self._kept.get(key, ()) and self._counts[holder] >= self._each:
            raise ExcessError("no honest holder deals so much that does not begin")

    def put(self, key: Key, holder: Place, name: bytes, kept: Kept) -> list[Key]:
        """The hops that are folded for it."""
        dealt = self._kept.setdefault(key, {})
        if holder not in dealt:
            self._counts[holder] += 1
        faces = dealt.setdefault(holder, {})
        if len(faces) < _FACES:
            faces.setdefault(name, kept)
        return self.unfold(key)

    def unfold(self, key: Key) -> list[Key]:
        """It is ready again; the hops that are folded for it."""
        self._ready.pop(key, None)
        self._ready[key] = None
        folded = []
        while len(self._ready) > self._most:
            folded.append(next(iter(self._ready)))
            del self._ready[folded[-1]]
        return folded

    def dealt(self, key: Key) -> list[Kept]:
        """In the order it came."""
        return [kept for faces in self._kept[key].values() for kept in faces.values()]

    def leave(self, key: Key) -> None:
        """It has begun, or its key is no longer fresh."""
        self._ready.pop(key, None)
        for holder in self._kept.pop(key, ()):
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]


_FACES: Final = 2
"""The second one shows that a holder lies."""
