"""Attackers of a coalition without keys: what tokens stand for, which tokens are one topic's, and which topics users
read.

The papers' tokens never change: all counts of a lasting token are used ("token-frequency"). If tokens change with the
epoch, only the last epoch can be used ("token-frequency-once"), unless tokens are linked from epoch to epoch: by the
links that ask for them ("relinking-links"), or also by the number of notifications and the origins of floods
("relinking"). Then earlier counts follow the tokens ("token-frequency-relinked"). Where it is public which topics have
the same readers, lasting tokens are also named by joint requests ("token-frequency-pairs"). `token_inference` has the
mathematics.

A holder of every key knows tokens by name, and has the result of group testing for each ("group-testing"). An insider
without keys has the same result under the names that it guessed ("token-frequency").

Every function returns a matrix of scores. Its rows and columns depend on the role that the attacker looks for:

| role | rows | columns |
|---|---|---|
| `first-token` | topics | tokens of the first epoch: 1 for the topic of a token |
| `token` | topics | tokens of the last epoch: 1 for the topic of a token |
| `next` | tokens of the epoch before the last | tokens of the last: how well they go together |
| `linked` | the same | the same: 1 if both are taken for one topic's |
| `followed` | tokens of the first epoch | tokens of the last: 1 if links lead from one to the other |
| `subscriber` | topics | nodes: the probability that a node reads a topic |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from veilcast.lab.attack.insider import token_inference
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.token_inference import (
    assign_best,
    count_pairs,
    naming_likelihoods,
    refine_naming,
)
from veilcast.lab.models.graph import Graph
from veilcast.lab.models.link_observations import SILENT, LinkObservations

Floats = NDArray[np.float64]
Names = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenEpoch:
    """The T tokens of one epoch, on L links, in the order of their bytes."""

    tokens: Sequence[str]
    seen: NDArray[np.int8]
    """T x L: codes of `LinkObservations`."""
    delay: NDArray[np.int16]
    """T x L."""
    present: NDArray[np.bool_]
    """T x nodes: the nodes that a token's flood can pass."""
    origin: NDArray[np.int32]
    """T: where a token's flood begins."""
    notes: Floats
    """T: number of notifications; -1 if no insider is in the mesh."""
    handovers: Sequence[NDArray[np.int32]]
    """T: rows as in `LinkObservations`, with the epoch 0."""
    asked: Floats
    """T: number of neighbours that asked for it."""
    chances: Floats
    """T: number of neighbours that could have asked."""
    lasting: Names | None = None
    """T: number of the token that a topic has in all epochs."""
    named: Names | None = None
    """T: number of the topic."""


@dataclass(frozen=True, eq=False)
class TokenObservations:
    """The first epochs, each with at least one token."""

    graph: Graph
    hostile: NDArray[np.bool_]
    observer: NDArray[np.int32]
    peer: NDArray[np.int32]
    by_epoch: tuple[TokenEpoch, ...]
    popularity: Floats
    """By topic: the share of nodes that read it."""
    asks: Floats
    """By topic: the share of nodes that ask for it, covers included."""
    kept: bool = False
    """Whether nodes keep their parents."""
    together: Floats | None = None
    """Topics x topics: the share of nodes that read both."""
    lasting: bool | None = None
    """True if tokens of different epochs are known to be one; None if they are not."""
    named: bool | None = None
    """True if the topics of tokens are known."""
    cache: dict[tuple[object, ...], object] = field(default_factory=dict)
    """Results that several attackers, and several numbers of epochs, share."""

    @property
    def nodes(self) -> int:
        return self.graph.nodes

    @property
    def epochs(self) -> int:
        return len(self.by_epoch)

    @property
    def first(self) -> TokenEpoch:
        return self.by_epoch[0]

    @property
    def last(self) -> TokenEpoch:
        return self.by_epoch[-1]

    def first_epochs(self, epochs: int) -> TokenObservations:
        return replace(self, by_epoch=self.by_epoch[:epochs])

    def similar(self, epoch: int, *, links_alone: bool) -> Floats:
        """Similarity: tokens of the epoch before x tokens of this one."""
        before, after = self.by_epoch[epoch - 1 : epoch + 1]
        key = ("links", epoch)
        if key not in self.cache:
            self.cache[key] = token_inference.compare_links(before.seen > SILENT, after.seen > SILENT)
        links = np.asarray(self.cache[key], np.float64)
        if links_alone:
            return links
        key = ("similar", epoch)
        if key not in self.cache:
            found = links + token_inference.compare_counts(before.notes, after.notes)
            self.cache[key] = found + token_inference.compare_origins(before.origin, after.origin, self.nodes)
        return np.asarray(self.cache[key], np.float64)

    def track_lasting(self) -> Names:
        """Epochs x tokens of the first epoch: the place of each token; -1 where it was not heard of."""
        return np.array([_places(each.lasting, self.first.lasting) for each in self.by_epoch])

    def track_linked(self) -> Names:
        """The same by relinking."""
        places = [np.arange(len(self.first.tokens))]
        for epoch in range(1, self.epochs):
            link = assign_best(self.similar(epoch, links_alone=False))
            places.append(np.where(places[-1] >= 0, link[places[-1]], -1))
        return np.array(places)

    def track_named(self) -> Names:
        """Epochs x topics: the place of each topic's token, for a holder of all keys."""
        return np.array([_places(each.named, np.arange(self.popularity.size)) for each in self.by_epoch])

    def follow(self, places: Names) -> LinkObservations:
        """The observations of one token, by its place in each epoch; epochs without it are left out."""
        epochs = np.flatnonzero(places >= 0)
        rows = [(self.by_epoch[epoch], place) for epoch, place in zip(epochs, places[epochs], strict=True)]
        games = [np.insert(each.handovers[place][:, 1:], 0, at, axis=1) for at, (each, place) in enumerate(rows)]
        return LinkObservations(
            self.observer,
            self.peer,
            np.array([each.origin[place] for each, place in rows], np.int32),
            np.array([each.present[place] for each, place in rows]),
            np.array([each.seen[place] for each, place in rows]),
            np.array([each.delay[place] for each, place in rows]),
            np.concatenate([np.empty((0, 6), np.int32), *games]),
        )

    def evidence(self, places: Names) -> Floats:
        """What group tests say of each node, for the token at these places: log-odds against the prior."""
        key = ("evidence", *places.tolist())
        if key not in self.cache:
            tests = build_group_tests(self.graph, self.follow(places), kept=self.kept)
            self.cache[key] = infer_beliefs(tests, self.nodes, PRIOR) - logit(PRIOR)
        return np.asarray(self.cache[key], np.float64)


def name_lasting(seen: TokenObservations) -> Floats:
    return _mark_names(seen, assign_best(_likelihoods(seen, seen.track_lasting())), len(seen.first.tokens))


def name_linked(seen: TokenObservations) -> Floats:
    return _mark_names(seen, assign_best(_likelihoods(seen, seen.track_linked())), len(seen.first.tokens))


def name_last(seen: TokenObservations) -> Floats:
    likelihoods = naming_likelihoods(seen.last.asked, seen.last.chances, seen.asks)
    return _mark_names(seen, assign_best(likelihoods), len(seen.last.tokens))


def name_by_pairs(seen: TokenObservations) -> Floats:
    assert seen.together is not None
    places = seen.track_lasting()
    both = count_pairs([seen.follow(place) for place in places.T], seen.nodes)
    names = refine_naming(_likelihoods(seen, places), both, seen.together)
    return _mark_names(seen, names, len(seen.first.tokens))


def score_next(seen: TokenObservations) -> Floats:
    return _NOTHING if seen.epochs < 2 else seen.similar(seen.epochs - 1, links_alone=False)


def score_next_by_links(seen: TokenObservations) -> Floats:
    return _NOTHING if seen.epochs < 2 else seen.similar(seen.epochs - 1, links_alone=True)


def link_tokens(seen: TokenObservations) -> Floats:
    return _mark_best(score_next(seen))


def link_tokens_by_links(seen: TokenObservations) -> Floats:
    return _mark_best(score_next_by_links(seen))


def follow_tokens(seen: TokenObservations) -> Floats:
    if seen.epochs < 2:
        return _NOTHING
    return _mark_places(seen.track_linked()[-1], len(seen.last.tokens))


def score_readers_of_named(seen: TokenObservations) -> Floats:
    """By the keys of all topics."""
    return _score_readers(seen, seen.track_named())


def score_readers_of_guessed(seen: TokenObservations) -> Floats:
    """By the names of "token-frequency"."""
    tracks = seen.track_lasting()
    names = assign_best(_likelihoods(seen, tracks))
    by_topic = np.full((seen.epochs, seen.popularity.size), -1)
    by_topic[:, names[names >= 0]] = tracks[:, names >= 0]
    return _score_readers(seen, by_topic)


def _score_readers(seen: TokenObservations, places: Names) -> Floats:
    """Topics x nodes, from the places of each topic's token; 0 for a topic without one."""
    known = [topic for topic, place in enumerate(places.T) if (place >= 0).any()]
    found = np.zeros((places.shape[1], seen.nodes))
    for topic in known:
        odds = seen.evidence(places[:, topic]) + logit(seen.asks[topic])
        found[topic] = expit(odds) * seen.popularity[topic] / seen.asks[topic]
    return found


def _likelihoods(seen: TokenObservations, places: Names) -> Floats:
    """Tokens x topics: from the counts at these places in each epoch."""
    counted = []
    for name in ("asked", "chances"):
        rows = [
            np.where(place >= 0, getattr(epoch, name)[place], 0.0)
            for epoch, place in zip(seen.by_epoch, places, strict=True)
        ]
        counted.append(np.array(rows).sum(axis=0))
    return naming_likelihoods(counted[0], counted[1], seen.asks)


def _places(numbers: Names | None, wanted: Names | None) -> Names:
    """The place of each wanted number; -1 where it is missing."""
    assert numbers is not None
    assert wanted is not None
    order = np.argsort(numbers)
    at = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    return np.where(numbers[order][at] == wanted, order[at], -1)


def _mark_names(seen: TokenObservations, names: Names, tokens: int) -> Floats:
    """Topics x tokens."""
    found = np.zeros((seen.popularity.size, tokens))
    named = np.flatnonzero(names >= 0)
    found[names[named], named] = 1.0
    return found


def _mark_best(scores: Floats) -> Floats:
    return _mark_places(assign_best(scores), scores.shape[1]) if scores.size else _NOTHING


def _mark_places(places: Names, columns: int) -> Floats:
    found = np.zeros((len(places), columns))
    known = np.flatnonzero(places >= 0)
    found[known, places[known]] = 1.0
    return found


IN_FIRST: Final = "first-token"
IN_LAST: Final = "token"
"""Roles of names: tokens of the first epoch, or of the last."""
NEXT: Final = "next"
LINKED: Final = "linked"
FOLLOWED: Final = "followed"
PRIOR: Final = 0.1
"""The share of nodes that ask, as group testing assumes it before the topic is known."""
_NOTHING: Final = np.zeros((0, 0))
