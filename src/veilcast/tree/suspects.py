"""Suspects: infers which nodes drop messages, from which of the subscriber's probes returned.

Pure. A probe enters at some node and must climb the path that the layout gives. It is lost on the way in or out with a
small probability that is no node's fault. Each node drops messages that reach it at a rate of its own, and messages
that it forwards for others at a further rate: a node that spares probes entering at itself would otherwise be cleared
by them.

The most likely rates are found by expectation maximisation. Given rates, each place of a lost probe's path has a
computable probability of having dropped it, and another of having been reached. Given those, a rate is the expected
number of drops at a node over the expected number of arrivals. Every rate is also charged with a few imaginary probes
that were not lost, and the further rate with more of them. So if everything below a node is lost, one dropper explains
it better than all its children do, and the blame converges where it explains all observations. In one tree, the nodes
below a dropper cannot be judged; the next tree has them elsewhere.

A node is named if the observations would be less likely by a factor of nodes / error if it dropped nothing. If no node
drops messages, an honest node is then named in at most about one verdict of 1 / error. If many do, the other rates are
estimates, too, and in a single tree a parent and its only child look alike. With a tenth of 500 nodes dropping
everything, two verdicts of 20 named honest nodes after one tree, and none after three.

Limit: a node is not found if it drops everything from one child, another child in every tree, and nothing else. Parent
and child of such a link look alike, and either may be at fault; usually neither is named, sometimes the child. So a
node that lost messages below one parent only should get another parent before it is excluded (`repair`), and only for a
time.
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
    """A node, the share of messages that it seems to drop, and the log-likelihood ratio in favour of it dropping
    them."""

    node: NodeId
    rate: float
    weight: float


class DropSuspects:
    """Remembers the last `remembered` probes. `loss` is the probability that a probe is lost through no node's
    fault."""

    def __init__(self, *, remembered: int, loss: float = 0.02, error: float = 0.001) -> None:
        if remembered < 1 or not 0 < loss < 1 or not 0 < error < 1:
            raise LocalError("suspects need a memory, and a loss and an error between 0 and 1")
        self._probes: deque[tuple[tuple[NodeId, ...], bool]] = deque(maxlen=remembered)
        self._loss = loss
        self._error = error

    def __len__(self) -> int:
        return len(self._probes)

    def record(self, path: Sequence[NodeId], *, returned: bool) -> None:
        """Record a probe that entered at the first of these nodes and should have passed all the others in turn."""
        if not 1 <= len(path) <= PATH_MAX:
            raise LocalError(f"a path has 1 to {PATH_MAX} nodes")
        self._probes.append((tuple(path), returned))

    def forget(self, node: NodeId) -> None:
        """Discard all probes on a path with this node: it gets another chance, or is gone."""
        self._probes = deque((each for each in self._probes if node not in each[0]), maxlen=self._probes.maxlen)

    def parents_after_loss(self, node: NodeId) -> set[NodeId]:
        """The next nodes after this one on the paths of lost probes, where it was not the last."""
        return {path[path.index(node) + 1] for path, returned in self._probes if not returned and node in path[:-1]}

    def find_suspects(self) -> list[SuspectedNode]:
        """The nodes to exclude, the strongest evidence first."""
        if all(returned for _, returned in self._probes):
            return []
        nodes = {node: number for number, node in enumerate(dict.fromkeys(n for path, _ in self._probes for n in path))}
        table = _Table.of(self._probes, nodes, self._loss)
        rates = table.rates()
        weights = table.weights(rates).tolist()
        both = (1 - np.prod(1 - rates, axis=0)).tolist()
        enough = log(len(nodes) / self._error)
        found = [SuspectedNode(node, both[at], weights[at]) for node, at in nodes.items() if weights[at] >= enough]
        return sorted(found, key=lambda suspect: -suspect.weight)


class _Table(msgspec.Struct, frozen=True):
    """Every probe as a row of node numbers; one extra number stands for a node that drops nothing.

    Rates have two rows: the share that a node drops of all arrivals, and of the messages that it forwards.
    """

    paths: Places
    returned: npt.NDArray[np.bool_]
    nodes: int
    loss: float

    @classmethod
    def of(cls, probes: Sequence[tuple[tuple[NodeId, ...], bool]], nodes: dict[NodeId, int], loss: float) -> _Table:
        paths = np.full((len(probes), max(len(path) for path, _ in probes)), len(nodes), dtype=np.int64)
        for row, (path, _) in enumerate(probes):
            paths[row, : len(path)] = [nodes[node] for node in path]
        return cls(paths, np.array([returned for _, returned in probes])[:, None], len(nodes), loss)

    def rates(self) -> Rates:
        rates = np.full((2, self.nodes), _FIRST)
        for _ in range(_ROUNDS):
            own, further, reached, passed_all = self._run(rates)
            lost = np.maximum(1 - passed_all, _TINY)
            rates = np.stack(
                [
                    self._rate(reached, own, passed_all, lost, PRIOR_PASSED),
                    self._rate(reached * (1 - own), further, passed_all, lost, PRIOR_PASSED_ON),
                ]
            )
        return rates

    def weights(self, rates: Rates) -> Rates:
        """For each node, the log-likelihood of the observations with its rates, minus that without."""
        own, further, _, passed_all = self._run(rates)
        passes = np.maximum((1 - own) * (1 - further), _TINY)
        without = np.minimum(passed_all / passes, 1 - self.loss)
        lost = np.log(np.maximum(1 - passed_all, _TINY)) - np.log(1 - without)
        return self._sum(np.where(self.returned, np.log(passes), lost))

    def _run(self, rates: Rates) -> tuple[Rates, Rates, Rates, Rates]:
        """The two rates and the probability of arrival at each place; and, as a column, the probability of passing
        the whole path."""
        own, further = (np.append(each, 0.0)[self.paths] for each in rates)
        further[:, 0] = 0.0
        passed = (1 - self.loss) * np.cumprod((1 - own) * (1 - further), axis=1)
        reached = np.full(passed.shape, 1 - self.loss)
        reached[:, 1:] = passed[:, :-1]
        return own, further, reached, passed[:, -1:].astype(np.float64, copy=False)

    def _rate(self, reached: Rates, rate: Rates, passed_all: Rates, lost: Rates, made_up: float) -> Rates:
        """Expected drops at each node over its expected arrivals, given the losses."""
        dropped = np.where(self.returned, 0.0, reached * rate / lost)
        returned = np.where(self.returned, 1.0, (reached - passed_all) / lost)
        return self._sum(dropped) / (self._sum(returned) + made_up)

    def _sum(self, each: Rates) -> Rates:
        sums = np.bincount(self.paths.ravel(), weights=each.ravel(), minlength=self.nodes + 1)
        return sums[:-1].astype(np.float64, copy=False)


PRIOR_PASSED: Final = 2.0
"""Imaginary probes that a node did not drop: fewer name a node sooner, more let several nodes share a blame."""

PRIOR_PASSED_ON: Final = 6.0
"""Imaginary probes that a node did not drop when forwarding, beyond its own rate: the rarer behaviour."""

PATH_MAX: Final = 64

_FIRST: Final = 0.1
_ROUNDS: Final = 60
_TINY: Final = 1e-9
