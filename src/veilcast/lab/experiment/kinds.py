"""The kinds of runs: one struct of parameters for each, and how to find the kind of an older experiment file.

An experiment names its kind (`kind = "mesh.epochs"`), and a series can name another one. Files from before kinds
existed named no kind: it followed from switches among the parameters (`brokers = "losses"`, `look = "epochs"`).
`add_kinds` reads such a file: it infers the kinds by the old rules, and removes the switches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, get_args

import msgspec

from veilcast.errors import ConfigError
from veilcast.lab.experiment import broker_params as brokers
from veilcast.lab.experiment import foil_params as foil
from veilcast.lab.experiment import mesh_params as mesh
from veilcast.lab.experiment import relay_params as relay
from veilcast.lab.experiment import tree_params as tree
from veilcast.lab.experiment.params import FILE, RunParams
from veilcast.nearest import did_you_mean

AnyParams: TypeAlias = (
    mesh.MeshFlows
    | mesh.MeshSwaps
    | mesh.MeshEpochs
    | mesh.MeshTopics
    | mesh.MeshPruning
    | mesh.MeshClocks
    | mesh.MeshActive
    | mesh.MeshGrinding
    | mesh.MeshWires
    | relay.RelayAttacks
    | relay.RelayDelays
    | relay.RelayTiming
    | tree.TreeCosts
    | tree.TreeAttacks
    | tree.TreeDefinitions
    | tree.TreeDroppers
    | tree.TreeDelays
    | foil.FoilGuesses
    | foil.FoilCategories
    | foil.FoilPairs
    | foil.FoilPedigrees
    | foil.FoilOverhead
    | foil.FoilGame
    | brokers.BrokersPath
    | brokers.BrokersShares
    | brokers.BrokersRefresh
    | brokers.BrokersLosses
    | brokers.BrokersPlacement
    | brokers.BrokersTimes
    | brokers.BrokersMessages
    | brokers.BrokersDelays
    | brokers.BrokersLoad
)


def params_type(kind: str) -> type[RunParams]:
    """Raises `ConfigError` for an unknown kind."""
    if kind not in KINDS:
        near = did_you_mean(kind, KINDS)
        raise ConfigError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}{near}")
    return KINDS[kind]


def make_params(kind: str, given: Mapping[str, Any]) -> RunParams:
    """The parameters of a run of this kind. Raises `ConfigError` for a parameter that the kind does not have."""
    known = params_type(kind)
    if strange := [name for name in given if name not in known.__struct_fields__]:
        raise ConfigError(f"runs of kind {kind} have no parameter {', '.join(strange)}")
    try:
        return msgspec.convert({**given, "kind": kind}, known)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from error


def add_kinds(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of an experiment's file, with the kinds and the names of parameters of today.

    A table that has the wrong shape is returned as it is: the decoder says what is wrong with it.
    """
    if not _is_well_formed(table):
        return dict(table)
    upgraded = _map_parameters(table, _rename_parameters)
    if "kind" in table:
        return upgraded
    kinds = [_infer_kind(given) for given in _merged_parameters(table)]
    upgraded["kind"] = kinds[0]
    if len(set(kinds)) > 1:
        upgraded["series"] = [{**series, "kind": kind} for series, kind in zip(upgraded["series"], kinds, strict=True)]
    known = {name for kind in kinds for name in KINDS[kind].__struct_fields__}
    return _map_parameters(
        upgraded, lambda given: {name: value for name, value in given.items() if name in known or name not in _SWITCHES}
    )


def _rename_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {_RENAMED.get(name, name): value for name, value in given.items()}
    if isinstance(own := renamed.pop("own_trace", None), str) and own:
        renamed["trace"] = f"{FILE}{own}"
    return renamed


def _infer_kind(given: Mapping[str, Any]) -> str:
    """The kind of a run with these parameters, by the rules from before kinds existed."""
    of = given.get
    if of("clocks"):
        return "mesh.clocks"
    if of("foil"):
        truths = {"codes": "foil.categories", "pairs": "foil.pairs"}
        asked = {"overhead": "foil.overhead", "pedigree": "foil.pedigrees", "game": "foil.game"}
        return asked.get(of("ask", ""), truths.get(of("truth", ""), "foil.guesses"))
    if of("pruner", "none") != "none":
        return "mesh.pruning"
    if of("brokers"):
        return f"brokers.{of('brokers')}"
    if of("timed"):
        return "tree.delays" if of("tree") else "relay.delays"
    if of("tree"):
        over_epochs = "tree.droppers" if of("droppers") else "tree.definitions" if of("topics") else "tree.attacks"
        return over_epochs if of("look") == "epochs" else "tree.costs"
    if of("relay"):
        return "relay.attacks"
    if of("topics"):
        return "mesh.topics"
    if of("script"):
        return "mesh.grinding" if of("script") == "grinding" else "mesh.active"
    if of("wire", "bare") != "bare":
        return "mesh.wires"
    return "mesh.epochs" if of("look") == "epochs" else "mesh.flows"


def _is_well_formed(table: Mapping[str, Any]) -> bool:
    series = table.get("series", [])
    parts = [table.get("base", {}), table.get("axes", {}), table.get("quick", {}), table.get("machines", {})]
    if not isinstance(series, (list, tuple)) or not all(isinstance(part, Mapping) for part in (*parts, *series)):
        return False
    parts = [each.get("params", {}) for each in (*series, *parts[2:])]
    return all(isinstance(part, Mapping) for part in parts)


def _merged_parameters(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each series, at the first value of each axis."""
    first = {axis: values[0] for axis, values in table.get("axes", {}).items() if isinstance(values, list) and values}
    base = dict(table.get("base", {}))
    return [base | dict(each.get("params", {})) | first for each in table.get("series") or [{}]]


def _map_parameters(
    table: Mapping[str, Any], change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, Any]:
    """The table with every set of parameters changed."""
    changed = dict(table)
    for name in ("base", "axes"):
        if name in table:
            changed[name] = change(table[name])
    for name in ("quick", "machines"):
        if "params" in table.get(name, {}):
            changed[name] = {**table[name], "params": change(table[name]["params"])}
    if "series" in table:
        changed["series"] = [
            {**each, "params": change(each["params"])} if "params" in each else dict(each) for each in table["series"]
        ]
    return changed


KINDS: Final[Mapping[str, type[RunParams]]] = {known.kind(): known for known in get_args(AnyParams)}
_SWITCHES: Final = frozenset({"ask", "brokers", "foil", "look", "script", "tree", "truth"})
"""Parameters of older files that only chose the kind."""
_RENAMED: Final = {"slaves": "dependents"}
"""Older names of parameters."""
