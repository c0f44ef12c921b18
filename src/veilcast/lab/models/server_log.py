"""The log that the server of a relay, or its proxy, could write of its requests.

Rows are requests, or parts of one: a subscription by a tag, a publication by a tag, a body that is sent, or one that is
received. `who` and `what` are numbers without a meaning, equal where the observer could see that they are equal. A
server logs pseudonyms, and a number for each publication; a proxy logs its clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_ALL: Final = 2**63 - 1


@dataclass(frozen=True, eq=False)
class ServerLog:
    epoch: Numbers
    t_us: Numbers
    kind: NDArray[np.int8]
    who: Numbers
    what: Numbers

    def select(self, kind: int, first: int = 0, last: int = _ALL) -> ServerLog:
        """The rows of a kind; with `first` and `last`, of the epochs between them, both included."""
        return self._where((self.kind == kind) & (self.epoch >= first) & (self.epoch <= last))

    def take(self, rows: NDArray[np.int64]) -> ServerLog:
        return self._where(rows)

    def before(self, epoch: int) -> ServerLog:
        """The rows of all epochs before this one."""
        return self._where(self.epoch < epoch)

    def __len__(self) -> int:
        return len(self.who)

    def _where(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> ServerLog:
        return ServerLog(self.epoch[rows], self.t_us[rows], self.kind[rows], self.who[rows], self.what[rows])


def cross_table(who: Numbers, what: Numbers) -> tuple[NDArray[np.bool_], Numbers, Numbers]:
    """A mask of pairs of `who` and `what`; and the values of its rows and columns."""
    people, row = np.unique(who, return_inverse=True)
    things, column = np.unique(what, return_inverse=True)
    mask = np.zeros((people.size, things.size), np.bool_)
    mask[row, column] = True
    return mask, people, things


SUBSCRIBED: Final = 0
PUBLISHED: Final = 1
SENT: Final = 2
DELIVERED: Final = 3
KINDS: Final = ("subscribe", "publish", "send", "deliver")
