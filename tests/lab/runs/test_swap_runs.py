"""Runs of the shell game on the machines: what heartbeats show with and without links to all near, and the counts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshSwaps
from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.runs.mesh import swaps_machines


def small(**given: Any) -> MeshSwaps:
    return MeshSwaps(**{"nodes": 40, "ratio": 0.2, "watch_s": 60.0, **given})


def measured(params: MeshSwaps, seed: int = 1) -> dict[tuple[str, str], float]:
    return {(found.attack, found.metric): found.value for found in swaps_machines.run(params, seed)}


def test_heartbeats_that_follow_swaps_name_members_and_no_others() -> None:
    found = measured(small())
    assert found["", "swaps"] > 0
    assert found["heartbeat-pairs", "recall"] > 0.5
    assert found["heartbeat-pairs", "precision"] == 1


@pytest.mark.parametrize("given", [{"game": "none"}, {"reach": 3}], ids=["no game", "linked to all near"])
def test_other_heartbeats_name_nobody(given: dict[str, Any]) -> None:
    found = measured(small(**given))
    assert found["heartbeat-pairs", "recall"] == 0
    assert found["heartbeat-pairs", "auc"] == 0.5


def test_a_publication_before_the_swaps_shows_the_subscribers_and_one_that_is_held_does_not() -> None:
    bare, held = measured(small(publish_s=8.0)), measured(small(publish_s=8.0, hold_s=40.0))
    assert bare["leaf", "precision"] == 1
    assert held["leaf", "precision"] < 1
    assert held["", "delivered"] == bare["", "delivered"] == 1
    assert 30 < held["", "seconds_to_first"] < 33


def test_every_message_is_counted() -> None:
    found = measured(small(cover="one", mu=0.6, watch_s=90.0))
    # An offer and an answer at the least for each game; and the first advertisement crosses all links but one.
    assert found["", "swap_messages"] >= 2 * found["", "games_begun"]
    assert found["", "games_begun"] >= found["", "swaps"] > 0
    assert found["", "adverts"] >= 39
    assert found["", "invitations"] > 0
    assert found["", "surroundings"] == 0
    assert found["", "heartbeats"] >= 3.9


def test_stored_tables_give_the_same_measures() -> None:
    kept: dict[str, pa.Table] = {}
    params = small(publish_s=50.0)
    wanted = ("cells", "topology", "facts", "truth", "guesses")
    recorder = TableRecorder("r", {name: lambda table, name=name: kept.__setitem__(name, table) for name in wanted})  # type: ignore[misc]
    whole = swaps_machines.run(params, 1, None, recorder)
    guesses = swaps_machines.attack_tables(kept, params, (), None)
    assert isinstance(guesses, pa.Table)
    again = swaps_machines.measure_guesses(guesses, kept["truth"], params, (), 1)
    assert again == [found for found in whole if found.attack]


@pytest.mark.parametrize("wrong", [{"heartbeat_s": 0.0}, {"publish_s": 70.0}, {"hold_s": 60.0}, {"reach": -1}])
def test_runs_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        small(**wrong)
