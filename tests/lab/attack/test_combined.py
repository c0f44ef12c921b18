"""The combined adversary: it knows more than either of its halves, and constant wires add nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.attack.combined import CombinedObservations, combine_guesses, score_all_evidence
from veilcast.lab.attack.grouped_tables import make_guesses
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.measure.ranking import auc
from veilcast.lab.runs.mesh import epochs_model

NAMES = [f"n{number:03}" for number in range(400)]


def evidence(seed: int, *, seen: float = 0.4, wires: float = 1.0, insiders: float = 1.0) -> tuple[pa.Table, Any]:
    """Guesses by both halves, and who subscribes. The halves' evidence is independent."""
    rng = np.random.default_rng(seed)
    subscribes = rng.random(len(NAMES)) < 0.2
    scores = {
        "closure": rng.normal(wires * subscribes, 1),
        "group-testing": rng.normal(insiders * subscribes, 1),
        "persistence": np.where(rng.random(len(NAMES)) < seen, 0.9, 0.1),
    }
    parts = [
        make_guesses("r", name, 5, int(name == "group-testing"), "", "subscriber", NAMES, each)
        for name, each in scores.items()
    ]
    return pa.concat_tables(parts), subscribes


def auc_of(guesses: pa.Table, attack: str, subscribes: Any) -> float:
    own = guesses.filter(pc.equal(guesses["attack"], attack)).sort_by("node")
    return auc(own["score"].to_numpy(), subscribes)


def test_both_views_together_tell_more_than_either() -> None:
    """The positive control."""
    for seed in range(5):
        guesses, subscribes = evidence(seed)
        together = combine_guesses(guesses)
        assert isinstance(together, pa.Table)
        alone = max(auc_of(guesses, name, subscribes) for name in ("closure", "group-testing"))
        assert auc_of(together, "combined", subscribes) > alone


def test_views_that_say_nothing_give_a_half() -> None:
    """The null control."""
    found = []
    for seed in range(20):
        guesses, subscribes = evidence(seed, wires=0.0, insiders=0.0)
        together = combine_guesses(guesses)
        assert isinstance(together, pa.Table)
        found.append(auc_of(together, "combined", subscribes))
    assert abs(np.mean(found) - 0.5) < 0.02


def test_wires_that_show_everybody_add_nothing() -> None:
    guesses, subscribes = evidence(1, seen=1.0)
    together = combine_guesses(guesses)
    assert isinstance(together, pa.Table)
    assert auc_of(together, "combined", subscribes) == auc_of(guesses, "group-testing", subscribes)


def test_evidence_is_added() -> None:
    wires, insiders = np.array([1.0, -2.0]), np.array([0.5, 0.25])
    seen = CombinedObservations(wires, insiders, np.array([0.9, 0.1]))
    assert score_all_evidence(seen).tolist() == [1.5, -1.75]


def test_without_insiders_there_are_no_guesses() -> None:
    guesses, _ = evidence(1)
    alone = guesses.filter(pc.not_equal(guesses["attack"], "group-testing"))
    together = combine_guesses(alone)
    assert isinstance(together, pa.Table)
    assert together.num_rows == 0


def run_epochs(**given: Any) -> dict[tuple[str, str], float]:
    params = MeshEpochs(**{"nodes": 80, "degree": 8, "insiders": 0.1, "steps": (2,), "attacks": ("combined",), **given})
    return {(found.attack, found.metric): found.value for found in epochs_model.run(params, 1)}


def test_a_run_over_epochs_measures_it_with_and_without_its_halves() -> None:
    alone = run_epochs()
    beside = run_epochs(attacks=("group-testing", "combined", "closure"))
    assert alone["combined", "auc"] == beside["combined", "auc"] > 0.9
    assert ("closure", "auc") not in alone
    assert ("closure", "auc") in beside


def test_it_needs_insiders() -> None:
    with pytest.raises(ConfigError, match="insiders"):
        run_epochs(insiders=0.0)
