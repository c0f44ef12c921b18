"""Small relays, for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.measure.relay_success import measure_links
from veilcast.lab.models.relay import RelayObservations, RelayService, RelayTruth, RelayUsers, run_relay, settle_users
from veilcast.lab.models.topic_mix import zipf_popularity


def draw_users(seed: int, users: int = 120, topics: int = 10, most: float = 0.5, churn: float = 0.2) -> RelayUsers:
    reads = np.random.default_rng(seed).random((users, topics)) < zipf_popularity(topics, most)
    return settle_users(reads, 2, 80.0, churn, seed)


def run_small_relay(
    seed: int, service: RelayService, epochs: int = 1, **more: float
) -> tuple[RelayUsers, RelayObservations, RelayTruth]:
    people = draw_users(seed, **more)  # type: ignore[arg-type]
    return people, *run_relay(people, service, epochs)


def find_readers(people: RelayUsers, scores: NDArray[np.float64], shuffled: int | None = None) -> float:
    """How well the readers of a writer stand out among all others, on the average; or of users shuffled by a seed."""
    reads = people.reads if shuffled is None else np.random.default_rng(shuffled).permutation(people.reads)
    return measure_links(scores, people.writes, reads)["auc"]
