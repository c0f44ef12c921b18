"""Coalitions over frames: rows of `insiders` give the scores of the array attackers on the same views."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from support.small_population import make_population
from veilcast.crypto.hash_chain import advance_chain
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.classifiers import fit_linear
from veilcast.lab.attack.insider import advert_origin, coalition_tables, publisher_evidence, spark_job, swap_handover
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs, origin_distances
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.attack.insider.observations import CoalitionObservations, HeardAdverts, HeardChains, PublicKnowledge
from veilcast.lab.attack.registry import attackers_on, find_attacker
from veilcast.lab.models.coalition_view import CoalitionView, insider_rows, watch_epochs
from veilcast.lab.models.epochs import MESH_POLICIES, Population
from veilcast.lab.models.link_observations import ASKED, FOLLOWED, INVITED, RECRUITED, REFUSED
from veilcast.observe import InsiderRow, ObservationRow, PresenceRow, TopologyRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES, EPOCHS, FEW, HOP_US, EPOCH_US = 60, 6, 2, 1_000, 1_000_000
NAMES = [f"n{number:02}" for number in range(NODES)]
KNOWN = PublicKnowledge(acting=0.1, kept=True)
TOGETHER = [each.name for each in attackers_on(CoalitionObservations) if not each.trained and not each.lone]
RUNS = {"SG": MESH_POLICIES["SG"], "H": replace(MESH_POLICIES["H"], timing="seen")}


Guessed = dict[tuple[str, str, int], dict[str, float]]
"""Scores of nodes by run, attack and number of epochs."""


class World(NamedTuple):
    people: Population
    view: CoalitionView
    adverts: NDArray[np.int64]
    """Rows (epoch, observer, peer, time) of an advert in each epoch."""


@cache
def world(run: str) -> World:
    people = make_population(NODES, 8, 0.15, 0.1, 5)
    view = watch_epochs(people, RUNS[run], EPOCHS)
    rng = np.random.default_rng(1)
    adverts = [
        (epoch, x, w, rng.integers(4)) for epoch in range(EPOCHS) for x, w in zip(view.observer, view.peer, strict=True)
    ]
    return World(people, view, np.array(adverts))


def shown(run: str) -> Iterator[ObservationRow]:
    """All tables of a run, in one order of many."""
    people, view, adverts = world(run)
    found: list[ObservationRow] = list(
        insider_rows(view, run, NAMES, b"t", start_us=0, epoch_us=EPOCH_US, hop_us=HOP_US)
    )
    for epoch, x, w, time in adverts.tolist():
        at_us, chain = epoch * EPOCH_US + time, advance_chain(bytes(32), int(far(run)[epoch, w]))
        found.append(InsiderRow(run, epoch, at_us, NAMES[x], NAMES[w], "in:Advert", b"%d" % epoch, b"t", chain, ""))
    some = NAMES[int(view.observer[0])]
    found += [
        InsiderRow(run, epoch, epoch * EPOCH_US, some, NAMES[0], "in:Notify", b"note", b"t", b"", "")
        for epoch in range(0, EPOCHS, 2)
    ]
    random.Random(3).shuffle(found)
    yield from found
    for epoch in range(EPOCHS):
        yield from (TopologyRow(run, epoch, NAMES[u], NAMES[v]) for u, v in zip(*people.graph.edges(), strict=True))
        yield from (PresenceRow(run, epoch, NAMES[node]) for node in np.flatnonzero(view.present[epoch]))


def far(run: str) -> NDArray[np.int32]:
    people, view, _ = world(run)
    return origin_distances(people.graph, view)


def frame(spark: SparkSession, kind: type[ObservationRow], found: list[ObservationRow]) -> DataFrame:
    return spark.createDataFrame(tables.from_rows(kind, [row for row in found if isinstance(row, kind)]))


@pytest.fixture(scope="module")
def guessed(spark: SparkSession) -> Guessed:
    found = [row for run in RUNS for row in shown(run)]
    given = [frame(spark, kind, found) for kind in (InsiderRow, TopologyRow, PresenceRow)]
    roots = [(run, "", epoch, NAMES[int(node)]) for run in RUNS for epoch, node in enumerate(world(run).view.origin)]
    public = spark.createDataFrame(roots, "run string, topic string, epoch bigint, node string")
    answer = spark_job.guess_from_coalition(*given, epochs=(FEW, EPOCHS, 50), known=KNOWN, roots=public, hop_us=HOP_US)
    scores: Guessed = {}
    for row in answer.collect():
        scores.setdefault((row["run"], row["attack"], row["epochs"]), {})[row["node"]] = row["score"]
    return scores


def honest(run: str) -> NDArray[np.intp]:
    return np.flatnonzero(~world(run).people.insiders)


def fit(run: str, epoch: int) -> NDArray[np.float64]:
    people, view, _ = world(run)
    heard = np.unique(view.peer)
    return advert_origin.score_trilateration(
        people.graph, heard, [advance_chain(bytes(32), int(far(run)[epoch, w])) for w in heard]
    )


def expected(run: str, attack: str, epochs: int) -> NDArray[np.float64]:
    people, view, adverts = world(run)
    graph, seen = people.graph, view.first_epochs(epochs)
    early = adverts[adverts[:, 0] < epochs]
    peer, time = early[:, 2].astype(np.int32), early[:, 3].astype(np.float64)
    answers: dict[str, Callable[[], NDArray[np.float64]]] = {
        "group-testing": lambda: infer_beliefs(build_group_tests(graph, seen, kept=KNOWN.kept), NODES, KNOWN.acting),
        "handed": lambda: swap_handover.score_handover(graph, seen, origin_distances(graph, seen)),
        "first-spy": lambda: advert_origin.score_first_spy(early[:, 0], peer, time, NODES),
        "trilateration": lambda: np.mean([fit(run, epoch) for epoch in range(epochs)], axis=0),
        "predecessor": lambda: publisher_evidence.score_stems(
            graph,
            view.stem_passages[view.stem_passages[:, 0] < epochs],
            people.insiders,
            origin_distances(graph, seen),
            KNOWN.onward,
            kept=KNOWN.kept,
        ),
        "presence": lambda: publisher_evidence.score_presence(seen.present, np.arange(epochs) % 2 == 0),
        "sender": lambda: publisher_evidence.score_stems_and_presence(
            graph,
            seen,
            view.stem_passages[view.stem_passages[:, 0] < epochs],
            (np.arange(epochs) % 2 == 0).astype(np.int64),
            onward=KNOWN.onward,
        ),
    }
    return answers[attack]()[honest(run)]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("attack", TOGETHER)
def test_frames_give_the_results_of_arrays(guessed: Guessed, run: str, attack: str) -> None:
    names = [NAMES[node] for node in honest(run)]
    for epochs in (FEW, EPOCHS):
        wanted = dict(zip(names, expected(run, attack, epochs).tolist(), strict=True))
        assert guessed[run, attack, epochs] == pytest.approx(wanted, abs=1e-9)


def test_the_kinds_of_messages_tell_the_events_of_a_link(spark: SparkSession) -> None:
    kinds = {
        "asks": ["in:Subscribe", "in:Advert"],
        "was asked to come": ["out:Invite", "in:Subscribe"],
        "is followed": ["out:Subscribe"],
        "invites": ["in:Invite"],
        "declines": ["out:Invite", "in:Decline"],
        "says nothing": ["out:Invite", "in:Advert"],
    }
    made = [
        InsiderRow("r", 0, at, "x", peer, kind, b"", b"", b"", "")
        for peer, sent in kinds.items()
        for at, kind in enumerate(sent)
    ]
    made.append(InsiderRow("r", 0, 0, "y", "x", "in:Subscribe", b"", b"", b"", ""))
    named = frame(spark, InsiderRow, list(made)).selectExpr("*", "'' as topic")
    found = {
        row["peer"]: (row["sight"], row["t_us"])
        for row in coalition_tables.aggregate_sights(coalition_tables.select_honest_peers(named)).collect()
    }
    assert found == {
        "asks": (ASKED, 0),
        "was asked to come": (RECRUITED, 1),
        "is followed": (FOLLOWED, None),
        "invites": (INVITED, None),
        "declines": (REFUSED, None),
    }


def test_an_unknown_or_untrained_attack_is_refused(spark: SparkSession) -> None:
    nothing = frame(spark, InsiderRow, [])
    with pytest.raises(ConfigError, match="no attack from inside is called 'wishing'"):
        spark_job.guess_from_coalition(nothing, nothing, nothing, attacks=["wishing"])
    with pytest.raises(ConfigError, match="linear is a trained attack"):
        spark_job.guess_from_coalition(nothing, nothing, nothing, attacks=["linear"])


def test_a_short_run_uses_the_training_for_the_next_larger_number_of_epochs() -> None:
    people, view, _ = world("H")
    belief = infer_beliefs(build_group_tests(people.graph, view, kept=KNOWN.kept), NODES, KNOWN.acting)
    shown = extract_node_features(people.graph, view, belief)
    learned, other = (fit_linear(shown, np.isin(np.arange(NODES), those)) for those in (people.subscribers, [1, 2, 3]))
    known = replace(KNOWN, trained={("linear", 1): other, ("linear", 20): learned, ("linear", 50): other})
    nobody, nothing = np.empty(0, np.int32), np.empty(0, np.int64)
    adverts, chains = HeardAdverts(nothing, nothing, nobody), HeardChains(nothing, nobody, [])
    coalition = CoalitionObservations(
        people.graph, people.insiders, view, view.stem_passages, adverts, chains, view.delivered.astype(np.int64)
    )
    linear = find_attacker("linear", CoalitionObservations)
    assert linear.score(replace(coalition, known=known)) == pytest.approx(learned.scores(shown))


def test_messages_of_an_epoch_without_presence_stay_in_it(spark: SparkSession) -> None:
    """Those of the epoch in the middle, and of the last."""
    rows = [row for row in shown("H") if not isinstance(row, PresenceRow) or row.epoch not in (2, EPOCHS - 1)]
    given = [frame(spark, kind, rows) for kind in (InsiderRow, TopologyRow, PresenceRow)]
    found = spark_job.guess_from_coalition(*given, attacks=["first-spy"], epochs=(2, 3, EPOCHS)).collect()
    told = {(row["epochs"], row["node"]): row["score"] for row in found}
    for epochs in (2, 3, EPOCHS):
        names = [NAMES[node] for node in honest("H")]
        assert [told[epochs, name] for name in names] == pytest.approx(expected("H", "first-spy", epochs))
