"""Attackers on the histories of meshes: one formula, on captures and on model runs."""

from __future__ import annotations

import numpy as np
import pytest

from support.watched_meshes import mask
from veilcast.lab.attack.observer import attackers
from veilcast.lab.attack.observer.cadence import GapCounts
from veilcast.lab.attack.observer.observations import (
    ActivityRounds,
    CaptureObservations,
    EpochObservations,
    EpochWires,
    WireObservations,
)
from veilcast.lab.models.graph import from_edges, restrict_graph

NODES = 6
PATH = from_edges(NODES, [0, 1, 2, 3, 1], [1, 2, 3, 4, 5])
SMALL, LARGE, OTHER = [(0, 1), (1, 2)], [(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (1, 5)]
"""Copies of a publication of node 0: to the reader 2; also to the reader 4, through 3; to the reader 5 alone."""
SCORES = [attackers.score_persistence, attackers.score_closure, attackers.score_intersection]
Copies = list[tuple[int, int]]


def capture(*epochs: Copies) -> CaptureObservations:
    """One publication in each epoch of a second; a hop takes a millisecond."""
    rows = [
        (number * 1_000_000 + hop * 1_000, src, dst, number)
        for number, copies in enumerate(epochs)
        for hop, (src, dst) in enumerate(copies)
    ]
    at, src, dst, epoch = np.array(rows, np.int64).T
    none = np.zeros(0, np.int64)
    return CaptureObservations(
        graph=PATH,
        present=np.ones((len(epochs), NODES), np.bool_),
        src=src.astype(np.int32),
        dst=dst.astype(np.int32),
        at=at,
        epoch=epoch,
        rounds=ActivityRounds(1_000_000, 0, np.zeros((0, NODES))),
        published=none,
        topic=none,
        gaps=GapCounts(src[:0].astype(np.int32), dst[:0].astype(np.int32), none, none, none),
        rate=0.3,
    )


def model_run(*epochs: Copies, stages: list[list[int]] | None = None) -> EpochObservations:
    seen = EpochObservations(PATH, 2, 0.0)
    joins = None if stages is None else np.array([mask(members, NODES) for members in stages])
    for copies in epochs:
        src, dst = np.array(copies, np.int32).T
        present = np.ones(NODES, np.bool_)
        seen.see(EpochWires(present, restrict_graph(PATH, present), src, dst, np.arange(len(src)), joins))
    return seen


@pytest.mark.parametrize("score", SCORES)
def test_a_capture_and_a_model_run_of_the_same_copies_get_the_same_scores(score: object) -> None:
    assert callable(score)
    epochs = (SMALL, LARGE, OTHER)
    found = score(capture(*epochs))
    assert found.tolist() == score(model_run(*epochs)).tolist()
    assert found[2] > found[3]


def test_a_join_is_seen_from_one_mesh_of_a_capture_to_the_next_and_in_the_stages_of_a_model_run() -> None:
    joined = attackers.score_late_join(capture(SMALL, LARGE))
    assert joined.tolist() == pytest.approx([0, 0.3, 1, 0.3, 1, 0])
    stages = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2]]
    run = model_run(LARGE, stages=stages)
    assert run.rate == pytest.approx(1 / 3)
    assert (attackers.score_late_join(run) == 1).tolist() == (joined == 1).tolist()


def test_a_departure_is_a_join_read_backwards() -> None:
    left: WireObservations = capture(LARGE, SMALL)
    assert attackers.score_survivor(left).tolist() == attackers.score_late_join(capture(SMALL, LARGE)).tolist()
    # A mesh that shrank shows no join: each look is closure, and the whole mesh says less about node 2.
    assert attackers.score_late_join(left)[2] < 1


def test_a_mesh_that_gained_and_lost_members_was_laid_again_and_shows_no_join() -> None:
    again, apart = capture(SMALL, OTHER), [capture(SMALL), capture(OTHER)]
    mean = np.mean([attackers.score_late_join(each) for each in apart], axis=0)
    assert attackers.score_late_join(again).tolist() == mean.tolist()
    assert attackers.score_survivor(again).tolist() == mean.tolist()


def test_without_meshes_nobody_stands_out() -> None:
    none = np.zeros(0, np.int32)
    silent = CaptureObservations(**{**vars(capture(SMALL)), "src": none, "dst": none, "at": none.astype(np.int64)})
    for score in (*SCORES, attackers.score_late_join, attackers.score_survivor):
        assert score(silent).tolist() == [0.0] * NODES
