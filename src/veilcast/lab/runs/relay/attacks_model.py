"""Runs of a relay on the models: what its server, its proxy, and an observer of its clients' wires learn.

Each attacker has what it saw in the epochs up to a step.

- The server alone: "dictionary" tries all words against the filters; "tag-frequency" names tags by their number of
  subscribers ("-pairs" by joint subscriptions, where the data tell); "oracle" asks as a user, as often as it is allowed
  to; "order" sorts the tags of values.
- The server with a view of the wires links users by when they are present ("filter-intersection"), and by the windows
  in which they subscribe ("timing-subscriptions") and publish: as one of the users that sent then ("timing"), or as the
  user that usually sends such a tag ("matching").
- The proxy alone names its own clients' tags ("proxy-frequency") and recognises bodies ("bodies").
- Wires alone tell which users publish for which others ("disclosure").

`measure.relay_success` computes the measures, with P2's definitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.server import batch_disclosure, linkage, tag_inference
from veilcast.lab.attack.server.tag_inference import TagNames, mark_interests
from veilcast.lab.data import load_overlay
from veilcast.lab.experiment.params import Measure, file_path
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure import relay_success
from veilcast.lab.measure.relay_success import measure_order
from veilcast.lab.models import prefix_tags, relay, topic_mix
from veilcast.lab.models.relay import RelayObservations, RelayService, RelayTruth, RelayUsers
from veilcast.lab.models.rng import stream
from veilcast.lab.models.server_log import DELIVERED, PUBLISHED, SUBSCRIBED, Numbers, ServerLog, cross_table
from veilcast.lab.user_files import load_subscriptions
from veilcast.topics.bloom import PUBLIC_KEY, Geometry

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Found = dict[str, float]


def run(params: RelayAttacks, seed: int, data: Path | None = None) -> list[Measure]:
    reads, popularity, together = _interests(params, seed, data)
    people = relay.settle_users(reads, _WRITERS, _PUBLICATIONS, params.churn, seed)
    service = RelayService("paper" if params.relay == "paper" else "hardened", params.batch, params.constant)
    shown, answers = relay.run_relay(people, service, int(params.steps[-1]))
    found = []
    for step in params.steps:
        attacked = _AttackedRelay(people, service, shown, answers, popularity, together, int(step))
        told = {
            "server": attacked.server(params.queries),
            "proxy": attacked.proxy(),
            "wires": attacked.wires(),
            "server and wires": attacked.watching(),
        }
        for attack, learnt in itertools.chain.from_iterable(told[observer] for observer in params.observers):
            found += [Measure(attack, metric, step, value) for metric, value in learnt.items()]
        if "server" in params.observers:
            found.append(Measure("order", "recovered", step, _order(service, int(step), seed)))
        found.append(Measure("", "window", step, attacked.crowd()))
    return found


class _AttackedRelay:
    """The observations up to a step, and their comparison with the truth."""

    def __init__(
        self,
        people: RelayUsers,
        service: RelayService,
        shown: RelayObservations,
        answers: RelayTruth,
        popularity: Floats,
        together: Floats | None,
        step: int,
    ) -> None:
        self.people, self.service, self.shown, self.answers = people, service, shown, answers
        self.popularity, self.together, self.step = popularity, together, step
        # If tags change, only one epoch of them can be counted.
        self.first = 0 if service.profile == "paper" else step - 1
        self.topics = popularity.size
        self.counted = shown.server.select(SUBSCRIBED, self.first, step - 1)
        self.asking = shown.server.select(SUBSCRIBED, 0, step - 1)
        self.last = shown.server.select(SUBSCRIBED, step - 1, step - 1)
        self.there = float(shown.present[self.first : step].sum())

    def server(self, queries: int) -> Iterator[tuple[str, Found]]:
        """Attacks of the server on its own log, for the subscriptions of the last epoch."""
        yield "dictionary", self._of_pseudonyms(self._filters_hold())
        by_count = tag_inference.name_tags(self.counted, self.there, self.popularity)
        yield "tag-frequency", self._of_names(by_count)
        if self.together is not None:
            pairs = tag_inference.name_tags_by_pairs(self.counted, self.there, self.popularity, self.together)
            yield "tag-frequency-pairs", self._of_names(pairs)
        if queries:
            asked = tag_inference.choose_queries(self.counted, self.there, self.popularity, queries)
            replies = self.answers.topic[self.step - 1][asked]
            told = tag_inference.name_tags_by_queries(self.counted, self.there, self.popularity, asked, replies)
            yield "oracle", self._of_names(told)

    def watching(self) -> Iterator[tuple[str, Found]]:
        """Attacks of the server with a view of the wires."""
        yield "filter-intersection", self._by_presence() | self._linked()
        sent, last = self.shown.subscribing.sent, self.step - 1
        end = self.shown.first_windows[self.step, 0]
        named = self._named(self.asking)
        known = named >= 0
        windows = self.shown.windows(self.asking)[known]
        came = batch_disclosure.count_effects(windows, named[known], (end, self.topics))
        yield "timing-subscriptions", self._of_users(batch_disclosure.fit_profiles(sent[:end], came))
        published = self.shown.server.select(PUBLISHED, self.first, last)
        of_last = published.epoch == last
        begin, end = self.shown.first_windows[[self.first, self.step], 1]
        sent = self.shown.publishing.sent[begin:end]
        windows = self.shown.windows(published) - begin
        tags, tag = np.unique(published.what, return_inverse=True)
        truth = np.array([self.answers.user[number] for number in published.who[of_last].tolist()], np.int64)
        yield (
            "timing",
            relay_success.measure_publications(batch_disclosure.spread_over_senders(sent, windows[of_last]), truth),
        )
        usual = batch_disclosure.fit_profiles(
            sent, batch_disclosure.count_effects(windows, tag, (len(sent), tags.size))
        )
        given = batch_disclosure.match_senders(sent, windows[of_last], tag[of_last], usual)
        yield "matching", relay_success.measure_publications(given, truth)

    def proxy(self) -> Iterator[tuple[str, Found]]:
        """Attacks of the proxy on its own log. It knows its clients."""
        asked = self.shown.proxy.select(SUBSCRIBED, self.first, self.step - 1)
        names = tag_inference.name_tags(asked, self.there, self.popularity).topics_of(asked.what)
        wants = cross_table(asked.who, asked.what)[0]
        repeats = {"repeats": float(wants[:, wants.sum(axis=0) > 1].sum() / wants.sum())}
        yield "proxy-frequency", self._of_users(mark_interests(asked.who, names, self.people.reads.shape)) | repeats
        until = self.shown.proxy.before(self.step)
        known = linkage.link_bodies(until, self.people.users)
        yield "bodies", self._of_senders(known) | {"linked": float(known.sum() / len(until.select(DELIVERED)))}

    def wires(self) -> Iterator[tuple[str, Found]]:
        """Attacks by wires alone."""
        end = self.shown.first_windows[self.step, 1]
        sent, got = (seen[:end] for seen in self.shown.publishing)
        yield "disclosure", self._of_senders(batch_disclosure.fit_profiles(sent, got))

    def crowd(self) -> float:
        """Mean number of users that are seen to send in a window of publications in which any user does."""
        sent = self.shown.publishing.sent[: self.shown.first_windows[self.step, 1]]
        many = np.count_nonzero(sent, axis=1)
        return float(many[many > 0].mean())

    def _filters_hold(self) -> Floats:
        """Pseudonyms of the last epoch, in order, x topics: the words that their filters contain."""
        held, _, tags = cross_table(self.last.who, self.last.what)
        computed = self.answers.computed
        if self.service.profile == "hardened":
            return np.asarray(held @ tag_inference.find_words_in_tags(tags, computed), np.float64)
        shape = Geometry.sized(elements=self.topics, queries=1, bound=_BOUND)
        bits = np.zeros((len(held), shape.rows), np.bool_)
        row, column = np.nonzero(held)
        bits[row[:, None], _positions(shape, tags)[column]] = True
        return tag_inference.find_words_in_filters(bits, _positions(shape, computed)).astype(np.float64)

    def _named(self, asked: ServerLog) -> Numbers:
        """The topic of each subscription, as far as the server can tell; -1 where it cannot."""
        if self.service.profile == "paper":
            order = np.argsort(self.answers.computed)
            return TagNames(self.answers.computed[order], order).topics_of(asked.what)
        names = np.empty(len(asked), np.int64)
        for epoch in range(self.step):
            here = asked.epoch == epoch
            users = float(self.shown.present[epoch].sum())
            names[here] = tag_inference.name_tags(
                asked.select(SUBSCRIBED, epoch, epoch), users, self.popularity
            ).topics_of(asked.what[here])
        return names

    def _by_presence(self) -> Found:
        tastes, counts, tags = linkage.group_by_filter(self.asking, self.step)
        first = np.unique(self.asking.what, return_index=True)[1]
        topic = self._named(self.asking)[first]
        holds = np.zeros((tags.size, self.topics))
        holds[np.flatnonzero(topic >= 0), topic[topic >= 0]] = 1.0
        likely = linkage.assign_users(counts, self.shown.present[: self.step])
        return self._of_users(likely @ (tastes @ holds > 0))

    def _linked(self) -> Found:
        """Of the pairs of pseudonyms of the last two epochs that the server links, the share that belong to one
        user."""
        if self.step < 2:
            return {}
        both = self.shown.server.select(SUBSCRIBED, self.step - 2, self.step - 1)
        held, pseudonyms, _ = cross_table(both.who, both.what)
        new = np.isin(pseudonyms, self.last.who)
        owner = np.array([self.answers.user[number] for number in pseudonyms.tolist()])
        old, found = linkage.match_filters(held[~new], held[new])
        return {"linked": float(np.mean(owner[~new][old] == owner[new][found]))}

    def _of_pseudonyms(self, scores: Floats) -> Found:
        holds = np.zeros(scores.shape, np.bool_)
        holds[np.unique(self.last.who, return_inverse=True)[1], self._topics_of_last()] = True
        return relay_success.measure_subscriptions(scores, holds)

    def _of_names(self, names: TagNames) -> Found:
        people, row = np.unique(self.last.who, return_inverse=True)
        said = names.topics_of(self.last.what)
        scores, right = mark_interests(row, said, (people.size, self.topics)), said == self._topics_of_last()
        tags = np.unique(self.last.what, return_index=True)[1]
        # If two topics are confused, a user that wants both has neither of them named rightly.
        named = {"named": float(np.mean(right[tags])), "named_readers": float(np.mean(right))}
        return self._of_pseudonyms(scores) | named

    def _of_users(self, scores: Floats) -> Found:
        return relay_success.measure_users(scores, self.people.reads)

    def _of_senders(self, scores: Floats) -> Found:
        return relay_success.measure_links(scores, self.people.writes, self.people.reads)

    def _topics_of_last(self) -> Numbers:
        """The truth: the topic of each subscription of the last epoch."""
        tags = self.answers.topic[self.step - 1]
        order = np.argsort(tags)
        return order[np.searchsorted(tags[order], self.last.what)]


def _known_topics(params: RelayAttacks, data: Path | None) -> Mapping[str, NDArray[np.int32]]:
    """The readers of each topic, from the data folder or from the user's own file; empty if readers are drawn."""
    if own := file_path(params.subscriptions):
        found = load_subscriptions(Path(own).absolute(), None).topics
        number = {name: at for at, name in enumerate(sorted(set[str]().union(*found.values())))}
        return {topic: np.array([number[name] for name in names], np.int32) for topic, names in found.items()}
    return load_overlay(params.graph, data).topics if params.graph else {}


def _interests(params: RelayAttacks, seed: int, data: Path | None) -> tuple[Mask, Floats, Floats | None]:
    """Users x topics; the known popularity of topics, the most popular first; and of pairs of topics, if known."""
    topics = _known_topics(params, data)
    if topics:
        most = sorted(topics, key=lambda name: (-topics[name].size, name))[: params.topics]
        everybody = np.zeros((1 + max(int(topics[name].max()) for name in most), len(most)), np.bool_)
        for number, name in enumerate(most):
            everybody[topics[name], number] = True
        rng = np.random.default_rng(stream(seed, "users"))
        reads = everybody[rng.permutation(len(everybody))[: params.nodes]]
        shares = everybody.astype(np.float64)
        return reads, shares.mean(axis=0), shares.T @ shares / len(shares)
    popularity = topic_mix.zipf_popularity(params.topics, params.ratio)
    rng = np.random.default_rng(stream(seed, "readers"))
    reads = rng.random((params.nodes, params.topics)) < popularity
    if not reads.any():
        raise ConfigError("nobody reads anything; ratio is the share of users who read the most popular topic")
    return reads, popularity, None


def _order(service: RelayService, step: int, seed: int) -> float:
    """How well values are sorted: all values up to the step, or those of one epoch if tags change."""
    epochs = step if service.profile == "paper" else 1
    drawn = prefix_tags.draw_prefix_tags(_BITS, _VALUES * epochs, _RANGES * epochs, _WIDEST, seed)
    return measure_order(tag_inference.order_publications(drawn.asked, drawn.ranges), drawn.value)


def _positions(shape: Geometry, tags: Numbers) -> Numbers:
    return shape.positions([tag.to_bytes(8, "big") for tag in tags.tolist()], PUBLIC_KEY)


_WRITERS: Final = 3
"""Writers of each topic."""
_PUBLICATIONS: Final = 300.0
"""Publications in an epoch, of all topics together."""
_BOUND: Final = 0.001
"""Largest rate of false positives of a filter."""
_BITS: Final = 8
_VALUES: Final = 30
_RANGES: Final = 30
"""Publications and subscriptions of an attribute of `_BITS` bits, in an epoch."""
_WIDEST: Final = 0.2
