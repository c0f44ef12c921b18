"""Success of a relay's attackers: on subscriptions, users and their topics, publications, links of users, and the order
of values.

How well the right answers stand out is measured for each topic, or for each publisher, and then averaged: that some
topics are popular, and some publishers have many subscribers, is no secret. P2's definitions are reported where they
apply.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from veilcast.lab.measure import definitions, ranking
from veilcast.lab.measure.accuracy import Mask

Scores = NDArray[np.float64]


def measure_order(place: NDArray[np.float64], value: NDArray[np.int64]) -> float:
    """Spearman's rank correlation of a recovered order, up to mirroring: 1 if all values are in order or in reverse
    order; 0 where nothing can be told. Mirroring leaves one bit for all values together. Tied places count as their
    mean."""
    found, true = rankdata(place), rankdata(value)
    if found.std() == 0 or true.std() == 0:
        return 0.0
    return abs(float(np.corrcoef(found, true)[0, 1]))


def measure_subscriptions(scores: Scores, holds: Mask) -> dict[str, float]:
    """Both arrays are pseudonyms x topics; a subscription is named as far as its topic is believed to be there."""
    named, topics = float(scores[holds].mean()), holds.shape[1]
    return {"auc": _by_column(scores, holds), "named_readers": named, "base": 1 / topics}


def measure_users(scores: Scores, reads: Mask) -> dict[str, float]:
    """Definitions 2 and 3; both arrays are users x topics."""
    everybody = np.ones(len(reads), np.bool_)
    topics = np.flatnonzero(reads.any(axis=0))
    second = [definitions.measure_topic_subscribers(scores[:, topic], reads[:, topic], everybody) for topic in topics]
    third = definitions.measure_subscription(scores, reads)
    return {
        "auc": _by_column(scores, reads),
        "topic_subscribers": float(np.mean([one.probability for one in second])),
        "topic_subscribers_bound": float(np.mean([one.bound for one in second])),
        "subscription": third.probability,
        "subscription_bound": third.bound,
        "subscription_prior": third.prior,
    }


def measure_publications(scores: Scores, publishers: NDArray[np.int64]) -> dict[str, float]:
    """Definition 1; publications x users, and the publisher of each. Empty if nothing was published."""
    right = np.arange(scores.shape[1]) == publishers[:, None]
    honest = np.ones(scores.shape[1], np.bool_)
    named = [definitions.measure_publisher(one, int(who), honest) for one, who in zip(scores, publishers, strict=True)]
    if not named:
        return {}
    return {
        "auc": ranking.auc(scores.reshape(-1), right.reshape(-1)),
        "publisher": float(np.mean([one.probability for one in named])),
        "publisher_bound": float(named[0].bound),
    }


def measure_links(scores: Scores, writes: Mask, reads: Mask) -> dict[str, float]:
    """Users x users: whether one subscribes to a topic that the other publishes; a user's link to itself does not
    count."""
    truth = writes.astype(np.int64) @ reads.T.astype(np.int64) > 0
    others = ~np.eye(len(truth), dtype=np.bool_)
    writers = np.flatnonzero(writes.any(axis=1))
    found = [ranking.auc(scores[one, others[one]], truth[one, others[one]]) for one in writers]
    return {"auc": float(np.mean(found)), "base": float(truth[writers].mean())}


def _by_column(scores: Scores, truth: Mask) -> float:
    """0.5 if no column has anything to compare."""
    asked = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
    return float(np.mean([ranking.auc(scores[:, each], truth[:, each]) for each in asked])) if asked.size else 0.5
