"""P2's three definitions of anonymity, each a probability that no coalition may exceed, and what an attacker reached.

Publisher anonymity (Definition 1): who published is not named with more than 1/h, of h honest users. Topic-subscriber
anonymity (Definition 2): that a user subscribes to a topic is not known with more than (s - As)/(S - As), the share of
readers among all who are not of the coalition; read as the share of those rightly named, both for the one that is most
suspect and for as many as there are readers. Subscription anonymity (Definition 3): which topic a reader reads is not
named with more than 1/T, of T topics; read for a subscription drawn at random, so who reads k topics is right for one
of them with 1/k of what it would be for any.

The definitions take for granted that nothing is known beforehand. For publishers and readers of one topic that is no
loss: there is one base rate. Topics are not equally popular, though, and whoever names the most popular for everybody
exceeds 1/T without looking. So beside each bound stands `prior`, what is reached without looking, and an attack
is to be held against the larger of the two.

Where scores are tied, the first guess is any of them. The same functions serve every mode: they ask for scores by
user, and for the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.measure.accuracy import Mask
from veilcast.lab.measure.ranking import precision_at

Scores = NDArray[np.float64]


class DefinitionResult(NamedTuple):
    probability: float
    """That what the attacker says is so."""
    bound: float
    """What the definition allows."""
    prior: float
    """What is reached without looking."""

    @property
    def holds(self) -> bool:
        return self.probability <= max(self.bound, self.prior)


def measure_publisher(scores: Scores, publishes: int, honest: Mask) -> DefinitionResult:
    """Definition 1. A coalition does not suspect its own."""
    if not honest[publishes]:
        raise ConfigError("a publisher of the coalition has nothing to hide from it")
    truth = np.arange(honest.size) == publishes
    bound = 1 / np.count_nonzero(honest)
    return DefinitionResult(precision_at(scores[honest], truth[honest], 1), bound, bound)


def measure_topic_subscriber(scores: Scores, subscribes: Mask, honest: Mask) -> DefinitionResult:
    """Definition 2, for the one user that is most suspect; `honest` are the S - As."""
    return _named(scores, subscribes, honest, 1)


def measure_topic_subscribers(scores: Scores, subscribes: Mask, honest: Mask) -> DefinitionResult:
    """Definition 2, for as many users as there are readers among the honest."""
    return _named(scores, subscribes, honest, int(np.count_nonzero(subscribes & honest)))


def measure_subscription(scores: Scores, subscribes: Mask) -> DefinitionResult:
    """Definition 3: both are users x topics; users without a subscription are not asked about."""
    reads = subscribes.sum(axis=1)
    asked = reads > 0
    if not asked.any():
        raise ConfigError("nobody subscribes, so there is no subscription to hide")
    truth, total = subscribes[asked], int(reads.sum())
    first = scores[asked] == scores[asked].max(axis=1, keepdims=True)
    # A subscription drawn at random is one of a user's by the number of them, and the guess is it with 1/k of the rest.
    right = (first & truth).sum(axis=1) / first.sum(axis=1)
    return DefinitionResult(float(right.sum() / total), 1 / subscribes.shape[1], float(truth.sum(axis=0).max() / total))


def _named(scores: Scores, subscribes: Mask, honest: Mask, many: int) -> DefinitionResult:
    readers = int(np.count_nonzero(subscribes & honest))
    if not readers:
        raise ConfigError("no honest user subscribes, so there is nobody to name")
    bound = readers / int(np.count_nonzero(honest))
    return DefinitionResult(precision_at(scores[honest], subscribes[honest], many), bound, bound)
