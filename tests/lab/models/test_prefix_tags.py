from __future__ import annotations

import numpy as np

from veilcast.lab.models.prefix_tags import draw_prefix_tags


def test_a_value_shares_one_tag_with_a_range_that_holds_it_and_none_with_others() -> None:
    drawn = draw_prefix_tags(6, 50, 50, 0.3, 1)
    shared = np.array([[np.isin(asked, one).sum() for one in drawn.ranges] for asked in drawn.asked])
    assert set(np.unique(shared).tolist()) == {0, 1}
    # Those of one range are side by side.
    order = np.argsort(drawn.value, kind="stable")
    for inside in shared[order].T:
        held = np.unique(drawn.value[order][inside == 1])
        between = (drawn.value >= held.min()) & (drawn.value <= held.max()) if held.size else np.zeros(50, np.bool_)
        assert np.array_equal(np.unique(drawn.value[between]), held)


def test_tags_tell_nothing_by_their_order() -> None:
    drawn = draw_prefix_tags(6, 400, 1, 0.3, 2)
    assert len({int(row.argmin()) for row in drawn.asked}) == drawn.asked.shape[1] == 7
