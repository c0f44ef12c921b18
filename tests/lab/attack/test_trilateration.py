from __future__ import annotations

import numpy as np
import pytest

from support.advert_floods import chain_values, first_guess_success, hear_adverts
from veilcast.lab.attack.insider.advert_origin import score_trilateration
from veilcast.lab.models.graph import from_edges


def rate(degree: int, insiders: float, *, offset: int = 0, shuffled: bool = False) -> float:
    hits = []
    for seed in range(60):
        people, peer, _ = hear_adverts(degree, insiders, seed, False)
        values = chain_values(people, peer, offset)
        if shuffled:
            values = [values[place] for place in np.random.default_rng(seed).permutation(len(values))]
        hits.append(first_guess_success(score_trilateration(people.graph, peer, values), people))
    return float(np.mean(hits))


@pytest.mark.parametrize(("degree", "offset"), [(4, 0), (8, 0), (8, 5), (16, 0)])
def test_five_insiders_find_the_publisher_wherever_the_chain_begins(degree: int, offset: int) -> None:
    """The positive control: 5 of 500, who use the value of each honest neighbour."""
    assert rate(degree, 0.01, offset=offset) >= 0.95


def test_shuffled_values_lead_nowhere() -> None:
    assert rate(8, 0.01, shuffled=True) < 0.05


def test_an_exact_fit_has_no_spread_and_other_chains_are_left_out() -> None:
    people, peer, _ = hear_adverts(8, 0.01, 1, False)
    values = chain_values(people, peer, 0)
    found = score_trilateration(people.graph, peer, values)
    assert found[people.publisher] == 0
    spoilt = [*values, bytes(32)]
    assert (score_trilateration(people.graph, np.append(peer, peer[0]), spoilt) == found).all()


def test_one_value_fits_every_node() -> None:
    assert score_trilateration(from_edges(3, [0, 1], [1, 2]), np.array([1], np.int32), [bytes(32)]).tolist() == [
        0,
        0,
        0,
    ]
