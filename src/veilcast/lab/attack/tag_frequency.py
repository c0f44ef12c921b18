"""Tag frequency: a server that cannot compute a tag still counts how many subscribe by it.

The mathematics are those of tokens on a mesh (`token_frequency`), and the sight is better: all subscriptions come to
one place, so every tag has the same chance to be counted. Tags that never change are counted for ever; tags that change
with the epoch, in one. Where a pseudonym stands for a user, and not for one subscription, it also shows which tags go
together. A proxy that can tell tags apart counts like the server, and knows who its clients are.

A server that is also a user may ask: it subscribes, and sees which tag comes. What it asked for it knows, and by whom
else it is wanted; the rest is named by how often it comes. How often it may ask, its proxy decides.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.token_frequency import likelihoods, matched, refined
from veilcast.lab.kernels.ledger import Ledger, Numbers, table

Floats = NDArray[np.float64]


class Named(NamedTuple):
    """The tags that have a name, in order, and their topics. Of more tags than topics the most frequent have one."""

    tags: Numbers
    topics: Numbers

    def of(self, tags: Numbers) -> Numbers:
        """By tag its topic, or -1."""
        if not self.tags.size:
            return np.full(tags.size, -1)
        place = np.minimum(np.searchsorted(self.tags, tags), self.tags.size - 1)
        return np.where(self.tags[place] == tags, self.topics[place], -1)


def named(subscribed: Ledger, users: float, popularity: Floats) -> Named:
    """By how many subscribe, of so many who might have, summed over epochs."""
    return named_by_counts(*np.unique(subscribed.what, return_counts=True), users, popularity)


def named_by_counts(tags: Numbers, counts: Numbers, users: float, popularity: Floats) -> Named:
    """The same of who has counted; tags are in order."""
    kept, first = _likely(tags, counts, users, popularity)
    return Named(kept, matched(first))


def named_by_pairs(subscribed: Ledger, users: float, popularity: Floats, together: Floats) -> Named:
    """Also by what pseudonyms subscribe to together, where it is public which share of users reads two topics."""
    tags, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    known = np.isin(subscribed.what, tags)
    held = table(subscribed.who[known], subscribed.what[known])[0].astype(np.float64)
    return Named(tags, refined(first, held.T @ held, together))


def named_by_asking(subscribed: Ledger, users: float, popularity: Floats, asked: Numbers, answers: Numbers) -> Named:
    """Also by asking for these topics, and seeing these tags."""
    tags, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    for topic, tag in zip(asked.tolist(), answers.tolist(), strict=True):
        first[:, topic] = np.where(tags == tag, _CERTAIN, -_CERTAIN)
    return Named(tags, matched(first))


def worth_asking(subscribed: Ledger, users: float, popularity: Floats, many: int) -> Numbers:
    """The topics of which most subscriptions would be named wrongly, so many."""
    _, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    sure = softmax(first, axis=1)
    known = np.zeros(popularity.size)
    given = matched(first)
    known[given] = sure[np.arange(given.size), given]
    return np.argsort(-popularity * (1 - known), kind="stable")[:many]


def interests(who: Numbers, topics: Numbers, shape: tuple[int, int]) -> Floats:
    """People x topics: 1 where somebody subscribed to what is taken for this topic; -1 is taken for none."""
    found = np.zeros(shape)
    known = topics >= 0
    found[who[known], topics[known]] = 1.0
    return found


def _likely(tags: Numbers, counts: Numbers, users: float, popularity: Floats) -> tuple[Numbers, Floats]:
    most = np.sort(np.argsort(-counts, kind="stable")[: popularity.size])
    return tags[most], likelihoods(counts[most].astype(np.float64), np.full(most.size, users), popularity)


_CERTAIN: Final = 1e9
