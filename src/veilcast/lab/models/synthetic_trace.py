"""Synthetic traces of any size: who is related to whom, and who speaks to whom, user by user from hashes alone.

P4's trace has 3 million users, 28.3 million relations and 1.4 million interactions a month, and is not public. This one
has as many. A law says how uneven things are: of N users in the order of their rank, those up to rank x N own the share
x^(1 - s) of everything; s is the skew. Relations have one of their own, and friends are drawn by it, so who has many is
many's friend. In a month nine of a hundred users say anything, which is five interactions for each of them as on the
walls of New Orleans; who says how much has another skew, and is drawn apart from relations; and what one says goes to
one's friends by a third: most to few. The three skews are those of the walls, which are a real trace.

What user number i has, and does, depends on (seed, i) alone. So a part of the trace is a set of users, of any choice:
parts are made anywhere, in any order, and put together they are the same trace. How much each user has is the
difference of two values of the law, so that the totals are exact. One may be related to somebody twice.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models import permutation
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import GOLDEN, mix_bits, stream, to_fraction
from veilcast.lab.models.user_placement import Users


class Relations(NamedTuple):
    user: Users
    friend: Users


class Interactions(NamedTuple):
    """In the order of publishers, and of each in the order of time."""

    publisher: Users
    subscriber: Users
    hour: NDArray[np.float64]


class TraceLaw(msgspec.Struct, frozen=True):
    """Which trace it is."""

    users: int
    relations: int
    interactions: int
    seed: int = 0
    hours: float = 730.0
    """A month."""

    def __post_init__(self) -> None:
        if not 2 <= self.users <= USERS_MAX or self.interactions < 0 or self.hours <= 0:
            raise ConfigError(f"a trace has from 2 to {USERS_MAX:,} users, interactions, and a time in which they are")
        # The user who has the fewest must have one, to have somebody to speak to.
        least = int(self.users / (1 - RELATED)) + self.users
        if not least <= self.relations <= TOTAL_MAX or self.interactions > TOTAL_MAX:
            raise ConfigError(f"{self.users:,} users have {least:,} relations at least; of nothing more than 2^48")

    def part(self, number: int, parts: int) -> Users:
        """Every so many-th user: those who have much are spread over all parts."""
        if not 0 <= number < parts:
            raise ConfigError(f"of {parts} parts there is none of number {number}")
        return np.arange(number, self.users, parts, dtype=np.int32)

    def relations_of(self, users: Users) -> Relations:
        many = _portion(users, self.users, self.relations, RELATED)
        return Relations(*_relate(users, many, self.users, self._key("friends")))

    def interactions_of(self, users: Users) -> Interactions:
        rank = _ranks(users, permutation.draw_permutations(self.users, 1, self.seed, "activity"))
        active = max(1, round(self.users * SPEAKING))
        users, rank = users[rank < active], rank[rank < active]
        related = _portion(users, self.users, self.relations, RELATED)
        many = _portion(rank, active, self.interactions, ACTIVE)
        keys = self._key("friends"), self._key("spoken")
        return Interactions(*_interact(users, related, many, self.users, self.hours, *keys))

    def _key(self, name: str) -> np.uint64:
        return np.uint64(stream(self.seed, "trace", name)[0])


def _portion(rank: Users, users: int, total: int, skew: float) -> NDArray[np.int64]:
    """What those of each rank own: all up to it, less all before it."""
    before, after = (np.floor(total * (np.asarray(at, np.float64) / users) ** (1 - skew)) for at in (rank, rank + 1))
    return (after - before).astype(np.int64)


@jit
def _ranks(users: Users, places: permutation.TreePermutations) -> Users:
    found = np.empty(users.size, np.int32)
    for at in range(users.size):
        found[at] = permutation.place_of(places, 0, users[at])
    return found


@jit
def _uniform(key: np.uint64, user: int, number: int) -> float:
    return to_fraction(mix_bits(mix_bits(key + np.uint64(user + 1) * GOLDEN) + np.uint64(number + 1) * GOLDEN))


@jit
def _owner_at(many: int, skew: float, at: float) -> int:
    """The owner of this share of everything."""
    return min(many - 1, int(many * at ** (1 / (1 - skew))))


@jit
def _friend(user: int, number: int, users: int, key: np.uint64) -> int:
    friend = _owner_at(users, RELATED, _uniform(key, user, number))
    # Nobody is related to oneself.
    return friend if friend != user else (friend + 1) % users


@jit
def _relate(users: Users, many: NDArray[np.int64], total: int, key: np.uint64) -> tuple[Users, Users]:
    owner, friend = np.empty(many.sum(), np.int32), np.empty(many.sum(), np.int32)
    row = 0
    for at in range(users.size):
        for number in range(many[at]):
            owner[row] = users[at]
            friend[row] = _friend(users[at], number, total, key)
            row += 1
    return owner, friend


@jit
def _interact(
    users: Users,
    related: NDArray[np.int64],
    many: NDArray[np.int64],
    total: int,
    hours: float,
    friends: np.uint64,
    spoken: np.uint64,
) -> tuple[Users, Users, NDArray[np.float64]]:
    rows = many.sum()
    publisher, subscriber, hour = np.empty(rows, np.int32), np.empty(rows, np.int32), np.empty(rows)
    row = 0
    for at in range(users.size):
        for number in range(many[at]):
            which = _owner_at(related[at], CHOSEN, _uniform(spoken, users[at], 2 * number))
            publisher[row] = users[at]
            subscriber[row] = _friend(users[at], which, total, friends)
            hour[row] = hours * (number + _uniform(spoken, users[at], 2 * number + 1)) / many[at]
            row += 1
    return publisher, subscriber, hour


RELATED: Final = 0.45
"""A tenth of all users has 28 % of all relations."""
SPEAKING: Final = 0.09
"""Of all users, in a month."""
ACTIVE: Final = 0.6
"""A tenth of those begins 40 % of all interactions."""
CHOSEN: Final = 0.67
"""A fifth of one's friends get 59 % of what one says."""
USERS_MAX: Final = 2**31 - 2
TOTAL_MAX: Final = 2**48
"""Of relations, and of interactions: floats have room beyond it for the law."""
P4: Final = TraceLaw(3_000_000, 28_300_000, 1_400_000)
"""As many as P4's trace has, of each."""
