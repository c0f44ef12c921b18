"""Runs of a relay on the kernels: what its server, its proxy, and whoever watches its clients' wires make of it.

Each attacker has what it saw in the epochs up to a step. The server alone: "dictionary" tries all words against the
filters, "tag-frequency" names tags by how many subscribe (and "-pairs" by what goes together, where the data tell),
"oracle" asks as a user, as often as it may, and "order" sorts the tags of values. With an eye on the wires it links
users by when they are there ("filter-intersection"), and by the windows in which they subscribe
("timing-subscriptions") and publish: as one of those who sent then ("timing"), or as the one who usually sends such
("matching"). The proxy alone names its own clients' tags ("proxy-frequency") and recognises bodies ("bodies"). Wires
alone tell who publishes for whom ("disclosure").

What comes of it is said by `measure.relayed`, with P2's definitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.server import batch_disclosure, linkage, tag_inference
from veilcast.lab.attack.server.tag_inference import TagNames, mark_interests
from veilcast.lab.data import load_overlay
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure import relay_success
from veilcast.lab.measure.relay_success import measure_order
from veilcast.lab.models import prefix_tags, relay, topic_mix
from veilcast.lab.models.relay import RelayObservations, RelayService, RelayTruth, RelayUsers
from veilcast.lab.models.rng import stream
from veilcast.lab.models.server_log import DELIVERED, PUBLISHED, SUBSCRIBED, Numbers, ServerLog, cross_table
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
        desk = _Desk(people, service, shown, answers, popularity, together, int(step))
        told = {
            "server": desk.server(params.queries),
            "proxy": desk.proxy(),
            "wires": desk.wires(),
            "server and wires": desk.watching(),
        }
        for attack, learnt in itertools.chain.from_iterable(told[observer] for observer in params.observers):
            found += [Measure(attack, metric, step, value) for metric, value in learnt.items()]
        if "server" in params.observers:
            found.append(Measure("order", "recovered", step, _order(service, int(step), seed)))
        found.append(Measure("", "window", step, desk.crowd()))
    return found


class _Desk:
    """Where what was seen up to a step is laid out, and held against the truth."""

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
        # Tags that change are worth what one epoch of them is.
        self.first = 0 if service.profile == "paper" else step - 1
        self.topics = popularity.size
        self.counted = shown.server.select(SUBSCRIBED, self.first, step - 1)
        self.asking = shown.server.select(SUBSCRIBED, 0, step - 1)
        self.last = shown.server.select(SUBSCRIBED, step - 1, step - 1)
        self.there = float(shown.present[self.first : step].sum())

    def server(self, queries: int) -> Iterator[tuple[str, Found]]:
        """What the server makes of its own ledger, for the subscriptions of the last epoch."""
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
        """What the server makes of it with an eye on the wires."""
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
        """What the proxy makes of its own ledger, knowing its clients."""
        asked = self.shown.proxy.select(SUBSCRIBED, self.first, self.step - 1)
        names = tag_inference.name_tags(asked, self.there, self.popularity).topics_of(asked.what)
        wants = cross_table(asked.who, asked.what)[0]
        repeats = {"repeats": float(wants[:, wants.sum(axis=0) > 1].sum() / wants.sum())}
        yield "proxy-frequency", self._of_users(mark_interests(asked.who, names, self.people.reads.shape)) | repeats
        until = self.shown.proxy.before(self.step)
        known = linkage.link_bodies(until, self.people.users)
        yield "bodies", self._of_senders(known) | {"linked": float(known.sum() / len(until.select(DELIVERED)))}

    def wires(self) -> Iterator[tuple[str, Found]]:
        """What wires alone tell."""
        end = self.shown.first_windows[self.step, 1]
        sent, got = (seen[:end] for seen in self.shown.publishing)
        yield "disclosure", self._of_senders(batch_disclosure.fit_profiles(sent, got))

    def crowd(self) -> float:
        """How many users are seen to send in a window of publications in which anybody does."""
        sent = self.shown.publishing.sent[: self.shown.first_windows[self.step, 1]]
        many = np.count_nonzero(sent, axis=1)
        return float(many[many > 0].mean())

    def _filters_hold(self) -> Floats:
        """Pseudonyms of the last epoch, in order, x topics, by the words that their filters hold."""
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
        """By subscription its topic, as well as the server can tell; -1 where it cannot."""
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
        """How many pairs of pseudonyms of the last two epochs are of one user, of those that are held to be."""
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
        # Who wants two topics that are taken for one another has neither of them named, though it wants both.
        named = {"named": float(np.mean(right[tags])), "named_readers": float(np.mean(right))}
        return self._of_pseudonyms(scores) | named

    def _of_users(self, scores: Floats) -> Found:
        return relay_success.measure_users(scores, self.people.reads)

    def _of_senders(self, scores: Floats) -> Found:
        return relay_success.measure_links(scores, self.people.writes, self.people.reads)

    def _topics_of_last(self) -> Numbers:
        """The truth: by subscription of the last epoch."""
        tags = self.answers.topic[self.step - 1]
        order = np.argsort(tags)
        return order[np.searchsorted(tags[order], self.last.what)]


def _interests(params: RelayAttacks, seed: int, data: Path | None) -> tuple[Mask, Floats, Floats | None]:
    """Users x topics; how popular topics are known to be, the most popular first; and pairs of them, if known."""
    if params.graph == "deezer":
        topics = load_overlay("deezer", data).topics
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
    """Of values that came by the step, or in one epoch if tags change."""
    epochs = step if service.profile == "paper" else 1
    drawn = prefix_tags.draw_prefix_tags(_BITS, _VALUES * epochs, _RANGES * epochs, _WIDEST, seed)
    return measure_order(tag_inference.order_publications(drawn.asked, drawn.ranges), drawn.value)


def _positions(shape: Geometry, tags: Numbers) -> Numbers:
    return shape.positions([tag.to_bytes(8, "big") for tag in tags.tolist()], PUBLIC_KEY)


_WRITERS: Final = 3
"""Of each topic."""
_PUBLICATIONS: Final = 300.0
"""In an epoch, of all topics together."""
_BOUND: Final = 0.001
"""Of a filter's wrong answers."""
_BITS: Final = 8
_VALUES: Final = 30
_RANGES: Final = 30
"""Publications and subscriptions of an attribute with so many bits, in an epoch."""
_WIDEST: Final = 0.2
