"""All attackers that a run over epochs names, on its tables; and the measures of their guesses.

The jobs see the tables of `epoch_tables` and nothing else: a global observer its wires, a coalition its own links, each
up to a step and no further. Only the measures join the truth. Some measures need the guesses of a second attack, which
is then run beside the first (`node_guesses.BESIDE`): members of the mesh, certain subscribers, and nodes that a
coalition suspects for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from veilcast.errors import ConfigError
from veilcast.lab.attack.combined import EVIDENCE, CombinedObservations, combine_guesses
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.observations import Classifiers, CoalitionObservations
from veilcast.lab.attack.observer.epoch_job import guess_from_epochs
from veilcast.lab.attack.observer.observations import EpochObservations
from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER, Attacker, find_attacker
from veilcast.lab.attack.table_engine import AnyTable, concat_rows, engine_of
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import TableRecorder, record_tables
from veilcast.lab.measure.node_guesses import BESIDE, measure_node_guesses
from veilcast.lab.runs.mesh.coalition_training import train_coalition_classifiers
from veilcast.lab.runs.mesh.epoch_setup import settle_people
from veilcast.lab.runs.mesh.epoch_tables import EpochTables
from veilcast.lab.tables import GuessRow, arrow_schema


def choose_attackers(params: MeshEpochs) -> list[Attacker[Any]]:
    """The attackers of a run, and those that its measures need beside them."""
    found = [find_attacker(name, *_OBSERVED, CombinedObservations) for name in params.attacks]
    inside = [each for each in found if each.observes in (CoalitionObservations, CombinedObservations)]
    if params.origin == "fresh" and any(each.role == PUBLISHER for each in found):
        raise ConfigError("where another node publishes in each epoch there is no publisher to be found")
    if inside and not params.insiders:
        raise ConfigError("attacks by insiders need some: insiders above 0")
    beside = {name for each in found for name in BESIDE.get(each.name, ())}
    if any(each.role == SUBSCRIBER for each in found if each not in inside):
        beside.add("mesh-members")
    return found + [find_attacker(name, *_OBSERVED) for name in sorted(beside)]


def score_tables(
    tables: EpochTables,
    attackers: Sequence[Attacker[Any]],
    params: MeshEpochs,
    seed: int,
    trained: Classifiers,
    recorder: TableRecorder,
) -> list[Measure]:
    """Attack the tables of a run and measure the guesses."""
    observed, truth = tables.observed(), tables.truth()
    guesses = attack_run(observed, attackers, params.steps, trained)
    record_tables(recorder, observed | {"truth": truth, "guesses": guesses})
    return list(measure_run(guesses, truth, params.attacks, seed))


def attack_run(
    observed: Mapping[str, AnyTable], attackers: Sequence[Attacker[Any]], steps: Sequence[float], trained: Classifiers
) -> AnyTable:
    """The guesses of these attackers at these steps."""
    if any(each.observes is CombinedObservations for each in attackers):
        return _attack_with_all(observed, attackers, steps, trained)
    inside = [each.name for each in attackers if each.observes is CoalitionObservations]
    outside = [each.name for each in attackers if each.observes is not CoalitionObservations]
    epochs = [int(step) for step in steps]
    parts: list[AnyTable] = []
    if outside:
        parts.append(guess_from_epochs(observed, outside, epochs))
    if inside:
        parts.append(guess_from_coalition(observed, inside, epochs, trained=trained))
    return concat_rows(parts) if parts else arrow_schema(GuessRow).empty_table()


def _attack_with_all(
    observed: Mapping[str, AnyTable], attackers: Sequence[Attacker[Any]], steps: Sequence[float], trained: Classifiers
) -> AnyTable:
    """The same, with the combined adversary among the attackers."""
    asked = [each for each in attackers if each.observes is not CombinedObservations]
    known = {each.name for each in asked}
    beside = [find_attacker(name, *_OBSERVED) for name in EVIDENCE if name not in known]
    found = attack_run(observed, [*asked, *beside], steps, trained)
    combined, kept = combine_guesses(found), "', '".join(sorted(known))
    own = f"SELECT * FROM {{found}} WHERE attack IN ('{kept}') UNION ALL SELECT * FROM {{combined}}"  # noqa: S608
    guesses: AnyTable = engine_of(found).query(own, found=found, combined=combined)
    return guesses


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshEpochs, names: Collection[str], data: Path | None
) -> AnyTable:
    """The guesses of these attackers on kept tables, or of those that the parameters name."""
    asked = msgspec.structs.replace(params, attacks=tuple(names)) if names else params
    attackers = choose_attackers(asked)
    trained = train_coalition_classifiers(settle_people(asked, 0, data), asked, asked.attacks, data)
    return attack_run(observed, attackers, asked.steps, trained)


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: MeshEpochs, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attacks, or of those that the parameters name."""
    return list(measure_run(guesses, truth, names or params.attacks, seed))


def measure_run(guesses: pa.Table, truth: pa.Table, attacks: Collection[str], seed: int) -> Iterator[Measure]:
    """The success of each of these attacks at each step. The seed is for shuffles."""
    for attack, metric, epochs, value in measure_node_guesses(guesses, truth, attacks, seed):
        yield Measure(attack, metric, epochs, value)


_OBSERVED: Final = (EpochObservations, CoalitionObservations)
