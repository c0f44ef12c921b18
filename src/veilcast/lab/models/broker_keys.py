"""Finds the interactions that carry a new key, if a key serves for a bulk of m publications.

P4 says that a publisher renews its key at every m-th publication. It does not say which readers have the key already.
Three readings:

- *publisher*: only the first publication of a bulk carries the key's shares, and readers of later ones have them
  already. This is P4's arithmetic, but a publisher's publications go to different readers;
- *pair*: publisher and subscriber have their own keys, renewed at every m-th publication between them;
- *readers*: a bulk has one key, which goes once to every reader of any publication of the bulk. This works with one
  key, and it is the number of pulls if keys lie in a repository.

Interactions are in the order of publishers, and in the order of time for each publisher. A part of a trace has all
interactions of its publishers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.user_placement import Users

KeyOwner: TypeAlias = Literal["publisher", "pair", "readers"]
Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KeyedInteractions:
    publishers: Users
    subscribers: Users

    def __post_init__(self) -> None:
        if (np.diff(self.publishers) < 0).any():
            raise ConfigError("interactions come in the order of their publishers")

    def needs_key(self, bulk: int, owner: KeyOwner) -> NDArray[np.bool_]:
        """A mask of the interactions that carry a key."""
        if bulk < 1:
            raise ConfigError(f"a key serves for one publication at least, not for {bulk}")
        if owner == "readers":
            return _first_of_bulk(self.subscribers, self._number, bulk)
        found: NDArray[np.bool_] = (self._number if owner == "publisher" else self._number_of_pair) % bulk == 0
        return found

    @cached_property
    def _number(self) -> Numbers:
        """The number of each interaction among those of its publisher, from 0."""
        return _number_runs(self.publishers)

    @cached_property
    def _number_of_pair(self) -> Numbers:
        order = np.lexsort((self._number, self.subscribers, self.publishers))
        found = np.empty(order.size, np.int64)
        found[order] = _number_runs(self.publishers[order], self.subscribers[order])
        return found


def _number_runs(*alike: Users) -> Numbers:
    """The number of equal entries before each entry. Equal entries are adjacent."""
    size = alike[0].size
    new = np.ones(size, np.bool_)
    if size:
        new[1:] = np.logical_or.reduce([np.diff(column) != 0 for column in alike])
    first = np.flatnonzero(new)
    return np.arange(size) - np.repeat(first, np.diff(np.append(first, size)))


@jit
def _first_of_bulk(subscribers: Users, number: Numbers, bulk: int) -> NDArray[np.bool_]:
    """Whether no earlier interaction of its bulk went to the same reader."""
    found = np.ones(number.size, np.bool_)
    for at in range(number.size):
        for before in range(at - number[at] % bulk, at):
            if subscribers[before] == subscribers[at]:
                found[at] = False
                break
    return found
