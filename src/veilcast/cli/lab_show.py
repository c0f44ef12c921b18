"""The output of `veilcast lab show`, `lab new` and `lab reference`: what an experiment is, and what one can be."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from veilcast.cli.context import Context, Report
from veilcast.cli.lab import lab_extra
from veilcast.errors import ConfigError, StorageError


def show(arguments: argparse.Namespace, _: Context) -> Report:
    """The text of an experiment; as JSON, all that was read from it."""
    from veilcast.lab.experiment import definition

    name, experiment = definition.load_experiment(arguments.name)
    text = definition.read_experiment(arguments.name)
    return Report(_data(name, experiment, text), text.splitlines())


def new(arguments: argparse.Namespace, _: Context) -> Report:
    """Write a commented experiment of a kind, or print it."""
    from veilcast.lab.experiment.template import write_template

    text = write_template(arguments.kind)
    if arguments.out is None:
        return Report({"kind": arguments.kind, "toml": text}, text.splitlines())
    _write_new(arguments.out, text)
    return Report(
        {"kind": arguments.kind, "file": str(arguments.out)},
        [f"wrote {arguments.out}", f"`veilcast lab run {arguments.out} --quick` tries it"],
    )


def reference(arguments: argparse.Namespace, _: Context) -> Report:
    """The kinds of runs; or the parameters of one, the attackers, or the metrics."""
    from veilcast.lab.experiment.kinds import KINDS

    if arguments.what == "attackers":
        return _attackers()
    if arguments.what == "metrics":
        return _metrics()
    return _kinds() if arguments.what is None else _kind(arguments.what, KINDS)


def _kinds() -> Report:
    from veilcast.lab.experiment.kinds import KINDS
    from veilcast.lab.experiment.reference import summarize
    from veilcast.lab.runs.table import RUNS

    rows = [{"kind": kind, "meaning": summarize(params), "engines": list(RUNS[kind])} for kind, params in KINDS.items()]
    width = max(map(len, KINDS))
    lines = [line for row in rows for line in _hang(f"{row['kind']:{width}}  ", f"{row['meaning']}")]
    more = ["", "`veilcast lab reference KIND` lists its parameters; `attackers` and `metrics` list those"]
    return Report({"kinds": rows}, [*lines, *more])


def _kind(kind: str, known: Any) -> Report:
    from veilcast.lab.experiment.kinds import params_type
    from veilcast.lab.experiment.reference import describe_fields, summarize

    params = params_type(kind)
    fields = describe_fields(params)
    lines = [f"{kind}: {summarize(params)}"]
    for field in fields:
        default = "required" if field.required else f"default {field.default}"
        lines += ["", *_hang(f"{field.name}: ", f"{field.value}; {default}")]
        lines += _hang("  ", field.meaning) if field.meaning else []
    data = {"kind": kind, "meaning": summarize(params), "parameters": [field._asdict() for field in fields]}
    return Report(data, lines)


def _attackers() -> Report:
    from veilcast.lab.experiment.params import entry_point_names
    from veilcast.lab.experiment.reference import describe_attackers

    groups = describe_attackers()
    lines = [line for each in groups for line in _hang(f"{each.target}, {each.place}: ", ", ".join(each.names))]
    own = entry_point_names()
    lines += _hang("installed beside the package: ", ", ".join(own)) if own else []
    lines += ["", "an attacker of your own is one Python file: docs/experiments.md#attackers-of-your-own"]
    return Report({"attackers": [each._asdict() for each in groups], "installed": list(own)}, lines)


def _metrics() -> Report:
    from veilcast.lab.experiment.reference import find_drawn_metrics

    drawn = find_drawn_metrics()
    width = max(map(len, drawn))
    lines = [line for name, where in drawn.items() for line in _hang(f"{name:{width}}  ", ", ".join(where))]
    return Report({"metrics": drawn}, lines)


def _data(name: str, experiment: Any, text: str) -> dict[str, Any]:
    with lab_extra():
        import msgspec

    engine = experiment.engines[0]
    series = []
    for each in experiment.series:
        cells = [cell for cell in experiment.make_cells(engine=engine) if cell.series == each.name]
        parameters = msgspec.to_builtins(cells[0].params) if cells else {}
        attackers = sorted({attack for cell in cells for attack in cell.params.named_attackers()})
        series.append(
            {
                "name": each.name,
                "kind": each.kind or experiment.kind,
                "cells": len(cells),
                "parameters": {key: value for key, value in parameters.items() if key not in experiment.axes},
                "attackers": attackers,
            }
        )
    figures = msgspec.to_builtins(experiment.figures)
    curves = [curve for figure in experiment.figures for curve in figure.curves]
    metrics = {curve.metric for curve in curves} | {matrix.metric for matrix in experiment.matrices}
    return {
        "name": name,
        "title": experiment.title,
        "claim": experiment.claim,
        "reading": experiment.reading,
        "source": experiment.source,
        "kind": experiment.kind,
        "engines": list(experiment.engines),
        "minutes": experiment.minutes,
        "seeds": experiment.seeds,
        "axes": msgspec.to_builtins(experiment.axes),
        "series": series,
        "metrics": sorted(metrics),
        "attackers": sorted({curve.attack for curve in curves} - {""}),
        "data": sorted(experiment.data_sources(engine)),
        "files": [file._asdict() for file in experiment.user_files(engine)],
        "figures": figures,
        "matrices": msgspec.to_builtins(experiment.matrices),
        "published": msgspec.to_builtins(experiment.published),
        "earlier": msgspec.to_builtins(experiment.earlier),
        "checks": msgspec.to_builtins(experiment.checks),
        "toml": text,
    }


def _write_new(path: Path, text: str) -> None:
    if path.suffix != ".toml":
        raise ConfigError(f"{path}: the file of an experiment ends with .toml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise StorageError(f"{path} is there already; choose another name") from error
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def _hang(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        100,
        initial_indent=head,
        subsequent_indent=" " * min(len(head), 20),
        break_on_hyphens=False,
        break_long_words=False,
    )
