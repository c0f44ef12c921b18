"""Runs over P4's brokers on the kernels: a trace replayed on overlays, and what follows from it.

Users are placed once in a run, and their interactions become a matrix of brokers (`kernels.overlay_users`); overlays
and sets of Byzantine brokers are drawn on that, as many as are asked for. A synthetic trace is made part by part, so
its length costs time and no memory. Traces of another length are scaled to P4's 1.4 million interactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab import data as stored
from veilcast.lab import own_trace
from veilcast.lab.kernels.overlay_synthetic import Law
from veilcast.lab.kernels.overlay_trees import Overlay, grown
from veilcast.lab.kernels.overlay_users import Matrix, Placement, Users
from veilcast.lab.sweep.params import Measure, Params


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    from veilcast.lab.sweep import broker_costs, broker_losses, broker_places

    params.heed("runs over brokers", "brokers")
    match params.brokers:
        case "path":
            return broker_costs.path(params)
        case "shares":
            return broker_costs.shares(params, seed, data)
        case "refresh":
            return broker_costs.refresh(params, seed, data)
        case "placement":
            return broker_places.run(params, seed)
        case _:
            return broker_losses.run(params, seed, data)


class Part(NamedTuple):
    """Of a trace, with all that its publishers say."""

    publisher: Users
    subscriber: Users
    key: NDArray[np.int32]
    """The publisher, in each month another: what a key outlasts a month for is not counted."""


def parts(params: Params, seed: int, data: Path | None) -> Iterator[Part]:
    if params.trace == "synthetic" and not params.own_trace:
        law = Law(params.users, params.relations, params.interactions, seed)
        pieces = ceil(params.interactions / PART)
        for number in range(pieces):
            made = law.interactions_of(law.part(number, pieces))
            yield Part(made.publisher, made.subscriber, made.publisher)
    else:
        read = own_trace.load(Path(params.own_trace)) if params.own_trace else stored.trace(params.trace, data)
        month = (read.hour // MONTH_H).astype(np.int32)
        yield Part(read.publisher, read.subscriber, read.publisher * (month.max() + 1) + month)


def replayed(params: Params, seed: int, data: Path | None) -> Matrix:
    placement = placed(params, seed)
    matrix = np.zeros((params.nodes, params.nodes), np.int64)
    for part in parts(params, seed, data):
        matrix += placement.matrix(part.publisher, part.subscriber)
    return matrix


def placed(params: Params, seed: int) -> Placement:
    return Placement.zipf(params.nodes, params.users_zipf, seed)


def overlays(params: Params, seed: int) -> Iterator[Overlay]:
    for number in range(params.overlays):
        yield grown(params.nodes, params.fanout, params.family, seed, number)


PART: Final = 2_000_000
"""Interactions, about."""
MONTH_H: Final = 730
