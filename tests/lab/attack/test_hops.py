from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.attack.hops import distances_from, hop_distances, outward_links
from veilcast.lab.models.graph import from_edges, small_world
from veilcast.lab.models.mesh import hop_distances as distances


@given(seed=st.integers(0, 1000), degree=st.sampled_from([2, 4]))
def test_distances_are_those_of_the_adverts(seed: int, degree: int) -> None:
    graph = small_world(30, degree, 0.3, seed)
    roots = np.array([0, 7, 29], np.int32)
    assert hop_distances(graph, roots).tolist() == [distances(graph, int(root))[0].tolist() for root in roots]


def test_outward_links_lead_one_hop_further_and_skip_unreached_nodes() -> None:
    graph = from_edges(6, [0, 0, 1, 2, 1, 4], [1, 2, 3, 3, 2, 5])
    near, far = outward_links(graph, distances_from(graph, 0))
    assert list(zip(near.tolist(), far.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 3), (2, 3)]
