"""A commented experiment of any kind, to begin with: `veilcast lab new KIND`.

It is made from the packaged experiment of this kind that takes least time and needs no data, as far as there is one:
one of its series, with one figure and one of its curves. So it runs as it stands. All other parameters of the kind
stand below as comments, with their defaults and meanings.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from veilcast.lab.experiment import definition
from veilcast.lab.experiment.definition import Experiment, Figure, FigureCurve, Series
from veilcast.lab.experiment.kinds import params_type
from veilcast.lab.experiment.reference import FieldText, describe_fields, summarize


class _Model(NamedTuple):
    """The part of a packaged experiment that a template is made from."""

    name: str
    experiment: Experiment
    series: Series
    figure: Figure
    curve: FigureCurve
    needs_data: bool


def write_template(kind: str) -> str:
    """The text of an experiment's file. Raises `ConfigError` for an unknown kind."""
    known = params_type(kind)
    model = _find_model(kind)
    experiment, curve = model.experiment, model.curve
    fields = {field.name: field for field in describe_fields(known)}
    given = experiment.base | model.series.params | {name: at for name, at in curve.at.items() if name != "step"}
    given = {name: value for name, value in given.items() if name in fields and name not in experiment.axes} | {
        name: value for name, value in curve.at.items() if name in experiment.axes
    }
    axis = {model.figure.x: experiment.axes[model.figure.x]} if model.figure.x in experiment.axes else {}
    quick = {name: value for name, value in experiment.quick.params.items() if name in fields and name not in axis}
    at = {"step": curve.at["step"]} if "step" in curve.at else {}
    drawn = {"label": curve.label, "attack": curve.attack, "metric": curve.metric} | ({"at": at} if at else {})
    lines = [
        f"# An experiment of kind {kind}, made by `veilcast lab new` from one series of {model.name}.",
        *_comment(summarize(known)),
        "# `veilcast lab run FILE --quick` tries it; `veilcast lab reference` and docs/experiments.md list all fields.",
        *(
            ["# It needs the data folder: --data DIR (`veilcast lab data` lists what there is)."]
            if model.needs_data
            else []
        ),
        "",
        f"title = {_toml(f'My {kind}')}",
        f"kind = {_toml(kind)}",
        'claim = "the sentence that the experiment tests"',
        'reading = "how the claim is read, where it can be read in several ways"',
        f"minutes = {_toml(experiment.minutes)}  # about, on two cores",
        f"seeds = {_toml(min(experiment.seeds, 30))}  # runs of each cell",
        f"engines = {_toml(experiment.engines)}  # the first is the default",
        "",
        "# Parameters of all runs.",
        "[base]",
        *(line for name in given if name not in axis for line in _parameter(fields[name], given[name])),
        "",
        "# Other parameters of this kind, with their defaults.",
        *(line for name in fields if name not in {*given, *axis} for line in _default(fields[name])),
        "",
        *(["# Parameters that take several values.", "[axes]"] if axis else []),
        *(f"{name} = {_toml(values)}" for name, values in axis.items()),
        *([""] if axis else []),
        "# What --quick changes.",
        "[quick]",
        "seeds = 2",
        *([f"params = {_inline(quick)}"] if quick else []),
        "",
        "[[figures]]",
        'name = "first"',
        f"title = {_toml(model.figure.title)}",
        f"x = {_toml(model.figure.x)}",
        f"x_label = {_toml(model.figure.x_label)}",
        f"y_label = {_toml(model.figure.y_label)}",
        "curves = [",
        f"  {_inline(drawn)},",
        "]",
    ]
    return "\n".join(lines) + "\n"


def _find_model(kind: str) -> _Model:
    return min(_models(kind), key=lambda model: (model.needs_data, model.experiment.minutes, model.name))


def _models(kind: str) -> Iterator[_Model]:
    for name in definition.packaged_names():
        experiment = definition.load_experiment(name)[1]
        for series in experiment.series:
            if (series.kind or experiment.kind) != kind:
                continue
            for figure in experiment.figures:
                for curve in figure.curves:
                    if curve.series == series.name:
                        yield _Model(name, experiment, series, figure, curve, _needs_data(experiment, series, curve))


def _needs_data(experiment: Experiment, series: Series, curve: FigureCurve) -> bool:
    fixed = {name: value for name, value in curve.at.items() if name in experiment.axes}
    cells = (cell for cell in experiment.make_cells(engine=experiment.engines[0]) if cell.series == series.name)
    chosen = (cell for cell in cells if all(cell.at[name] == value for name, value in fixed.items()))
    return any(cell.params.data_sources(experiment.engines[0]) for cell in chosen)


def _parameter(field: FieldText, value: Any) -> Iterator[str]:
    yield from _comment(field.meaning)
    yield f"{field.name} = {_toml(value)}"


def _default(field: FieldText) -> Iterator[str]:
    yield from _comment(
        f"{field.name}: {field.meaning} ({field.value})" if field.meaning else f"{field.name}: {field.value}"
    )
    yield f"# {field.name} = {field.default}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="# ")


def _inline(values: dict[str, Any]) -> str:
    pairs = (
        f"{name} = {_inline(value) if isinstance(value, dict) else _toml(value)}" for name, value in values.items()
    )
    return "{ " + ", ".join(pairs) + " }"


def _toml(value: Any) -> str:
    """A text, number, truth value or list of these as TOML, which writes them as JSON does."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return msgspec.json.encode(value).decode()
