"""The cost of P4's secret forwarding, on one path and over a trace: shares, messages, traffic, and keys that last
longer.

The path from a publisher's broker to a subscriber's over d edges has d + 1 virtual nodes. The published medians fit if
all shares on the path are counted. One published number fits only if edges are counted, and only the shares that a
subscriber receives. Both counts are kept apart here.

Over several overlays each number is the median. The mean number of shares has a long tail: of ten overlays one has 300
times as many as another. A mean over overlays would be that of the deepest.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from veilcast.brokers.keys.share_counts import messages_redistributed, shares_received, shares_sent
from veilcast.errors import ConfigError
from veilcast.lab.experiment.broker_params import BrokersPath, BrokersRefresh, BrokersShares
from veilcast.lab.experiment.params import Measure
from veilcast.lab.models.broker_keys import KeyedInteractions
from veilcast.lab.models.broker_shares import HopHistogram, cost_quantile, hop_histogram, mean_cost
from veilcast.lab.runs.brokers.interaction_matrix import draw_overlays, make_trace_parts, place_users, replay_trace


def measure_path(params: BrokersPath, seed: int, data: Path | None = None) -> list[Measure]:
    """Costs for each number of virtual nodes; with branches, the shares of all branches together."""
    found = []
    for hops in params.counts:
        levels = [params.branches**level * params.replicas ** (level + 1) for level in range(hops)]
        whole = {
            "shares": sum(levels),
            "received": levels[-1],
            "redistributed": messages_redistributed([params.replicas] * hops),
            "traffic_percent": 100 * sum(levels) * SHARE_BYTES / (params.refresh_mb * _MB),
            "times_less": params.refresh_mb / _REFRESHED_MB,
        }
        found += [Measure("", metric, hops, float(value)) for metric, value in whole.items()]
    return found


def measure_shares(params: BrokersShares, seed: int, data: Path | None) -> list[Measure]:
    """Costs of an interaction, and the share of interactions within each number of nodes."""
    matrix = replay_trace(params, seed, data)
    counted = [hop_histogram(matrix, overlay.edges) for overlay in draw_overlays(params, seed)]
    each = [_costs(params, one) for one in counted]
    found = [Measure("", metric, 0, median(costs[metric] for costs in each)) for metric in each[0]]
    for name, share in (("mean_low", 0.1), ("mean_high", 0.9)):
        found.append(Measure("", name, 0, float(np.quantile([costs["mean"] for costs in each], share))))
    longest = max(one.size for one in counted)
    within = np.mean([np.cumsum(np.pad(one, (0, longest - one.size))) / one.sum() for one in counted], axis=0)
    # Beyond this number the curve is 1.
    return found + [Measure("", "within", nodes + 1, float(share)) for nodes, share in enumerate(within[:_NODES_DRAWN])]


def measure_refresh(params: BrokersRefresh, seed: int, data: Path | None) -> list[Measure]:
    """Traffic of shares in a month, if a key serves for several publications; and if keys lie in a repository, from
    which each reader pulls a share from each replica, at any distance."""
    if 1 not in params.counts:
        raise ConfigError("counts must begin with 1, a key for each publication, to compare with")
    placement = place_users(params, seed)
    made = [(part, KeyedInteractions(part.key, part.subscriber)) for part in make_trace_parts(params, seed, data)]
    trees = [
        (overlay, np.array(_by_edge(params, int(overlay.edges.max())), float))
        for overlay in draw_overlays(params, seed)
    ]
    total = sum(part.publisher.size for part, _ in made)
    bytes_each = SHARE_BYTES * params.interactions / total / _GB
    found, first = [], 0.0
    for bulk in params.counts:
        matrix = np.zeros((params.nodes, params.nodes), np.int64)
        pulls = 0
        for part, said in made:
            keyed = said.needs_key(bulk, params.key_owner)
            matrix += placement.matrix(part.publisher[keyed], part.subscriber[keyed])
            pulls += int(np.count_nonzero(said.needs_key(bulk, "readers")))
        inside = median(float(hop_histogram(matrix, tree.edges) @ costs) for tree, costs in trees) * bytes_each
        first = first or inside
        content = params.interactions * _MB / _GB
        whole = {
            "gb": inside,
            "left": inside / first,
            "repository_gb": pulls * params.replicas * bytes_each,
            "of_content": inside / content,
        }
        found += [Measure("", metric, bulk, value) for metric, value in whole.items()]
    return found


def _costs(params: BrokersShares, counted: HopHistogram) -> dict[str, float]:
    """Means and medians over interactions, by each count of shares, and by redistribution."""
    nodes = [[params.replicas] * (edges + 1) for edges in range(counted.size)]
    sent = [shares_sent(way) for way in nodes]
    received = [shares_received(way) for way in nodes]
    hardened = [messages_redistributed(way) for way in nodes]
    return {
        "hops": mean_cost(counted, range(1, counted.size + 1)),
        "mean": mean_cost(counted, sent),
        "median": float(cost_quantile(counted, sent, 0.5)),
        "received": mean_cost(counted, received),
        "by_edges": mean_cost(counted, [1, *received]),
        "redistributed": mean_cost(counted, hardened),
        "redistributed_median": float(cost_quantile(counted, hardened, 0.5)),
        "redistributed_most": float(hardened[-1]),
    }


def _by_edge(params: BrokersRefresh, longest: int) -> list[int]:
    """Cost of an interaction by its number of edges: shares over all of its nodes, or those received if edges are
    counted."""
    if params.hops_counted == "edges":
        return [shares_received([params.replicas] * edges) for edges in range(longest + 1)]
    return [shares_sent([params.replicas] * (edges + 1)) for edges in range(longest + 1)]


SHARE_BYTES: Final = 117.6
"""The size at which 1.4 million interactions of 939 shares are 144 GB, in binary units. P4 does not state the size of a
share."""
_NODES_DRAWN: Final = 24
_REFRESHED_MB: Final = 200
"""The rate that P4 compares its lowest rate with."""
_MB: Final = 1 << 20
_GB: Final = 1 << 30
