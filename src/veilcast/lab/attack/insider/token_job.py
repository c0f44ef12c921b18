"""The attack of a coalition without keys: the table `insiders` in, the table `guesses` out.

All observations of a run go to one task (`coalition_tables`). About how many nodes subscribe to each topic is public
(the table `popularity`), so tokens are named by how many nodes ask for them (`token_inference`), and group tests score
every node as a subscriber of the named topic. The tokens of the last epoch are named. "token-frequency" counts all
epochs in which the same tokens were seen; if tokens change with the epoch, that is the last one alone. "relinking"
links the tokens of each epoch with those of the epoch before, and adds their counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, make_guesses, union_tables
from veilcast.lab.attack.insider import coalition_tables, token_inference
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.insider.token_inference import assign_best, count_requests, naming_likelihoods
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.models.link_observations import SILENT, LinkObservations
from veilcast.lab.tables import GuessRow

Names = NDArray[np.int64]


def guess_from_tokens(
    observed: Mapping[str, AnyTable],
    names: Collection[str] | None = None,
    epochs: Sequence[int] = (1, 5, 20, 50),
) -> AnyTable:
    """Score every honest node as a subscriber of every topic that a token is taken for.

    Reads the tables insiders, topology, presence and popularity, and facts and roots where they are given. The topic of
    a root is its token, in capital hexadecimal digits.
    """
    chosen = tuple(_TRACKS) if names is None else tuple(names)
    for attack in chosen:
        if attack not in _TRACKS:
            raise ConfigError(f"no attack on tokens is called {attack!r}; there are {', '.join(_TRACKS)}")
    named = coalition_tables.name_tokens(observed["insiders"])
    needs = {coalition_tables.SIGHTS, coalition_tables.ORIGINS, coalition_tables.NOTES}
    united = union_tables(
        [
            *coalition_tables.select_tables(named, observed, needs),
            RunTable(_POPULARITY, observed["popularity"], {"word": "topic", "share": "share"}),
        ]
    )

    def of_run(rows: pa.Table) -> pa.Table:
        return _guess_tokens(GroupedRun(rows), chosen, epochs)

    return engine_of(united).apply_by(united, ["run"], of_run, GuessRow)


@dataclass(frozen=True, eq=False)
class TokenViews:
    """Observations of E epochs and T tokens; tokens of different epochs with the same bytes are one."""

    tokens: tuple[CoalitionObservations, ...]
    alive: NDArray[np.bool_]
    """E x T: whether the token was heard of."""

    def first_epochs(self, epochs: int) -> TokenViews:
        return TokenViews(tuple(token.first_epochs(epochs) for token in self.tokens), self.alive[:epochs])

    @property
    def lively(self) -> list[int]:
        """The epochs in which any token was heard of."""
        return np.flatnonzero(self.alive.any(axis=1)).tolist()

    def similar(self, before: int, after: int) -> NDArray[np.float64]:
        """Tokens of an epoch x tokens of a later one: the log-likelihood ratio of one topic against any two."""
        links, notes, origin = self._around(before)
        later_links, later_notes, later_origin = self._around(after)
        found = token_inference.compare_links(links, later_links) + token_inference.compare_counts(notes, later_notes)
        return found + token_inference.compare_origins(origin, later_origin, self.tokens[0].graph.nodes)

    def _around(self, epoch: int) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.int32]]:
        """The tokens of an epoch: the links on which something passed, the number of notifications, and the origin."""
        here = [self.tokens[token] for token in np.flatnonzero(self.alive[epoch])]
        links = np.array([each.seen.seen[epoch] > SILENT for each in here])
        # Only a coalition with members in the mesh counts its notifications.
        notes = np.where(links.any(axis=1), [each.read[epoch] for each in here], -1).astype(np.float64)
        return links, notes, np.array([each.seen.origin[epoch] for each in here], np.int32)


def track_by_bytes(heard: TokenViews) -> Names:
    """Tokens of the last epoch x epochs: the token's number in each epoch; -1 where it was not heard of."""
    last = np.flatnonzero(heard.alive[heard.lively[-1]])
    return np.where(heard.alive.T[last], last[:, None], -1)


def track_by_surroundings(heard: TokenViews) -> Names:
    """The same, as far as relinking leads back."""
    lively = heard.lively
    places = np.full((np.count_nonzero(heard.alive[lively[-1]]), len(heard.alive)), -1)
    places[:, lively[-1]] = np.flatnonzero(heard.alive[lively[-1]])
    for after, before in pairwise(reversed(lively)):
        earlier, later = (np.flatnonzero(heard.alive[epoch]) for epoch in (before, after))
        link = assign_best(heard.similar(before, after).T)
        at = np.full(len(heard.tokens), -1)
        at[later] = np.where(link >= 0, earlier[link], -1)
        followed = places[:, after] >= 0
        places[followed, before] = at[places[followed, after]]
    return places


def _guess_tokens(
    run: GroupedRun,
    attacks: Sequence[str],
    epochs: Sequence[int],
) -> pa.Table:
    asks, kept = _share_of_askers(run), coalition_tables.read_knowledge(run).kept
    tokens = coalition_tables.find_topics(run)
    whole = TokenViews(
        tuple(coalition_tables.build_coalition(run, token) for token in tokens),
        coalition_tables.mark_heard_topics(run, tokens),
    )
    graph, honest = whole.tokens[0].graph, np.flatnonzero(~whole.tokens[0].hostile)
    names, topics = [run.names[node] for node in honest], list(asks)
    shares = np.array(list(asks.values()))
    parts = [tables.arrow_schema(GuessRow).empty_table()]
    for number in sorted({min(number, len(whole.alive)) for number in epochs}):
        so_far = whole.first_epochs(number)
        if not so_far.lively:
            continue
        counted = np.array([count_requests(graph, token.seen) for token in so_far.tokens])
        for attack in attacks:
            places = _TRACKS[attack](so_far)
            asked, chances = (_sum_track(counted[:, which], places) for which in (0, 1))
            for place, topic in zip(places, assign_best(naming_likelihoods(asked, chances, shares)), strict=True):
                if topic >= 0:
                    tests = build_group_tests(graph, _follow_track(so_far, place), kept=kept)
                    scores = infer_beliefs(tests, graph.nodes, shares[topic])[honest]
                    size = graph.nodes - len(names)
                    parts.append(
                        make_guesses(run.run, attack, number, size, topics[topic], "subscriber", names, scores)
                    )
    return pa.concat_tables(parts)


def _share_of_askers(run: GroupedRun) -> dict[str, float]:
    """By topic, the share of nodes that ask for it: its subscribers, and the covers among all others."""
    popular, covers = run.table(_POPULARITY), coalition_tables.read_facts(run).get("cover_share", 0.0)
    shares = dict(zip(popular["word"].to_pylist(), popular["share"].to_pylist(), strict=True))
    if not shares or not all(0 < share < 1 for share in shares.values()):
        raise ConfigError("for each topic a share of nodes between none and all asks")
    return {topic: share + covers * (1 - share) for topic, share in shares.items()}


def _sum_track(counts: NDArray[np.float64], places: Names) -> NDArray[np.float64]:
    """Sums of tokens x epochs, by track."""
    each = np.arange(counts.shape[1])
    return np.asarray(np.where(places >= 0, counts[places, each], 0.0).sum(axis=1), np.float64)


def _follow_track(heard: TokenViews, place: Names) -> LinkObservations:
    """The observations of one track, in the epochs in which it was heard of."""
    epochs = np.flatnonzero(place >= 0)
    any_one = heard.tokens[0].seen
    rows = [(heard.tokens[place[epoch]].seen, epoch) for epoch in epochs]
    return LinkObservations(
        any_one.observer,
        any_one.peer,
        np.array([seen.origin[epoch] for seen, epoch in rows], np.int32),
        any_one.present[epochs],
        np.array([seen.seen[epoch] for seen, epoch in rows]),
        np.array([seen.delay[epoch] for seen, epoch in rows]),
        np.empty((0, 6), np.int32),
    )


_TRACKS: Final[Mapping[str, Callable[[TokenViews], Names]]] = {
    "token-frequency": track_by_bytes,
    "relinking": track_by_surroundings,
}
_POPULARITY: Final = "popularity"
