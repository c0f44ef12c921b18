"""What insiders of the real machines hear: what they wrote down is what stood on their links."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.models.coalition_view import insider_links
from veilcast.lab.models.epochs import Population, settle_population
from veilcast.lab.models.graph import from_edges, small_world
from veilcast.lab.models.link_observations import ASKED, AWAY, FOLLOWED, SILENT
from veilcast.lab.models.mesh import draw_roles
from veilcast.lab.runs.mesh import epochs_machines
from veilcast.lab.runs.mesh.epochs_machines import EPOCH_US, HARDENED_MESH, HOP_US, PERIOD_US
from veilcast.lab.runs.mesh.insider_tap import CLIMBING, InsiderTap, build_view
from veilcast.lab.runs.mesh.mesh_simulation import MeshSimulation, node_address, node_number
from veilcast.observe import InsiderRow
from veilcast.sim.mesh.population import TOPIC

# 0 and 3 are insiders in a ring of six.
RING = from_edges(6, [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0])
PEOPLE = Population(RING, 1, np.array([2], np.int32), np.array([True, False, False, True, False, False]), 0.0, 1)
PLACES = {node_address(number): number for number in range(6)}


def row(epoch: int, observer: int, peer: int, kind: str, message: bytes = b"", about: str = "") -> InsiderRow:
    return InsiderRow("", epoch, 0, f"n{observer}", f"n{peer}", kind, message, b"", b"", about)


def test_what_was_said_last_on_a_link_is_what_stands() -> None:
    rows = [
        row(0, 0, 1, "in:Subscribe"),
        row(0, 3, 2, "in:Subscribe"),
        row(0, 3, 2, "in:Unsubscribe"),
        row(0, 3, 4, "out:Subscribe"),
        row(1, 0, 1, "out:Subscribe"),
        row(1, 0, 5, "in:Subscribe"),
        row(7, 0, 1, "in:Subscribe"),
    ]
    present = np.ones((2, 6), np.bool_)
    present[1, 5] = False
    view = build_view(rows, PEOPLE, PLACES, present, np.zeros(2, np.int32))
    said = dict(zip(zip(view.observer.tolist(), view.peer.tolist(), strict=True), view.seen.T.tolist(), strict=True))
    assert said == {
        (0, 1): [ASKED, FOLLOWED], (0, 5): [SILENT, AWAY], (3, 2): [SILENT, SILENT], (3, 4): [FOLLOWED, SILENT],
    }  # fmt: skip


def test_stems_are_told_with_where_they_went_and_notes_once_each() -> None:
    rows = [
        row(0, 0, 1, "in:Stem", b"x"),
        row(0, 0, 5, "out:Stem", b"x"),
        row(0, 3, 4, "in:Stem", b"x", CLIMBING),
        row(0, 3, 4, "in:Notify", b"x"),
        row(0, 0, 1, "in:Notify", b"x"),
        row(0, 0, 1, "in:Notify", b"y"),
    ]
    view = build_view(rows, PEOPLE, PLACES, np.ones((1, 6), np.bool_), np.zeros(1, np.int32))
    assert view.stem_passages.tolist() == [[0, 0, 1, 5, 0], [0, 3, 4, 3, 1]]
    assert view.delivered.tolist() == [2]


def test_insiders_of_a_town_see_the_mesh_that_its_machines_have_on_their_links() -> None:
    graph = small_world(40, 6, 0.2, 1)
    people = settle_population(graph, *draw_roles(graph, 0.2, 1), 0.2, 0.0, 1)
    ears = InsiderTap(map(node_address, np.flatnonzero(people.insiders).tolist()), HARDENED_MESH.heartbeat_bytes)
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
    places = {node_address(number): number for number in range(40)}
    view = build_view(ears.rows, people, places, np.ones((1, 40), np.bool_), np.zeros(1, np.int32))
    below = {
        (node_number(above), number)
        for number, node in town.nodes()
        for above in node.overlay.branches.inward(town.token)
    }
    observer, peer = insider_links(people)
    assert {ASKED, FOLLOWED, SILENT} == set(view.seen[0].tolist())
    for x, w, sight in zip(observer.tolist(), peer.tolist(), view.seen[0].tolist(), strict=True):
        assert (sight == ASKED) == ((x, w) in below)
        assert (sight == FOLLOWED) == ((w, x) in below)
    assert view.delivered.tolist() == [1]
    assert town.world.now - town.world.start == 83 * PERIOD_US


@pytest.mark.parametrize("wrong", [{"kappa": 0.0}, {"attacks": ("leaf",)}, {"hold": 1}, {"steady": False}])
def test_what_machines_do_not_show_is_refused(wrong: dict[str, object]) -> None:
    usual: dict[str, object] = {"kappa": 0.5, "attacks": ("group-testing",), "insiders": 0.1}
    params = MeshEpochs(nodes=20, degree=4, steps=(1,), **(usual | wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="machines"):
        epochs_machines.run(params, 1)


def test_a_run_of_the_machines_gives_what_one_of_the_kernels_gives() -> None:
    params = MeshEpochs(
        nodes=40, degree=6, kappa=0.5, insiders=0.2, churn=0.1, steps=(1,),
        attacks=("group-testing", "predecessor", "sender"),
    )  # fmt: skip
    found = {(measure.attack, measure.metric): measure.value for measure in epochs_machines.run(params, 2)}
    assert 0 <= found["group-testing", "auc"] <= 1
    assert 0 <= found["sender", "success"] <= 1
    assert found["", "reached"] > 0.9
