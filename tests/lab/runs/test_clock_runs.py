"""Runs about clocks: on a grid machines are known again; as links send they are not, after a day either."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.attack.observer.clock_skew import ESTIMATORS
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.experiment.mesh_params import MeshClocks
from veilcast.lab.runs.mesh import clocks_model

DAY = 1440.0


def clock_params(clocks: str, **more: object) -> MeshClocks:
    given = {"nodes": 12, "degree": 4, "steps": (10.0, DAY), "clocks": clocks, **more}
    return MeshClocks(**given)  # type: ignore[arg-type]


def measured(params: MeshClocks, seeds: int) -> dict[tuple[str, str, float], float]:
    """Means over seeds."""
    rows: dict[tuple[str, str, float], list[float]] = {}
    for seed in range(seeds):
        for found in clocks_model.run(params, seed):
            rows.setdefault((found.attack, found.metric, found.step), []).append(found.value)
    return {key: float(np.mean(values)) for key, values in rows.items()}


def test_on_a_grid_machines_are_known_again() -> None:
    """The positive control."""
    found = measured(clock_params("grid"), 1)
    assert found["envelope", "error_ppm", 10.0] < 1
    assert found["envelope", "identified", 10.0] > 0.6
    assert found["envelope", "identified", DAY] > 0.9
    assert found["envelope", "auc_same", DAY] > 0.99


def test_clocks_that_run_alike_are_not_told_apart() -> None:
    """The null control."""
    found = measured(clock_params("grid", skew_ppm=0.0), 2)
    assert all(abs(found[attack, "auc_same", DAY] - 0.5) < 0.15 for attack in ESTIMATORS)


def test_as_links_send_no_machine_is_known_again_after_a_day() -> None:
    found = measured(clock_params("wander"), 3)
    for attack in ESTIMATORS:
        for minutes in (10.0, DAY):
            assert found[attack, "error_ppm", minutes] > 1000
            assert abs(found[attack, "auc_same", minutes] - 0.5) < 0.15
            assert found[attack, "identified", minutes] < 0.3


def test_a_walk_alone_would_average_out() -> None:
    """Why each link has a period of its own: over a day the walk leaves less than clocks differ by."""
    found = measured(clock_params("walk"), 1)
    assert found["ends", "error_ppm", 10.0] > 30
    assert found["ends", "error_ppm", DAY] < 15


def test_runs_about_clocks_know_nothing_of_other_switches() -> None:
    with pytest.raises(ConfigError, match="steps"):
        clock_params("grid", steps=())
    with pytest.raises(ConfigError, match="insiders"):
        make_params("mesh.clocks", {"clocks": "grid", "steps": [10], "insiders": 0.1})
