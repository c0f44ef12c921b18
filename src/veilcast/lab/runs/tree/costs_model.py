"""The cost of publications on spanning trees, on the model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.tree_params import TreeCosts
from veilcast.lab.models import tree
from veilcast.lab.models.rng import stream


def run(params: TreeCosts, seed: int, data: Path | None = None) -> list[Measure]:
    """Messages, hops, and messages of the busiest node, for some publications to some readers; beside them the messages
    of one server that sends everything to all readers."""
    readers = tree.draw_nodes(params.nodes, params.readers, seed, "readers")
    origin = tree.draw_origins(params.nodes, params.publications, seed)
    found = {"server": float(params.readers * params.publications)}
    if params.tree == "hardened" or params.routing == "trees":
        found |= _by_trees(params, readers, origin, seed)
    else:
        above = tree.all_parents(tree.subscriber_rooted(params.nodes, params.depth, readers, seed))
        found |= _by_topic(params, above, origin, seed)
    return [Measure("", metric, 0, value) for metric, value in found.items()]


def _by_trees(params: TreeCosts, readers: tree.Nodes, origin: tree.Nodes, seed: int) -> dict[str, float]:
    if params.routing != "trees":
        raise ConfigError("hardened trees are never mixed: routing is by trees")
    if params.tree == "paper":
        trees = tree.subscriber_rooted(params.nodes, params.depth, readers, seed)
        chain = 0
    else:
        trees = tree.randomly_rooted(params.nodes, params.depth, readers.size, seed)
        # From the root to the first guard, and from the last to the subscriber.
        chain = params.chain + params.tail + 1
    cost = tree.climb_trees(trees, origin)
    sent = cost.sent + (_by_guards(params, readers, origin.size, seed) if chain else 0)
    return {
        "messages": cost.messages + chain * readers.size,
        "copies": cost.copies + chain * readers.size,
        "hops": cost.hops + chain,
        "busiest": float(sent.max()),
        "mean": float(sent.mean()),
    }


def _by_guards(params: TreeCosts, readers: tree.Nodes, publications: int, seed: int) -> tree.Nodes:
    """Messages that nodes send as guards of readers: a guard forwards every publication."""
    rng = np.random.default_rng(stream(seed, "guards"))
    guards = [rng.permutation(params.nodes)[: params.chain + params.tail] for _ in readers]
    return publications * np.bincount(np.concatenate(guards), minlength=params.nodes)


def _by_topic(params: TreeCosts, above: tree.Nodes, origin: tree.Nodes, seed: int) -> dict[str, float]:
    if params.routing == "seen":
        messages = [tree.count_flood(above, int(start)) for start in origin]
        return {"messages": float(np.mean(messages))}
    walked = np.array(
        [tree.count_wander(above, int(start), MESSAGES_MAX, LABEL_BITS, seed + at) for at, start in enumerate(origin)]
    )
    return {"messages": float(walked.mean()), "cut": float(np.mean(walked == MESSAGES_MAX))}


MESSAGES_MAX: Final = 2_000_000
"""Counting stops at this number of messages."""
LABEL_BITS: Final = 128
"""Bits of P2's header. With four positions for a label, a path of ten hops ends too early in nearly one case of a
hundred."""
