"""Generators by their names: what a configuration says of an attribute, made into the maker of its fakes.

Pure. The domain of an attribute is the declared one of its topic: truth outside of it is refused, fakes are folded back
into it. Where neither a deviation nor a history says how far a value may stray, a twentieth of the domain does.

Words have fakes where all words there can be are known; a word of which nobody said what else it might have been goes
out as it is, with every candidate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilcast.errors import ConfigError
from veilcast.foil.bucketing import Bucketing
from veilcast.foil.chance import Numbers
from veilcast.foil.coded import Coded
from veilcast.foil.config import VALUES_MAX, Attribute, FoilConfig, Kind
from veilcast.foil.entropy import Levelling
from veilcast.foil.fitting import fitted_t
from veilcast.foil.generator import Generator
from veilcast.foil.lean import PAIRS_MIN, Lean
from veilcast.foil.moran import Moran, rate_for
from veilcast.foil.moves import Blocks, Gaussian, Mover, moves_of
from veilcast.foil.noise import Noise
from veilcast.foil.pmf import Pmf
from veilcast.foil.signflip import SignFlip
from veilcast.foil.span import Span
from veilcast.foil.trajectory import Trajectories
from veilcast.foil.window import Window
from veilcast.topics import Integers, Reals, Strings


def generator_of(domain: Strings | Integers | Reals, config: FoilConfig) -> Generator[Any, Any] | None:
    """For codes of words, in the order of their table, or for numbers; None where there is nothing to make fakes of."""
    told = config.attributes.get(domain.attribute, Attribute())
    if not config.k_p:
        return None
    if told.master:
        return None  # It has no way of its own: `slaves`.
    if not isinstance(domain, Strings):
        return _numbers(domain, told, kind_of(told, config), config.k_p)
    if not told.values:
        return None
    if not all(isinstance(value, str) for value in told.values):
        raise wrong(domain, "has words, and its values are numbers")
    paper = told.generator == "entropy" or (not told.generator and config.generator == "entropy")
    pmf = Pmf(told.weights or [1.0] * len(told.values))
    return Levelling(config.k_p, pmf) if paper else Bucketing(config.k_p, pmf)


def kind_of(told: Attribute, config: FoilConfig) -> Kind:
    """Of a number."""
    if told.generator or config.generator:
        return told.generator or config.generator
    if config.profile == "paper":
        return "noise"
    return "moran" if told.public_after else "sign-flip"


def wrong(domain: Strings | Integers | Reals, what: str) -> ConfigError:
    """Of what is said of this attribute in a configuration."""
    return ConfigError(f"foil.attributes.{domain.attribute}: the attribute {what}")


def _numbers(domain: Integers | Reals, told: Attribute, kind: Kind, k: int) -> Generator[Any, np.float64]:
    if told.relative and domain.low <= 0:
        raise wrong(domain, "has values down to 0, and relative steps are of values above it")
    span = Span(domain.low, domain.high, 0 if isinstance(domain, Integers) else None)
    match kind:
        case "noise":
            scale = _deviation(domain, told)
            return Noise(k, scale, power=int(told.relative), span=span)
        case "window":
            if told.relative:
                raise wrong(domain, "has a window, whose deviation is absolute; leave relative away")
            return Window(k, _deviation(domain, told), span)
        case "bucketing" | "entropy":
            table = _table(domain, told)
            pmf = Pmf(told.weights or np.ones(len(table)))
            order = np.argsort(table)
            pmf = Pmf(pmf.p[order])
            return Coded(table[order], Bucketing(k, pmf) if kind == "bucketing" else Levelling(k, pmf))
        case "trajectories":
            return Trajectories(k, _mover(domain, told), span)
        case "moran":
            if not told.public_after:
                raise wrong(domain, "has moran, which needs public_after: after how many steps values are known")
            return Moran(Trajectories(k, _mover(domain, told), span), rate_for(k + 1, told.public_after))
        case _:
            return Trajectories(k, SignFlip(told.block, told.relative, _lean(told), growing=True), span)


def _deviation(domain: Integers | Reals, told: Attribute) -> float:
    if told.deviation:
        return told.deviation
    if told.history:
        return float(_moves(told).std())
    return 0.05 if told.relative else (domain.high - domain.low) / 20


def _mover(domain: Integers | Reals, told: Attribute) -> Mover[Any]:
    if told.law == "gaussian":
        mean = float(_moves(told).mean()) if told.history and not told.deviation else 0.0
        return Gaussian(mean, _deviation(domain, told), told.relative)
    if not told.history:
        raise wrong(domain, f"has moves of the law {told.law!r}, which is fitted to a history")
    moves = _moves(told)
    if told.law == "student":
        return fitted_t(moves, relative=told.relative)
    return Blocks(moves, min(told.block, len(moves)), told.relative)


def _lean(told: Attribute) -> Lean:
    return Lean.fitted(_moves(told)) if len(told.history) > 2 * PAIRS_MIN else Lean(*told.lean)


def _moves(told: Attribute) -> Numbers:
    return moves_of(np.array(told.history), relative=told.relative)


def _table(domain: Integers | Reals, told: Attribute) -> Numbers:
    if told.values:
        if any(isinstance(value, str) or not domain.low <= value <= domain.high for value in told.values):
            raise wrong(domain, "has values that are not in its declared domain")
        return np.array(told.values, dtype=np.float64)
    if isinstance(domain, Reals) or domain.high - domain.low >= VALUES_MAX:
        raise wrong(domain, "has too many values to draw from: say which there can be")
    return np.arange(domain.low, domain.high + 1, dtype=np.float64)
