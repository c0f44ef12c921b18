"""What a note costs over epochs, on the machines: the paper's mesh as the kernels have it, and the hardened one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from msgspec import structs

from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.runs.mesh import epochs_machines, epochs_model
from veilcast.lab.runs.mesh.epoch_setup import make_policy, settle_people
from veilcast.lab.runs.mesh.epoch_tables import EpochTables
from veilcast.lab.runs.mesh.epochs_machines import RecordedCoalition

PAPER = MeshEpochs(nodes=40, degree=6, ratio=0.2, insiders=0.1, churn=0.1, steps=(1, 2))
HARDENED = structs.replace(PAPER, kappa=0.7)


@cache
def values(params: MeshEpochs, seed: int = 1) -> dict[tuple[str, float], float]:
    return {(one.metric, one.step): one.value for one in epochs_machines.run(params, seed)}


def test_the_papers_notes_come_by_the_shortest_ways_as_on_the_kernels() -> None:
    """Distances leave nothing to chance, where who is away is the same: so hops are equal."""
    kernel = {(one.metric, one.step): one.value for one in epochs_model.run(PAPER, 1)}
    machines = values(PAPER)
    for step in PAPER.steps:
        assert machines["hops", step] == pytest.approx(kernel["hops", step])
        assert machines["reached", step] == kernel["reached", step] == 1
        assert machines["notes", step] == machines["messages", step] == machines["overlay", step] - 1


def test_a_hardened_note_costs_more_by_covers_stem_and_acknowledgement_and_reaches_everybody() -> None:
    paper, hardened = values(PAPER), values(HARDENED)
    assert hardened["reached", 2] == 1
    assert hardened["notes", 2] == hardened["overlay", 2] - 1 > paper["notes", 2]
    assert hardened["messages", 2] == pytest.approx(hardened["notes", 2] + 2 * hardened["stem", 2], abs=2)
    assert hardened["hops", 2] > paper["hops", 2]
    assert hardened["bytes", 2] > paper["bytes", 2]


def test_kappa_of_one_takes_in_everybody_but_insiders_and_none_of_them_gives_cover() -> None:
    """Insiders forward where somebody needs them, and are not there for their own sake."""
    nobody = structs.replace(PAPER, churn=0.0, steps=(1,))
    everybody = structs.replace(nobody, kappa=1.0)
    all_inside = structs.replace(everybody, insiders=0.7)
    assert values(everybody)["overlay", 1] >= 36
    assert values(all_inside)["overlay", 1] < 36


def test_a_publisher_whose_successor_is_away_waits_and_the_mesh_stands_nevertheless() -> None:
    often = structs.replace(HARDENED, churn=0.5, steps=(4,))
    found = values(often)
    assert 0 < found["waits", 4] < 1
    assert found["overlay", 4] > 8
    assert found["reached", 4] == pytest.approx(1, abs=0.2)


def test_a_run_over_epochs_is_a_function_of_its_parameters_and_seed() -> None:
    short = structs.replace(HARDENED, nodes=24, steps=(1,))
    assert values(short, 5) == {(one.metric, one.step): one.value for one in epochs_machines.run(short, 5)}
    assert values(short, 5) != values(short, 6)


def test_where_no_root_was_seen_insiders_are_not_told_who_publishes() -> None:
    people = settle_people(HARDENED, 1, None)
    coalition = RecordedCoalition(people)
    for roots in ([], [people.graph.nodes - 1], []):
        coalition.observe_epoch(np.ones(people.graph.nodes, np.bool_), roots)
    tables = EpochTables(HARDENED, people, make_policy(HARDENED), [])
    coalition.write_tables(tables)
    first, *others = [int(name[1:]) for name in tables.observed()["roots"]["node"].to_pylist()]
    assert people.insiders[first]
    assert others == [people.graph.nodes - 1] * 2
