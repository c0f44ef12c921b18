"""The table of runs: for each kind of run and each engine, the function that makes it.

Engines are models on arrays ("kernel"), the real machines in the simulator ("machines"), and runs that measure real
time ("live"): the real machines on real sockets, or timed in one process. A run of the first two is a function of
(parameters, seed, data folder), and any process can make it. Where a kind has both, they return the same measures under
the same names. A live run takes real time, needs its computer for itself, and returns other numbers each time.

A function is named by its module, and imported when it is called: a sweep pays only for what it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.experiment.params import Measure, RecordedRunFunction, RunFunction, RunParams
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder


def run_by(
    engine: str, params: RunParams, seed: int, data: Path | None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    """Make one run. Raises `ConfigError` if runs of this kind cannot be made by this engine."""
    runs = RUNS[params.kind()]
    if engine not in runs:
        raise ConfigError(f"runs of kind {params.kind()} are made by {' and '.join(runs)}, not by {engine}")
    run = find_run(runs[engine])
    if list_kept_tables(params.kind(), engine):
        return cast(RecordedRunFunction, run)(params, seed, data, recorder)
    return run(params, seed, data)


def list_kept_tables(kind: str, engine: str) -> tuple[str, ...]:
    """The observation tables that runs of this kind can give by this engine."""
    return KEPT_TABLES.get(kind, {}).get(engine, ())


def choose_kept_tables(asked: Collection[str], kinds: Collection[str], engine: str) -> list[str]:
    """The tables to keep; `all` stands for those that runs of all these kinds give. Raises `ConfigError` if a table is
    asked for that runs of one of these kinds do not give."""
    if "all" in asked:
        common = [set(list_kept_tables(kind, engine)) for kind in kinds]
        asked = [name for name in tables.OBSERVATIONS if all(name in each for each in common)]
        if not asked:
            raise ConfigError(f"--keep all: runs of kind {', '.join(kinds)} by {engine} can keep no table")
    for name in asked:
        if name not in tables.OBSERVATIONS:
            raise ConfigError(f"--keep {name}: there is no such table; there are {', '.join(tables.OBSERVATIONS)}")
        for kind in kinds:
            given = list_kept_tables(kind, engine)
            if name not in given:
                told = f"they can keep {', '.join(given)}" if given else "they can keep no table"
                raise ConfigError(f"--keep {name}: runs of kind {kind} by {engine} do not give it; {told}")
    return list(asked)


def find_run(name: str) -> RunFunction:
    """The function that an entry of the table names: a module below `veilcast.lab.runs`, and `run` or another name."""
    module, _, function = name.partition(":")
    found: RunFunction = getattr(import_module(f"veilcast.lab.runs.{module}"), function or "run")
    return found


RUNS: Final[Mapping[str, Mapping[str, str]]] = {
    "mesh.flows": {"kernel": "mesh.flows_model", "machines": "mesh.flows_machines"},
    "mesh.swaps": {"machines": "mesh.swaps_machines"},
    "mesh.epochs": {"kernel": "mesh.epochs_model", "machines": "mesh.epochs_machines"},
    "mesh.topics": {"kernel": "mesh.topics_model"},
    "mesh.pruning": {"kernel": "mesh.pruning_model"},
    "mesh.clocks": {"kernel": "mesh.clocks_model"},
    "mesh.active": {"machines": "mesh.active_insiders"},
    "mesh.grinding": {"machines": "mesh.active_insiders:run_grinding"},
    "mesh.wires": {"machines": "mesh.wires_machines", "live": "mesh.wires_live"},
    "relay.attacks": {"kernel": "relay.attacks_model", "machines": "relay.attacks_machines"},
    "relay.timing": {"machines": "relay.timing"},
    "relay.delays": {"machines": "relay.delays", "live": "relay.delays:run_on_sockets"},
    "tree.costs": {"kernel": "tree.costs_model", "machines": "tree.costs_machines"},
    "tree.attacks": {"kernel": "tree.attacks_model"},
    "tree.definitions": {"kernel": "tree.definitions_model"},
    "tree.droppers": {"kernel": "tree.droppers_model"},
    "tree.delays": {"machines": "tree.delays_model"},
    "foil.guesses": {"kernel": "foil.guesses"},
    "foil.categories": {"kernel": "foil.categories"},
    "foil.pairs": {"kernel": "foil.pairs"},
    "foil.pedigrees": {"kernel": "foil.pedigrees"},
    "foil.overhead": {"kernel": "foil.overhead"},
    "foil.game": {"kernel": "foil.payoff_matrix"},
    "brokers.path": {"kernel": "brokers.costs:measure_path"},
    "brokers.shares": {"kernel": "brokers.costs:measure_shares"},
    "brokers.refresh": {"kernel": "brokers.costs:measure_refresh"},
    "brokers.losses": {"kernel": "brokers.losses"},
    "brokers.placement": {"kernel": "brokers.placement"},
    "brokers.messages": {"machines": "brokers.machines:measure_messages"},
    "brokers.times": {"live": "brokers.share_times"},
    "brokers.delays": {"live": "brokers.machines:measure_delays"},
    "brokers.load": {"machines": "brokers.load"},
}
"""Kind of run -> engine -> function."""
_TREES: Final = ("server", "tokens", "presence", "popularity", "facts", "truth", "guesses")
KEPT_TABLES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "mesh.flows": {"kernel": ("truth", "topology", "cells")},
    "mesh.swaps": {"machines": ("truth", "guesses", "cells", "topology", "facts")},
    "mesh.wires": {"machines": ("truth", "guesses", "cells", "topology", "presence", "published", "facts")},
    **{
        kind: {"kernel": ("streams", "facts", "stream_knowledge", "stream_guesses", "stream_truth")}
        for kind in ("foil.guesses", "foil.categories", "foil.pairs", "foil.pedigrees")
    },
    "relay.attacks": {
        "kernel": (
            *("server", "cells", "topology", "presence", "facts", "popularity", "pairs", "words", "tokens"),
            *("truth", "guesses"),
        ),
        "machines": (
            *("server", "cells", "topology", "presence", "facts", "popularity", "words"),
            *("truth", "guesses"),
        ),
    },
    "relay.timing": {"machines": ("server", "truth", "guesses")},
    "mesh.topics": {
        "kernel": (
            *("truth", "guesses", "topology", "presence", "facts", "insiders", "roots", "popularity", "pairs"),
            *("tokens", "lasting_tokens"),
        )
    },
    "mesh.pruning": {"kernel": ("truth", "guesses", "topology", "presence", "facts", "insiders", "roots")},
    "mesh.clocks": {"kernel": ("cells", "truth", "guesses")},
    "tree.attacks": {"kernel": _TREES},
    "tree.definitions": {"kernel": _TREES},
    "mesh.epochs": {
        "kernel": (
            *("truth", "guesses", "topology", "presence", "roots", "facts", "cells", "formation", "insiders"),
            *("popularity", "published", "received"),
        ),
        "machines": ("truth", "guesses", "topology", "presence", "roots", "facts", "insiders"),
    },
}
"""Kind of run -> engine -> the tables that its function hands to a recorder, its fourth argument."""
WITHOUT_TABLES: Final[Mapping[str, str]] = {
    "mesh.active": "insiders act on what they see, so there are no observations without the attack",
    "mesh.grinding": "insiders act on what they see, so there are no observations without the attack",
    "relay.delays": "there is no attacker: it measures times",
    "tree.costs": "there is no attacker: it counts messages",
    "tree.droppers": "there is no attacker: a subscriber looks for nodes that drop its publications",
    "tree.delays": "there is no attacker: it measures times",
    "foil.overhead": "there is no attacker: it counts messages",
    "foil.game": "each entry of its matrix is a run of `foil.guesses`, which keeps them",
    "brokers.path": "there is no attacker: it counts shares and messages",
    "brokers.shares": "there is no attacker: it counts shares and messages",
    "brokers.refresh": "there is no attacker: it counts shares and messages",
    "brokers.losses": "there is no attacker: it counts retransmissions",
    "brokers.placement": "there is no attacker: it computes how likely paths are sound",
    "brokers.messages": "there is no attacker: it counts messages",
    "brokers.times": "there is no attacker: it measures times",
    "brokers.delays": "there is no attacker: it measures times",
    "brokers.load": "there is no attacker: it measures times",
}
"""Kind of run -> why it gives no observation tables."""
ENGINES: Final[Mapping[str, RunFunction]] = {
    engine: partial(run_by, engine) for engine in ("kernel", "machines", "live")
}
