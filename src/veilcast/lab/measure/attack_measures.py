"""Everything that is said of an attacker who suspects some nodes more than others, in one place.

Of one that looks for subscribers: how well it orders them before the others (`ranking`), among all who are asked about
and among those with an insider beside them, who are worse off; in what sets they hide (`anonymity`); how many bits its
scores hold about a role, above what shuffled roles give (`information`); and the least epsilon that they leave possible
(`privacy_loss`). Of one that looks for the publisher: whether its first guess is right, and how far down the list one
must go. The share of those who are sought, `base`, is always there: whoever guesses blindly reaches as much. Where
scores are probabilities, `uncertainty` says how sure it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.measure import anonymity, information, privacy_loss, ranking
from veilcast.lab.measure.accuracy import Mask
from veilcast.lab.measure.information import measure_posterior

Scores = NDArray[np.float64]


def measure_subscriber_attack(scores: Scores, subscribes: Mask, asked: Mask, near: Mask, seed: int) -> dict[str, float]:
    """About those who are `asked` about; `near` are those with an insider beside them. The seed is for shuffles."""
    guess, positive = scores[asked], subscribes[asked]
    found = ranking.measure_ranking(guess, positive)
    if not found:
        return {}
    found["base"] = float(np.mean(positive))
    beside = asked & near
    if subscribes[beside].any() and not subscribes[beside].all():
        found["auc_near"] = ranking.auc(scores[beside], subscribes[beside])
    found |= anonymity.summarise_sets(anonymity.anonymity_set_sizes(guess, positive))
    known = information.mutual_information(guess, positive, seed, shuffles=_SHUFFLES)
    return found | {
        "bits": known.bits,
        "bits_floor": known.floor,
        "epsilon": privacy_loss.epsilon_of_scores(guess, positive),
    }


def measure_publisher_attack(scores: Scores, publisher: int, asked: Mask) -> dict[str, float]:
    """About a first guess among those who are asked about; of several with the same score any is as likely."""
    guess, own = scores[asked], scores[publisher]
    before, tied = int(np.count_nonzero(guess > own)), int(np.count_nonzero(guess == own))
    return {
        "success": 0.0 if before else 1 / tied,
        "rank": 1 + before + (tied - 1) / 2,
        "base": 1 / len(guess),
    }


def measure_probabilities(probability: Scores, asked: Mask) -> dict[str, float]:
    """Of a posterior over those who are asked about, exactly one of whom is sought, or each of several in turn."""
    return measure_posterior(probability[asked])


_SHUFFLES: Final = 20
