"""Batches: in each window some send and something comes of it; over many windows it shows who sends what to whom.

Without batches a window holds one request, and there is nothing to find out. With them a window holds several senders,
and several requests at the server, or deliveries to readers, in any order. What comes of each sender is learnt from all
windows together by least squares (Perez-Gonzalez and Troncoso 2012), as what a topic makes nodes do is
(`fit_profiles`).
Knowing that, the requests of a window are given back to its senders, each to one, so that all of it is likeliest
(perfect matching disclosure, Troncoso and others 2008): `match_senders`. Who did not learn gives any to any
(`spread_over_senders`).

Batches only slow this down. If everybody sends in every window, all windows are alike, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.insider.token_inference import assign_best
from veilcast.lab.attack.observer.disclosure import solve_weights, sum_moments
from veilcast.lab.models.server_log import Numbers

Floats = NDArray[np.float64]


def fit_profiles(sent: Floats, came: Floats) -> Floats:
    """Users x effects: how much of each effect a request of a user brings about. Both are by windows.

    Of who sends as much in every window nothing is said.
    """
    senders = np.flatnonzero(np.ptp(sent, axis=0)) if len(sent) else np.empty(0, np.int64)
    found = np.zeros((sent.shape[1], came.shape[1]))
    if senders.size:
        found[senders] = solve_weights(sum_moments(sent[:, senders], came))
    return found


def count_effects(windows: Numbers, what: Numbers, shape: tuple[int, int]) -> Floats:
    """Windows x effects, of rows."""
    found = np.zeros(shape)
    np.add.at(found, (windows, what), 1.0)
    return found


def spread_over_senders(sent: Floats, windows: Numbers) -> Floats:
    """Requests x users: the probability that each user sent it, as far as the window tells."""
    here = sent[windows]
    return np.asarray(here / np.maximum(1.0, here.sum(axis=1, keepdims=True)), np.float64)


def match_senders(sent: Floats, windows: Numbers, effect: Numbers, profile: Floats) -> Floats:
    """The same as 1 for the one it is given to: of those who sent in its window, by what they usually send.

    Where that tells nothing it is any of them; where fewer sent than came, it is nobody.
    """
    found = np.zeros((windows.size, sent.shape[1]))
    for requests in _together(windows):
        here = sent[windows[requests[0]]].astype(np.int64)
        # Who sent twice is there twice.
        slots = np.repeat(np.arange(here.size), here)
        if slots.size < requests.size:
            continue
        likely = np.log(profile[slots][:, effect[requests]].T + _TINY)
        if np.ptp(likely):
            found[requests, slots[assign_best(likely)]] = 1.0
        else:
            found[requests] = here / slots.size
    return found


def _together(windows: Numbers) -> Iterator[NDArray[np.int64]]:
    """The requests of each window."""
    order = np.argsort(windows, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(windows[order])) + 1) if order.size else ()


_TINY: Final = 1e-6
