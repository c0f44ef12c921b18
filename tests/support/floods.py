"""Adverts as insiders get them: when and with which value of the chain each honest neighbour sends one on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from support.towns import town
from veilcast.crypto.chain import advance
from veilcast.lab.kernels import adverts
from veilcast.lab.kernels.adverts import apart, together
from veilcast.lab.kernels.epochs import Population
from veilcast.lab.kernels.habits import key_of
from veilcast.lab.kernels.insiders import links
from veilcast.lab.kernels.mesh import distances


def heard(
    degree: int, insiders: float, seed: int, uneven: bool
) -> tuple[Population, NDArray[np.int32], NDArray[np.float64]]:
    """A world, and from whom and when insiders had the advert of its publisher.

    Every link takes one period; or, uneven, any part of one, for its ends beat at random moments of their own.
    """
    people = town(500, degree, insiders, 0.0, seed)
    observer, peer = links(people)
    takes = apart(people.graph, key_of(seed, "beats")) if uneven else together(people.graph)
    return people, peer, adverts.heard(people.graph, people.publisher, observer, peer, takes)


def chained(people: Population, peer: NDArray[np.int32], offset: int) -> list[bytes]:
    """The values that these send, of a chain whose publisher has hashed its start so many times already."""
    far, _ = distances(people.graph, people.publisher)
    start = people.seed.to_bytes(32, "big")
    return [advance(start, offset + int(far[w])) for w in peer]


def success(scores: NDArray[np.float64], people: Population) -> float:
    """The probability that the first guess is the publisher, where those of the same score are equally likely."""
    named = np.flatnonzero((scores == scores[~people.insiders].max()) & ~people.insiders)
    return float(people.publisher in named) / named.size
