"""The reference of experiments, from the code: fields with types, defaults and meanings; attackers; drawn metrics.

The meaning of a field is the docstring that stands below it in its struct. `veilcast lab reference` prints this, and
docs/experiments.md is written from it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from veilcast.lab.experiment import definition
from veilcast.lab.experiment.mesh_params import Combined, Inside, Outside, Source


class FieldText(NamedTuple):
    name: str
    value: str
    """The values that it takes, in words or as TOML."""
    required: bool
    default: str
    """As TOML; empty if there is none."""
    meaning: str


class AttackerGroup(NamedTuple):
    target: str
    place: str
    names: tuple[str, ...]


def describe_fields(kind: type[msgspec.Struct]) -> list[FieldText]:
    """The fields of a struct that files are decoded to."""
    comments = _comments(kind)
    return [
        FieldText(
            field.name,
            _type(field.type),
            field.required,
            "" if field.required else _default(field),
            comments.get(field.name, ""),
        )
        for field in msgspec.structs.fields(kind)
    ]


def summarize(kind: type[msgspec.Struct]) -> str:
    """The first paragraph of its docstring, in one line."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def describe_attackers() -> list[AttackerGroup]:
    """The attackers that `attacks` of `mesh.epochs` can name."""
    return [
        AttackerGroup("subscribers", "outside", get_args(Outside)),
        AttackerGroup("subscribers", "inside", get_args(Inside)),
        AttackerGroup("subscribers", "both", get_args(Combined)),
        AttackerGroup("the publisher", "both", get_args(Source)),
    ]


def find_drawn_metrics() -> dict[str, list[str]]:
    """The metrics that packaged experiments draw, sorted, each with the names of these experiments."""
    drawn: dict[str, list[str]] = {}
    for name in definition.packaged_names():
        loaded = definition.load_experiment(name)[1]
        metrics = {curve.metric for figure in loaded.figures for curve in figure.curves}
        metrics |= {metric for matrix in loaded.matrices for metric in (matrix.metric, *matrix.costs)}
        for metric in metrics:
            drawn.setdefault(metric, []).append(name)
    return dict(sorted(drawn.items()))


def _default(field: Any) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if isinstance(value, msgspec.Struct):
        return "{}"
    if isinstance(value, tuple):
        return "[]" if not value or isinstance(value[0], msgspec.Struct) else msgspec.json.encode(value).decode()
    return "" if value is None else msgspec.json.encode(value).decode()


def _type(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        names = next(meta.extra["names"] for meta in arguments[1:] if isinstance(meta, msgspec.Meta) and meta.extra)
        return ", ".join(f'"{name}"' for name in names) + ', "file:PATH"'
    if origin is Literal:
        return ", ".join(f"{msgspec.json.encode(each).decode()}" for each in arguments)
    if origin in (Union, types.UnionType):
        return ", ".join(_type(each) for each in arguments if each is not types.NoneType)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "table"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(kind, "any value")


@cache
def _comments(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings that stand below the fields of a struct and of its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not issubclass(each, msgspec.Struct) or each is msgspec.Struct:
            continue
        body = ast.parse(inspect.getsource(sys.modules[each.__module__])).body
        [found_class] = [part for part in body if isinstance(part, ast.ClassDef) and part.name == each.__name__]
        field = None
        for part in found_class.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                field = part.target.id
            elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and field:
                found[field] = " ".join(str(part.value.value).split())
                field = None
            else:
                field = None
    return found
