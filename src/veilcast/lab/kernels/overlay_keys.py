"""Which interactions bring a new key, where a key serves for a bulk of m publications and not for one.

P4 says that a publisher renews its key at every m-th publication, and not who has read the one before. Three readings:
- *publisher*: only the first publication of a bulk carries the key's shares, and whoever reads a later one has them
  already. This is P4's arithmetic, but a publisher's publications go to different readers;
- *pair*: publisher and subscriber have keys of their own, renewed at every m-th publication between them;
- *readers*: a bulk has one key, and it goes once to everybody who reads anything of the bulk. This is what works with
  one key, and the number of pulls if keys lie in a repository.

Interactions come in the order of publishers, and of each in the order of time; a part of a trace has all of a
publisher's.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.kernels.overlay_users import Users

Owner: TypeAlias = Literal["publisher", "pair", "readers"]


def carrying(publishers: Users, subscribers: Users, bulk: int, owner: Owner) -> NDArray[np.bool_]:
    """By interaction."""
    if bulk < 1:
        raise ConfigError(f"a key serves for one publication at least, not for {bulk}")
    if (np.diff(publishers) < 0).any():
        raise ConfigError("interactions come in the order of their publishers")
    number = _number(publishers)
    found: NDArray[np.bool_] = number % bulk == 0
    if owner == "publisher":
        return found
    if owner == "pair":
        order = np.lexsort((number, subscribers, publishers))
        pair = _number(publishers[order], subscribers[order])
    else:
        order = np.lexsort((number, subscribers, number // bulk, publishers))
        pair = _number(publishers[order], number[order] // bulk, subscribers[order])
    found[order] = pair % bulk == 0 if owner == "pair" else pair == 0
    return found


def _number(*sorted_by: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.int64]:
    """How many before it are alike; those that are alike stand together."""
    size = sorted_by[0].size
    new = np.ones(size, np.bool_)
    if size:
        new[1:] = np.logical_or.reduce([np.diff(column) != 0 for column in sorted_by])
    first = np.flatnonzero(new)
    return np.arange(size) - np.repeat(first, np.diff(np.append(first, size)))
