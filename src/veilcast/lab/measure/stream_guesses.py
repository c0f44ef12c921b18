"""P3's measures of the attackers of foiled streams, from the tables `streams`, `stream_guesses` and `stream_truth`.

Guesses are sets of candidates: all rows of an attacker for a step. An attacker that guesses at the last step alone has
judged whole paths, and its result there counts for all steps. The first step is public, and is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.registry import attack_names
from veilcast.lab.attack.stream.model import StreamObservations
from veilcast.lab.attack.table_engine import engine_of
from veilcast.lab.measure.foil_privacy import indistinguishability, truth_deviation, value_known

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AttackerResult:
    """The result of one attacker, as [streams, steps] without the first step."""

    identified: Numbers
    value: Numbers
    deviation: Numbers


@dataclass(frozen=True, eq=False)
class ComparedStreams:
    """The streams of one run beside the truth, in the order of their numbers."""

    values: Numbers
    """True values, [streams, steps]."""
    day: NDArray[np.int64]
    """The day of each stream."""
    spread: Numbers
    """Mean distance of fakes from the truth, [streams, steps]."""
    results: dict[str, AttackerResult]
    """By attacker. Of attackers that are equally good, the first counts as the best, so their order matters."""


def compare_streams(
    streams: pa.Table, guesses: pa.Table, truth: pa.Table, unit: float, order: Sequence[str] = ()
) -> ComparedStreams:
    """All tables are of one run; `unit` is the unit of values. Results are in this order of attackers, or else in that
    of the registry; others come last, by name."""
    numbers = np.unique(truth["stream"].to_numpy())
    steps, slots = pc.max(streams["step"]).as_py() + 1, pc.max(streams["slot"]).as_py() + 1
    candidates = np.empty((numbers.size, steps, slots))
    candidates[_places(streams, numbers)] = streams["value"].to_numpy()
    position, day = np.empty((numbers.size, steps), np.int64), np.empty(numbers.size, np.int64)
    stream, step, slot = _places(truth, numbers)
    position[stream, step], day[stream] = slot, truth["day"].to_numpy()
    values = np.take_along_axis(candidates, position[:, :, None], axis=2)[:, :, 0]
    off = np.abs(candidates - values[:, :, None]).sum(axis=2)
    results = {}
    known = {name: place for place, name in enumerate(order or attack_names(StreamObservations))}
    attacks = sorted(pc.unique(guesses["attack"]).to_pylist())
    for attack in sorted(attacks, key=lambda name: known.get(name, len(known))):
        chosen = np.zeros(candidates.shape, np.bool_)
        chosen[_places(guesses.filter(pc.equal(guesses["attack"], attack)), numbers)] = True
        first = 0 if chosen[:, 0].any() else steps - 1
        parts = (chosen[:, first:], candidates[:, first:], position[:, first:])
        found = (
            indistinguishability(parts[0], parts[2]),
            value_known(*parts),
            truth_deviation(*parts) * unit,
        )
        results[attack] = AttackerResult(
            *(np.repeat(each, steps - 1, axis=1) if first else each[:, 1:] for each in found)
        )
    return ComparedStreams(values, day, np.asarray(unit / (slots - 1) * off, np.float64), results)


def measure_stream_guesses(
    guesses: pa.Table, truth: pa.Table, *, first_step: int = 1
) -> Iterator[tuple[str, str, int, float]]:
    """Indistinguishability, I(e, G) / |G|, of each attacker in one run, which needs no values: `identified` over all
    steps that it guesses at, from `first_step` on, and `last` at the last step. Attack, metric, 0, value."""
    query = _SHARES.format(first_step=first_step, guesses="{guesses}", truth="{truth}")
    shares = engine_of(guesses).query(query, guesses=guesses, truth=truth)
    last = pc.max(truth["step"])
    for attack in pc.unique(guesses["attack"]).sort().to_pylist():
        own = shares.filter(pc.equal(shares["attack"], attack)).sort_by(
            [("stream", "ascending"), ("step", "ascending")]
        )
        for metric, rows in (("identified", own), ("last", own.filter(pc.equal(own["step"], last)))):
            if len(rows):
                yield attack, metric, 0, float(np.mean(rows["share"].to_numpy()))


def _places(rows: pa.Table, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return np.searchsorted(numbers, rows["stream"].to_numpy()), rows["step"].to_numpy(), rows["slot"].to_numpy()


_SHARES: Final = """
SELECT g.attack, g.stream, g.step, cast(max(CASE WHEN g.slot = t.slot THEN 1 ELSE 0 END) AS double) / count(*) AS share
FROM {guesses} AS g JOIN {truth} AS t ON g.stream = t.stream AND g.step = t.step WHERE g.step >= {first_step}
GROUP BY g.attack, g.stream, g.step
"""
