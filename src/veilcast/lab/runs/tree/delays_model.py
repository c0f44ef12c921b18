"""How long subscribers of trees wait (P2, Figs. 3 to 5): on the same hosts as a relay's clients, by a model of queues.

Five hundred subscribers of five hundred nodes each are a quarter of a million instructions: too many for the machines
themselves, whose work is what the model's costs were measured on. What is timed is what is timed of a relay
(`delay_runs`): subscribing is over when the last node has its instruction. Routing is by trees.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.lab.data import load_round_trips
from veilcast.lab.experiment.params import Measure
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
    params.check_hosts(READER_COUNT)
    hosts = place_on_planetlab([Address(f"c{number}") for number in range(params.nodes)], load_round_trips(data), seed)
    net = CircuitNetwork(np.array(hosts.one_way_us, np.int64), params.circuit, stream(seed, "circuits")[0])
    found = []
    for step in params.steps:
        grove = _Grove(params, net, seed)
        times = grove.subscribing(int(step)) if params.timed == "subscribing" else grove.publishing(params, int(step))
        found += [Measure("", metric, step, value) for metric, value in times.items()]
    return found


class _Grove:
    """Nodes are numbered as hosts are, which are dealt at random: so the first of them are any."""

    def __init__(self, params: TreeDelays, net: CircuitNetwork, seed: int) -> None:
        self._net, self._nodes, self._depth, self._work = net, params.nodes, params.depth, TREE_WORK[params.tree]
        self._guards = params.chain if params.tree == "hardened" else 0
        self._seed, self._rng = seed, np.random.default_rng(stream(seed, "grove"))

    def subscribing(self, count: int) -> dict[str, float]:
        readers = np.arange(count)
        trees, chains = self._planted(readers)
        groups = self._groups(count) if self._guards else None
        times = install_times(self._net, self._work, trees, readers, chains, groups)
        return {"subscribed_s": float(times.max()) / 1e6}

    def publishing(self, params: TreeDelays, count: int) -> dict[str, float]:
        """One of so many readers publishes; or so many publish to a few of them."""
        crowd = params.timed == "crowd"
        readers, senders = (np.arange(READER_COUNT), np.arange(count)) if crowd else (np.arange(count), np.arange(1))
        trees, chains = self._planted(readers)
        origin = self._rng.integers(self._nodes, size=senders.size)
        has = delivery_times(self._net, self._work, trees, readers, chains, origin, senders)
        own = {"own_s": float(has[0, 0]) / 1e6}
        return own if crowd else own | {"last_s": float(has[0].max()) / 1e6}

    def _planted(self, readers: Nodes) -> tuple[SpanningTrees, Nodes]:
        """Trees, and readers x guards, none of them twice on a chain."""
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
"""Measured on the machines, on one core: with each record on a stream, coming or going, at 30 microseconds, and the
answer to each."""
