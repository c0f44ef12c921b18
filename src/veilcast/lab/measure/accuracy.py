"""P0's measures of an observer's success, and what they compare with.

Accuracy (Eq. 5) is the share of nodes that were classified correctly. P0 counts it in two ways without saying so, and
both are here by name. Its worked example (Fig. 7) counts the mesh without the publisher (`_mesh`). Its curves for BL
and PF fit only if all nodes count (`_all`): nodes outside the mesh are right answers, and subscribers that the mesh
does not reach are wrong ones. Its curve for SG is neither, but the share of subscribers among the leaves,
`leaf_precision`, whose limit is |Sa|/|Va|, `share`; `residual` is the part of the way from there to certainty that is
left.

Accuracy depends on the base rate and says little alone. So beside it stand three observers that do not look: one that
names no node, one that names at random with the right frequency, and one that says the opposite of the attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RunTruth:
    """The publisher and the subscribers of a run. Only measures see it."""

    publisher: int
    subscribes: Mask

    @cached_property
    def candidates(self) -> Mask:
        """The possible subscribers: all nodes except the publisher."""
        mask = np.ones(len(self.subscribes), dtype=np.bool_)
        mask[self.publisher] = False
        return mask


def measure_mesh(truth: RunTruth, members: Mask) -> dict[str, float]:
    """Measures that do not depend on the attack: sizes, shares, and the accuracy of observers that do not look."""
    found = {"overlay": float(np.count_nonzero(members))}
    if truth.subscribes.any():
        found["reached"] = _share(members, truth.subscribes)
    for name, among in _populations(truth, members):
        rate = _share(truth.subscribes, among)
        found[f"all_negative_{name}"] = 1 - rate
        found[f"prior_{name}"] = 1 - 2 * rate * (1 - rate)
        if name == "mesh":
            found["share"] = rate
    return found


def measure_guess(truth: RunTruth, members: Mask, named: Mask) -> dict[str, float]:
    """The success of an attack that named these nodes. Undefined measures, as the precision of an attack that names no
    node, are left out."""
    found, share = {}, 1.0
    right = named == truth.subscribes
    for name, among in _populations(truth, members):
        accuracy = _share(right, among)
        found[f"accuracy_{name}"] = accuracy
        found[f"inverted_{name}"] = 1 - accuracy
        if name == "mesh":
            share = _share(truth.subscribes, among)
    if named.any():
        precision = found["leaf_precision"] = _share(truth.subscribes, named)
        if share < 1:
            found["residual"] = (precision - share) / (1 - share)
    return found


def _populations(truth: RunTruth, members: Mask) -> list[tuple[str, Mask]]:
    everybody = np.ones(len(truth.subscribes), dtype=np.bool_)
    return [(name, mask) for name, mask in (("mesh", members & truth.candidates), ("all", everybody)) if mask.any()]


def _share(of: Mask, among: Mask) -> float:
    """Counted, not taken as a mean: measures are most of a short run, and this takes a third of the time."""
    return int(np.count_nonzero(of & among)) / int(np.count_nonzero(among))
