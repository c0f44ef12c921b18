"""How to choose mu (P0 5, fourth question): the smallest value that keeps subscribers below half of a mesh.

If subscribers are more than half, an observer that names every member of the mesh as a subscriber is right more often
than not. The shell game does not change that; only covers do. The numbers are those of small worlds with rewiring 0.2,
by the rule "one".

The share of all nodes that a mesh without covers has is r + (1 - r) f: subscribers, and forwarders among the rest. For
f, a power law in r and in the degree d, slightly bent, is within 0.007 of simulated meshes (5 degrees from 4 to 16, 10
ratios, 80 seeds each, 500 nodes).

Covers by mean field: every node in the mesh has its turn once, covers too. With probability mu it takes in a neighbour,
unless all its neighbours are inside, which for a share s inside has probability s^k. So ds/dq = mu (1 - s^k) in the
share q that has had its turn, and the process ends when q = s. To end at s = 2r it takes

    mu = 1/(2r) * integral from a to 2r of ds / (1 - s^k)

where a is the share without covers. With independent neighbours k would be d; k = 0.94 d^0.94 fits best, and gives the
mean to within 0.021. A margin for the spread between meshes of 500 nodes is added, so that 95 of 100 stay below; larger
meshes spread less.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import ConfigError


def smallest_mu(ratio: float, degree: float) -> float:
    """`CoverConfig.mu` for a share `ratio` of subscribers and a mean degree `degree`; 0 if no covers are needed.

    Raises `ConfigError` from a ratio of nearly a half on: no mu is enough.
    """
    if not 0 < ratio < 1 or not _DEGREES[0] <= degree <= _DEGREES[1]:
        raise ConfigError(f"a ratio is between 0 and 1, and degrees from {_DEGREES[0]} to {_DEGREES[1]} are known")
    goal, bare = 2 * ratio, _bare(ratio, degree)
    if bare >= goal + _SPREAD * goal:
        return 0.0
    mu = _SPREAD + _FIT + (_integral(bare, goal, _K * degree**_K_POWER) / goal if 0 < goal < 1 else 1.0)
    if mu > 1:
        raise ConfigError(f"where {ratio} of all nodes subscribe, no covers keep them below half of a mesh")
    return max(0.0, mu)


def _bare(ratio: float, degree: float) -> float:
    """The share of all nodes that are in a mesh without covers."""
    forwarders = _F * ratio**_F_RATIO * degree**_F_DEGREE * (1 - _F_BEND * ratio)
    return float(ratio + (1 - ratio) * forwarders)


def _integral(low: float, high: float, k: float) -> float:
    """Integral of 1 / (1 - s^k), by Simpson's rule; negative if `low` is higher than `high`."""
    step = (high - low) / _INTERVALS
    total = 0.0
    for place in range(_INTERVALS + 1):
        weight = 1 if place in (0, _INTERVALS) else 4 if place % 2 else 2
        total += weight / (1 - (low + place * step) ** k)
    return total * step / 3


_F: Final = 1.615
_F_RATIO: Final = 0.605
_F_DEGREE: Final = -0.495
_F_BEND: Final = 0.346
_K: Final = 0.94
_K_POWER: Final = 0.94
_FIT: Final = 0.02
_SPREAD: Final = 0.08
_DEGREES: Final = (4, 16)
_INTERVALS: Final = 200
