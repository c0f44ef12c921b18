"""An experiment on the user's own trace, in place of the synthetic one.

Series that replay the synthetic trace replay the file. Series that replay a real trace stay beside it, and are left out
if there is no data folder. Totals are those of a month of the file. Nothing is compared with the numbers of the
experiment, which are of another trace. The results state the lines of the file that were refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment.broker_params import TraceParams
from veilcast.lab.experiment.definition import Experiment, Figure, QuickSettings, Series
from veilcast.lab.experiment.params import FILE
from veilcast.lab.interaction_traces import InteractionTrace
from veilcast.lab.runs.brokers.interaction_matrix import MONTH_HOURS


def replay_user_trace(
    name: str, experiment: Experiment, file: Path, trace: InteractionTrace, data: Path | None
) -> Experiment:
    """Raises `ConfigError` if the experiment replays no trace."""
    replays = {cell.series: cell.params for cell in experiment.make_cells() if isinstance(cell.params, TraceParams)}
    if not replays:
        raise ConfigError(f"{name} replays no trace; --trace is for experiments that do, such as brokers-fig9")
    out = {series for series, params in replays.items() if _reads_data(params) and data is None}
    month: dict[str, Any] = {"interactions": monthly_interactions(trace)}
    own = month | {"trace": f"{FILE}{file.absolute()}"}

    def on_it(series: Series) -> Series:
        params = replays.get(series.name)
        more = {} if params is None else month if _reads_data(params) else own
        return msgspec.structs.replace(series, params=series.params | more)

    shrunk = {key: value for key, value in experiment.quick.params.items() if key not in _OF_TRACES}
    return msgspec.structs.replace(
        experiment,
        title=f"{experiment.title}, on {file.name}",
        reading=f"{experiment.reading.rstrip()}\n{describe_trace(file, trace)}\n",
        series=tuple(on_it(series) for series in experiment.series if series.name not in out),
        figures=tuple(filter(None, (_without(figure, out) for figure in experiment.figures))),
        published=(),
        earlier=(),
        checks=(),
        overview=(),
        costs=(),
        quick=QuickSettings(experiment.quick.seeds, shrunk),
    )


def monthly_interactions(trace: InteractionTrace) -> int:
    """Interactions in a month; a shorter trace counts as one month."""
    return max(1, round(trace.publisher.size * MONTH_HOURS / max(float(trace.hour.max()), MONTH_HOURS)))


def describe_trace(file: Path, trace: InteractionTrace) -> str:
    many = f"{trace.publisher.size:,} interactions of {trace.users:,} users in {trace.hour.max():,.0f} hours"
    return f"The trace is {file.name}: {many}, {monthly_interactions(trace):,} a month; {trace.describe_refused()}."


def _without(figure: Figure, out: set[str]) -> Figure | None:
    curves = tuple(curve for curve in figure.curves if curve.series not in out)
    return msgspec.structs.replace(figure, curves=curves) if curves else None


def _reads_data(params: TraceParams) -> bool:
    return bool(params.data_sources("kernel"))


_OF_TRACES = ("users", "relations", "interactions")
