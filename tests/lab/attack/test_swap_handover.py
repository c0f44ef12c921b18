from __future__ import annotations

import numpy as np

from support.coalition_view import make_case, tells_nothing_of_shuffled_labels
from veilcast.lab.attack.insider.group_tests import origin_distances
from veilcast.lab.attack.insider.swap_handover import find_named_members, find_outermost_members, score_handover
from veilcast.lab.models.epochs import MESH_POLICIES, run_epochs
from veilcast.lab.models.graph import from_edges


def test_every_named_node_is_in_the_mesh() -> None:
    world = make_case("SG", 2, 5)
    names = find_named_members(world.view)
    for epoch in run_epochs(world.people, MESH_POLICIES["SG"], 5):
        assert (epoch.covered_mesh.parent[names[epoch.number]] >= 0).all()


def test_outermost_members_have_no_named_neighbour_further_out() -> None:
    chain = from_edges(5, [0, 1, 2, 3], [1, 2, 3, 4])
    far = np.arange(5, dtype=np.int32)[None, :]
    names = np.array([[False, True, False, True, True]])
    assert find_outermost_members(chain, names, far).tolist() == [[False, True, False, False, True]]


def test_it_finds_subscribers_by_games_and_nothing_where_none_are_played() -> None:
    """Both controls, and that more games tell more."""
    found = {}
    for name in ("SG", "SG few", "BL"):
        worlds = [make_case(name, 400 + seed, 20) for seed in range(6)]
        guesses = [
            score_handover(world.people.graph, world.view, origin_distances(world.people.graph, world.view))
            for world in worlds
        ]
        found[name] = np.mean([world.auc(guess) for world, guess in zip(worlds, guesses, strict=True)])
        if name == "SG":
            assert tells_nothing_of_shuffled_labels(guesses[0][worlds[0].candidates], worlds[0].labels())
    assert found["SG"] > 0.9
    assert found["SG"] > found["SG few"] > 0.6
    assert found["BL"] == 0.5
