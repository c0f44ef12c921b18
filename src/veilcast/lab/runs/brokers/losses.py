"""Retransmissions on P4's overlay because brokers drop publications: by P4's rule, and with three defences.

Over several sets of Byzantine brokers each number is the mean, because retransmissions add up. If overlays are drawn,
each set has its own overlay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.lab.experiment.broker_params import BrokersLosses
from veilcast.lab.experiment.params import Measure
from veilcast.lab.models.broker_losses import BrokerTraffic, LossCost, draw_byzantine
from veilcast.lab.models.broker_tree import grow_tree
from veilcast.lab.runs.brokers.interaction_matrix import replay_trace


def run(params: BrokersLosses, seed: int, data: Path | None) -> list[Measure]:
    matrix = replay_trace(params, seed, data)
    scale = params.interactions / int(matrix.sum())
    traffic = BrokerTraffic(matrix, grow_tree(params.nodes, params.fanout, params.family, seed))
    lost = np.zeros((params.overlays, len(params.counts), 2))
    for number in range(params.overlays):
        if params.family != "complete" and number:
            traffic = BrokerTraffic(matrix, grow_tree(params.nodes, params.fanout, params.family, seed, number))
        lost[number] = [_lost(params, traffic, count, seed, number) for count in params.counts]
    found = []
    for count, (again, content) in zip(params.counts, lost.mean(axis=0) * scale, strict=True):
        whole = {"again": again, "each": again / params.interactions, "content_tb": content * _MB / _TB}
        found += [Measure("", metric, count, float(value)) for metric, value in whole.items()]
    return found


def _lost(params: BrokersLosses, traffic: BrokerTraffic, count: int, seed: int, number: int) -> LossCost:
    marked = draw_byzantine(params.nodes, count, params.byzantine_zipf, params.replacement, seed, number)
    match params.losses:
        case "plain":
            return traffic.plain(marked)
        case "failover":
            return traffic.failover(marked, params.finds, params.holds, seed, number)
        case "coded":
            return traffic.coded(marked, params.replicas, params.replicas // 2 + 1, seed, number)
        case _:
            return traffic.replicated(params.replicas)


_MB: Final = 1 << 20
"""Content of an interaction, as P4 assumes."""
_TB: Final = 1 << 40
