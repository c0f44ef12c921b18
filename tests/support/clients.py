"""Small relays, for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.relay import Answers, Clientele, Service, Shown, serve, settle
from veilcast.lab.kernels.tokens import zipf
from veilcast.lab.measure.relayed import of_links


def clientele(seed: int, users: int = 120, topics: int = 10, most: float = 0.5, churn: float = 0.2) -> Clientele:
    reads = np.random.default_rng(seed).random((users, topics)) < zipf(topics, most)
    return settle(reads, 2, 80.0, churn, seed)


def served(seed: int, service: Service, epochs: int = 1, **more: float) -> tuple[Clientele, Shown, Answers]:
    people = clientele(seed, **more)  # type: ignore[arg-type]
    return people, *serve(people, service, epochs)


def readers_found(people: Clientele, scores: NDArray[np.float64], shuffled: int | None = None) -> float:
    """How well the readers of a writer stand out among all others, on the average; or of users shuffled by a seed."""
    reads = people.reads if shuffled is None else np.random.default_rng(shuffled).permutation(people.reads)
    return of_links(scores, people.writes, reads)["auc"]
