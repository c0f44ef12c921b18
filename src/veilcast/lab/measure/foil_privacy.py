"""How well foiling hides a value: P3's measures (III.B) of an attacker's posterior.

An attacker names a set G of candidates: the likeliest, or the smallest set with a given share of its belief.
Indistinguishability is I(e, G) / |G|: the probability to hit the true message by a guess within G; 1 / (k + 1) is the
best case. Two messages may hold one value, and an attacker that wants the value does not care which message is true. So
`value_known` is the probability that a guess within G has the true value; it may be far larger where fakes are coarse.
Truth deviation is the mean error of a guess within G.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

Numbers: TypeAlias = NDArray[np.float64]
"""Candidates and posteriors are [streams, steps, n]; measures are [streams, steps]."""
Places: TypeAlias = NDArray[np.int64]
"""Slot of the truth, [streams, steps]."""
Chosen: TypeAlias = NDArray[np.bool_]
"""The sets G."""


def likeliest_candidates(posterior: Numbers) -> Chosen:
    """The best guess and all candidates that are as good, up to the last bits."""
    best = posterior.max(axis=2, keepdims=True)
    chosen: Chosen = posterior >= best * (1 - 1e-9)
    return chosen


def trusted_candidates(posterior: Numbers, share: float) -> Chosen:
    """The smallest set that holds this share of the attacker's belief."""
    if not 0 < share <= 1:
        raise ConfigError("a share of belief is above 0, and at most 1")
    order = np.argsort(-posterior, axis=2, kind="stable")
    ordered = np.take_along_axis(posterior, order, axis=2)
    before = np.cumsum(ordered, axis=2) - ordered
    chosen = np.zeros(posterior.shape, np.bool_)
    np.put_along_axis(chosen, order, before < share * (1 - 1e-12), axis=2)
    return chosen


def indistinguishability(chosen: Chosen, position: Places) -> Numbers:
    hit = np.take_along_axis(chosen, position[:, :, None], axis=2)[:, :, 0]
    return np.asarray(hit / chosen.sum(axis=2), np.float64)


def value_known(chosen: Chosen, candidates: Numbers, position: Places) -> Numbers:
    truth = np.take_along_axis(candidates, position[:, :, None], axis=2)
    return np.asarray((chosen & (candidates == truth)).sum(axis=2) / chosen.sum(axis=2), np.float64)


def truth_deviation(chosen: Chosen, candidates: Numbers, position: Places) -> Numbers:
    """D(e, g) = |e - g|, as in the paper."""
    truth = np.take_along_axis(candidates, position[:, :, None], axis=2)
    off = np.where(chosen, np.abs(candidates - truth), 0).sum(axis=2)
    return np.asarray(off / chosen.sum(axis=2), np.float64)


def composite_entropy(candidates: Numbers, values: int) -> float:
    """H(M) for Scenario II in bits, over the codes of all messages together; at most log2 of the number of codes."""
    counts = np.bincount(candidates.astype(np.int64).ravel(), minlength=values)
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


class Overhead(NamedTuple):
    """Cost of one true event."""

    events: int
    """Events sent to the broker."""
    subscriptions: int
    """Subscriptions held there for each true one."""
    plain: float
    """Notifications if nothing is hidden."""
    foiled: float
    """Notifications if events and subscriptions are foiled."""
    encrypted: float
    """Notifications if values are sealed and the broker delivers to every subscriber of the attribute (P3, III.B)."""


def estimate_overhead(*, subscribers: int, wanted: float, fake_wanted: float, k_p: int, k_s: int) -> Overhead:
    """`wanted` is the probability that a subscription matches a true event, `fake_wanted` that it matches a fake.

    Fake subscriptions look like true ones, so the same probabilities apply to them.
    """
    if not (0 <= wanted <= 1 and 0 <= fake_wanted <= 1) or min(subscribers, k_p, k_s) < 0:
        raise ConfigError("chances are from 0 to 1, and numbers are not negative")
    each = wanted + k_p * fake_wanted
    return Overhead(k_p + 1, k_s + 1, subscribers * wanted, subscribers * (k_s + 1) * each, float(subscribers))
