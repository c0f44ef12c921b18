from __future__ import annotations

import numpy as np

from support.coalitions import case, tells_nothing_of_shuffled_labels
from veilcast.lab.attack.handed import named, outermost, scores
from veilcast.lab.attack.pools import distances
from veilcast.lab.kernels.epochs import CONDUCTS, epochs
from veilcast.lab.kernels.graph import from_edges


def test_whoever_is_named_is_in_the_mesh() -> None:
    world = case("SG", 2, 5)
    names = named(world.view)
    for epoch in epochs(world.people, CONDUCTS["SG"], 5):
        assert (epoch.covered.parent[names[epoch.number]] >= 0).all()


def test_the_outermost_have_nobody_named_further_out() -> None:
    chain = from_edges(5, [0, 1, 2, 3], [1, 2, 3, 4])
    far = np.arange(5, dtype=np.int32)[None, :]
    names = np.array([[False, True, False, True, True]])
    assert outermost(chain, names, far).tolist() == [[False, True, False, False, True]]


def test_it_finds_subscribers_by_games_and_nothing_where_none_are_played() -> None:
    """Both controls, and that more games tell more."""
    found = {}
    for name in ("SG", "SG few", "BL"):
        worlds = [case(name, 400 + seed, 20) for seed in range(6)]
        guesses = [
            scores(world.people.graph, world.view, distances(world.people.graph, world.view)) for world in worlds
        ]
        found[name] = np.mean([world.auc(guess) for world, guess in zip(worlds, guesses, strict=True)])
        if name == "SG":
            assert tells_nothing_of_shuffled_labels(guesses[0][worlds[0].candidates], worlds[0].labels())
    assert found["SG"] > 0.9
    assert found["SG"] > found["SG few"] > 0.6
    assert found["BL"] == 0.5
