"""Replays a trace on the overlay of P4's brokers, as a matrix of interactions between brokers.

Users are placed once in a run, and their interactions become a matrix of brokers (`models.user_placement`). Overlays
and sets of Byzantine brokers are drawn on it, as many as a run needs. A synthetic trace is made part by part, so its
length costs time and no memory. Traces of another length are scaled to P4's 1.4 million interactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab import data as stored
from veilcast.lab import trace_file
from veilcast.lab.experiment.broker_params import TraceParams
from veilcast.lab.experiment.params import file_path
from veilcast.lab.models.broker_tree import BrokerTree, grow_tree
from veilcast.lab.models.synthetic_trace import TraceLaw
from veilcast.lab.models.user_placement import Matrix, UserPlacement, Users


class TracePart(NamedTuple):
    """Part of a trace, with all interactions of its publishers."""

    publisher: Users
    subscriber: Users
    key: NDArray[np.int32]
    """The publisher and the month: the count of a key's publications restarts every month."""


def make_trace_parts(params: TraceParams, seed: int, data: Path | None) -> Iterator[TracePart]:
    if params.trace == "synthetic":
        law = TraceLaw(params.users, params.relations, params.interactions, seed)
        pieces = ceil(params.interactions / PART_INTERACTIONS)
        for number in range(pieces):
            made = law.interactions_of(law.part(number, pieces))
            yield TracePart(made.publisher, made.subscriber, made.publisher)
    else:
        own = file_path(params.trace)
        read = trace_file.load_trace(Path(own)) if own else stored.load_trace(params.trace, data)
        month = (read.hour // MONTH_HOURS).astype(np.int32)
        yield TracePart(read.publisher, read.subscriber, read.publisher * (month.max() + 1) + month)


def replay_trace(params: TraceParams, seed: int, data: Path | None) -> Matrix:
    placement = place_users(params, seed)
    matrix = np.zeros((params.nodes, params.nodes), np.int64)
    for part in make_trace_parts(params, seed, data):
        matrix += placement.matrix(part.publisher, part.subscriber)
    return matrix


def place_users(params: TraceParams, seed: int) -> UserPlacement:
    return UserPlacement.by_zipf(params.nodes, params.users_zipf, seed)


def draw_overlays(params: TraceParams, seed: int) -> Iterator[BrokerTree]:
    for number in range(params.overlays):
        yield grow_tree(params.nodes, params.fanout, params.family, seed, number)


PART_INTERACTIONS: Final = 2_000_000
"""Approximate interactions of a part."""
MONTH_HOURS: Final = 730
