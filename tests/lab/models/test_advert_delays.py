from __future__ import annotations

import numpy as np

from veilcast.lab.models.advert_delays import arrival_times, equal_delays, random_delays
from veilcast.lab.models.graph import Graph, from_edges, small_world
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.mesh import hop_distances

PATH = from_edges(5, [0, 1, 2], [1, 2, 3])
"""Of 0, 1, 2 and 3; nobody knows 4."""


def at(graph: Graph, *links: tuple[int, int]) -> list[float]:
    observer, peer = np.array(links, np.int32).T
    times: list[float] = arrival_times(graph, 0, observer, peer, equal_delays(graph)).tolist()
    return times


def test_where_all_beat_together_a_hop_is_a_period() -> None:
    assert at(PATH, (1, 0), (2, 1), (3, 2)) == [1, 2, 3]
    # The one who had it first passes it back as well.
    assert at(PATH, (0, 1), (1, 2)) == [2, 3]


def test_nothing_is_heard_where_there_is_no_link_or_no_flood() -> None:
    assert at(PATH, (3, 0), (4, 3), (3, 4)) == [np.inf] * 3
    assert at(from_edges(2, [], []), (1, 0)) == [np.inf]


def test_where_each_beats_by_itself_no_link_takes_longer_than_a_period_and_some_less() -> None:
    graph = small_world(200, 6, 0.2, 1)
    takes = random_delays(graph, derive_key(1, "beats"))
    assert 0 < takes.min() < 0.01
    assert 0.99 < takes.max() <= 1
    ends = np.repeat(np.arange(200, dtype=np.int32), graph.degrees)
    times, far = arrival_times(graph, 7, graph.targets, ends, takes), hop_distances(graph, 7)[0]
    assert (times <= far[ends] + 1).all()
    assert (times < far[ends]).any()


def test_moments_belong_to_their_key() -> None:
    graph = small_world(50, 4, 0.2, 1)
    assert (random_delays(graph, derive_key(1, "beats")) == random_delays(graph, derive_key(1, "beats"))).all()
    assert (random_delays(graph, derive_key(1, "beats")) != random_delays(graph, derive_key(2, "beats"))).all()
