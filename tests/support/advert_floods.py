"""Adverts as insiders receive them: the time and the chain value of each honest neighbour's advert."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from support.small_population import make_population
from veilcast.crypto.hash_chain import advance_chain
from veilcast.lab.models import advert_delays
from veilcast.lab.models.advert_delays import equal_delays, random_delays
from veilcast.lab.models.coalition_view import insider_links
from veilcast.lab.models.epochs import Population
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.mesh import hop_distances


def hear_adverts(
    degree: int, insiders: float, seed: int, uneven: bool
) -> tuple[Population, NDArray[np.int32], NDArray[np.float64]]:
    """Let an advert flood a world. Returns the world, and for each insider the neighbour and the time that it had it
    from.

    Every link takes one period. If uneven, it takes a random part of one, because its ends beat at random moments.
    """
    people = make_population(500, degree, insiders, 0.0, seed)
    observer, peer = insider_links(people)
    takes = random_delays(people.graph, derive_key(seed, "beats")) if uneven else equal_delays(people.graph)
    return people, peer, advert_delays.arrival_times(people.graph, people.publisher, observer, peer, takes)


def chain_values(people: Population, peer: NDArray[np.int32], offset: int) -> list[bytes]:
    """The chain values of these neighbours; the publisher has hashed the start `offset` times already."""
    far, _ = hop_distances(people.graph, people.publisher)
    start = people.seed.to_bytes(32, "big")
    return [advance_chain(start, offset + int(far[w])) for w in peer]


def first_guess_success(scores: NDArray[np.float64], people: Population) -> float:
    """The probability that the first guess is the publisher; nodes of the same score are equally likely."""
    named = np.flatnonzero((scores == scores[~people.insiders].max()) & ~people.insiders)
    return float(people.publisher in named) / named.size
