from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from support.coalition_view import make_case, tells_nothing_of_shuffled_labels
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.node_features import FEATURE_NAMES, extract_node_features


def table(name: str, seed: int, epochs: int) -> dict[str, NDArray[np.float64]]:
    world = make_case(name, seed, 20)
    shown = world.view.first_epochs(epochs)
    found = extract_node_features(
        world.people.graph, shown, infer_beliefs(build_group_tests(world.people.graph, shown), 500, 0.1)
    )
    assert found.shape == (500, len(FEATURE_NAMES))
    assert np.isfinite(found).all()
    return dict(zip(FEATURE_NAMES, found.T, strict=True))


@pytest.mark.parametrize("epochs", [1, 20])
def test_features_are_of_the_epochs_seen_so_far(epochs: int) -> None:
    columns = table("BL", 1, epochs)
    assert columns["times asked"].max() > 0
    for share in ("asked", "missed", "asked lately"):
        assert ((columns[share] >= 0) & (columns[share] <= 1)).all()
    assert not columns["named"].any()
    assert not columns["recruited"].any()


def test_prompt_answers_are_subscribers_and_outermost_members_are_likelier() -> None:
    world = make_case("SG", 1, 20)
    found = extract_node_features(world.people.graph, world.view, np.zeros(500))
    columns = dict(zip(FEATURE_NAMES, found.T, strict=True))
    assert world.subscribes[columns["at once"] > 0].all()
    assert world.auc(columns["outermost"]) > 0.85
    assert tells_nothing_of_shuffled_labels(columns["outermost"][world.candidates], world.labels())


def test_invitations_are_seen_where_there_are_any() -> None:
    columns = table("PF fresh", 1, 20)
    assert all(columns[name].any() for name in ("recruited", "refused", "invited"))
