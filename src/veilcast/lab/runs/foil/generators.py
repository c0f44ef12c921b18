"""The generator of a run's fakes, and what an attacker knows about it.

Both are fitted to the past of a day and to nothing of the day itself. The attacker knows the generator, its parameters,
and the distribution of the truth as well as the past tells it: only the random draws are secret.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.generators.base import Generator
from veilcast.foil.generators.moran import MoranTrajectories
from veilcast.foil.generators.moran import branching_rate as rate_for
from veilcast.foil.generators.movers import BlockMoves, GaussianMoves, Mover, SignFlipMoves, StudentMoves
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.numeric_domain import UNBOUNDED, NumericDomain
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.foil.random_source import FloatArray
from veilcast.lab.attack.stream.many_steps import count_endings
from veilcast.lab.attack.stream.model import MoveLaw, SignLaw, StreamModel
from veilcast.lab.experiment.foil_params import FoiledStreamParams
from veilcast.lab.runs.foil.true_streams import REVERTING, START_PRICE, TrueStreams, ValueHistory


def make_generator(params: FoiledStreamParams, past: ValueHistory, *, whole: bool) -> Generator[Any, np.float64]:
    """`whole` says that values are whole numbers of units."""
    span = NumericDomain(low=1.0, decimals=0) if whole else UNBOUNDED
    k, relative = params.fakes, past.relative
    match params.foil:
        case "noise" if params.reading:
            return NoiseFakes.as_published(k, params.reading, params.factor, span)
        case "noise":
            return NoiseFakes(k, params.noise * math.sqrt(params.factor) * past.spread, int(relative), span)
        case "window":
            return WindowFakes(k, params.noise * past.spread * (START_PRICE if relative else 1), span)
        case "moran" | "moran-leaning" | "naive":
            lineages = Trajectories(k, make_mover(params, past), span)
            return MoranTrajectories(lineages, _branching_rate(params), naive=params.foil == "naive")
        case _:
            return Trajectories(k, make_mover(params, past), span)


def make_mover(params: FoiledStreamParams, past: ValueHistory) -> Mover[Any]:
    match params.foil:
        case "gaussian" | "moran" | "naive" if params.truth == "ar1":
            return REVERTING
        case "gaussian":
            return GaussianMoves(past.mean, past.spread, past.relative)
        case "student":
            return past.student
        case "moran" | "naive" if params.truth == "gbm":
            return GaussianMoves(past.mean, past.spread, past.relative)
        case "history" | "moran" | "naive":
            return BlockMoves(past.moves, min(_IN_A_ROW, len(past.moves)), past.relative)
        case "sign-flip":
            return SignFlipMoves(params.block, past.relative, growing=params.growing)
        case "leaning" | "moran-leaning":
            return SignFlipMoves(params.block, past.relative, past.lean, params.growing)
        case other:
            raise ConfigError(f"{other} makes no trajectories")


def branching_rate(fakes: int, public: int, rate: float) -> float:
    """Branchings in a step: `rate`, unless it is negative."""
    if rate >= 0:
        return rate
    return rate_for(fakes + 1, public) if public else 0.0


def make_attacker_model(params: FoiledStreamParams, truth: TrueStreams, proxy: FloatArray) -> StreamModel:
    """The knowledge of an attacker on these streams, from what brokers saw in the past."""
    past, n = truth.seen_past, params.fakes + 1
    law = MoveLaw(past.spread, past.mean) if params.truth in ("gbm", "ar1") else _law(past.student)
    if params.process:
        law = MoveLaw(params.process)
    lean = _signs(past)
    return StreamModel(
        truth=law,
        fakes=_of_fakes(params, past, law),
        noise=_noise(params, truth),
        signs=lean,
        fake_signs=lean if lean and params.foil in ("leaning", "moran-leaning") else SignLaw(),
        branching=1 - math.exp(-_branching_rate(params) / n),
        delay=params.public,
        told=truth.in_cells(truth.values) if params.public else None,
        proxy=proxy,
        endings=None if past.values is None else count_endings(past.values),
        relative=past.relative,
    )


def _signs(past: ValueHistory) -> SignLaw | None:
    """None if cells are so wide that too few consecutive moves remain to fit the signs."""
    try:
        return SignLaw(past.lean.constant, past.lean.slope)
    except LocalError:
        return None


def _noise(params: FoiledStreamParams, truth: TrueStreams) -> float | None:
    made = make_generator(params, truth.seen_past, whole=False) if params.foil == "noise" else None
    if not isinstance(made, NoiseFakes):
        return None
    deviation = made.deviation(truth.values)
    return float((deviation / truth.values if truth.past.relative else deviation).mean())


def _of_fakes(params: FoiledStreamParams, past: ValueHistory, law: MoveLaw) -> MoveLaw | None:
    if params.foil in ("noise", "window", "sign-flip", "leaning", "moran-leaning"):
        return None
    moving = make_mover(params, past)
    if isinstance(moving, GaussianMoves):
        return MoveLaw(moving.deviation, moving.mean)
    return _law(moving) if isinstance(moving, StudentMoves) else law


def _law(t: StudentMoves) -> MoveLaw:
    return MoveLaw(t.scale, t.mean, t.freedom)


def _branching_rate(params: FoiledStreamParams) -> float:
    return branching_rate(params.fakes, params.public, params.rate)


_IN_A_ROW: Final = 20
