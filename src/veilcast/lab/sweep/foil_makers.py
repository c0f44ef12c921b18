"""Who makes the fakes of a run, and what an attacker knows of how they are made.

Both are fitted to the past of a day and to nothing of the day itself. The attacker knows the maker, its parameters and
the law of the truth, as well as a past tells it: only chance is secret.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.chance import Numbers
from veilcast.foil.generator import Generator
from veilcast.foil.moran import Moran, rate_for
from veilcast.foil.moves import Blocks, Gaussian, Mover, StudentT
from veilcast.foil.noise import Noise
from veilcast.foil.signflip import SignFlip
from veilcast.foil.span import ANYWHERE, Span
from veilcast.foil.trajectory import Trajectories
from veilcast.foil.window import Window
from veilcast.lab.attack.foil_endings import counted
from veilcast.lab.attack.foil_model import Law, Model, Signs
from veilcast.lab.sweep.foil_truths import REVERTING, START, Past, Streams
from veilcast.lab.sweep.params import Params


def maker(params: Params, past: Past, *, whole: bool) -> Generator[Any, np.float64]:
    """`whole` are numbers that count units."""
    span = Span(low=1.0, decimals=0) if whole else ANYWHERE
    k, relative = params.fakes, past.relative
    match params.foil:
        case "noise" if params.reading:
            return Noise.as_published(k, params.reading, params.factor, span)
        case "noise":
            return Noise(k, params.noise * math.sqrt(params.factor) * past.spread, int(relative), span)
        case "window":
            return Window(k, params.noise * past.spread * (START if relative else 1), span)
        case "moran" | "moran-leaning" | "naive":
            lineages = Trajectories(k, mover(params, past), span)
            return Moran(lineages, branchings(params), naive=params.foil == "naive")
        case _:
            return Trajectories(k, mover(params, past), span)


def mover(params: Params, past: Past) -> Mover[Any]:
    match params.foil:
        case "gaussian" | "moran" | "naive" if params.truth == "ar1":
            return REVERTING
        case "gaussian":
            return Gaussian(past.mean, past.spread, past.relative)
        case "student":
            return past.student
        case "moran" | "naive" if params.truth == "gbm":
            return Gaussian(past.mean, past.spread, past.relative)
        case "history" | "moran" | "naive":
            return Blocks(past.moves, min(_IN_A_ROW, len(past.moves)), past.relative)
        case "sign-flip":
            return SignFlip(params.block, past.relative, growing=params.growing)
        case "leaning" | "moran-leaning":
            return SignFlip(params.block, past.relative, past.lean, params.growing)
        case other:
            raise ConfigError(f"{other} makes no trajectories")


def branchings(params: Params) -> float:
    """A step."""
    if params.rate >= 0:
        return params.rate
    return rate_for(params.fakes + 1, params.public) if params.public else 0.0


def known(params: Params, truth: Streams, proxy: Numbers) -> Model:
    """To whoever attacks these streams, by what brokers saw in the past."""
    past, n = truth.seen, params.fakes + 1
    law = Law(past.spread, past.mean) if params.truth in ("gbm", "ar1") else _law(past.student)
    if params.process:
        law = Law(params.process)
    lean = _signs(past)
    return Model(
        truth=law,
        fakes=_of_fakes(params, past, law),
        noise=_noise(params, truth),
        signs=lean,
        fake_signs=lean if lean and params.foil in ("leaning", "moran-leaning") else Signs(),
        branching=1 - math.exp(-branchings(params) / n),
        delay=params.public,
        told=truth.in_cells(truth.values) if params.public else None,
        proxy=proxy,
        endings=None if past.values is None else counted(past.values),
        relative=past.relative,
    )


def _signs(past: Past) -> Signs | None:
    """Where cells are wide, too few moves follow one another to know how they turn."""
    try:
        return Signs(past.lean.constant, past.lean.slope)
    except LocalError:
        return None


def _noise(params: Params, truth: Streams) -> float | None:
    made = maker(params, truth.seen, whole=False) if params.foil == "noise" else None
    if not isinstance(made, Noise):
        return None
    deviation = made.deviation(truth.values)
    return float((deviation / truth.values if truth.past.relative else deviation).mean())


def _of_fakes(params: Params, past: Past, law: Law) -> Law | None:
    if params.foil in ("noise", "window", "sign-flip", "leaning", "moran-leaning"):
        return None
    moving = mover(params, past)
    if isinstance(moving, Gaussian):
        return Law(moving.deviation, moving.mean)
    return _law(moving) if isinstance(moving, StudentT) else law


def _law(t: StudentT) -> Law:
    return Law(t.scale, t.mean, t.freedom)


_IN_A_ROW: Final = 20
