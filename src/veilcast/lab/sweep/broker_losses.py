"""What is sent again on P4's overlay because of brokers that drop: by its own rule, and by what could be done about it.

Over several sets of Byzantine brokers each number is their mean, as retransmissions add up. Where overlays are drawn,
each set has one of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.lab.kernels import overlay_losses as losing
from veilcast.lab.kernels.overlay_losses import Loss
from veilcast.lab.kernels.overlay_trees import Overlay, grown
from veilcast.lab.kernels.overlay_users import Matrix
from veilcast.lab.sweep.broker_runs import replayed
from veilcast.lab.sweep.params import Measure, Params


def run(params: Params, seed: int, data: Path | None) -> list[Measure]:
    matrix = replayed(params, seed, data)
    scale = params.interactions / int(matrix.sum())
    found = []
    overlay = grown(params.nodes, params.fanout, params.family, seed)
    for count in params.counts:
        lost = []
        for number in range(params.overlays):
            if params.family != "complete" and number:
                overlay = grown(params.nodes, params.fanout, params.family, seed, number)
            lost.append(_lost(params, matrix, overlay, count, seed, number))
        again, content = np.mean(lost, axis=0) * scale
        whole = {"again": again, "each": again / params.interactions, "content_tb": content * _MB / _TB}
        found += [Measure("", metric, count, float(value)) for metric, value in whole.items()]
    return found


def _lost(params: Params, matrix: Matrix, overlay: Overlay, count: int, seed: int, number: int) -> Loss:
    replacement = params.replacement
    marked = losing.byzantine(params.nodes, count, params.byzantine_zipf, replacement, seed, number)
    match params.losses:
        case "plain":
            return losing.plain(matrix, overlay, marked)
        case "failover":
            return losing.failover(matrix, overlay, marked, params.finds, params.holds, seed, number)
        case "coded":
            needed = params.replicas // 2 + 1
            return losing.coded(matrix, overlay, marked, params.replicas, needed, seed, number)
        case _:
            return losing.replicated(matrix, overlay, params.replicas)


_MB: Final = 1 << 20
"""Of content in an interaction, as P4 assumes."""
_TB: Final = 1 << 40
