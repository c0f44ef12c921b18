"""Coalitions on tables: rows of `insiders` give the scores that arrays give on the same views, on both engines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from support.small_population import make_population
from veilcast.crypto.hash_chain import advance_chain
from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.classifiers import fit_linear
from veilcast.lab.attack.insider import advert_origin, coalition_tables, publisher_evidence, swap_handover
from veilcast.lab.attack.insider.coalition_job import guess_from_coalition
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs, origin_distances
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.attack.insider.observations import CoalitionObservations, HeardAdverts, HeardChains, PublicKnowledge
from veilcast.lab.attack.registry import attackers_on, find_attacker
from veilcast.lab.attack.table_engine import AnyTable, ArrowEngine
from veilcast.lab.measure.disclosure_time import rounds_to_disclosure
from veilcast.lab.models.coalition_view import CoalitionView, watch_epochs, write_insiders
from veilcast.lab.models.epochs import MESH_POLICIES, Population
from veilcast.lab.models.graph import restrict_graph
from veilcast.lab.models.link_observations import ASKED, FOLLOWED, INVITED, RECRUITED, REFUSED
from veilcast.observe import (
    FactRow,
    InsiderRow,
    ObservationRow,
    PresenceRow,
    RootRow,
    TokenRow,
    TopologyRow,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    written = write_insiders(view, run, NAMES, b"t", start_us=0, epoch_us=EPOCH_US, hop_us=HOP_US).to_pylist()
    found: list[ObservationRow] = [InsiderRow(**row) for row in written if row["kind"] != "in:Notify"]
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


def tables_of(found: Sequence[ObservationRow]) -> dict[str, pa.Table]:
    kinds = (InsiderRow, TopologyRow, PresenceRow)
    return {
        tables.TABLE_OF[kind]: tables.from_rows(kind, [row for row in found if isinstance(row, kind)]) for kind in kinds
    }


@cache
def observed() -> dict[str, pa.Table]:
    roots = [
        RootRow(run, "", epoch, NAMES[int(node)]) for run in RUNS for epoch, node in enumerate(world(run).view.origin)
    ]
    facts = {"acting": KNOWN.acting, "kept": float(KNOWN.kept), "hop_us": HOP_US}
    return tables_of([row for run in RUNS for row in shown(run)]) | {
        "roots": tables.from_rows(RootRow, roots),
        "facts": tables.from_rows(
            FactRow, [FactRow(run, name, value) for run in RUNS for name, value in facts.items()]
        ),
    }


@pytest.fixture(scope="module", params=["arrow", pytest.param("spark", marks=pytest.mark.all_only)])
def guessed(request: pytest.FixtureRequest) -> Guessed:
    given: Mapping[str, AnyTable] = observed()
    if request.param == "spark":
        spark: SparkSession = request.getfixturevalue("spark")
        given = {name: spark.createDataFrame(table) for name, table in given.items()}
    answer = guess_from_coalition(given, epochs=(FEW, EPOCHS, 50))
    scores: Guessed = {}
    for row in (answer if isinstance(answer, pa.Table) else answer.toArrow()).to_pylist():
        scores.setdefault((row["run"], row["attack"], row["epochs"]), {})[row["node"]] = row["score"]
    return scores


def honest(run: str) -> NDArray[np.intp]:
    return np.flatnonzero(~world(run).people.insiders)


def fit(run: str, epoch: int) -> NDArray[np.float64]:
    people, view, _ = world(run)
    here = restrict_graph(people.graph, view.present[epoch] | people.insiders)
    values = [advance_chain(bytes(32), int(far(run)[epoch, w])) for w in view.peer]
    return advert_origin.score_trilateration(here, view.peer, values)


def spied(run: str, epoch: int) -> NDArray[np.float64]:
    here = world(run).adverts[world(run).adverts[:, 0] == epoch]
    return advert_origin.score_first_spy(here[:, 0], here[:, 2].astype(np.int32), here[:, 3].astype(np.float64), NODES)


def lasting(run: str, by_epoch: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """1 for the honest nodes that were first for five epochs in a row, as the measure of disclosure counts them."""
    so_far, found = np.cumsum(by_epoch, axis=0)[:, honest(run)], np.zeros(NODES)
    for place, node in enumerate(honest(run)):
        found[node] = rounds_to_disclosure(so_far, place) is not None
    return found


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
        "first-spy-lasting": lambda: lasting(run, [spied(run, epoch) for epoch in range(epochs)]),
        "trilateration-lasting": lambda: lasting(run, [fit(run, epoch) for epoch in range(epochs)]),
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
def test_tables_give_the_results_of_arrays(guessed: Guessed, run: str, attack: str) -> None:
    names = [NAMES[node] for node in honest(run)]
    for epochs in (FEW, EPOCHS):
        wanted = dict(zip(names, expected(run, attack, epochs).tolist(), strict=True))
        assert guessed[run, attack, epochs] == pytest.approx(wanted, abs=1e-9)


def test_the_kinds_of_messages_tell_the_events_of_a_link() -> None:
    kinds = {
        "asks": ["in:Subscribe", "in:Advert"],
        "was asked to come": ["out:Invite", "in:Subscribe"],
        "is followed": ["out:Subscribe"],
        "invites": ["in:Invite"],
        "declines": ["out:Invite", "in:Decline"],
        "says nothing": ["out:Invite", "in:Advert"],
        "takes it back": ["in:Subscribe", "in:Unsubscribe"],
        "comes back": ["in:Subscribe", "in:Unsubscribe", "in:Subscribe"],
    }
    made = [
        InsiderRow("r", 0, at, "x", peer, kind, b"", b"", b"", "")
        for peer, sent in kinds.items()
        for at, kind in enumerate(sent)
    ]
    made.append(InsiderRow("r", 0, 0, "y", "x", "in:Subscribe", b"", b"", b"", ""))
    rows = coalition_tables.name_topics(tables.from_rows(InsiderRow, made), None)
    honest_rows = coalition_tables.select_honest_peers(rows, coalition_tables.select_observers(rows))
    sights: pa.Table = coalition_tables.aggregate_sights(honest_rows)
    found = {row["peer"]: (row["sight"], row["t_us"]) for row in sights.to_pylist()}
    assert found == {
        "asks": (ASKED, 0),
        "was asked to come": (RECRUITED, 1),
        "is followed": (FOLLOWED, None),
        "invites": (INVITED, None),
        "declines": (REFUSED, None),
        "comes back": (ASKED, 0),
    }


def random_insiders(seed: int) -> Iterator[InsiderRow]:
    """Few names and few times, so that much happens at once."""
    rng = random.Random(seed)
    for _ in range(60):
        names = rng.choice("abc"), rng.choice("abcdefg")
        message, token, chain = (bytes(rng.choices(b"xy", k=rng.randrange(3))) for _ in range(3))
        kind, about = rng.choice(KINDS), rng.choice(["", "climbs", "c"])
        yield InsiderRow(f"run {seed}", rng.randrange(2), rng.randrange(3), *names, kind, message, token, chain, about)


def relations(insiders: AnyTable, tokens: AnyTable) -> dict[str, Any]:
    named = coalition_tables.name_topics(insiders, tokens)
    ours = coalition_tables.select_observers(insiders)
    honest_rows = coalition_tables.select_honest_peers(named, ours)
    return {
        "without tokens": coalition_tables.name_topics(insiders, None),
        "by bytes": coalition_tables.name_tokens(insiders),
        "named": named,
        "ours": ours,
        "honest": honest_rows,
        "sights": coalition_tables.aggregate_sights(honest_rows),
        "first times": coalition_tables.first_times(named),
        "own origins": coalition_tables.own_origins(named),
        "first adverts": coalition_tables.select_first_adverts(honest_rows),
        "first chains": coalition_tables.select_first_chains(honest_rows),
        "handed names": coalition_tables.select_handed_names(named),
        "stems": coalition_tables.select_stems(named),
        "notes": coalition_tables.count_notifications(named),
    }


def test_relations_have_the_same_rows_and_types_on_both_engines(spark: SparkSession) -> None:
    """Over the random messages of forty runs."""
    insiders = tables.from_rows(InsiderRow, [row for seed in range(40) for row in random_insiders(seed)])
    known = [
        TokenRow(f"run {seed}", epoch, token, topic)
        for seed in range(40)
        for epoch in range(2)
        for token, topic in ((b"x", "one"), (b"yx", "two"))
    ]
    tokens = tables.from_rows(TokenRow, known)
    here = relations(insiders, tokens)
    there = relations(spark.createDataFrame(insiders), spark.createDataFrame(tokens))
    for name, relation in here.items():
        table, other = ArrowEngine().query("SELECT * FROM {it}", it=relation), there[name].toArrow()
        assert len(table), name
        assert table.column_names == other.column_names, name
        assert table.schema.types == other.schema.types, name
        ordered = [sorted(zip(*each.to_pydict().values(), strict=True), key=repr) for each in (table, other)]
        assert ordered[0] == ordered[1], name


def test_an_unknown_or_untrained_attack_is_refused() -> None:
    nothing = tables_of([])
    with pytest.raises(ConfigError, match="no attack from inside is called 'wishing'"):
        guess_from_coalition(nothing, ["wishing"])
    with pytest.raises(ConfigError, match="linear is a trained attack"):
        guess_from_coalition(nothing, ["linear"])


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


def test_messages_of_an_epoch_without_presence_stay_in_it() -> None:
    """Those of the epoch in the middle, and of the last."""
    rows = [row for row in shown("H") if not isinstance(row, PresenceRow) or row.epoch not in (2, EPOCHS - 1)]
    found: pa.Table = guess_from_coalition(tables_of(rows), ["first-spy"], (2, 3, EPOCHS))
    told = {(row["epochs"], row["node"]): row["score"] for row in found.to_pylist()}
    for epochs in (2, 3, EPOCHS):
        names = [NAMES[node] for node in honest("H")]
        assert [told[epochs, name] for name in names] == pytest.approx(expected("H", "first-spy", epochs))


KINDS = [
    f"{way}:{kind}"
    for way in ("in", "out")
    for kind in ("Advert", "Subscribe", "Unsubscribe", "Invite", "Decline", "Stem", "Notify", "SwapAsk", "SwapCommit")
]
