"""The registry of attackers: every attacker of the lab once, with its name, its observations, and its target role.

An attacker is one function from observations to scores. `observes` is the class of these observations; an attacker on a
base class serves every subclass: there is one formula for one name and role on related observations. Sweeps, audits,
benches, the live runs and the Spark jobs take their attackers from here. A new attacker is a function and an entry in
this table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack import combined
from veilcast.lab.attack.insider import attackers as insider
from veilcast.lab.attack.insider import lone_insider, tree_nodes
from veilcast.lab.attack.insider import token_attackers as tokens
from veilcast.lab.attack.insider.coalition_tables import ADVERTS, CHAINS, NOTES, ORIGINS, SIGHTS, STEMS
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.insider.token_attackers import TokenObservations
from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.observer import attackers as observer
from veilcast.lab.attack.observer import heartbeat_pairs
from veilcast.lab.attack.observer.clock_skew import ESTIMATORS, LinkCells, score_link
from veilcast.lab.attack.observer.heartbeat_pairs import HeartbeatObservations
from veilcast.lab.attack.observer.observations import CaptureObservations, EpochObservations, WireObservations
from veilcast.lab.attack.server import attackers as relay
from veilcast.lab.attack.server import lease_times
from veilcast.lab.attack.server.lease_times import LeaseTimes
from veilcast.lab.attack.server.observations import (
    ANSWERS,
    BODIES,
    PAIRS,
    POPULARITY,
    PRESENCE,
    PROXY,
    SUBSCRIPTIONS,
    WIRES,
    WORDS,
    ServerObservations,
)
from veilcast.lab.attack.stream import many_steps, pedigrees, single_step, trained
from veilcast.lab.attack.stream.model import Candidates, Posterior, StreamModel, StreamObservations

Observed = TypeVar("Observed")
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Attacker(Generic[Observed]):
    name: str
    role: str
    """Role that it looks for: `subscriber`, `publisher`, `member` of the mesh, a `machine` by its clock, two leases of
    one member (`lease`), or `truth` among the candidates of a stream."""
    observes: type[Observed]
    score: Callable[[Observed], Scores]
    """Scores by node; topics x nodes if the attacker tells topics apart; probabilities of candidates for a stream."""
    needs: tuple[str, ...] = ()
    """Parts of the observations that it reads: tables of a capture or a coalition, fields of a stream's model."""
    lone: bool = False
    """Whether it is for a single insider that has no coalition."""
    trained: bool = False
    """Whether it needs training on networks of the attacker's own."""
    online: bool = True
    """Whether it judges a step of a stream without looking at later steps."""

    def score_topics(self, observed: Observed) -> Scores:
        """Topics x nodes; one row if the attacker cannot tell topics apart."""
        return np.atleast_2d(self.score(observed))


def attackers_on(
    observes: type[Observed], names: Collection[str] | None = None, *, called: str = "attack"
) -> list[Attacker[Observed]]:
    """The attackers on these observations, in the order of the table; only those with these names, if any are given.
    An attacker from outside the package is among them only if it is named.

    Raises `ConfigError`, with the known names, for a name that no attacker on these observations has.
    """
    offered = ATTACKERS if names is None else (*ATTACKERS, *FOREIGN.values())
    found = [each for each in offered if issubclass(observes, each.observes)]
    for name in names or ():
        if all(each.name != name for each in found):
            known = ", ".join(dict.fromkeys(each.name for each in found))
            raise ConfigError(f"no {called} is called {name!r}; there are {known}")
    return [each for each in found if names is None or each.name in names]


def find_attacker(name: str, *observes: type[Any]) -> Attacker[Any]:
    """The first attacker of this name on any of these observations."""
    for each in (*ATTACKERS, *FOREIGN.values()):
        if each.name == name and any(issubclass(kind, each.observes) for kind in observes):
            return each
    raise ConfigError(f"no attack on these observations is called {name!r}")


def find_needs(attackers: Iterable[Attacker[Any]], parts: Iterable[str]) -> set[str]:
    """The parts of observations that any of these attackers reads; all `parts` if one does not say what it reads."""
    return {need for each in attackers for need in each.needs or parts}


def attack_names(observes: type[Any]) -> tuple[str, ...]:
    """Those of the package, and those from outside that are installed."""
    own = (each.name for each in FOREIGN.values() if issubclass(observes, each.observes))
    return tuple(dict.fromkeys((*(each.name for each in attackers_on(observes)), *own)))


def score_candidates(name: str, candidates: Candidates, model: StreamModel) -> Posterior:
    """The posterior of a stream attacker over these candidates.

    Raises `ConfigError` for malformed candidates, for an unknown name, and for a model without what it needs.
    """
    attacker = find_attacker(name, StreamObservations)
    if candidates.ndim != 3 or 0 in candidates.shape or not np.isfinite(candidates).all():
        raise ConfigError("candidates are finite numbers of [streams, steps, n], some of each")
    if not applies(attacker, model):
        raise ConfigError(f"this attacker needs to know {' and '.join(attacker.needs)}")
    return attacker.score(StreamObservations(np.ascontiguousarray(candidates, np.float64), model))


def applies(attacker: Attacker[Any], known: object) -> bool:
    """Whether a stream's model, or a tree's observations, hold all that the attacker needs."""
    return all(getattr(known, need) is not None for need in attacker.needs)


def _on_wires(
    name: str, role: str, observes: type[Observed], score: Callable[[Observed], Scores], *needs: str
) -> Attacker[Observed]:
    return Attacker(name, role, observes, score, needs or (WAVES,))


def _of_coalition(
    name: str, role: str, score: Callable[[CoalitionObservations], Scores], *needs: str, **kind: bool
) -> Attacker[CoalitionObservations]:
    return Attacker(name, role, CoalitionObservations, score, needs, **kind)


def _of_tree(
    name: str, role: str, score: Callable[[TreeObservations], Scores], *needs: str
) -> Attacker[TreeObservations]:
    return Attacker(name, role, TreeObservations, score, needs)


def _on_tokens(
    name: str, role: str, score: Callable[[TokenObservations], Scores], *needs: str
) -> Attacker[TokenObservations]:
    return Attacker(name, role, TokenObservations, score, needs)


def _at_relay(
    name: str, role: str, score: Callable[[ServerObservations], Scores], *needs: str
) -> Attacker[ServerObservations]:
    return Attacker(name, role, ServerObservations, score, needs)


def _on_stream(
    name: str, score: Callable[[Candidates, StreamModel], Posterior], *needs: str, online: bool = True
) -> Attacker[StreamObservations]:
    return Attacker(name, "truth", StreamObservations, lambda seen: score(*seen), needs, online=online)


SUBSCRIBER: Final = "subscriber"
PUBLISHER: Final = "publisher"
MEMBER: Final = "member"
LEASE: Final = "lease"
MACHINE: Final = "machine"

WAVES: Final = "notes"
ACTIVITY: Final = "activity"
CADENCE: Final = "cadence"
VOLUMES: Final = "volumes"
DEPARTURES: Final = "departures"
WINDOWS: Final = "windows"
FORMATION: Final = "formation"
"""Parts of what a global observer sees, beside the overlay: `ACTIVITY` is what nodes received in rounds, `DEPARTURES`
what they sent."""
PUBLISHED: Final = "published"
"""Times of publications, for an observer that is a subscriber."""

_WIRES: Final[tuple[Attacker[Any], ...]] = (
    _on_wires("leaf", SUBSCRIBER, WireObservations, observer.score_leaf),
    _on_wires("majority", SUBSCRIBER, WireObservations, observer.score_majority),
    _on_wires("persistence", SUBSCRIBER, WireObservations, observer.score_persistence),
    _on_wires("closure", SUBSCRIBER, WireObservations, observer.score_closure),
    _on_wires("centrality", SUBSCRIBER, WireObservations, observer.score_centrality),
    _on_wires("intersection", SUBSCRIBER, WireObservations, observer.score_intersection),
    _on_wires("disclosure", SUBSCRIBER, WireObservations, observer.score_disclosure, ACTIVITY),
    _on_wires("least-squares", SUBSCRIBER, WireObservations, observer.score_least_squares, ACTIVITY),
    _on_wires("cadence", SUBSCRIBER, CaptureObservations, observer.score_cadence_of_subscribers, CADENCE),
    _on_wires("late-join", SUBSCRIBER, WireObservations, observer.score_late_join, WAVES, FORMATION),
    _on_wires("survivor", SUBSCRIBER, WireObservations, observer.score_survivor, WAVES, FORMATION),
    _on_wires("mesh-members", MEMBER, EpochObservations, observer.mark_members),
    _on_wires("closure-certain", SUBSCRIBER, EpochObservations, observer.mark_certain_subscribers),
    _on_wires("flow-source", PUBLISHER, WireObservations, observer.score_flow_source),
    _on_wires("roots", PUBLISHER, WireObservations, observer.score_roots),
    _on_wires("rumor", PUBLISHER, WireObservations, observer.score_rumor),
    _on_wires("cadence", PUBLISHER, CaptureObservations, observer.score_cadence_of_publishers, CADENCE),
    _on_wires("flow-correlation", SUBSCRIBER, CaptureObservations, observer.score_followers, VOLUMES),
    _on_wires("flow-correlation", PUBLISHER, CaptureObservations, observer.score_leaders, VOLUMES),
    _on_wires(
        "disclosure",
        PUBLISHER,
        CaptureObservations,
        observer.score_disclosure_of_publishers,
        ACTIVITY,
        DEPARTURES,
        PUBLISHED,
    ),
    *(
        Attacker(name, role, CaptureObservations, partial(score, role=role), (WINDOWS,), trained=True)
        for role in (SUBSCRIBER, PUBLISHER)
        for name, score in (
            ("cadence-linear", observer.score_cadence_linear),
            ("cadence-binned", observer.score_cadence_binned),
        )
    ),
)
_COALITIONS: Final = (
    _of_coalition("group-testing", SUBSCRIBER, insider.score_group_tests, SIGHTS, ORIGINS),
    _of_coalition("linear", SUBSCRIBER, insider.score_linear, SIGHTS, ORIGINS, trained=True),
    _of_coalition("binned", SUBSCRIBER, insider.score_binned, SIGHTS, ORIGINS, trained=True),
    _of_coalition("handed", SUBSCRIBER, insider.score_handover, SIGHTS, ORIGINS),
    _of_coalition("first-spy", PUBLISHER, insider.score_first_spy, ADVERTS),
    _of_coalition("trilateration", PUBLISHER, insider.score_trilateration, CHAINS),
    _of_coalition("first-spy-lasting", PUBLISHER, insider.mark_lasting_first_spy, ADVERTS),
    _of_coalition("trilateration-lasting", PUBLISHER, insider.mark_lasting_trilateration, CHAINS),
    _of_coalition("predecessor", PUBLISHER, insider.score_predecessor, STEMS, ORIGINS),
    _of_coalition("presence", PUBLISHER, insider.score_presence, NOTES),
    _of_coalition("sender", PUBLISHER, insider.score_stems_and_presence, STEMS, ORIGINS, NOTES),
    _of_coalition("pruning", SUBSCRIBER, insider.score_pruned_branches, SIGHTS, ORIGINS, lone=True),
    _of_coalition("pruning-timed", SUBSCRIBER, insider.score_timed_branches, SIGHTS, ORIGINS, lone=True),
    _of_coalition("pruning", PUBLISHER, lone_insider.score_publisher_by_first_advert, ADVERTS, lone=True),
    _of_coalition("pruning-chains", PUBLISHER, lone_insider.score_publisher_by_chains, CHAINS, lone=True),
)
_TREES: Final = (
    _of_tree("count", SUBSCRIBER, tree_nodes.score_parents),
    _of_tree("lasting", SUBSCRIBER, tree_nodes.score_lasting_parents),
    _of_tree("disclosed", SUBSCRIBER, tree_nodes.score_disclosed),
    _of_tree("depth", SUBSCRIBER, lambda seen: tree_nodes.score_depth(seen.entries, seen.nodes)),
    _of_tree("volume", SUBSCRIBER, lambda seen: tree_nodes.score_volume(seen.entries, seen.nodes)),
    _of_tree("likelihood", SUBSCRIBER, tree_nodes.score_known_shape, "branching"),
    _of_tree("guards", SUBSCRIBER, tree_nodes.score_known_chain, "places"),
    _of_tree("path", SUBSCRIBER, tree_nodes.score_paths, "paths"),
    _of_tree("origin", PUBLISHER, lambda seen: tree_nodes.score_never_handed(seen.entries, seen.nodes)),
)
_TOKENS: Final = (
    _on_tokens("token-frequency", tokens.IN_FIRST, tokens.name_lasting, "lasting"),
    _on_tokens("token-frequency", SUBSCRIBER, tokens.score_readers_of_guessed, "lasting"),
    _on_tokens("token-frequency-once", tokens.IN_LAST, tokens.name_last),
    _on_tokens("token-frequency-relinked", tokens.IN_FIRST, tokens.name_linked),
    _on_tokens("token-frequency-pairs", tokens.IN_FIRST, tokens.name_by_pairs, "lasting", "together"),
    _on_tokens("relinking", tokens.NEXT, tokens.score_next),
    _on_tokens("relinking", tokens.LINKED, tokens.link_tokens),
    _on_tokens("relinking", tokens.FOLLOWED, tokens.follow_tokens),
    _on_tokens("relinking-links", tokens.NEXT, tokens.score_next_by_links),
    _on_tokens("relinking-links", tokens.LINKED, tokens.link_tokens_by_links),
    _on_tokens("group-testing", SUBSCRIBER, tokens.score_readers_of_named, "named"),
)
_COUNTS: Final = (SUBSCRIPTIONS, PRESENCE, POPULARITY)
_RELAYS: Final = (
    _at_relay("dictionary", relay.PSEUDONYM, relay.score_dictionary, SUBSCRIPTIONS, WORDS),
    _at_relay("tag-frequency", relay.PSEUDONYM, relay.score_pseudonyms_by_count, *_COUNTS),
    _at_relay("tag-frequency", relay.TAG, relay.score_tags_by_count, *_COUNTS),
    _at_relay("tag-frequency-pairs", relay.PSEUDONYM, relay.score_pseudonyms_by_pairs, *_COUNTS, PAIRS),
    _at_relay("tag-frequency-pairs", relay.TAG, relay.score_tags_by_pairs, *_COUNTS, PAIRS),
    _at_relay("oracle", relay.PSEUDONYM, relay.score_pseudonyms_by_queries, *_COUNTS, ANSWERS, "queries"),
    _at_relay("oracle", relay.TAG, relay.score_tags_by_queries, *_COUNTS, ANSWERS, "queries"),
    _at_relay("order", relay.ORDER, relay.score_order, SUBSCRIPTIONS),
    _at_relay("proxy-frequency", SUBSCRIBER, relay.score_clients_by_count, PROXY, PRESENCE, POPULARITY),
    _at_relay("proxy-frequency", relay.REPEAT, relay.score_repeated_tags, PROXY),
    _at_relay("bodies", relay.READER, relay.score_bodies, BODIES),
    _at_relay("bodies", relay.DELIVERED, relay.count_deliveries, BODIES),
    _at_relay("disclosure", relay.READER, relay.score_followers, WIRES),
    _at_relay("filter-intersection", SUBSCRIBER, relay.score_filter_intersection, *_COUNTS, WORDS),
    _at_relay("filter-intersection", relay.ALIAS, relay.score_linked_filters, SUBSCRIPTIONS),
    _at_relay("timing-subscriptions", SUBSCRIBER, relay.score_times_of_subscriptions, *_COUNTS, WORDS, WIRES),
    _at_relay("timing", PUBLISHER, relay.score_senders_of_window, SUBSCRIPTIONS, WIRES),
    _at_relay("matching", PUBLISHER, relay.score_usual_senders, SUBSCRIPTIONS, WIRES),
)
_STREAMS: Final = (
    _on_stream("uniform", single_step.score_uniform),
    _on_stream("medoid", single_step.score_medoid),
    _on_stream("most", single_step.score_most_common),
    _on_stream("odds", single_step.score_odds, "pmf", "fake_pmf"),
    _on_stream("kalman-nearest", many_steps.score_kalman_nearest, "truth"),
    _on_stream("kalman-bank", many_steps.score_kalman_bank, "truth"),
    _on_stream("kalman-mean", many_steps.score_kalman_mean, "truth"),
    _on_stream("filter", many_steps.score_filter, "truth"),
    _on_stream("smoother", many_steps.score_smoother, "truth", online=False),
    _on_stream("viterbi", many_steps.score_viterbi, "truth", online=False),
    _on_stream("hindsight", many_steps.score_hindsight, "truth", "told"),
    _on_stream("likelihood-ratio", many_steps.score_likelihood_ratio, "truth", "fakes", online=False),
    _on_stream("turns", many_steps.score_turns, "signs", online=False),
    _on_stream("restless", many_steps.score_restless, "proxy", online=False),
    _on_stream("endings", many_steps.score_endings, "endings", online=False),
    _on_stream("trained", trained.score_trained, "fitted", online=False),
    _on_stream("expected", many_steps.score_expected, "forecast"),
    _on_stream("above", many_steps.score_above, "forecast"),
    _on_stream("below", many_steps.score_below, "forecast"),
    _on_stream("errors", many_steps.score_errors, "forecast", "forecast_law"),
    _on_stream("intersection", many_steps.score_intersection, online=False),
    _on_stream("repeats", many_steps.score_repeats, "pmf"),
    _on_stream("newcomer", many_steps.score_newcomer),
    _on_stream("confirmation", single_step.score_confirmation, "asked"),
    _on_stream("counts", single_step.score_counts, "codes", online=False),
    _on_stream("residual", single_step.score_residual, "dependent", "correlation"),
    _on_stream("density", single_step.score_density, "dependent", "correlation", "fake_line"),
    _on_stream("told", pedigrees.score_told, "branchings", "told_slot", online=False),
    _on_stream("counting", pedigrees.score_counting, "branchings", online=False),
)
_CLOCKS: Final = tuple(Attacker(name, MACHINE, LinkCells, partial(score_link, estimator=name)) for name in ESTIMATORS)
_HEARTBEATS: Final = (
    Attacker("heartbeat-pairs", MEMBER, HeartbeatObservations, heartbeat_pairs.score_pairs),
    Attacker("leaf", SUBSCRIBER, HeartbeatObservations, heartbeat_pairs.score_leaves),
    Attacker("closure", SUBSCRIBER, HeartbeatObservations, heartbeat_pairs.score_closure),
    Attacker("swap-tracker", SUBSCRIBER, HeartbeatObservations, heartbeat_pairs.score_traced),
)
_LEASES: Final = (
    Attacker("lease-rhythm", LEASE, LeaseTimes, lease_times.score_rhythm),
    Attacker("lease-receipts", LEASE, LeaseTimes, lease_times.score_receipts),
    Attacker("lease-silences", LEASE, LeaseTimes, lease_times.score_silences),
    Attacker("lease-returns", LEASE, LeaseTimes, lease_times.score_returns),
)
"""Their scores are for pairs of leases."""
_COMBINED: Final = (
    Attacker(combined.NAME, SUBSCRIBER, combined.CombinedObservations, combined.score_all_evidence, combined.EVIDENCE),
)
ATTACKERS: Final[tuple[Attacker[Any], ...]] = (
    *_WIRES,
    *_HEARTBEATS,
    *_COMBINED,
    *_CLOCKS,
    *_COALITIONS,
    *_TOKENS,
    *_TREES,
    *_RELAYS,
    *_LEASES,
    *_STREAMS,
)
FOREIGN: Final[dict[str, Attacker[Any]]] = {}
"""Attackers from outside the package, by name, that are installed in this process (`attack.foreign`)."""
