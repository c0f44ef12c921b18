"""`veilcast foil show`: draws what a broker would see of a series of values, with the fakes around it.

Nothing is sent and no key is needed: the candidates come from the same foiler with the same settings as a member's, in
the random order in which they would be sent. The picture has a row for each band of values and a column for each event.
The true candidate is marked on request only; try to tell before you ask.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final, NamedTuple

from veilcast.cli.context import Context, Report
from veilcast.cli.input_checks import check_range
from veilcast.errors import ConfigError, StorageError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.foiler import Foiler
from veilcast.foil.topic_names import levels_per_attribute
from veilcast.machine import Publication
from veilcast.topics import Reals, Schema


class FoiledEvent(NamedTuple):
    """The candidates in the broker's order, and the position of the true one."""

    candidates: list[float]
    position: int


def show(arguments: argparse.Namespace, context: Context) -> Report:
    check_range("--steps", arguments.steps, 1, _STEPS_MAX)
    check_range("--bits", arguments.bits, 1, _BITS)
    low, high = parse_domain(arguments.domain)
    values = read_column(arguments.file, arguments.column)[: arguments.steps]
    if not values:
        raise ConfigError(f"{arguments.file} has no value under {arguments.column!r}")
    if arguments.config is not None:
        config = read_member(Path(arguments.config))
    else:
        attribute = AttributeConfig(deviation=arguments.deviation, public_after=arguments.public_after)
        config = FoilConfig(
            profile=arguments.profile,
            generator=arguments.generator,
            k_p=arguments.fakes,
            attributes={arguments.column: attribute},
        )
    events = foil_values(values, Reals(arguments.column, low, high, arguments.bits), config, SystemRandom(), context)
    truth = [event.position for event in events] if arguments.truth else None
    data: dict[str, Any] = {"candidates": [event.candidates for event in events]}
    if truth is not None:
        data["truth"] = truth
    return Report(data, [*draw_events(events, marked=arguments.truth), *_table(events, marked=arguments.truth)])


def read_member(path: Path) -> FoilConfig:
    """The settings of a member's file, with its past values."""
    from veilcast.node.config import load_config
    from veilcast.node.foil import with_history

    config = load_config(path)
    if config.mode != "foil":
        raise ConfigError(f'{path}: its mode is {config.mode!r}; this command is for mode = "foil"')
    return with_history(config.settings)


def foil_values(
    values: Sequence[float], domain: Reals, config: FoilConfig, rng: Random, context: Context
) -> list[FoiledEvent]:
    """Make one event for each value. The broker sees the cell of a number, shown here as the middle of the cell."""
    schema = Schema((domain,))
    foiler, cells = Foiler(config, schema, context.entropy), 1 << levels_per_attribute(schema)[0]
    events = []
    for value in values:
        drawn = foiler.draw(Publication(((domain.attribute, value),)))
        foiler.commit(drawn)
        order = list(range(len(drawn.places)))
        rng.shuffle(order)
        seen = [
            domain.low + (_cell(drawn.places[slot][0]) + 0.5) * (domain.high - domain.low) / cells for slot in order
        ]
        events.append(FoiledEvent(seen, order.index(0)))
    return events


def draw_events(events: Sequence[FoiledEvent], *, marked: bool) -> list[str]:
    """Return rows of values from high to low, with a column for each event."""
    every = [value for event in events for value in event.candidates]
    low, high = min(every), max(every)
    height = (high - low) / _ROWS or 1.0
    rows = [[" "] * len(events) for _ in range(_ROWS)]
    for column, event in enumerate(events):
        places = [min(_ROWS - 1, int((high - value) / height)) for value in event.candidates]
        for place in places:
            rows[place][column] = _CANDIDATE
        if marked:
            rows[places[event.position]][column] = _TRUE
    return [f"{high - (number + 0.5) * height:12.2f} {''.join(row)}".rstrip() for number, row in enumerate(rows)]


def _table(events: Sequence[FoiledEvent], *, marked: bool) -> list[str]:
    legend = f"a column is an event, {_CANDIDATE} a candidate" + (f", {_TRUE} the true one" if marked else "")
    lines = ["", legend, f"the first {min(len(events), _SHOWN)} events, as they come:"]
    for number, event in enumerate(events[:_SHOWN]):
        words = [
            f"{value:.2f}{_TRUE if marked and slot == event.position else ''}"
            for slot, value in enumerate(event.candidates)
        ]
        lines.append(f"  {number:3}  {'  '.join(f'{word:>10}' for word in words)}")
    return lines


def _cell(coordinate: int | str | None) -> int:
    assert isinstance(coordinate, int)
    return coordinate


def parse_domain(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        if dots:
            return float(low), float(high)
    except ValueError:
        pass
    raise ConfigError(f"--domain {text}: write LOW..HIGH with numbers")


def read_column(path: Path, column: str) -> list[float]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if column not in (rows.fieldnames or ()):
                raise ConfigError(f"{path} has no column {column!r}, only {', '.join(rows.fieldnames or ())}")
            return [_number(row[column]) for row in rows]
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: a value of {column!r} is no number: {error}") from error


def _number(text: str) -> float:
    """Parse a number. Raises `ValueError` for "1_000", too, which is a number for Python alone."""
    if "_" in text:
        raise ValueError(f"{text!r}: write digits alone")
    return float(text)


_BITS: Final = 16
_STEPS_MAX: Final = 200
_ROWS: Final = 16
_SHOWN: Final = 5
_CANDIDATE: Final = "."
_TRUE: Final = "*"
