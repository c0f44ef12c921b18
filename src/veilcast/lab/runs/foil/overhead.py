"""The messages of foiling, beside plain brokers and beside encryption that lets a broker match nothing (P3, III.B).

Subscriptions are ranges that contain a share of all true values. For each event a plain broker notifies the subscribers
whose range contains its value. With foiling there are K more events and k_s more ranges for each true one, and the
broker notifies for every match. With encrypted values every subscriber of the attribute gets every event. A measure is
the number of messages of one event to the broker and from it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilcast.foil.random_source import FloatArray
from veilcast.lab.experiment.foil_params import FoilOverhead
from veilcast.lab.experiment.params import Measure
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.foil import guesses


def run(params: FoilOverhead, seed: int, data: Path | None) -> list[Measure]:
    rng = np.random.default_rng(stream(seed, "interests"))
    plain, foiled, events = 0.0, 0.0, 0
    for part in guesses.foil_streams(params, seed, data):
        true, false = (_ranges(part.values, params, wanted, rng) for wanted in (1, params.false_interests))
        events += part.values.size
        plain += _met(part.values, true)
        foiled += _met(part.candidates, true) + _met(part.candidates, false)
    n, each = params.fakes + 1, float(params.interests)
    sent = {"plain": 1 + plain / events, "foiled": n + foiled / events, "encrypted": 1 + each}
    return [
        *(Measure("", metric, 0, value) for metric, value in sent.items()),
        Measure("", "notified", 0, foiled / events),
        Measure("", "bound", 0, n * (1 + params.false_interests) * plain / events),
        Measure("", "of_encrypted", 0, sent["foiled"] / sent["encrypted"]),
        Measure("", "of_plain", 0, sent["foiled"] / sent["plain"]),
        Measure("", "notified_of_plain", 0, foiled / plain),
    ]


def _ranges(
    values: FloatArray, params: FoilOverhead, times: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Low ends and high ends, each sorted, which is all that counting needs."""
    start = rng.random(params.interests * times) * (1 - params.width)
    low, high = np.quantile(values, start), np.quantile(values, start + params.width)
    return np.sort(low), np.sort(high)


def _met(values: FloatArray, ranges: tuple[FloatArray, FloatArray]) -> float:
    """Number of pairs of a value and a range that contains it: ranges that begin at or below the value, less those that
    end below it."""
    low, high = ranges
    began, ended = np.searchsorted(low, values, side="right"), np.searchsorted(high, values, side="left")
    return float((began - ended).sum())
