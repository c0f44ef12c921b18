"""Burst features of a node, compared with the cells it sent."""

from __future__ import annotations

import numpy as np

from veilcast.lab.attack.observer.cadence import extract_burst_features, split_by_link


def test_links_are_what_each_node_sent_to_each_peer_in_order() -> None:
    src, dst = np.array([1, 0, 1, 1], np.int32), np.array([0, 1, 2, 0], np.int32)
    found = split_by_link(src, dst, np.array([30, 5, 7, 10]), np.array([3, 5, 7, 1]))
    told = [[(t_us.tolist(), size.tolist()) for t_us, size in node] for node in found]
    assert told == [[([5], [5])], [([10, 30], [1, 3]), ([7], [7])]]
    nothing = np.empty(0, np.int32)
    assert split_by_link(nothing, nothing, nothing.astype(np.int64), nothing.astype(np.int64)) == []


def test_gaps_are_those_inside_a_link_and_inside_the_time() -> None:
    sent = [(np.array([0, 10, 20, 50, 90]), np.array([1, 2, 3, 4, 5])), (np.array([12, 17]), np.array([9, 9]))]
    found = extract_burst_features(sent, 10, 60)
    assert found is not None
    gaps, sizes = [10, 30, 5], [2, 3, 4, 9, 9]
    assert found[:3].tolist() == [5, np.mean(gaps), np.std(gaps)]
    assert (found[3], found[6], found[9]) == (5, 10, 30)
    assert found[10:].tolist() == [np.mean(sizes), np.std(sizes), 2, 9]


def test_a_time_with_fewer_than_two_gaps_has_no_features() -> None:
    assert extract_burst_features([(np.array([0, 10]), np.array([1, 1]))], 0, 20) is None
    assert extract_burst_features([], 0, 20) is None
