"""Synthetic traces of any size: relations and interactions of users, computed user by user from hashes alone.

P4's trace has 3 million users, 28.3 million relations and 1.4 million interactions a month, and is not public. This
trace has the same numbers. A law describes inequality: of N users in the order of their rank, those up to rank x N own
the share x^(1 - s) of everything; s is the skew. There are three skews. Relations have the first, and friends are drawn
by it, so a user with many relations is a friend of many. In a month nine of a hundred users interact, five times each,
as on the walls of New Orleans. The second skew distributes interactions over these users, independently of relations.
The third distributes the interactions of a user over its friends: most go to few. The three skews are those of the
walls, which are a real trace.

The relations and interactions of user number i depend on (seed, i) alone. So a part of the trace is any set of users:
parts can be made anywhere, in any order, and together they are the same trace. The number of items of each user is the
difference of two values of the law, so that totals are exact. Two users can be related twice.
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
    """Sorted by publisher, and by time for each publisher."""

    publisher: Users
    subscriber: Users
    hour: NDArray[np.float64]


class TraceLaw(msgspec.Struct, frozen=True):
    """The size and the seed of a trace."""

    users: int
    relations: int
    interactions: int
    seed: int = 0
    hours: float = 730.0
    """The duration: a month."""

    def __post_init__(self) -> None:
        if not 2 <= self.users <= USERS_MAX or self.interactions < 0 or self.hours <= 0:
            raise ConfigError(f"a trace has from 2 to {USERS_MAX:,} users, interactions, and a time in which they are")
        # The user with the fewest relations must have one.
        least = int(self.users / (1 - RELATED)) + self.users
        if not least <= self.relations <= TOTAL_MAX or self.interactions > TOTAL_MAX:
            raise ConfigError(f"{self.users:,} users have {least:,} relations at least; of nothing more than 2^48")

    def part(self, number: int, parts: int) -> Users:
        """Every n-th user of n parts: users with many relations are spread over all parts."""
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
    """The items of each rank: all up to it, less all before it."""
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
    # A user is not related to itself.
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
"""The share of users that interact in a month."""
ACTIVE: Final = 0.6
"""A tenth of them begins 40 % of all interactions."""
CHOSEN: Final = 0.67
"""A fifth of a user's friends get 59 % of its interactions."""
USERS_MAX: Final = 2**31 - 2
TOTAL_MAX: Final = 2**48
"""Largest number of relations, and of interactions: beyond it floats are too coarse for the law."""
P4: Final = TraceLaw(3_000_000, 28_300_000, 1_400_000)
"""The size of P4's trace."""
