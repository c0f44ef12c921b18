"""Disclosure through batches: over many windows it shows which user sends what, and to which subscribers.

Without batches a window holds one request and nothing is left to find out. With batches a window holds several senders
and, in any order, several requests at the server or deliveries to subscribers. Least squares over all windows learn
what each sender causes (Perez-Gonzalez and Troncoso 2012; `fit_profiles`). With these profiles the requests of a window
are assigned to its senders, one to one, so that the whole is likeliest (perfect matching disclosure, Troncoso and
others 2008; `match_senders`). Without profiles any sender is equally likely (`spread_over_senders`).

Batches only slow this down. If every user sends in every window, all windows are alike and nothing is learnt.
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
    """Users x effects: how much of each effect a user's request causes. Both inputs are by window.

    A user that sends equally much in every window gets 0.
    """
    senders = np.flatnonzero(np.ptp(sent, axis=0)) if len(sent) else np.empty(0, np.int64)
    found = np.zeros((sent.shape[1], came.shape[1]))
    if senders.size:
        found[senders] = solve_weights(sum_moments(sent[:, senders], came))
    return found


def count_effects(windows: Numbers, what: Numbers, shape: tuple[int, int]) -> Floats:
    """Windows x effects, counted from rows."""
    found = np.zeros(shape)
    np.add.at(found, (windows, what), 1.0)
    return found


def spread_over_senders(sent: Floats, windows: Numbers) -> Floats:
    """Requests x users: the probability that each user sent the request, as far as the window tells."""
    here = sent[windows]
    return np.asarray(here / np.maximum(1.0, here.sum(axis=1, keepdims=True)), np.float64)


def match_senders(sent: Floats, windows: Numbers, effect: Numbers, profile: Floats) -> Floats:
    """Requests x users: 1 for the assigned sender, by what the senders of its window usually send.

    Where profiles tell nothing, all senders are equally likely; where fewer sent than came, all are 0.
    """
    found = np.zeros((windows.size, sent.shape[1]))
    for requests in _together(windows):
        here = sent[windows[requests[0]]].astype(np.int64)
        # A user that sent twice has two slots.
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
