"""Holds: what each replica of a node has brought that is of no use yet, and that it answers for.

Pure. What a replica brings is signed by its publisher, but may be of long ago: nobody can tell what is repeated from
what is new until others bring it, too, or what it lacks. So the room is parted among the replicas. A thing stays as
long as one of those who brought it holds it; who brings more than its part lets go of its own oldest, of the
advertisement that it holds most of. So liars, however many, and even if they repeat the same, push out nothing that an
honest replica holds, nor does a publisher that floods push out what others publish.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from veilcast.brokers.sharing.scheme import Place

Held: TypeAlias = tuple[bytes, bytes]
"""A key or a content: the advertisement that it is under, and its id there."""


class Holds:
    """Bounded: `most` by the replicas of one scheme together (one each, if they are more), and of each node the two
    newest schemes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Place, dict[bytes, dict[bytes, None]]] = {}
        """Of each replica, by advertisement; the oldest first."""
        self._holders: dict[Held, dict[Place, None]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def hold(self, name: Held, bearer: Place) -> list[Held]:
        """It has brought something of this just now; what nobody holds any more for that."""
        self._holders.setdefault(name, {})[bearer] = None
        own = self._held.setdefault(bearer, {})
        under = own.setdefault(name[0], {})
        under.pop(name[1], None)
        under[name[1]] = None
        over = [(other, held) for other in self._past(bearer) for held in self._all_of(other)]
        if sum(map(len, own.values())) > max(1, self._most // bearer.scheme.size):
            fullest = max(own, key=lambda advert: len(own[advert]))
            over.append((bearer, (fullest, next(iter(own[fullest])))))
        return [held for other, held in over if self._let_go(other, held)]

    def drop(self, name: Held) -> None:
        """It has come to something, or to nothing."""
        for bearer in list(self._holders.get(name, ())):
            self._let_go(bearer, name)

    def _let_go(self, bearer: Place, name: Held) -> bool:
        """Whether nobody holds it any more."""
        advert, id_ = name
        own = self._held[bearer]
        del own[advert][id_]
        if not own[advert]:
            del own[advert]
        if not own:
            del self._held[bearer]
        del self._holders[name][bearer]
        if self._holders[name]:
            return False
        del self._holders[name]
        return True

    def _past(self, bearer: Place) -> list[Place]:
        """Other replicas of its node as that was, and is no more."""
        alike = [other for other in self._held if other.scheme.node == bearer.scheme.node]
        stand = sorted({other.scheme for other in alike})[-_SCHEMES:]
        return [other for other in alike if other.scheme not in stand and other != bearer]

    def _all_of(self, bearer: Place) -> list[Held]:
        return [(advert, id_) for advert, ids in self._held[bearer].items() for id_ in ids]


_SCHEMES: Final = 2
