"""Draws that are a function of what is drawn for: always the same, fair, and without a link to one another."""

from __future__ import annotations

import numpy as np
import pytest

from veilcast.lab.models import keyed_draws
from veilcast.lab.models.graph import small_world


def test_an_order_is_the_same_for_ever_and_another_for_another_purpose_or_seed() -> None:
    graph, key = small_world(100, 6, 0.2, 1), keyed_draws.derive_key(1, "life")
    once = keyed_draws.rank_neighbours(graph, key, keyed_draws.PARENTS)
    assert (once == keyed_draws.rank_neighbours(graph, keyed_draws.derive_key(1, "life"), keyed_draws.PARENTS)).all()
    assert (once != keyed_draws.rank_neighbours(graph, key, keyed_draws.STEMS)).all()
    assert (once != keyed_draws.rank_neighbours(graph, keyed_draws.derive_key(2, "life"), keyed_draws.PARENTS)).all()
    assert len(np.unique(once)) == once.size


def test_an_order_depends_on_who_is_ranked_and_not_on_who_else_is_there() -> None:
    key = keyed_draws.derive_key(1, "life")
    large, small = (small_world(60, degree, 0.0, 1) for degree in (6, 4))
    for node in range(60):
        known = dict(
            zip(large.neighbours(node), keyed_draws.rank_neighbours(large, key, 1)[large.offsets[node] :], strict=False)
        )
        for near, rank in zip(
            small.neighbours(node), keyed_draws.rank_neighbours(small, key, 1)[small.offsets[node] :], strict=False
        ):
            assert known[near] == rank


@pytest.mark.parametrize("share", [0.0, 0.1, 0.78, 1.0])
def test_a_share_is_met_and_draws_for_two_epochs_have_nothing_to_do_with_one_another(share: float) -> None:
    key = keyed_draws.derive_key(1, "life")
    first, second = (keyed_draws.draw_share(key, keyed_draws.AWAY, 50_000, epoch, share) for epoch in (0, 1))
    assert first.mean() == pytest.approx(share, abs=0.01)
    assert (first & second).mean() == pytest.approx(share**2, abs=0.01)
