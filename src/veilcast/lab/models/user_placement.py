"""The placement of users on an overlay: a trace of interactions becomes a matrix of brokers.

A user's broker is drawn by Zipf's law over the brokers' ranks, from a hash of the user's number. So no table of all
users is needed, and a user has the same broker in every partition. Of a trace of any length only the number of
interactions from broker u to broker v matters: 160,000 numbers for 400 brokers, from which hops, shares and losses on
any tree follow exactly. Matrices of parts of a trace are added.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import GOLDEN, mix_bits, stream, to_fraction

Users: TypeAlias = NDArray[np.int32]
Matrix: TypeAlias = NDArray[np.int64]
"""For each pair of brokers, the number of interactions from one to the other."""


class UserPlacement(NamedTuple):
    below: NDArray[np.float64]
    """For each broker, the probability that a user lives at it or at an earlier one."""
    guide: NDArray[np.int16]
    """For each of 1,024 equal parts of the interval from 0 to 1, the first broker that a user there can have: the
    search starts from it."""
    key: np.uint64

    @classmethod
    def by_zipf(cls, brokers: int, alpha: float, seed: int) -> UserPlacement:
        """The larger alpha, the more users at the first brokers; 0 gives all brokers the same probability."""
        below = np.cumsum(zipf_weights(brokers, alpha))
        below[-1] = 1.0
        guide = np.searchsorted(below, np.arange(_GUIDES) / _GUIDES, side="right").astype(np.int16)
        return cls(below, guide, np.uint64(stream(seed, "users")[0]))

    def brokers_of(self, users: Users) -> NDArray[np.int16]:
        return _seats(users, self)

    def matrix(self, publishers: Users, subscribers: Users) -> Matrix:
        if publishers.size != subscribers.size:
            raise ConfigError("every interaction has a publisher and a subscriber")
        return _matrix(publishers, subscribers, self)


def zipf_weights(ranks: int, alpha: float) -> NDArray[np.float64]:
    """The probability of each rank."""
    if ranks < 1 or not 0 <= alpha <= ALPHA_MAX:
        raise ConfigError(f"Zipf's law has a rank at least, and alpha is from 0 to {ALPHA_MAX:g}, not {alpha}")
    weights = np.arange(1, ranks + 1) ** -float(alpha)
    found: NDArray[np.float64] = weights / weights.sum()
    return found


@jit
def _seat(user: int, placement: UserPlacement) -> int:
    at = to_fraction(mix_bits(placement.key + np.uint64(user + 1) * GOLDEN))
    broker = int(placement.guide[int(at * _GUIDES)])
    while placement.below[broker] <= at:
        broker += 1
    return broker


@jit
def _seats(users: Users, placement: UserPlacement) -> NDArray[np.int16]:
    found = np.empty(users.size, np.int16)
    for at in range(users.size):
        found[at] = _seat(users[at], placement)
    return found


@jit
def _matrix(publishers: Users, subscribers: Users, placement: UserPlacement) -> Matrix:
    found = np.zeros((placement.below.size, placement.below.size), np.int64)
    for at in range(publishers.size):
        found[_seat(publishers[at], placement), _seat(subscribers[at], placement)] += 1
    return found


_GUIDES: Final = 1024
ALPHA_MAX: Final = 50.0
"""At this alpha all users live at one broker, and the other probabilities are still above 0."""
