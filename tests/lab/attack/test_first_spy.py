from __future__ import annotations

import numpy as np
import pytest

from support.advert_floods import first_guess_success, hear_adverts
from veilcast.lab.attack.insider.advert_origin import rank_first_spy


def test_the_earliest_sender_is_named_and_ties_go_to_the_most_heard() -> None:
    peer = np.array([2, 2, 3, 3, 4], np.int32)
    found = rank_first_spy(peer, np.array([1.0, 3.0, 1.0, 1.0, 2.0]), 6)
    assert np.argsort(-found, kind="stable")[:3].tolist() == [3, 2, 4]
    assert np.isneginf(found[[0, 1, 5]]).all()
    assert np.isneginf(rank_first_spy(np.empty(0, np.int32), np.empty(0), 3)).all()


def rate(degree: int, insiders: float, uneven: bool, *, shuffled: bool = False) -> float:
    """The share of 120 adverts whose publisher is named; with `shuffled`, the times are permuted."""
    hits = []
    for seed in range(120):
        people, peer, time = hear_adverts(degree, insiders, seed, uneven)
        if shuffled:
            time = np.random.default_rng(seed).permutation(time)
            nodes = np.random.default_rng(seed).permutation(np.flatnonzero(~people.insiders)).astype(np.int32)
            peer = nodes[np.searchsorted(np.flatnonzero(~people.insiders), peer)]
        hits.append(first_guess_success(rank_first_spy(peer, time, 500), people))
    return float(np.mean(hits))


@pytest.mark.parametrize(
    ("degree", "insiders", "even", "uneven"), [(8, 0.05, 0.45, 0.22), (8, 0.1, 0.72, 0.32), (16, 0.1, 0.82, 0.28)]
)
def test_it_names_as_many_publishers_as_the_prototypes(
    degree: int, insiders: float, even: float, uneven: float
) -> None:
    """The positive control. The prototype's 60 seeds leave a standard error of up to .065."""
    assert rate(degree, insiders, False) == pytest.approx(even, abs=0.17)
    assert rate(degree, insiders, True) == pytest.approx(uneven, abs=0.13)


def test_shuffled_neighbours_name_no_publisher() -> None:
    assert rate(8, 0.1, True, shuffled=True) < 0.03
