"""How long subscribers of trees wait (P2, Figs. 3 to 5): a model of queues on the same hosts as a relay's clients.

Five hundred subscribers of five hundred nodes each are a quarter of a million instructions: too many for the machines.
The costs in the model were measured on the machines. The same events are timed as for a relay (`runs.relay.delays`): a
subscription is active when the last node has its instruction. Routing is by trees.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.lab.data import load_round_trips
from veilcast.lab.experiment.params import Measure, file_path
from veilcast.lab.experiment.tree_params import TreeDelays
from veilcast.lab.models import tree
from veilcast.lab.models.rng import stream
from veilcast.lab.models.tree import Nodes, SpanningTrees
from veilcast.lab.models.tree_delays import CircuitNetwork, InstallGroups, TreeWork, delivery_times, install_times
from veilcast.lab.runs.planetlab import place_on_planetlab
from veilcast.lab.runs.relay.delays import READER_COUNT
from veilcast.machine import Address
from veilcast.tree.config import TreeConfig


def run(params: TreeDelays, seed: int, data: Path | None = None) -> list[Measure]:
    params.check_hosts(READER_COUNT if params.timed == "crowd" or params.by == "queues" else 1)
    if params.by == "nodes":
        from veilcast.lab.runs.tree import delays_machines  # It imports the simulator.

        return delays_machines.run(params, seed, data)
    hosts = place_on_planetlab(
        [Address(f"c{number}") for number in range(params.nodes)],
        load_round_trips(data, file_path(params.latencies)),
        seed,
    )
    net = CircuitNetwork(np.array(hosts.one_way_us, np.int64), params.circuit, stream(seed, "circuits")[0])
    found = []
    for step in params.steps:
        timed = _TimedTrees(params, net, seed)
        times = timed.subscribing(int(step)) if params.timed == "subscribing" else timed.publishing(params, int(step))
        found += [Measure("", metric, step, value) for metric, value in times.items()]
    return found


class _TimedTrees:
    """Trees on hosts. Nodes are numbered like hosts, which are assigned at random: so the first nodes are random
    ones."""

    def __init__(self, params: TreeDelays, net: CircuitNetwork, seed: int) -> None:
        self._net, self._nodes, self._depth, self._work = net, params.nodes, params.depth, TREE_WORK[params.tree]
        self._guards = params.chain if params.tree == "hardened" else 0
        self._seed, self._rng = seed, np.random.default_rng(stream(seed, "grove"))

    def subscribing(self, count: int) -> dict[str, float]:
        readers = np.arange(count)
        trees, chains = self._draw_trees(readers)
        groups = self._groups(count) if self._guards else None
        times = install_times(self._net, self._work, trees, readers, chains, groups)
        return {"subscribed_s": float(times.max()) / 1e6}

    def publishing(self, params: TreeDelays, count: int) -> dict[str, float]:
        """One of `count` readers publishes; or, in a crowd, `count` nodes publish to a few readers."""
        crowd = params.timed == "crowd"
        readers, senders = (np.arange(READER_COUNT), np.arange(count)) if crowd else (np.arange(count), np.arange(1))
        trees, chains = self._draw_trees(readers)
        origin = self._rng.integers(self._nodes, size=senders.size)
        has = delivery_times(self._net, self._work, trees, readers, chains, origin, senders)
        own = {"own_s": float(has[0, 0]) / 1e6}
        return own if crowd else own | {"last_s": float(has[0].max()) / 1e6}

    def _draw_trees(self, readers: Nodes) -> tuple[SpanningTrees, Nodes]:
        """Trees, and readers x guards, without repetition on a chain."""
        names = (self._nodes, self._depth)
        trees = (
            tree.randomly_rooted(*names, readers.size, self._seed)
            if self._guards
            else tree.subscriber_rooted(*names, readers, self._seed)
        )
        chains = np.empty((readers.size, self._guards), np.int64)
        for chain, reader in zip(chains, readers, strict=True):
            drawn = self._rng.permutation(self._nodes)
            chain[:] = drawn[drawn != reader][: self._guards]
        return trees, chains

    def _groups(self, count: int) -> InstallGroups:
        order = tree.randomly_rooted(self._nodes, self._depth, count, self._seed, "groups")
        bundles = -(-self._nodes // DEFAULT_CONFIG.group) + self._guards
        first_us = self._rng.integers(DEFAULT_CONFIG.spread_us, size=(count, bundles))
        return InstallGroups(order, DEFAULT_CONFIG.group, DEFAULT_CONFIG.fan, first_us)


DEFAULT_CONFIG: Final = TreeConfig()
TREE_WORK: Final = {
    "paper": TreeWork(wrap=110, unwrap=390, match=490, take=160, hand=85),
    "hardened": TreeWork(wrap=160, unwrap=680, match=460, take=110, hand=85),
}
"""Measured on the machines, on one core, with 30 microseconds for each record on a stream, received or sent, and for
its answer."""
