"""An experiment on the user's own series, in place of the real prices of the data folder.

Series of an experiment that foil real prices foil the file; series that foil values drawn from a law stay beside it. If
an experiment has no real prices, the file takes the place of the laws. Where several truths are replaced, in series or
on an axis, the first of them is kept, and its curves. Nothing is compared with the numbers of the experiment, which are
of other values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.definition import Experiment, Figure, Series
from veilcast.lab.experiment.foil_params import LAWS, StreamParams
from veilcast.lab.experiment.params import FILE


def foil_user_series(name: str, experiment: Experiment, file: Path, column: str) -> Experiment:
    """Raises `ConfigError` if the experiment foils no series of numbers."""
    truths = {cell.params.truth for cell in experiment.make_cells() if isinstance(cell.params, StreamParams)}
    if not truths:
        raise ConfigError(
            f"{name} foils no series of numbers; --series is for experiments that do, such as foil-default"
        )
    replaced = (truths - set(LAWS)) or truths
    own = {"truth": f"{FILE}{file.absolute()}", "column": column}
    axis = experiment.axes.get("truth", ())
    kept = [truth for truth in axis if truth not in replaced]
    first = next((truth for truth in axis if truth in replaced), None)

    def change(given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given) | (own if given.get("truth", "gbm") in replaced else {})

    if kept:
        raise ConfigError(
            f"{name} has an axis over truths, {', '.join(map(str, axis))}, of which the file replaces only some: "
            'copy the experiment, and write truth = "file:PATH" where it belongs'
        )
    axes = dict(experiment.axes)
    base = dict(experiment.base)
    if axis:
        axes["truth"] = (own["truth"],)
        base["column"] = column
    series = tuple(
        msgspec.structs.replace(
            each, params=dict(each.params) | ({} if axis else _own_part(change(base | each.params), each.params))
        )
        for each in experiment.series
    )
    real = {each.name: truth for each in experiment.series if (truth := _truth(experiment, each)) in replaced}
    gone = set() if axis else {each for each, truth in real.items() if truth != next(iter(real.values()))}
    figures = (_on_file(figure, first, own["truth"], gone) for figure in experiment.figures)
    return msgspec.structs.replace(
        experiment,
        title=f"{experiment.title}, on {file.name}",
        reading=f"{experiment.reading.rstrip()}\nThe true values are column {column or 'of numbers'} of {file.name}.\n",
        base=base,
        axes=axes,
        series=tuple(each for each in series if each.name not in gone),
        figures=tuple(figure for figure in figures if figure.curves),
        matrices=(),
        published=(),
        earlier=(),
        checks=(),
        overview=(),
        costs=(),
    )


def _truth(experiment: Experiment, series: Series) -> str:
    return str((experiment.base | series.params).get("truth", "gbm"))


def _own_part(whole: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The truth and the column of a series; nothing if it has those of the base."""
    return {name: whole[name] for name in ("truth", "column") if name in whole and whole[name] != given.get(name)}


def _on_file(figure: Figure, first: str | None, own: str, gone: set[str]) -> Figure:
    curves = (each for each in figure.curves if each.series not in gone and each.at.get("truth", first) == first)
    return msgspec.structs.replace(
        figure,
        curves=tuple(
            msgspec.structs.replace(each, at=dict(each.at) | ({"truth": own} if "truth" in each.at else {}))
            for each in curves
        ),
    )
