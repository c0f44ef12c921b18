"""The lab's own attackers on the challenge, and others in the lab's form: the jobs of experiments, on its tables.

Attackers of several topics name a topic; others give one score for all topics. An attacker of foiled streams names the
likeliest candidates of a step: others have the score 0, and candidates of steps about which it says nothing all have
the same. `(names)` is no attacker but a control: it ranks nodes by their names, which must tell nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack import foreign
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.insider.tree_job import guess_from_trees
from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.observer.capture_job import guess_from_captures
from veilcast.lab.attack.observer.epoch_job import guess_from_epochs
from veilcast.lab.attack.observer.observations import CaptureObservations, EpochObservations
from veilcast.lab.attack.registry import Attacker
from veilcast.lab.attack.server.observations import ServerObservations
from veilcast.lab.attack.server.server_job import guess_from_server
from veilcast.lab.attack.stream.model import StreamObservations
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.challenge.files import read_directory
from veilcast.lab.challenge.guesses import question_keys
from veilcast.lab.challenge.observed_runs import QUESTION, read_params
from veilcast.lab.challenge.plan import Part, Setting
from veilcast.lab.challenge.scores import RunScore, make_labels, score_setting

Scores = NDArray[np.float64]


def score_by_lab(
    setting: Setting, observed: Mapping[str, pa.Table], asked: pa.Table, names: Collection[str] = ()
) -> dict[tuple[str, str], Scores]:
    """The scores of the questions by these attackers, or by the lab's own: attack and role -> a score for each question
    of the role, in their order."""
    guesses = _GUESS[_job_of(setting)](setting, observed, list(names or setting.block.attacks) or None)
    found: dict[tuple[str, str], Scores] = {}
    for role in pc.unique(asked["role"]).sort().to_pylist():
        of_role = asked.filter(pc.equal(asked["role"], role))
        guessed = guesses.filter(pc.equal(guesses["role"], role))
        for attack in pc.unique(guessed["attack"]).sort().to_pylist():
            found[attack, role] = _align(guessed.filter(pc.equal(guessed["attack"], attack)), of_role)
        if not names:
            nodes = of_role["node"].combine_chunks().dictionary_encode()
            rank = np.argsort(np.argsort(np.array(nodes.dictionary.to_pylist())))
            found[CONTROL, role] = -rank[nodes.indices.to_numpy()].astype(np.float64)
    return found


def attack_by_names(
    directory: Path, setting: Setting, part: Part, salt: bytes = b"", names: Collection[str] = ()
) -> list[RunScore]:
    """Score these attackers, or the lab's own, on one part of a setting of a set."""
    tables = read_directory(directory, part, setting)
    labels = tables["labels"] if part == "train" else make_labels(setting, salt)
    observed = {name: tables[name] for name in setting.block.tables}
    found = []
    for (attack, role), scores in score_by_lab(setting, observed, labels.select(list(QUESTION)), names).items():
        found += score_setting(setting, labels.filter(pc.equal(labels["role"], role)), scores, attack)
    return found


def attack_by_file(
    path: Path, directory: Path, settings: Sequence[Setting], salt: bytes, show: Callable[[int], object]
) -> list[RunScore]:
    """Score the attackers of a Python file with ATTACKER, in the settings in which they can be asked."""
    source = foreign.read_attacker_file(path)
    own = foreign.load_attackers(source)
    foreign.install_attackers([source])
    found: list[RunScore] = []
    for number, setting in enumerate(settings):
        if names := [each.name for each in own if can_attack(each, setting)]:
            found += attack_by_names(directory, setting, "test", salt, names)
        show(number + 1)
    return found


def can_attack(attacker: Attacker[Any], setting: Setting) -> bool:
    """Whether an attacker in the lab's own form can be asked in this setting."""
    return issubclass(_OBSERVED[_job_of(setting)], attacker.observes) and attacker.role in setting.block.asks


def _job_of(setting: Setting) -> str:
    return "insiders" if "insiders" in setting.block.tables else setting.block.kind


def _align(guesses: pa.Table, asked: pa.Table) -> Scores:
    columns: tuple[str, ...] = ("run", "topic", "node")
    if not set(pc.unique(guesses["topic"]).to_pylist()) & set(pc.unique(asked["topic"]).to_pylist()):
        # It cannot tell topics apart, or the question can not.
        columns = ("run", "node")
        guesses = guesses.group_by(list(columns)).aggregate([("score", "max")]).rename_columns([*columns, "score"])
    place = pc.index_in(question_keys(asked, columns), question_keys(guesses, columns))
    found = guesses["score"].to_numpy()[pc.fill_null(place, 0).to_numpy()] if len(guesses) else np.zeros(len(asked))
    scores = np.where(np.asarray(pc.is_valid(place).to_numpy(zero_copy_only=False), np.bool_), found, 0.0)
    if pc.equal(asked["role"][0], "truth").as_py():
        # A step without a guess.
        step = question_keys(asked, ("run", "topic")).dictionary_encode().indices.to_numpy()
        total = np.bincount(step, scores)
        scores[total[step] == 0] = (1 / np.bincount(step))[step][total[step] == 0]
    return scores


def _last(setting: Setting) -> list[int]:
    steps: tuple[float, ...] = getattr(read_params(setting), "steps")  # noqa: B009
    return [int(steps[-1])]


def _guess_streams(setting: Setting, observed: Mapping[str, pa.Table], names: list[str] | None) -> pa.Table:
    found = cast(pa.Table, guess_streams(observed, names))
    steps = pc.binary_join_element_wise(found["stream"].cast(pa.string()), found["step"].cast(pa.string()), "/")
    return pa.table(
        {
            "run": found["run"],
            "attack": found["attack"],
            "topic": steps,
            "role": pa.repeat(pa.scalar("truth"), len(found)),
            "node": found["slot"].cast(pa.string()),
            "score": found["score"],
        }
    )


CONTROL: Final = "(names)"
_OBSERVED: Final[Mapping[str, type[Any]]] = {
    "insiders": CoalitionObservations,
    "mesh.epochs": EpochObservations,
    "brokers.wires": CaptureObservations,
    "mesh.wires": CaptureObservations,
    "relay.attacks": ServerObservations,
    "tree.definitions": TreeObservations,
    "foil.guesses": StreamObservations,
}
_GUESS: Final[Mapping[str, Any]] = {
    "insiders": lambda setting, seen, names: guess_from_coalition(seen, names, _last(setting)),
    "mesh.epochs": lambda setting, seen, names: guess_from_epochs(seen, names, _last(setting)),
    "brokers.wires": lambda _, seen, names: guess_from_captures(seen, names),
    "mesh.wires": lambda _, seen, names: guess_from_captures(seen, names),
    "relay.attacks": lambda setting, seen, names: guess_from_server(seen, names, _last(setting)),
    "tree.definitions": lambda setting, seen, names: guess_from_trees(seen, names, _last(setting)),
    "foil.guesses": _guess_streams,
}
"""Kind of run, or the table that decides -> job."""
