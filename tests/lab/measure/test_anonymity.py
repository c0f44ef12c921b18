from __future__ import annotations

import numpy as np

from veilcast.lab.measure.anonymity import anonymity_set_sizes, summarise_sets


def test_a_subscriber_hides_among_others_that_are_as_suspect_or_more() -> None:
    scores = np.array([0.9, 0.9, 0.5, 0.5, 0.5, 0.1])
    positive = np.array([True, True, True, False, False, True])
    assert anonymity_set_sizes(scores, positive).tolist() == [1, 1, 3, 3]


def test_without_knowledge_all_others_hide_a_subscriber() -> None:
    assert anonymity_set_sizes(np.zeros(10), np.arange(10) < 3).tolist() == [8, 8, 8]


def test_the_smallest_set_counts_and_the_size_that_nearly_all_have() -> None:
    found = summarise_sets(np.array([1, *[50] * 99], dtype=np.int64))
    assert found == {"set_mean": 49.51, "set_p5": 50.0, "set_min": 1.0}
    assert summarise_sets(np.array([], dtype=np.int64)) == {}
