"""P2's three definitions of anonymity: a probability that no coalition may exceed, and the attacker's.

Publisher anonymity (Definition 1): the publisher is not named with more than 1/h, of h honest users. Topic-subscriber
anonymity (Definition 2): that a user subscribes to a topic is not known with more than (s - As)/(S - As), the share of
subscribers among all users outside the coalition. It is read as the share of correctly named users, both for the most
suspect user and for as many as there are subscribers. Subscription anonymity (Definition 3): the topic of a subscriber
is not named with more than 1/T, of T topics. It is read for a random subscription, so for a user with k topics a guess
is right for one of them with 1/k of the probability for any.

The definitions assume no prior knowledge. For publishers and subscribers of one topic that is no loss: there is one
base rate. But topics are not equally popular, and naming the most popular one for every user exceeds 1/T without
looking. So beside each bound stands `prior`, the success without looking, and an attack counts only above the larger of
the two.

Where scores are tied, the first guess is any of them. The same functions serve every mode: they take scores by user,
and the truth.
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
    """Probability that the attacker's statement is true."""
    bound: float
    """Probability that the definition allows."""
    prior: float
    """Success without looking."""

    @property
    def holds(self) -> bool:
        return self.probability <= max(self.bound, self.prior)


def measure_publisher(scores: Scores, publishes: int, honest: Mask) -> DefinitionResult:
    """Definition 1. A coalition does not suspect its own members."""
    if not honest[publishes]:
        raise ConfigError("a publisher of the coalition has nothing to hide from it")
    truth = np.arange(honest.size) == publishes
    bound = 1 / np.count_nonzero(honest)
    return DefinitionResult(precision_at(scores[honest], truth[honest], 1), bound, bound)


def measure_topic_subscriber(scores: Scores, subscribes: Mask, honest: Mask) -> DefinitionResult:
    """Definition 2, for the most suspect user; `honest` marks the S - As users."""
    return _measure_named(scores, subscribes, honest, 1)


def measure_topic_subscribers(scores: Scores, subscribes: Mask, honest: Mask) -> DefinitionResult:
    """Definition 2, for as many users as there are honest subscribers."""
    return _measure_named(scores, subscribes, honest, int(np.count_nonzero(subscribes & honest)))


def measure_subscription(scores: Scores, subscribes: Mask) -> DefinitionResult:
    """Definition 3; both arrays are users x topics. Users without a subscription do not count."""
    reads = subscribes.sum(axis=1)
    asked = reads > 0
    if not asked.any():
        raise ConfigError("nobody subscribes, so there is no subscription to hide")
    truth, total = subscribes[asked], int(reads.sum())
    first = scores[asked] == scores[asked].max(axis=1, keepdims=True)
    # A random subscription is a user's in proportion to its k subscriptions, and a right guess meets it with 1/k.
    right = (first & truth).sum(axis=1) / first.sum(axis=1)
    return DefinitionResult(float(right.sum() / total), 1 / subscribes.shape[1], float(truth.sum(axis=0).max() / total))


def _measure_named(scores: Scores, subscribes: Mask, honest: Mask, many: int) -> DefinitionResult:
    readers = int(np.count_nonzero(subscribes & honest))
    if not readers:
        raise ConfigError("no honest user subscribes, so there is nobody to name")
    bound = readers / int(np.count_nonzero(honest))
    return DefinitionResult(precision_at(scores[honest], subscribes[honest], many), bound, bound)
