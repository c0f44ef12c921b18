from __future__ import annotations

import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.models.epochs import MESH_POLICIES, run_epochs
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.topic_mix import TopicMix, draw_readers, observe_tokens, settle_topics, zipf_popularity


def town(seed: int = 1, topics: int = 3) -> TopicMix:
    graph = small_world(200, 6, 0.2, seed)
    return settle_topics(graph, draw_readers(graph, zipf_popularity(topics, 0.4), seed), 0.1, 0.2, 10, seed)


def test_topics_share_who_is_away_and_nothing_else() -> None:
    first, second = (next(run_epochs(people, MESH_POLICIES["H"], 1)) for people in town().topics[:2])
    roots = np.isin(
        np.arange(200), [first.root_paths.root, second.root_paths.root, *(one.publisher for one in town().topics)]
    )
    assert np.array_equal(first.present[~roots], second.present[~roots])
    assert first.root_paths.root != second.root_paths.root
    assert not np.array_equal(first.asking, second.asking)


def test_popularity_falls_with_the_rank() -> None:
    graph = small_world(4000, 4, 0.2, 1)
    readers = [those.size / 4000 for those in draw_readers(graph, zipf_popularity(4, 0.4), 1)]
    assert readers == pytest.approx([0.4, 0.2, 0.4 / 3, 0.1], abs=0.03)


def test_insiders_neither_read_nor_publish() -> None:
    lived = town()
    hostile = lived.topics[0].insiders
    assert np.count_nonzero(hostile) == 20
    assert not lived.reads[hostile].any()
    assert not any(hostile[people.publisher] for people in lived.topics)
    assert not any(people.publisher in people.subscribers for people in lived.topics)


def test_notes_are_counted_where_an_insider_is_in_the_mesh() -> None:
    lived = town()
    seen = observe_tokens(lived, MESH_POLICIES["BL"], 4)
    part = seen.noticed.any(axis=2)
    assert seen.noticed.shape == (4, 3, seen.views[0].peer.size)
    assert np.array_equal(seen.notes >= 0, part)
    assert np.array_equal(seen.origin[0], [people.publisher for people in lived.topics])


def test_the_same_seed_gives_the_same_traces() -> None:
    one, other = (observe_tokens(town(3), MESH_POLICIES["PF fresh"], 2) for _ in range(2))
    assert np.array_equal(one.noticed, other.noticed)
    assert np.array_equal(one.notes, other.notes)


def test_a_topic_that_everybody_reads_has_nobody_to_publish_it() -> None:
    graph = small_world(20, 4, 0.2, 1)
    with pytest.raises(ConfigError, match="publish"):
        settle_topics(graph, [np.arange(20, dtype=np.int32)], 0.1, 0.0, 1, 1)
