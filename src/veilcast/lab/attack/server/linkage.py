"""Record linkage by a relay's server and proxy: bodies, and filters under changing pseudonyms.

Bodies: a body that goes down as it went up is recognised, even if nobody there can read it. P2 encrypts a message
separately for each subscriber and leaves open how long it is. A body of any length is sealed once, under a key that
travels in that way (notes: flaw e). The proxy then sees the same bytes come from one client and go to others.

Filters: a new pseudonym with an old filter is a known user. Pseudonyms may change often. If tags do not, the filter of
a subscriber is the same under all of them, or nearly, and two filters that share what few others have are linked
(`match_filters`). All pseudonyms with one filter are one user, or a few with the same interests. In epochs without that
filter its user was absent. Presence is visible on the wires, so in time only one user is left that was present whenever
the filter was, and never without it (`assign_users`). Of a filter that m users have at most and c have in an epoch, a
user is present with probability c/m.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.insider.token_inference import jaccard_similarity
from veilcast.lab.models.server_log import DELIVERED, SENT, Numbers, ServerLog, cross_table

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


def link_bodies(proxy: ServerLog, users: int) -> NDArray[np.float64]:
    """Senders x subscribers: how many bodies of the one came to the other."""
    sent, got = proxy.select(SENT), proxy.select(DELIVERED)
    order = np.argsort(sent.what)
    place = np.minimum(np.searchsorted(sent.what[order], got.what), max(0, len(sent) - 1))
    found = np.zeros((users, users))
    if len(sent):
        same = sent.what[order][place] == got.what
        np.add.at(found, (sent.who[order][place][same], got.who[same]), 1.0)
    return found


def compare_filters(before: Mask, after: Mask) -> Floats:
    """Old x new filters: common bits, where rare bits count for more."""
    rare = -np.log((before.sum(axis=0) + after.sum(axis=0) + 1) / (len(before) + len(after) + 1))
    return np.asarray(jaccard_similarity(before, after) * (1 + (before * rare) @ after.T), np.float64)


def match_filters(before: Mask, after: Mask) -> tuple[Numbers, Numbers]:
    """Old and new filters that are taken for one user's, each in one pair at most, as many pairs as possible."""
    from scipy.optimize import linear_sum_assignment

    old, new = linear_sum_assignment(compare_filters(before, after), maximize=True)
    return np.asarray(old, np.int64), np.asarray(new, np.int64)


def group_by_filter(subscribed: ServerLog, epochs: int) -> tuple[Mask, NDArray[np.int64], Numbers]:
    """The distinct sets of tags, as sets x tags; sets x epochs, how many pseudonyms had each; and the tags."""
    held, pseudonyms, tags = cross_table(subscribed.who, subscribed.what)
    when = np.zeros(pseudonyms.size, np.int64)
    when[np.searchsorted(pseudonyms, subscribed.who)] = subscribed.epoch
    distinct, which = np.unique(np.packbits(held, axis=1), axis=0, return_inverse=True)
    counts = np.zeros((len(distinct), epochs), np.int64)
    np.add.at(counts, (which.reshape(-1), when), 1)
    return np.unpackbits(distinct, axis=1, count=tags.size).astype(np.bool_), counts, tags


def assign_users(counts: NDArray[np.int64], present: Mask) -> Floats:
    """Users x sets of tags: the probability that a user has that set, from presence (epochs x users).

    A user that fits no set gets no information: all sets are equally likely.
    """
    most = counts.max(axis=1, keepdims=True)
    there, away = np.log(counts / most + _NEVER), np.log(1 - counts / most + _NEVER)
    fits = present.T @ there.T + (~present).T @ away.T
    fits[fits.max(axis=1) < np.log(_NEVER)] = 0.0
    return np.asarray(softmax(fits + np.log(most[:, 0]), axis=1), np.float64)


_NEVER: Final = 1e-6
"""Probability of an impossible observation."""
