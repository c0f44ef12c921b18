"""Suspects: who loses what it should pass on, from which of the subscriber's test publications came back.

Pure. A test publication enters at some node and must climb the way that the plan says. It is lost on the way in or out
with a small chance that is nobody's fault; each node drops what comes to it with a rate of its own, and with a further
one what it passes on for others: who spares what enters at itself would else be cleared by that.

The likeliest rates are found by expectation and maximisation. Given rates, a publication that was lost was lost at
each place of its way with a chance that can be computed, and it had come as far as each place with another; given
those, a rate is what was lost there of what had come there. Every rate is also charged with a few publications, made
up, that were not lost, and the further one with more of them. So where all below a node is lost, one dropper explains
it better than all its children do, and the blame runs together where it fits all that was seen. In one tree, what
stands below a dropper stays in the dark; the next tree has it elsewhere.

A node is named when what was seen would be less likely by a factor of nodes / error if it dropped nothing. Where nobody
drops, an honest node is then named in about one verdict of 1 / error at most. Where many do, the others' rates are
guesses, too, and in a single tree a parent and its only child look alike: with a tenth of 500 nodes dropping all, two
verdicts of 20 named honest nodes after one tree, and none after three.

What this does not find: who drops all that one child hands on, another child's in every tree, and nothing else. Parent
and child of such a link look alike, and either may have done it; mostly neither is named, sometimes the child. So who
has lost things below one parent only should be given another before it is left out (`tending`), and that for a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import log
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from veilcast.errors import LocalError
from veilcast.tree.instruction_bundles import NodeId

Rates: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]


class SuspectedNode(msgspec.Struct, frozen=True):
    """A node, how much of what comes to it seems lost, and how much less likely all would be if it were not (log)."""

    node: NodeId
    rate: float
    weight: float


class DropSuspects:
    """Remembers the last `remembered` test publications. `loss`: the chance that one is lost by nobody's fault."""

    def __init__(self, *, remembered: int, loss: float = 0.02, error: float = 0.001) -> None:
        if remembered < 1 or not 0 < loss < 1 or not 0 < error < 1:
            raise LocalError("suspects need a memory, and a loss and an error between 0 and 1")
        self._seen: deque[tuple[tuple[NodeId, ...], bool]] = deque(maxlen=remembered)
        self._loss = loss
        self._error = error

    def __len__(self) -> int:
        return len(self._seen)

    def record(self, way: Sequence[NodeId], *, returned: bool) -> None:
        """A test publication that entered at the first of these, and should have come by all the others in turn."""
        if not 1 <= len(way) <= PATH_MAX:
            raise LocalError(f"a way has 1 to {PATH_MAX} nodes")
        self._seen.append((tuple(way), returned))

    def forget(self, node: NodeId) -> None:
        """What was seen with this node counts no more: it is given another chance, or gone."""
        self._seen = deque((each for each in self._seen if node not in each[0]), maxlen=self._seen.maxlen)

    def parents_after_loss(self, node: NodeId) -> set[NodeId]:
        """To whom this node should have handed what was lost on a way that it was on, and was not the last of."""
        return {way[way.index(node) + 1] for way, came in self._seen if not came and node in way[:-1]}

    def find_suspects(self) -> list[SuspectedNode]:
        """Who is to be left out, the heaviest first."""
        if all(returned for _, returned in self._seen):
            return []
        nodes = {node: number for number, node in enumerate(dict.fromkeys(n for way, _ in self._seen for n in way))}
        table = _Table.of(self._seen, nodes, self._loss)
        rates = table.rates()
        weights = table.weights(rates).tolist()
        both = (1 - np.prod(1 - rates, axis=0)).tolist()
        enough = log(len(nodes) / self._error)
        found = [SuspectedNode(node, both[at], weights[at]) for node, at in nodes.items() if weights[at] >= enough]
        return sorted(found, key=lambda suspect: -suspect.weight)


class _Table(msgspec.Struct, frozen=True):
    """Every publication as a row of nodes by their numbers; one number more is nobody, who drops nothing.

    Rates stand in two rows: what a node drops of all that comes to it, and of what it passes on.
    """

    ways: Places
    returned: npt.NDArray[np.bool_]
    nodes: int
    loss: float

    @classmethod
    def of(cls, seen: Sequence[tuple[tuple[NodeId, ...], bool]], nodes: dict[NodeId, int], loss: float) -> _Table:
        ways = np.full((len(seen), max(len(way) for way, _ in seen)), len(nodes), dtype=np.int64)
        for row, (way, _) in enumerate(seen):
            ways[row, : len(way)] = [nodes[node] for node in way]
        return cls(ways, np.array([returned for _, returned in seen])[:, None], len(nodes), loss)

    def rates(self) -> Rates:
        rates = np.full((2, self.nodes), _FIRST)
        for _ in range(_ROUNDS):
            own, further, reached, through = self._run(rates)
            lost = np.maximum(1 - through, _TINY)
            rates = np.stack(
                [
                    self._rate(reached, own, through, lost, PRIOR_PASSED),
                    self._rate(reached * (1 - own), further, through, lost, PRIOR_PASSED_ON),
                ]
            )
        return rates

    def weights(self, rates: Rates) -> Rates:
        """For each node, how much likelier all that was seen is with its rates than without, in logarithms."""
        own, further, _, through = self._run(rates)
        passes = np.maximum((1 - own) * (1 - further), _TINY)
        without = np.minimum(through / passes, 1 - self.loss)
        lost = np.log(np.maximum(1 - through, _TINY)) - np.log(1 - without)
        return self._sum(np.where(self.returned, np.log(passes), lost))

    def _run(self, rates: Rates) -> tuple[Rates, Rates, Rates, Rates]:
        """At each place its two rates and the chance to come there; and, as a column, the chance to come through."""
        own, further = (np.append(each, 0.0)[self.ways] for each in rates)
        further[:, 0] = 0.0
        passed = (1 - self.loss) * np.cumprod((1 - own) * (1 - further), axis=1)
        reached = np.full(passed.shape, 1 - self.loss)
        reached[:, 1:] = passed[:, :-1]
        return own, further, reached, passed[:, -1:].astype(np.float64, copy=False)

    def _rate(self, reached: Rates, rate: Rates, through: Rates, lost: Rates, made_up: float) -> Rates:
        """What was lost at a place, of what came there: of what was lost at all, both are chances."""
        dropped = np.where(self.returned, 0.0, reached * rate / lost)
        came = np.where(self.returned, 1.0, (reached - through) / lost)
        return self._sum(dropped) / (self._sum(came) + made_up)

    def _sum(self, each: Rates) -> Rates:
        sums = np.bincount(self.ways.ravel(), weights=each.ravel(), minlength=self.nodes + 1)
        return sums[:-1].astype(np.float64, copy=False)


PRIOR_PASSED: Final = 2.0
"""Publications, made up, that a node did not drop: the fewer, the sooner it is named, and the more share a blame."""

PRIOR_PASSED_ON: Final = 6.0
"""And that it did not drop when it passed them on, beyond what it drops anyway: the rarer habit."""

PATH_MAX: Final = 64

_FIRST: Final = 0.1
_ROUNDS: Final = 60
_TINY: Final = 1e-9
