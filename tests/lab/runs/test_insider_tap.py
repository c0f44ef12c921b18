"""What insiders of the real machines hear: what they wrote down is what stood on their links."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.grouped_tables import GroupedRun, union_tables
from veilcast.lab.attack.insider import coalition_tables
from veilcast.lab.attack.insider.coalition_tables import CLIMBS, NOTES, ORIGINS, SIGHTS, STEMS
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.models.coalition_view import insider_links
from veilcast.lab.models.epochs import Population, settle_population
from veilcast.lab.models.graph import from_edges, small_world
from veilcast.lab.models.link_observations import ASKED, AWAY, FOLLOWED, SILENT
from veilcast.lab.models.mesh import draw_roles
from veilcast.lab.runs.mesh import epochs_machines, epochs_model
from veilcast.lab.runs.mesh.epoch_setup import make_policy
from veilcast.lab.runs.mesh.epoch_tables import RUN, EpochTables
from veilcast.lab.runs.mesh.epochs_machines import EPOCH_US, HARDENED_MESH, HOP_US, PERIOD_US
from veilcast.lab.runs.mesh.insider_tap import InsiderTap
from veilcast.lab.runs.mesh.mesh_simulation import MeshSimulation, node_address, node_number
from veilcast.observe import InsiderRow
from veilcast.sim.mesh.population import TOPIC

# 0 and 3 are insiders in a ring of six.
RING = from_edges(6, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0])
PEOPLE = Population(RING, 1, np.array([2], np.int32), np.array([True, False, False, True, False, False]), 0.0, 1)
PARAMS = MeshEpochs(kappa=0.5, insiders=0.2, steps=(2,))


def row(
    epoch: int, t_us: int, observer: int, peer: int, kind: str, message: bytes = b"", about: str = ""
) -> InsiderRow:
    return InsiderRow(RUN, epoch, t_us, f"n{observer}", f"n{peer}", kind, message, b"", b"", about)


def build(people: Population, present: NDArray[np.bool_], rows: list[InsiderRow]) -> CoalitionObservations:
    """What the attackers get of a tap's rows."""
    found = EpochTables(PARAMS, people, make_policy(PARAMS), [])
    for epoch, there in enumerate(present):
        found.record_presence(epoch, there, 0)
    found.record_insiders(rows, [node_address(number) for number in range(people.graph.nodes)])
    observed = found.observed()
    named = coalition_tables.name_topics(observed["insiders"], None)
    needs = {SIGHTS, STEMS, NOTES, ORIGINS}
    run = GroupedRun(union_tables(coalition_tables.select_tables(named, observed, needs)))
    return coalition_tables.build_coalition(run, "")


def test_what_was_said_last_on_a_link_is_what_stands() -> None:
    rows = [
        row(0, 1, 0, 1, "in:Subscribe"),
        row(0, 2, 3, 2, "in:Subscribe"),
        row(0, 3, 3, 2, "in:Unsubscribe"),
        row(0, 4, 3, 4, "out:Subscribe"),
        row(1, 5, 0, 1, "out:Subscribe"),
    ]
    present = np.ones((2, 6), np.bool_)
    present[1, 5] = False
    view = build(PEOPLE, present, rows).seen
    said = dict(zip(zip(view.observer.tolist(), view.peer.tolist(), strict=True), view.seen.T.tolist(), strict=True))
    assert said == {
        (0, 1): [ASKED, FOLLOWED], (0, 5): [SILENT, AWAY], (3, 2): [SILENT, SILENT], (3, 4): [FOLLOWED, SILENT],
    }  # fmt: skip


def test_stems_are_told_in_their_order_and_notes_once_each() -> None:
    rows = [
        row(0, 2, 3, 4, "in:Stem", b"x", CLIMBS),
        row(0, 1, 0, 1, "in:Stem", b"x"),
        row(0, 1, 0, 5, "out:Stem", b"x"),
        row(0, 3, 3, 4, "in:Notify", b"x"),
        row(0, 4, 0, 1, "in:Notify", b"x"),
        row(0, 4, 0, 1, "in:Notify", b"y"),
    ]
    found = build(PEOPLE, np.ones((1, 6), np.bool_), rows)
    assert found.passed[:, [0, 1, 2, 4]].tolist() == [[0, 0, 1, 0], [0, 3, 4, 1]]
    assert found.read[0] == 2


def test_a_coalition_knows_its_members_even_if_nobody_spoke_to_them() -> None:
    assert build(PEOPLE, np.ones((1, 6), np.bool_), []).hostile.tolist() == PEOPLE.insiders.tolist()


def test_insiders_of_a_town_see_the_mesh_that_its_machines_have_on_their_links() -> None:
    graph = small_world(40, 6, 0.2, 1)
    people = settle_population(graph, *draw_roles(graph, 0.2, 1), 0.2, 0.0, 1)
    ears = InsiderTap(map(node_address, np.flatnonzero(people.insiders).tolist()), HARDENED_MESH.heartbeat_bytes, RUN)
    town = MeshSimulation(
        (graph, people.publisher, people.subscribers),
        HARDENED_MESH,
        1,
        latency_us=(HOP_US,),
        epoch_us=EPOCH_US,
        kappa=0.5,
        checkers=(ears,),
    )
    first = town.world.now // EPOCH_US
    ears.epoch_of_token |= {town.keyring.keys_at(first).topic(TOPIC).token: 0}
    town.run(80)
    town.publish(b"note")
    town.run(3)
    found = build(people, np.ones((1, 40), np.bool_), ears.rows)
    view = found.seen
    below = {
        (node_number(above), number)
        for number, node in town.nodes()
        for above in node.overlay.branches.inward(town.token)
    }
    observer, peer = insider_links(people)
    assert (view.observer.tolist(), view.peer.tolist()) == (observer.tolist(), peer.tolist())
    assert {ASKED, FOLLOWED, SILENT} == set(view.seen[0].tolist())
    for x, w, sight in zip(observer.tolist(), peer.tolist(), view.seen[0].tolist(), strict=True):
        assert (sight == ASKED) == ((x, w) in below)
        assert (sight == FOLLOWED) == ((w, x) in below)
    assert found.read[0] == 1
    assert town.world.now - town.world.start == 83 * PERIOD_US


@pytest.mark.parametrize(
    "wrong",
    [
        {"kappa": 0.0},
        {"attacks": ("leaf",)},
        {"hold": 1},
        {"parcels": True},
        {"notes": 0.5},
        {"steady": False, "departures": 2},
    ],
)
def test_what_machines_do_not_show_is_refused(wrong: dict[str, object]) -> None:
    usual: dict[str, object] = {"kappa": 0.5, "attacks": ("group-testing",), "insiders": 0.1}
    params = MeshEpochs(nodes=20, degree=4, steps=(1,), **(usual | wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="machines"):
        epochs_machines.run(params, 1)


def test_publishers_of_the_machines_that_come_and_go_reach_their_readers_and_stems_show_nothing_of_them() -> None:
    """As in the model, no stem that insiders see carries a publication; and each publication arrives in its time."""
    params = MeshEpochs(
        nodes=12, degree=6, kappa=1.0, insiders=0.2, churn=0.1, steps=(12,), steady=False, parcels=True, hold=1,
        notes=0.5, attacks=("predecessor", "sender"),
    )  # fmt: skip
    for run in (epochs_machines.run, epochs_model.run):
        found = {(each.attack, each.metric): each.value for each in run(params, 3)}
        assert found["predecessor", "success"] == pytest.approx(1 / 10)  # Nothing was seen: all honest nodes are alike.
        assert ("sender", "success") in found
        assert found["", "reached"] > 0.7


def test_a_run_of_the_machines_gives_what_one_of_the_kernels_gives() -> None:
    params = MeshEpochs(
        nodes=40, degree=6, kappa=0.5, insiders=0.2, churn=0.1, steps=(1,),
        attacks=("group-testing", "predecessor", "sender"),
    )  # fmt: skip
    found = {(measure.attack, measure.metric): measure.value for measure in epochs_machines.run(params, 2)}
    assert 0 <= found["group-testing", "auc"] <= 1
    assert 0 <= found["sender", "success"] <= 1
    assert found["", "reached"] > 0.9
