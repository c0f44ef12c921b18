"""All measures of one attacker in one run.

For an attacker on subscribers: how well it ranks them above others (`ranking`), over all candidates and over those with
an insider as a neighbour, who are worse off; their anonymity sets (`anonymity`); the bits of its scores about a role,
above those of shuffled roles (`information`); and the smallest epsilon that its scores leave possible (`privacy_loss`).
For an attacker on the publisher: whether its first guess is right, and the publisher's rank. The share of targets,
`base`, always stands beside: a blind guess reaches as much. Where scores are probabilities, their entropy says how sure
the attacker is.
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
    """Measures over the nodes `asked` about; `near` marks those with an insider as a neighbour. The seed is for
    shuffles."""
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
    """Measures of the first guess among the nodes asked about; of several with the same score each is equally
    likely."""
    guess, own = scores[asked], scores[publisher]
    before, tied = int(np.count_nonzero(guess > own)), int(np.count_nonzero(guess == own))
    return {
        "success": 0.0 if before else 1 / tied,
        "rank": 1 + before + (tied - 1) / 2,
        "base": 1 / len(guess),
    }


def measure_probabilities(probability: Scores, asked: Mask) -> dict[str, float]:
    """Entropy measures of a posterior over the nodes asked about; exactly one of them is the target, or each of several
    in turn."""
    return measure_posterior(probability[asked])


_SHUFFLES: Final = 20
