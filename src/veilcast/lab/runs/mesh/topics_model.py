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

The run writes tables, in which tokens change with every epoch, and the attackers of the registry guess from them
(`attack.insider.token_job`). The table `lasting_tokens` has the papers' tokens, for attackers on these alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.insider.token_attackers import FOLLOWED, IN_FIRST, IN_LAST, LINKED, NEXT
from veilcast.lab.attack.insider.token_job import guess_from_tokens
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.experiment.mesh_params import MeshTopics
from veilcast.lab.experiment.params import Measure
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.measure import definitions, ranking
from veilcast.lab.models import topic_mix
from veilcast.lab.models.coalition_view import insiders_table, write_insiders
from veilcast.lab.models.epochs import MeshPolicy
from veilcast.lab.models.rng import stream
from veilcast.lab.models.topic_mix import TokenObservations, TopicMix
from veilcast.lab.runs.mesh.epoch_setup import make_base_policy
from veilcast.lab.runs.mesh.epoch_tables import EPOCH_US, HOP_US, RUN, node_names
from veilcast.lab.runs.mesh.overlay_setup import draw_overlay, read_overlay

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def run(
    params: MeshTopics, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    # A hardened mesh keeps its root. With origin = "fresh" it does not, to measure what that would change.
    way = make_base_policy(msgspec.structs.replace(params, origin="kept"))
    if params.origin == "fresh":
        way = replace(way, origin="fresh")
    town, popularity, together = _settle_topics(params, seed, data)
    traces = topic_mix.observe_tokens(town, way, int(params.steps[-1]))
    tokens = TopicTables(town, way, traces, seed)
    observed, truth = tokens.observe(popularity, together), tokens.tabulate_truth()
    guesses = attack_tables(observed, params, (), data)
    record_tables(recorder, observed | {"truth": truth, "guesses": guesses})
    return measure_guesses(guesses, truth, params, (), seed)


def attack_tables(
    observed: Mapping[str, AnyTable], params: MeshTopics, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of all."""
    return guess_from_tokens(observed, names or None, [int(step) for step in params.steps])


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, params: MeshTopics, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attackers, or of all."""
    known = _TokenTruth(truth)
    return [
        Measure(attack, metric, step, value)
        for attack in pc.unique(guesses["attack"]).sort().to_pylist()
        if not names or attack in names
        for step in params.steps
        for metric, value in known.measure(guesses.filter(pc.equal(guesses["attack"], attack)), int(step)).items()
    ]


class _TokenTruth:
    """The topics of tokens, and their readers."""

    def __init__(self, truth: pa.Table) -> None:
        rows = {role: truth.filter(pc.equal(truth["role"], role)) for role in ("token", "subscriber", "member")}
        self._topic = dict(zip(rows["token"]["node"].to_pylist(), rows["token"]["topic"].to_pylist(), strict=True))
        self._topics = pc.unique(rows["token"]["topic"]).sort()
        self._users = pc.unique(rows["member"]["node"]).sort()
        self._reads = np.zeros((len(self._topics), len(self._users)), np.bool_)
        self._reads[self._places(rows["subscriber"], self._topics, self._users)] = True

    def measure(self, guesses: pa.Table, step: int) -> dict[str, float]:
        roles = pc.unique(guesses["role"]).to_pylist()
        own = {role: guesses.filter(pc.equal(guesses["role"], role)) for role in roles}
        now = {role: rows.filter(pc.equal(rows["epochs"], step)) for role, rows in own.items()}
        found: dict[str, float] = {}
        for role in (IN_FIRST, IN_LAST):
            if role in now:
                found |= self._measure_names(now[role])
        if step > 1 and NEXT in own:
            found |= self._measure_links(own[NEXT], own[LINKED], step)
        if step > 1 and FOLLOWED in now:
            right = [self._topic[old] == self._topic[new] for old, new in self._pairs(now[FOLLOWED])]
            found["followed"] = sum(right) / len(self._topics)
        if "subscriber" in now:
            found |= self._measure_readers(now["subscriber"])
        return found

    def _measure_names(self, rows: pa.Table) -> dict[str, float]:
        """The share of tokens that are named rightly, and of subscriptions to their topics."""
        readers = self._reads.sum(axis=1)
        right = [self._topics.index(topic).as_py() for topic, token in self._pairs(rows) if self._topic[token] == topic]
        return {
            "named": len(right) / len(self._topics),
            "named_readers": float(readers[right].sum() / readers.sum()),
            "base": 1 / len(self._topics),
        }

    def _measure_links(self, scored: pa.Table, linked: pa.Table, step: int) -> dict[str, float]:
        """How well tokens are found again in the next epoch, on average."""
        aucs, shares = [], []
        for epochs in range(2, step + 1):
            rows, links = (each.filter(pc.equal(each["epochs"], epochs)) for each in (scored, linked))
            old, new = (pc.unique(rows[name]).sort() for name in ("topic", "node"))
            similar = np.zeros((len(old), len(new)))
            similar[self._places(rows, old, new)] = rows["score"].to_numpy()
            topics = [np.array([self._topic[token] for token in names.to_pylist()]) for names in (old, new)]
            same = topics[0][:, None] == topics[1]
            aucs.append(ranking.auc(similar.reshape(-1), same.reshape(-1)))
            shares.append(np.mean([self._topic[one] == self._topic[other] for one, other in self._pairs(links)]))
        return {"auc": float(np.mean(aucs)), "linked": float(np.mean(shares)), "base": 1 / len(self._topics)}

    def _measure_readers(self, rows: pa.Table) -> dict[str, float]:
        """P2's third definition."""
        scores = np.zeros(self._reads.shape)
        scores[self._places(rows, self._topics, self._users)] = rows["score"].to_numpy()
        found = definitions.measure_subscription(scores.T, self._reads.T)
        return {
            "subscription": found.probability,
            "subscription_bound": found.bound,
            "subscription_prior": found.prior,
        }

    def _pairs(self, rows: pa.Table) -> Iterator[tuple[str, str]]:
        """The topics and nodes with a score."""
        kept = rows.filter(pc.greater(rows["score"], 0))
        return zip(kept["topic"].to_pylist(), kept["node"].to_pylist(), strict=True)

    def _places(self, rows: pa.Table, topics: pa.Array, nodes: pa.Array) -> tuple[Numbers, Numbers]:
        return pc.index_in(rows["topic"], topics).to_numpy(), pc.index_in(rows["node"], nodes).to_numpy()


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


class TopicTables:
    """The tables of a run. Tokens are numbered in an order drawn for each epoch, so their bytes tell no topic."""

    def __init__(self, town: TopicMix, way: MeshPolicy, traces: TokenObservations, seed: int) -> None:
        self._town, self._way, self._traces = town, way, traces
        self._graph, self._hostile = town.topics[0].graph, town.topics[0].insiders
        self._names = node_names(self._graph.nodes)
        self._nodes = pa.array(self._names)
        epochs, topics = traces.notes.shape
        rng = np.random.default_rng(stream(seed, "tokens"))
        order = np.array([rng.permutation(topics) for _ in range(epochs)])
        place = np.argsort(order, axis=1)
        self._token = [[_bytes(epoch, int(each)) for each in row] for epoch, row in enumerate(place)]
        """Epochs x topics."""
        self._lasting = [_bytes(0, int(each)) for each in place[0]]
        self._topics = tables.name_numbers("t", topics)

    def observe(self, popularity: Floats, together: Floats | None) -> dict[str, pa.Table]:
        """The tables that attackers read."""
        u, v = (self._take(ends) for ends in self._graph.edges())
        present = np.logical_and.reduce([view.present for view in self._traces.views])
        epoch, node = np.nonzero(present)
        facts = {"kept": float(self._way.parents == "kept"), "cover_share": self._way.kappa}
        if self._way.timing == "seen":
            facts["hop_us"] = float(HOP_US)
        cells = [(epoch, token, topic) for epoch, row in enumerate(self._token) for topic, token in enumerate(row)]
        epochs, tokens, topics = (list(column) for column in zip(*cells, strict=True))
        names = self._topics.take(pa.array(topics))
        origin = np.concatenate([[view.origin[at] for view in self._traces.views] for at in range(len(self._token))])
        found = {
            "topology": tables.from_columns("topology", run=RUN, epoch=0, u=u, v=v),
            "presence": tables.from_columns("presence", run=RUN, epoch=epoch, node=self._take(node)),
            "insiders": pa.concat_tables([self._heartbeats(), *map(self._see_topic, range(len(self._topics)))]),
            "roots": tables.from_columns(
                "roots",
                run=RUN,
                topic=[token.hex().upper() for token in tokens],
                epoch=epochs,
                node=self._take(origin),
            ),
            "facts": tables.from_columns("facts", run=RUN, name=[*facts], value=[*facts.values()]),
            "popularity": tables.from_columns("popularity", run=RUN, topic=self._topics, share=popularity),
            "tokens": tables.from_columns("tokens", run=RUN, epoch=epochs, token=tokens, topic=names),
            "lasting_tokens": tables.from_columns(
                "lasting_tokens",
                run=RUN,
                epoch=epochs,
                token=tokens,
                lasting=[self._lasting[topic] for topic in topics],
            ),
        }
        if together is not None:
            one, other = np.indices(together.shape).reshape(2, -1)
            pairs = {"topic": self._topics.take(pa.array(one)), "other": self._topics.take(pa.array(other))}
            found["pairs"] = tables.from_columns("pairs", run=RUN, **pairs, share=together.ravel())
        return found

    def tabulate_truth(self) -> pa.Table:
        """The topic of each token, the readers of each topic, and all honest nodes."""
        until_us = len(self._token) * EPOCH_US
        topic, reader = np.nonzero(self._town.reads.T)
        parts = [
            ("subscriber", self._topics.take(pa.array(topic)), self._take(reader), 0, until_us),
            ("member", "", self._take(np.flatnonzero(~self._hostile)), 0, until_us),
        ]
        for epoch, row in enumerate(self._token):
            hexed = pa.array([token.hex().upper() for token in row])
            parts.append(("token", self._topics, hexed, epoch * EPOCH_US, (epoch + 1) * EPOCH_US))
        return pa.concat_tables(
            [
                tables.from_columns(
                    "truth", run=RUN, topic=topics, node=nodes, role=role, since_us=since_us, until_us=end_us
                )
                for role, topics, nodes, since_us, end_us in parts
            ]
        )

    def _see_topic(self, topic: int) -> pa.Table:
        """What the coalition saw of one topic, under its tokens."""
        view = self._traces.views[topic]
        view = replace(view, delivered=np.maximum(self._traces.notes[:, topic], 0).astype(np.int32))
        seen = write_insiders(view, RUN, self._names, b"", start_us=0, epoch_us=EPOCH_US, hop_us=HOP_US)
        others = np.logical_and.reduce([each.present for each in self._traces.views])
        epoch, node = np.nonzero(view.present & ~others)
        every = np.arange(len(view.origin))
        whole = pa.concat_tables(
            [
                self._rows(every, "in:Advert", [""] * every.size),
                self._rows(epoch, "in:Present", self._take(node).to_pylist()),
                seen,
            ]
        ).combine_chunks()
        tokens = pa.array([row[topic] for row in self._token], pa.binary()).take(whole["epoch"])
        place = whole.column_names.index("token")
        return whole.set_column(place, whole.schema.field(place), tokens)

    def _rows(self, epoch: Numbers, kind: str, about: list[str]) -> pa.Table:
        """Rows of the first insider, at the beginning of epochs."""
        ours = np.full(epoch.size, np.flatnonzero(self._hostile)[0])
        return self._write(epoch, ours, kind, about)

    def _heartbeats(self) -> pa.Table:
        """Each insider notes its first heartbeat, so that the coalition knows its members."""
        ours = np.flatnonzero(self._hostile)
        return self._write(np.zeros(ours.size, np.int64), ours, "out:Heartbeat", "")

    def _write(self, epoch: Numbers, observer: Numbers, kind: str, about: list[str] | str) -> pa.Table:
        """Rows at the beginning of epochs, each with the first neighbour of its observer."""
        return insiders_table(
            RUN,
            self._nodes,
            b"",
            start_us=0,
            epoch_us=EPOCH_US,
            epoch=epoch,
            after_us=0,
            observer=observer,
            peer=self._graph.targets[self._graph.offsets[observer]],
            kind=kind,
            about=about,
        )

    def _take(self, nodes: NDArray[np.integer]) -> pa.Array:
        return self._nodes.take(pa.array(nodes))


def _bytes(epoch: int, place: int) -> bytes:
    return epoch.to_bytes(4, "big") + place.to_bytes(4, "big")


_NOTES: Final = 20.0
"""Mean number of notifications of a topic in an epoch."""
