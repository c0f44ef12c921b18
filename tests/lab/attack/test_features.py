from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.coalitions import case, tells_nothing_of_shuffled_labels
from veilcast.lab.attack.features import NAMES, features
from veilcast.lab.attack.group_testing import beliefs
from veilcast.lab.attack.pools import pooled


def table(name: str, seed: int, epochs: int) -> dict[str, NDArray[np.float64]]:
    world = case(name, seed, 20)
    shown = world.view.until(epochs)
    found = features(world.people.graph, shown, beliefs(pooled(world.people.graph, shown), 500, 0.1))
    assert found.shape == (500, len(NAMES))
    assert np.isfinite(found).all()
    return dict(zip(NAMES, found.T, strict=True))


@pytest.mark.parametrize("epochs", [1, 20])
def test_features_are_of_the_epochs_seen_so_far(epochs: int) -> None:
    columns = table("BL", 1, epochs)
    assert columns["times asked"].max() > 0
    for share in ("asked", "missed", "asked lately"):
        assert ((columns[share] >= 0) & (columns[share] <= 1)).all()
    assert not columns["named"].any()
    assert not columns["recruited"].any()


def test_who_answers_at_once_is_a_reader_and_the_outermost_named_are_more_often() -> None:
    world = case("SG", 1, 20)
    found = features(world.people.graph, world.view, np.zeros(500))
    columns = dict(zip(NAMES, found.T, strict=True))
    assert world.subscribes[columns["at once"] > 0].all()
    assert world.auc(columns["outermost"]) > 0.85
    assert tells_nothing_of_shuffled_labels(columns["outermost"][world.candidates], world.labels())


def test_invitations_are_seen_where_there_are_any() -> None:
    columns = table("PF fresh", 1, 20)
    assert all(columns[name].any() for name in ("recruited", "refused", "invited"))
