"""Foils streams, lets every applicable attacker guess, and compares the guesses with the truth.

Measures of each attacker: `identified`, P3's indistinguishability I(e, G) / |G|, over all steps but the first, which is
public; `last`, the same at the end of a stream, when most has been seen; `significant`, the same where the truth moves
farthest, and `degraded`, how much worse that is; `value`, how often a guess has the true value, in any message;
`deviation`, the distance of a guess from the truth.

The attacker "best" is the strongest one. `identified`: chosen on half of the days and measured on the others.
`largest`: chosen and measured on all days, which is biased in its favour; its interval draws whole days
(`measure.strongest_attacker`). `value`: that of the attacker that finds most true values, in any message; also chosen
on all days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.moran import MoranTrajectories
from veilcast.foil.random_source import FloatArray, IntArray
from veilcast.lab.attack.stream.model import StreamModel
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.attack.stream.trained import FittedLogit, fit_logit
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.foil_params import FoiledStreamParams, FoilGuesses
from veilcast.lab.experiment.params import FILE, Measure, file_path
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.measure.stream_guesses import AttackerResult, ComparedStreams, compare_streams
from veilcast.lab.measure.strongest_attacker import find_strongest
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.foil import generators, true_streams
from veilcast.lab.runs.foil.stream_tables import observe_streams, tabulate_truth
from veilcast.lab.runs.foil.true_streams import TrueStreams


@dataclass(frozen=True, eq=False)
class FoiledStreams:
    """Streams as attackers see them, and the truth."""

    candidates: FloatArray
    position: IntArray
    values: FloatArray
    day: IntArray
    model: StreamModel
    unit: float = 1.0
    """The unit of values."""
    ancestral: FloatArray | None = None
    """For branching lineages: the values of each final slot and of its ancestors, step by step."""


def run(params: FoilGuesses, seed: int, data: Path | None, recorder: TableRecorder = NO_RECORDER) -> list[Measure]:
    return measure_attackers(list(foil_streams(params, seed, data)), params.guessers, params.fakes, seed, recorder)


def attack_tables(
    observed: Mapping[str, AnyTable], params: FoilGuesses, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of those that the parameters name."""
    return guess_streams(observed, names or params.guessers or None)


def measure_guesses(
    guesses: pa.Table,
    truth: pa.Table,
    params: FoilGuesses,
    names: Collection[str],
    seed: int,
    *,
    streams: pa.Table,
    facts: pa.Table,
) -> list[Measure]:
    """The measures of these attackers, or of all; the strongest is found among all alone."""
    found = measure_compared(
        [compare_streams(streams, guesses, truth, read_unit(facts), params.guessers)], params.fakes, seed
    )
    return [one for one in found if not names or one.attack in names]


def read_unit(facts: pa.Table) -> float:
    """The unit of values."""
    unit: float = facts.filter(pc.equal(facts["name"], "unit"))["value"][0].as_py()
    return unit


def measure_attackers(
    parts: Sequence[FoiledStreams],
    names: Sequence[str],
    fakes: int,
    seed: int,
    recorder: TableRecorder = NO_RECORDER,
) -> list[Measure]:
    """The measures of attackers on all of these streams together."""
    if len(parts) > 1 and any(recorder.wants(table) for table in STREAM_TABLES):
        raise ConfigError("every day of real prices has a model of its own; streams are kept for one law alone")
    return measure_compared([_compare(part, names, recorder) for part in parts], fakes, seed)


def measure_compared(compared: Sequence[ComparedStreams], fakes: int, seed: int) -> list[Measure]:
    """The measures of all attackers whose guesses were compared with the truth of each part."""
    found = [each.results for each in compared]
    day = np.concatenate([part.day for part in compared])
    far = _far(np.concatenate([part.values for part in compared]))
    measures = [
        Measure("", "chance", 0, 1 / (fakes + 1)),
        Measure("", "deviation", 0, float(np.concatenate([part.spread for part in compared]).mean())),
    ]
    by_day: dict[str, FloatArray] = {}
    value = 0.0
    for attack in [attack for attack in found[0] if all(attack in each for each in found)]:
        every = _together([each[attack] for each in found])
        by_day[attack] = _means(every.identified.mean(axis=1), day)
        summed = _summarize(every, far)
        value = max(value, summed["value"])
        measures += [Measure(attack, metric, 0, number) for metric, number in summed.items()]
    return [*measures, *measure_best(by_day, seed), Measure("best", "value", 0, value)]


def attack_streams(
    part: FoiledStreams, names: Sequence[str], recorder: TableRecorder = NO_RECORDER
) -> tuple[dict[str, pa.Table], pa.Table, pa.Table]:
    """What is observed of these streams, the attackers' guesses, and the truth."""
    run = "foiled"
    observed = observe_streams(run, part.candidates, part.model, part.unit, part.ancestral, names)
    guesses = guess_streams(observed, names or None)
    truth = tabulate_truth(run, part.position, part.day)
    record_tables(recorder, {**observed, "stream_guesses": guesses, "stream_truth": truth})
    assert isinstance(guesses, pa.Table)
    return observed, guesses, truth


def foil_streams(params: FoiledStreamParams, seed: int, data: Path | None) -> Iterator[FoiledStreams]:
    """All streams of a distribution together; real ones day by day, because each day has its own past."""
    # What a file is called, and where it lies, must not change a result.
    name = FILE if file_path(params.truth) else params.truth
    rng = np.random.default_rng(stream(seed, "truth of foiling", name))
    truths = list(true_streams.draw_truth(params, rng, data))
    chance = np.random.default_rng(stream(seed, "fakes", params.foil, params.fakes))
    pupils = _train(params, truths, data, chance) if params.training else {}
    for truth in truths:
        part = _foil(params, truth, chance)
        fold = int(truth.day[0]) % FOLDS if len(truths) > 1 else 0
        yield replace(part, model=replace(part.model, fitted=pupils[fold])) if pupils else part


def _train(
    params: FoiledStreamParams, truths: Sequence[TrueStreams], data: Path | None, rng: np.random.Generator
) -> dict[int, FittedLogit]:
    """For each fold of days, a classifier trained on foiled streams of the other days; for a distribution, on more
    streams of it."""
    if len(truths) == 1:
        more = msgspec.structs.replace(params, streams=params.streams * params.training)
        parts = [_foil(params, truth, rng) for truth in true_streams.draw_truth(more, rng, data)]
        return {0: _fit(parts)}
    found = {}
    for fold in range(FOLDS):
        lessons = [
            replace(
                truth,
                values=_lessons(truth.values, params),
                traded=None if truth.traded is None else _lessons(truth.traded, params),
            )
            for truth in truths
            if truth.day[0] % FOLDS != fold
        ]
        found[fold] = _fit([_foil(params, lesson, rng) for lesson in lessons])
    return found


def _lessons(rows: FloatArray, params: FoiledStreamParams) -> FloatArray:
    """Each stream, repeated as often as it is foiled for training."""
    return np.repeat(rows[:: params.copies], params.training, axis=0)


def _fit(parts: Sequence[FoiledStreams]) -> FittedLogit:
    paths = [part.candidates if part.ancestral is None else part.ancestral for part in parts]
    return fit_logit(np.concatenate(paths), np.concatenate([part.position[:, -1] for part in parts]))


def _compare(part: FoiledStreams, names: Sequence[str], recorder: TableRecorder) -> ComparedStreams:
    observed, guesses, truth = attack_streams(part, names, recorder)
    return compare_streams(observed["streams"], guesses, truth, part.unit, names)


def measure_best(by_day: Mapping[str, FloatArray], seed: int) -> list[Measure]:
    """From the success of each attacker on each day."""
    found = find_strongest(by_day, 1, seed)
    value, low, high = found.largest
    measures = {"identified": found.corrected, "largest": value, "low": low, "high": high}
    return [Measure("best", metric, 0, value) for metric, value in measures.items()]


def _together(parts: Sequence[AttackerResult]) -> AttackerResult:
    columns = zip(*((each.identified, each.value, each.deviation) for each in parts), strict=True)
    return AttackerResult(*map(np.concatenate, columns))


def _foil(params: FoiledStreamParams, truth: TrueStreams, rng: np.random.Generator) -> FoiledStreams:
    proxy = true_streams.activity_proxy(truth, rng)
    maker = generators.make_generator(params, truth.past, whole=truth.unit > 0)
    model = generators.make_attacker_model(params, truth, proxy)
    ancestral = None
    if isinstance(maker, MoranTrajectories):
        candidates, position, ancestral = _foil_branching(maker, truth.values, rng)
        ancestral = truth.in_cells(ancestral)
    else:
        candidates, position = foil_series(maker, truth.values, rng)
    seen, values = truth.in_cells(candidates), truth.in_cells(truth.values)
    if params.asking:
        model = replace(model, asked=_ask(seen, values, params.asking, rng))
    return FoiledStreams(seen, position, values, truth.day, model, truth.unit or 1.0, ancestral)


def _ask(candidates: FloatArray, values: FloatArray, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """P3's step 4: a reader whose range contains this share of a stream's values asks about everything it receives."""
    ordered = np.sort(values, axis=1)
    held = max(1, round(share * values.shape[1]))
    first = rng.integers(values.shape[1] - held + 1, size=len(values))
    rows = np.arange(len(values))
    low, high = (ordered[rows, at][:, None, None] for at in (first, first + held - 1))
    return np.asarray((low <= candidates) & (candidates <= high), np.bool_)


def _foil_branching(
    maker: MoranTrajectories[Any], values: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Like `foil_series`, with the ancestors of each final slot."""
    (many, steps), state = values.shape, maker.begin(len(values), rng)
    candidates, origin = np.empty((many, steps, maker.n)), np.empty((many, steps, maker.n), np.int64)
    position = np.empty((many, steps), np.int64)
    for step in range(steps):
        state, candidates[:, step], position[:, step] = maker.next(state, values[:, step], rng)
        origin[:, step] = np.arange(maker.n) if state.origin is None else state.origin
    ancestral = np.empty_like(candidates)
    slot = np.tile(np.arange(maker.n), (many, 1))
    for step in reversed(range(steps)):
        ancestral[:, step] = np.take_along_axis(candidates[:, step], slot, axis=1)
        slot = np.take_along_axis(origin[:, step], slot, axis=1)
    return candidates, position, ancestral


def _summarize(guesses: AttackerResult, far: NDArray[np.bool_]) -> dict[str, float]:
    overall, where_far = float(guesses.identified.mean()), float(guesses.identified[far].mean())
    return {
        "identified": overall,
        "last": float(guesses.identified[:, -1].mean()),
        "significant": where_far,
        "degraded": 1 - where_far / overall if overall else 0.0,
        "value": float(guesses.value.mean()),
        "deviation": float(guesses.deviation.mean()),
    }


def _far(values: FloatArray) -> NDArray[np.bool_]:
    """The steps of the largest moves."""
    moves = np.abs(np.diff(values, axis=1))
    far: NDArray[np.bool_] = moves >= np.quantile(moves, 1 - SIGNIFICANT_SHARE)
    return far


def _means(values: FloatArray, day: IntArray) -> FloatArray:
    _, number = np.unique(day, return_inverse=True)
    return np.bincount(number, values) / np.bincount(number)


STREAM_TABLES: Final = ("streams", "facts", "stream_knowledge", "stream_guesses", "stream_truth")
FOLDS: Final = 3
SIGNIFICANT_SHARE: Final = 0.1
"""The share of moves that are significant events. P3 says "comparatively large"."""
