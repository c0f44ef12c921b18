"""Runs with several topics: what insiders without keys infer from tokens, and which topics users read.

The papers' tokens never change: all counts up to a step are used ("token-frequency"). If tokens change with the epoch,
only the last epoch can be used ("token-frequency-once"), unless tokens are linked from epoch to epoch: by the links
that ask for them ("relinking-links"), or also by the number of notifications and the origins of floods ("relinking").
Then earlier counts follow the tokens ("token-frequency-relinked"). Attackers receive tokens in an order drawn for each
epoch. Where the data tell which topics have the same readers, unchanging tokens are also named by joint requests
("token-frequency-pairs").

P2's third definition asks which topic a reader reads. A holder of every key knows tokens by name, and has the result of
group testing for each ("group-testing"). An insider without keys has the same result under the names that it guessed
("token-frequency").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from veilcast.lab.attack.insider import token_inference
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.token_inference import (
    assign_best,
    count_pairs,
    count_requests,
    naming_likelihoods,
    refine_naming,
)
from veilcast.lab.experiment.mesh_params import MeshTopics
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure import definitions, ranking
from veilcast.lab.models import topic_mix
from veilcast.lab.models.epochs import MeshPolicy
from veilcast.lab.models.rng import stream
from veilcast.lab.models.topic_mix import TokenObservations, TopicMix
from veilcast.lab.runs.mesh.epoch_setup import make_base_policy
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay, read_overlay

Floats = NDArray[np.float64]
Names = NDArray[np.int64]


def run(params: MeshTopics, seed: int, data: Path | None = None) -> list[Measure]:
    # A hardened mesh keeps its root. With origin = "fresh" it does not, to measure what that would change.
    way = make_base_policy(msgspec.structs.replace(params, origin="kept"))
    if params.origin == "fresh":
        way = replace(way, origin="fresh")
    town, popularity, together = _settle_topics(params, seed, data)
    # Readers ask, and covers: a share kappa of the other nodes.
    asks = popularity + way.kappa * (1 - popularity)
    traces = topic_mix.observe_tokens(town, way, int(params.steps[-1]))
    shown = _shown(town, traces, seed)
    return [
        Measure(attack, metric, step, value)
        for step in params.steps
        for attack, found in (
            *_measure_naming(shown, town, asks, int(step)),
            *_measure_pairs(shown, town, traces, asks, together, int(step)),
            *_measure_links(shown, int(step)),
            *_interests(shown, town, traces, way, popularity, asks, int(step)),
        )
        for metric, value in found.items()
    ]


@dataclass(frozen=True, eq=False)
class _Shown:
    """The input of attackers for E epochs, token by token, in an order drawn for each epoch; and that order."""

    topic: Names
    """E x tokens: the topic of each token. The truth."""
    asked: Floats
    """E x tokens: number of neighbours that asked for it."""
    chances: Floats
    """E x tokens: number of neighbours that could have asked."""
    noticed: NDArray[np.bool_]
    """E x tokens x links."""
    notes: Floats
    origin: NDArray[np.int32]
    nodes: int

    def similar(self, epoch: int, *, links_alone: bool) -> Floats:
        """Similarity: tokens of the previous epoch x tokens of this one."""
        found = token_inference.compare_links(self.noticed[epoch - 1], self.noticed[epoch])
        if not links_alone:
            found = found + token_inference.compare_counts(self.notes[epoch - 1], self.notes[epoch])
            found = found + token_inference.compare_origins(self.origin[epoch - 1], self.origin[epoch], self.nodes)
        return found

    def is_same(self, epoch: int) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = self.topic[epoch - 1][:, None] == self.topic[epoch]
        return same


def _settle_topics(params: MeshTopics, seed: int, data: Path | None) -> tuple[TopicMix, Floats, Floats | None]:
    """The readers of topics; the known popularity of topics, the most popular first; and of pairs of topics, if
    known."""
    if params.has_topics():
        overlay = read_overlay(params, data)
        most = sorted(overlay.topics, key=lambda name: (-overlay.topics[name].size, name))[: params.topics]
        graph, readers = overlay.graph, [overlay.topics[name] for name in most]
        reads = np.zeros((graph.nodes, len(readers)))
        for number, those in enumerate(readers):
            reads[those, number] = 1.0
        popularity, together = reads.mean(axis=0), reads.T @ reads / graph.nodes
    else:
        graph, _, _ = draw_overlay(params, seed, data)
        popularity, together = topic_mix.zipf_popularity(params.topics, params.ratio), None
        readers = topic_mix.draw_readers(graph, popularity, seed)
    return topic_mix.settle_topics(graph, readers, params.insiders, params.churn, _NOTES, seed), popularity, together


def _shown(town: TopicMix, traces: TokenObservations, seed: int) -> _Shown:
    graph = town.topics[0].graph
    epochs, topics = traces.notes.shape
    rng = np.random.default_rng(stream(seed, "tokens"))
    topic = np.array([rng.permutation(topics) for _ in range(epochs)])
    counted = np.array([count_requests(graph, view) for view in traces.views])
    each = np.arange(epochs)[:, None]
    return _Shown(
        topic=topic,
        asked=counted[:, 0].T[each, topic],
        chances=counted[:, 1].T[each, topic],
        noticed=traces.noticed[each, topic],
        notes=traces.notes[each, topic].astype(np.float64),
        origin=traces.origin[each, topic],
        nodes=graph.nodes,
    )


def _measure_naming(shown: _Shown, town: TopicMix, asks: Floats, step: int) -> Iterator[tuple[str, dict[str, float]]]:
    """The share of tokens of the first epoch, or of the last one, that are named rightly."""
    for attack, place in (
        ("token-frequency", _kept(shown, step)),
        ("token-frequency-once", None),
        ("token-frequency-relinked", _follow(shown, step)),
    ):
        topic = shown.topic[0 if place is not None else step - 1]
        yield attack, _right(town, _names(shown, asks, step, place), topic)


def _measure_pairs(
    shown: _Shown, town: TopicMix, traces: TokenObservations, asks: Floats, together: Floats | None, step: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """The share of tokens that are named rightly by joint requests."""
    if together is None:
        return
    topic = shown.topic[0]
    both = count_pairs([traces.views[number].first_epochs(step) for number in topic], shown.nodes)
    names = refine_naming(_likelihoods(shown, asks, step, _kept(shown, step)), both, together)
    yield "token-frequency-pairs", _right(town, names, topic)


def _right(town: TopicMix, names: Names, topic: Names) -> dict[str, float]:
    readers, right = town.reads.sum(axis=0), names == topic
    return {
        "named": float(np.mean(right)),
        "named_readers": float(readers[topic[right]].sum() / readers.sum()),
        "base": 1 / len(topic),
    }


def _names(shown: _Shown, asks: Floats, step: int, place: Names | None) -> Names:
    return assign_best(_likelihoods(shown, asks, step, place))


def _likelihoods(shown: _Shown, asks: Floats, step: int, place: Names | None) -> Floats:
    """Tokens x topics, where a share `asks` of the nodes asks for each topic: from the counts at these places in each
    epoch up to the step, or from the last epoch alone."""
    if place is None:
        asked, chances = shown.asked[step - 1], shown.chances[step - 1]
    else:
        each = np.arange(step)[:, None]
        asked, chances = shown.asked[each, place].sum(axis=0), shown.chances[each, place].sum(axis=0)
    return naming_likelihoods(asked, chances, asks)


def _kept(shown: _Shown, step: int) -> Names:
    """Epochs x tokens of the first epoch: the place of each token, if tokens do not change."""
    where = np.argsort(shown.topic[:step], axis=1)
    return where[:, shown.topic[0]]


def _follow(shown: _Shown, step: int) -> Names:
    """The same by relinking."""
    places = [np.arange(shown.topic.shape[1])]
    for epoch in range(1, step):
        places.append(assign_best(shown.similar(epoch, links_alone=False))[places[-1]])
    return np.array(places)


def _measure_links(shown: _Shown, step: int) -> Iterator[tuple[str, dict[str, float]]]:
    """How well tokens are found again in the next epoch, on average; and the share still followed at the step."""
    if step == 1:
        return
    for attack, links_alone in (("relinking", False), ("relinking-links", True)):
        aucs, shares = [], []
        for epoch in range(1, step):
            similar, same = shown.similar(epoch, links_alone=links_alone), shown.is_same(epoch)
            aucs.append(ranking.auc(similar.reshape(-1), same.reshape(-1)))
            shares.append(np.mean(same[np.arange(len(same)), assign_best(similar)]))
        found = {"auc": float(np.mean(aucs)), "linked": float(np.mean(shares)), "base": 1 / shown.topic.shape[1]}
        if not links_alone:
            found["followed"] = float(np.mean(shown.topic[step - 1][_follow(shown, step)[-1]] == shown.topic[0]))
        yield attack, found


def _interests(
    shown: _Shown,
    town: TopicMix,
    traces: TokenObservations,
    way: MeshPolicy,
    popularity: Floats,
    asks: Floats,
    step: int,
) -> Iterator[tuple[str, dict[str, float]]]:
    """P2's third definition: by topic, the probability that each user reads it, for a holder of all keys and for an
    insider that guesses names."""
    graph, honest = town.topics[0].graph, ~town.topics[0].insiders
    evidence = np.stack(
        [
            infer_beliefs(
                build_group_tests(graph, view.first_epochs(step), kept=way.parents == "kept"), graph.nodes, _PRIOR
            )
            - logit(_PRIOR)
            for view in traces.views
        ],
        axis=1,
    )
    guessed = np.empty(len(popularity), np.int64)
    guessed[_names(shown, asks, step, _kept(shown, step))] = shown.topic[0]
    for attack, topics in (("group-testing", np.arange(len(popularity))), ("token-frequency", guessed)):
        reads = expit(evidence[:, topics] + logit(asks)) * popularity / asks
        found = definitions.measure_subscription(reads[honest], town.reads[honest])
        yield (
            attack,
            {"subscription": found.probability, "subscription_bound": found.bound, "subscription_prior": found.prior},
        )


_NOTES: Final = 20.0
"""Mean number of notifications of a topic in an epoch."""
_PRIOR: Final = 0.1
"""The share of nodes that ask, as group testing assumes it before the topic is known."""
