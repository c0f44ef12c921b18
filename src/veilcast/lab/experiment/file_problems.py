"""Finds all faults in the fields of an experiment's file at once.

A decoder stops at the first fault, and says little about names: five faults would take six attempts. This module
compares the file with the structs that it is decoded to, field by field. Each fault is reported with its path in the
file, and with the names or values that would be right. The decoder alone decides whether a file is refused; this module
explains why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from veilcast.lab.experiment.kinds import KINDS
from veilcast.lab.experiment.params import FILE, entry_point_names, file_path
from veilcast.nearest import did_you_mean


def find_problems(table: Mapping[str, Any], whole: type[msgspec.Struct]) -> list[str]:
    """The faults of a decoded TOML file of an experiment, which is decoded to `whole`."""
    found = list(_of_struct(table, inspect.type_info(whole), ""))
    for path, kinds, given in _parameters(table):
        known = {name: field for kind in kinds for name, field in _fields(kind).items()}
        found += _of_fields(given, known, path)
    found += _of_attackers(table)
    for path, kind in _kinds(table):
        if kind and kind not in KINDS:
            found.append(f"{path}: {unknown_name('kind', kind, KINDS)}")
    return list(dict.fromkeys(found))


def _of_attackers(table: Mapping[str, Any]) -> Iterator[str]:
    """Names of attackers that nobody has. If the file lists attackers of its own, theirs are not known here."""
    for path, kinds, given in _parameters(table) if not table.get("attackers") else ():
        known = {name for kind in kinds for name in KINDS[kind].KNOWN_ATTACKERS}
        names = given.get("attacks") if known else ()
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and name not in known and name not in entry_point_names():
                yield f"{path}.attacks: {unknown_name('attacker', name, known)}"


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence about an unknown name, with the known names, or with the nearest one alone if there are many."""
    names = sorted(set(known) - {""})
    near = did_you_mean(name, names)
    told = f"; there are {', '.join(names)}" if names and not (near and len(names) > _LISTED) else ""
    return f"there is no {what} {name!r}{told}{near}"


def _parameters(table: Mapping[str, Any]) -> Iterator[tuple[str, list[str], Mapping[str, Any]]]:
    """Each part of the file that names parameters of runs: its path, the kinds of runs that it is for, and the
    parameters. A part of another type is left out: `_of_struct` reports it."""
    series = table.get("series")
    kinds = [kind for _, kind in _kinds(table)]
    places = [("base", kinds, table.get("base"))]
    for number, each in enumerate(series if isinstance(series, list) else ()):
        places.append((f"series[{number}].params", [str(_get(each, "kind") or kinds[0])], _get(each, "params")))
    places += [(f"{name}.params", kinds, _get(table.get(name), "params")) for name in ("quick", "machines")]
    for path, known, given in places:
        if isinstance(given, dict) and all(kind in KINDS for kind in known):
            yield path, known, given
    axes = table.get("axes")
    for name, values in axes.items() if isinstance(axes, dict) and all(kind in KINDS for kind in kinds) else ():
        for value in values if isinstance(values, list) else ():
            yield "axes", kinds, {name: value}


def _kinds(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The kinds that the file names, the experiment's first, each with its path."""
    series = table.get("series")
    own = (
        [(f"series[{number}].kind", _get(each, "kind")) for number, each in enumerate(series)]
        if isinstance(series, list)
        else []
    )
    return [("kind", str(table.get("kind", ""))), *((path, str(kind)) for path, kind in own if kind)]


def _fields(kind: str) -> dict[str, inspect.Field]:
    known = inspect.type_info(KINDS[kind])
    return {field.encode_name: field for field in known.fields} if isinstance(known, inspect.StructType) else {}


def _get(given: object, name: str) -> object:
    return given.get(name) if isinstance(given, dict) else None


def _of_struct(given: object, kind: inspect.Type, path: str) -> Iterator[str]:
    if not isinstance(given, dict) or not isinstance(kind, inspect.StructType):
        yield from _of_value(given, kind, path)
        return
    fields = {field.encode_name: field for field in kind.fields}
    missing = [name for name, field in fields.items() if field.required and name not in given]
    if missing:
        yield f"{path + ': ' if path else ''}missing {', '.join(missing)}"
    yield from _of_fields(given, fields, path)


def _of_fields(given: Mapping[str, Any], fields: Mapping[str, inspect.Field], path: str) -> Iterator[str]:
    for name, value in given.items():
        where = f"{path}.{name}" if path else name
        if name not in fields:
            yield f"{path + ': ' if path else ''}{unknown_name('field', name, fields)}"
        else:
            yield from _of_value(value, fields[name].type, where)


def _of_value(given: object, kind: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(kind, inspect.StructType) and isinstance(given, dict):
        yield from _of_struct(given, kind, path)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(given, list):
        for number, each in enumerate(given):
            yield from _of_value(each, kind.item_type, f"{path}[{number}]")
    elif isinstance(kind, inspect.Metadata) and isinstance(given, str):
        known = (kind.extra or {}).get("names", ())
        if given not in known and not file_path(given):
            names = ", ".join(filter(None, known))
            yield f'{path}: there is no {given!r}; there are {names}, and "{FILE}PATH"{did_you_mean(given, known)}'
    elif isinstance(kind, inspect.Metadata):
        yield from _of_value(given, kind.type, path)
    elif values := _values(kind):
        if given not in values:
            near = did_you_mean(given, map(str, values)) if isinstance(given, str) else ""
            yield f"{path}: there is no {given!r}; there are {', '.join(map(str, values))}{near}"
    elif (wanted := _TYPES.get(type(kind))) and not isinstance(given, wanted[0]):
        yield f"{path}: {given!r} is not {wanted[1]}"


def _values(kind: inspect.Type) -> list[Any]:
    """All values of a type that is a union of literals."""
    if isinstance(kind, inspect.LiteralType):
        return list(kind.values)
    if isinstance(kind, inspect.UnionType) and all(isinstance(each, inspect.LiteralType) for each in kind.types):
        return sorted(value for each in kind.types for value in _values(each))
    return []


_TYPES: Final[dict[type[inspect.Type], tuple[tuple[type, ...], str]]] = {
    inspect.StrType: ((str,), "a text"),
    inspect.IntType: ((int,), "a whole number"),
    inspect.FloatType: ((int, float), "a number"),
    inspect.BoolType: ((bool,), "true or false"),
    inspect.DictType: ((dict,), "a table"),
    inspect.VarTupleType: ((list,), "a list"),
    inspect.StructType: ((dict,), "a table"),
}
_LISTED: Final = 40
"""Above this number of names, only the nearest one is shown."""
