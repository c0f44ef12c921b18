"""Relinking: tokens that change with the epoch are told to be the same topic's by what stays around them.

A coalition without keys sees, for every token of an epoch, on which of its links it was asked for; how many notes came;
and, by the hash chain, where the flood began (`trilateration`). If the next epoch's tokens are asked for on the same
links, rotation hides nothing. Each pair of an old and a new token is given the log-likelihood ratio of being one topic
against being any two:

- links: whoever asked here asks here again with a probability that is learnt from the pairs held to be the same so far,
  beginning with those whose sets of links overlap most (Jaccard); against how many tokens are asked for there at all;
- notes: both counts are of one rate, or of two, where rates differ between topics by a Gamma law;
- origins: the same one by chance is rare, and another one rarely the same topic, if topics keep theirs.

The best assignment of new tokens to old ones is then the naming. Epochs chain: who loses a topic once has lost it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from veilcast.lab.attack.token_frequency import matched

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def jaccard(before: Mask, after: Mask) -> Floats:
    """Old x new tokens: what two sets of links have in common, of all that either has; rows of these are tokens."""
    old, new = before.astype(np.float64), after.astype(np.float64)
    common = old @ new.T
    either = old.sum(axis=1)[:, None] + new.sum(axis=1) - common
    return np.asarray(common / np.maximum(1.0, either), np.float64)


def by_links(before: Mask, after: Mask) -> Floats:
    """Old x new tokens: the log-likelihood ratio of the links that ask for them."""
    usual_before, usual = _share(before), _share(after)
    old, new = before.astype(np.float64), after.astype(np.float64)
    found = jaccard(before, after)
    for _ in range(_ROUNDS):
        link = matched(found)
        held = link >= 0
        moved = (old[held] - usual_before) * (new[link[held]] - usual)
        again = np.clip(moved.sum() / (len(moved) * (usual_before * (1 - usual_before)).sum()), 0.0, _SURE)
        stays, begins = again + (1 - again) * usual, (1 - again) * usual
        kept, left = np.log(stays / usual), np.log((1 - stays) / (1 - usual))
        came, none = np.log(begins / usual), np.log((1 - begins) / (1 - usual))
        found = (old * kept) @ new.T + (old * left) @ (1 - new).T
        found += ((1 - old) * came) @ new.T + ((1 - old) * none) @ (1 - new).T
    return found


def by_counts(before: Floats, after: Floats) -> Floats:
    """The same of how many notes came, or how many links ask; a number below 0 is not known, and says nothing."""
    counts = np.concatenate((before, after))
    counts = counts[counts >= 0]
    if counts.size < 2 or (excess := float(counts.var() - counts.mean())) <= 0:
        return np.zeros((before.size, after.size))
    shape, rate = float(counts.mean()) ** 2 / excess, float(counts.mean()) / excess
    one, two = np.maximum(before, 0)[:, None], np.maximum(after, 0)[None, :]
    ratio = _mixed(one + two, shape, rate, 2) - _mixed(one, shape, rate, 1) - _mixed(two, shape, rate, 1)
    return np.where((before >= 0)[:, None] & (after >= 0), ratio, 0.0)


def by_origins(before: NDArray[np.int32], after: NDArray[np.int32], nodes: int) -> Floats:
    """The same of where floods began, in an overlay of so many; below 0 where it is not known."""
    known = (before >= 0)[:, None] & (after >= 0)
    return np.where(known, np.where(before[:, None] == after, np.log(nodes), np.log(_MOVES)), 0.0)


def _share(asked: Mask) -> Floats:
    """By link, the share of tokens that are asked for there; never none or all."""
    return np.asarray((np.count_nonzero(asked, axis=0) + 0.5) / (len(asked) + 1), np.float64)


def _mixed(total: Floats, shape: float, rate: float, counts: int) -> Floats:
    """The log-probability of counts of one rate, drawn by a Gamma law, with this total; but for their factorials."""
    drawn = gammaln(shape + total) - gammaln(shape) + shape * np.log(rate) - (shape + total) * np.log(rate + counts)
    return np.asarray(drawn, np.float64)


_ROUNDS: Final = 4
_SURE: Final = 0.98
_MOVES: Final = 0.1
"""How likely the same topic's flood begins elsewhere, or its beginning was mistaken."""
