"""Publishers whose first relay is replaced during a run: the model changes that relay alone, and attackers use it."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.models.coalition_view import epoch_stem
from veilcast.lab.models.epochs import MeshPolicy, run_epochs
from veilcast.lab.runs.mesh.epoch_setup import make_policy, settle_people
from veilcast.lab.runs.mesh.epoch_tables import EpochTables
from veilcast.lab.runs.mesh.epochs_model import run

PARAMS = MeshEpochs(nodes=120, degree=8, insiders=0.1, churn=0.1, kappa=0.78, steady=False, steps=(48,))


def replaced(relay_epochs: int) -> MeshPolicy:
    return replace(make_policy(PARAMS), relay_epochs=relay_epochs)


def first_relays(seed: int, relay_epochs: int) -> list[int | None]:
    """By epoch, the neighbour that gets the publisher's notes first; None while it is away."""
    people, way = settle_people(PARAMS, seed, None), replaced(relay_epochs)
    stems = [epoch_stem(people, way, epoch) for epoch in run_epochs(people, way, 48)]
    return [None if stem is None else int(stem.path[1]) for stem in stems]


def test_a_publisher_has_one_first_relay_unless_it_is_replaced() -> None:
    for seed in range(5):
        assert len({relay for relay in first_relays(seed, 0) if relay is not None}) == 1
        stages = [set(first_relays(seed, 16)[start : start + 16]) - {None} for start in (0, 16, 32)]
        assert [len(stage) for stage in stages] == [1, 1, 1]


def test_relays_are_drawn_anew_and_most_are_others() -> None:
    relays = [first_relays(seed, 16) for seed in range(12)]
    others = [len({relay for relay in each if relay is not None}) for each in relays]
    assert mean(others) > 2.4, "of eight neighbours, three draws have 2.6 different ones on the average"


def test_the_first_stage_is_that_of_a_relay_that_is_kept() -> None:
    for seed in range(5):
        assert first_relays(seed, 16)[:16] == first_relays(seed, 0)[:16]


def test_attackers_of_one_stage_are_the_attackers_of_a_relay_that_is_kept() -> None:
    people, attacks = settle_people(PARAMS, 3, None), ("predecessor", "presence", "sender")
    attackers = attackers_on(CoalitionObservations, attacks)
    found: list[pa.Table] = []
    for relay_epochs in (0, 48):
        conduct = replaced(relay_epochs)
        tables = EpochTables(PARAMS, people, conduct, attackers)
        for epoch in run_epochs(people, conduct, 48):
            tables.observe_epoch(epoch, None)
        tables.watch_links()
        found.append(guess_from_coalition(tables.observed(), attacks, (48,)))
    kept, one_stage = found
    assert len(kept) == 3 * 108
    assert kept.equals(one_stage)


def success(relay_epochs: int, seeds: int) -> float:
    params = replace_params(relay_epochs)
    found = [
        each.value for seed in range(seeds) for each in run(params, seed) if (each.attack, each.metric) == BY_STEMS
    ]
    return mean(found)


def replace_params(relay_epochs: int) -> MeshEpochs:
    return MeshEpochs(
        nodes=120, degree=8, insiders=0.1, churn=0.1, kappa=0.78, steady=True, steps=(48,),
        relay_epochs=relay_epochs, attacks=("predecessor",),
    )  # fmt: skip


BY_STEMS = ("predecessor", "success")


@pytest.mark.all_only
def test_each_further_first_relay_is_a_further_chance_to_be_named() -> None:
    """The positive control: by stems alone insiders name a publisher that has another first relay in each epoch."""
    assert success(1, 60) > 1.5 * success(0, 60)


def test_relays_are_replaced_in_hardened_runs_over_epochs_alone() -> None:
    with pytest.raises(ConfigError, match="hardened"):
        MeshEpochs(steps=(4,), relay_epochs=2)
