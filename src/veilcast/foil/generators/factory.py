"""The generator factory: makes the generator of an attribute, and the law of a dependent attribute, from a
configuration.

Pure. The domain of an attribute is the declared one of its topic: a true value outside it is refused, fakes are
reflected into it. If neither a deviation nor a history says how far a value may move, a twentieth of the domain does.

Strings have fakes if all possible strings are declared. A string without declared alternatives goes out unchanged with
every candidate.

**Dependent attributes** (P3, end of IV.B). The fakes of the primary attribute are made as usual. Those of a dependent
one are drawn given the primary's value in the same candidate (`dependent`). Otherwise values that do not belong
together would reveal a fake: a large volume at a small price.

- A number that depends on a number follows a line: `line`, slope and intercept, with a `deviation` around it; or all
  three fitted to the histories of both, which then cover the same moments.
- A string that depends on a string follows `given`: for each value of the primary, the probability of each of its own.

**paper**: on the line itself, where the truth is the only candidate that is not.

The part of a dependent attribute beyond its primary is drawn afresh at each step; if it persists in the truth, this
leaks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import VALUES_MAX, AttributeConfig, FoilConfig, GeneratorName
from veilcast.foil.generators.base import Generator
from veilcast.foil.generators.categories import BucketFakes, CodedNumbers, EntropyFakes, Pmf
from veilcast.foil.generators.dependent import ConditionalLaw, ConditionalTable, LinearLaw
from veilcast.foil.generators.moran import MoranTrajectories, branching_rate
from veilcast.foil.generators.movers import (
    MOVE_PAIRS_MIN,
    BlockMoves,
    GaussianMoves,
    Mover,
    SignFlipMoves,
    SignPersistence,
    fit_student_t,
    moves_between,
)
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.foil.generators.numeric_domain import NumericDomain
from veilcast.foil.generators.trajectory import Trajectories
from veilcast.foil.generators.window import WindowFakes
from veilcast.foil.random_source import FloatArray
from veilcast.topics import Integers, Reals, Schema, Strings


def make_generator(domain: Strings | Integers | Reals, config: FoilConfig) -> Generator[Any, Any] | None:
    """For codes of strings, in the order of their table, or for numbers; None if the attribute has no fakes."""
    told = config.attributes.get(domain.attribute, AttributeConfig())
    if not config.k_p:
        return None
    if told.master:
        return None  # It has no way of its own: `slaves`.
    if not isinstance(domain, Strings):
        return _numbers(domain, told, generator_name(told, config), config.k_p)
    if not told.values:
        return None
    if not all(isinstance(value, str) for value in told.values):
        raise attribute_error(domain, "has words, and its values are numbers")
    paper = told.generator == "entropy" or (not told.generator and config.generator == "entropy")
    pmf = Pmf(told.weights or [1.0] * len(told.values))
    return EntropyFakes(config.k_p, pmf) if paper else BucketFakes(config.k_p, pmf)


def generator_name(told: AttributeConfig, config: FoilConfig) -> GeneratorName:
    """The generator of a number."""
    if told.generator or config.generator:
        return told.generator or config.generator
    if config.profile == "paper":
        return "noise"
    return "moran" if told.public_after else "sign-flip"


def attribute_error(domain: Strings | Integers | Reals, what: str) -> ConfigError:
    """An error about the configuration of this attribute."""
    return ConfigError(f"foil.attributes.{domain.attribute}: the attribute {what}")


def _numbers(
    domain: Integers | Reals, told: AttributeConfig, kind: GeneratorName, k: int
) -> Generator[Any, np.float64]:
    if told.relative and domain.low <= 0:
        raise attribute_error(domain, "has values down to 0, and relative steps are of values above it")
    span = NumericDomain(domain.low, domain.high, 0 if isinstance(domain, Integers) else None)
    match kind:
        case "noise":
            scale = _deviation(domain, told)
            return NoiseFakes(k, scale, power=int(told.relative), domain=span)
        case "window":
            if told.relative:
                raise attribute_error(domain, "has a window, whose deviation is absolute; leave relative away")
            return WindowFakes(k, _deviation(domain, told), span)
        case "bucketing" | "entropy":
            table = _table(domain, told)
            pmf = Pmf(told.weights or np.ones(len(table)))
            order = np.argsort(table)
            pmf = Pmf(pmf.p[order])
            return CodedNumbers(table[order], BucketFakes(k, pmf) if kind == "bucketing" else EntropyFakes(k, pmf))
        case "trajectories":
            return Trajectories(k, _mover(domain, told), span)
        case "moran":
            if not told.public_after:
                raise attribute_error(
                    domain, "has moran, which needs public_after: after how many steps values are known"
                )
            return MoranTrajectories(
                Trajectories(k, _mover(domain, told), span), branching_rate(k + 1, told.public_after)
            )
        case _:
            return Trajectories(k, SignFlipMoves(told.block, told.relative, _lean(told), growing=True), span)


def _deviation(domain: Integers | Reals, told: AttributeConfig) -> float:
    if told.deviation:
        return told.deviation
    if told.history:
        return float(_moves(told).std())
    return 0.05 if told.relative else (domain.high - domain.low) / 20


def _mover(domain: Integers | Reals, told: AttributeConfig) -> Mover[Any]:
    if told.law == "gaussian":
        mean = float(_moves(told).mean()) if told.history and not told.deviation else 0.0
        return GaussianMoves(mean, _deviation(domain, told), told.relative)
    if not told.history:
        raise attribute_error(domain, f"has moves of the law {told.law!r}, which is fitted to a history")
    moves = _moves(told)
    if told.law == "student":
        return fit_student_t(moves, relative=told.relative)
    return BlockMoves(moves, min(told.block, len(moves)), told.relative)


def _lean(told: AttributeConfig) -> SignPersistence:
    return SignPersistence.fit(_moves(told)) if len(told.history) > 2 * MOVE_PAIRS_MIN else SignPersistence(*told.lean)


def _moves(told: AttributeConfig) -> FloatArray:
    return moves_between(np.array(told.history), relative=told.relative)


def _table(domain: Integers | Reals, told: AttributeConfig) -> FloatArray:
    if told.values:
        if any(isinstance(value, str) or not domain.low <= value <= domain.high for value in told.values):
            raise attribute_error(domain, "has values that are not in its declared domain")
        return np.array(told.values, dtype=np.float64)
    if isinstance(domain, Reals) or domain.high - domain.low >= VALUES_MAX:
        raise attribute_error(domain, "has too many values to draw from: say which there can be")
    return np.arange(domain.low, domain.high + 1, dtype=np.float64)


class DependentAttribute(NamedTuple):
    primary: int
    """Index of the primary among the attributes of the topic."""
    law: ConditionalLaw[Any]


def make_dependent(domain: Strings | Integers | Reals, schema: Schema, config: FoilConfig) -> DependentAttribute | None:
    """None for an attribute without a primary, or if nothing is foiled."""
    told = config.attributes.get(domain.attribute, AttributeConfig())
    if not told.master or not config.k_p:
        return None
    place = next((at for at, each in enumerate(schema.domains) if each.attribute == told.master), None)
    if place is None:
        raise attribute_error(domain, f"has a master {told.master!r} that its topic does not declare")
    master, theirs = schema.domains[place], config.attributes.get(told.master, AttributeConfig())
    if theirs.master:
        raise attribute_error(domain, f"has a master {told.master!r} that has a master itself")
    if isinstance(domain, Strings) != isinstance(master, Strings):
        raise attribute_error(domain, f"cannot follow {told.master!r}: a number follows a number, and a word a word")
    if isinstance(domain, Strings):
        return DependentAttribute(place, _given(domain, told, theirs))
    return DependentAttribute(place, _line(domain, told, theirs, paper=config.profile == "paper"))


def _line(domain: Integers | Reals, told: AttributeConfig, theirs: AttributeConfig, *, paper: bool) -> LinearLaw:
    span = NumericDomain(domain.low, domain.high, 0 if isinstance(domain, Integers) else None)
    if told.line is not None:
        if not told.deviation and not paper:
            raise attribute_error(
                domain, "has a line, and needs the deviation around it: what is on the line is a fake"
            )
        return LinearLaw(*told.line, 0.0 if paper else told.deviation, span)
    if not told.history or len(told.history) != len(theirs.history):
        raise attribute_error(
            domain, f"follows {told.master!r}: give a line, or a history of both, as long as one another"
        )
    try:
        found = LinearLaw.fit(np.array(theirs.history), np.array(told.history), span)
    except LocalError as error:
        raise attribute_error(domain, f"follows {told.master!r}: {error}") from error
    return LinearLaw(found.slope, found.intercept, 0.0 if paper else told.deviation or found.deviation, span)


def _given(domain: Strings, told: AttributeConfig, theirs: AttributeConfig) -> ConditionalTable:
    if not told.values or not theirs.values:
        raise attribute_error(domain, f"follows {told.master!r}: both need their values")
    if len(told.given) != len(theirs.values) or any(len(row) != len(told.values) for row in told.given):
        raise attribute_error(domain, "needs in given, for each value of its master, how likely each of its own is")
    try:
        return ConditionalTable(told.given)
    except ConfigError as error:
        raise attribute_error(domain, f"has in given what cannot be: {error}") from error
