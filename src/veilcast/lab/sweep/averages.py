"""What epochs have in common: the mean of each number over those of them that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from veilcast.lab.sweep.params import Measure


def averages(epochs: Sequence[Mapping[str, float]], step: float) -> list[Measure]:
    """Of what the network did in these epochs, up to this step."""
    metrics = dict.fromkeys(metric for facts in epochs for metric in facts)
    return [Measure("", metric, step, mean(facts[metric] for facts in epochs if metric in facts)) for metric in metrics]
