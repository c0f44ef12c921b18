"""Intersection against filters: a new pseudonym with an old filter is an old acquaintance.

Pseudonyms may change as often as they like: if tags do not, the filter of a subscriber is the same under all of them,
or nearly, and two filters that share what few others have are taken for one (`match_filters`). All pseudonyms with one
filter
are one user, or a few with the same taste. In epochs without that filter its user was away. Who was connected is seen
on the wires, so in time there remains only one who was there whenever the filter was, and never without it
(`assign_users`):
of a filter that m users have at most and c have in an epoch, a user of it is there with probability c/m.


Bodies: what goes down as it went up is recognised, whoever cannot read it.

P2 encrypts a message anew for each reader, and leaves open how long it is; a body of any length is sealed once, under a
key that travels so (notes: flaw e). The proxy then sees the same bytes come from one client and go to others."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from veilcast.lab.attack.insider.token_inference import jaccard_similarity
from veilcast.lab.models.server_log import DELIVERED, SENT, Numbers, ServerLog, cross_table


def link_bodies(proxy: ServerLog, users: int) -> NDArray[np.float64]:
    """Senders x readers: how many bodies of the one came to the other."""
    sent, got = proxy.select(SENT), proxy.select(DELIVERED)
    order = np.argsort(sent.what)
    place = np.minimum(np.searchsorted(sent.what[order], got.what), max(0, len(sent) - 1))
    found = np.zeros((users, users))
    if len(sent):
        same = sent.what[order][place] == got.what
        np.add.at(found, (sent.who[order][place][same], got.who[same]), 1.0)
    return found


Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


def compare_filters(before: Mask, after: Mask) -> Floats:
    """Old x new filters: what they have in common, where bits that are rare count for more."""
    rare = -np.log((before.sum(axis=0) + after.sum(axis=0) + 1) / (len(before) + len(after) + 1))
    return np.asarray(jaccard_similarity(before, after) * (1 + (before * rare) @ after.T), np.float64)


def match_filters(before: Mask, after: Mask) -> tuple[Numbers, Numbers]:
    """Old and new filters that are taken for one user's, each in one pair at most, as many as there can be."""
    old, new = linear_sum_assignment(compare_filters(before, after), maximize=True)
    return np.asarray(old, np.int64), np.asarray(new, np.int64)


def group_by_filter(subscribed: ServerLog, epochs: int) -> tuple[Mask, NDArray[np.int64], Numbers]:
    """The distinct sets of tags, as tastes x tags; tastes x epochs, how many pseudonyms had each; and the tags."""
    held, pseudonyms, tags = cross_table(subscribed.who, subscribed.what)
    when = np.zeros(pseudonyms.size, np.int64)
    when[np.searchsorted(pseudonyms, subscribed.who)] = subscribed.epoch
    distinct, which = np.unique(np.packbits(held, axis=1), axis=0, return_inverse=True)
    counts = np.zeros((len(distinct), epochs), np.int64)
    np.add.at(counts, (which.reshape(-1), when), 1)
    return np.unpackbits(distinct, axis=1, count=tags.size).astype(np.bool_), counts, tags


def assign_users(counts: NDArray[np.int64], present: Mask) -> Floats:
    """Users x tastes: how likely a user has that taste, by who was there in which epoch (epochs x users).

    Of who fits none nothing is said: all of its tastes are equally likely.
    """
    most = counts.max(axis=1, keepdims=True)
    there, away = np.log(counts / most + _NEVER), np.log(1 - counts / most + _NEVER)
    fits = present.T @ there.T + (~present).T @ away.T
    fits[fits.max(axis=1) < np.log(_NEVER)] = 0.0
    return np.asarray(softmax(fits + np.log(most[:, 0]), axis=1), np.float64)


_NEVER: Final = 1e-6
"""The probability of what cannot be."""
