"""The measures of a relay's attackers, from the tables `guesses` and `truth` of one run.

Guesses without a row have the score 0. The roles of guesses are those of `attack.server.attackers`; the roles of the
truth those of `runs.relay.relay_tables`. What changes with the epoch is compared in the last epoch of each guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.measure import relay_success
from veilcast.lab.measure.accuracy import Mask
from veilcast.lab.measure.relay_success import measure_order

Scores = NDArray[np.float64]
Numbers = NDArray[np.int64]
Measured: TypeAlias = tuple[str, str, int, float]
"""Attack, metric, number of epochs, value."""


def measure_relay_guesses(guesses: pa.Table, truth: pa.Table, epoch_us: int) -> Iterator[Measured]:
    """Both tables are of one run."""
    truths = _RelayTruth(truth)
    for attack in sorted(pc.unique(guesses["attack"]).to_pylist()):
        of_attack = guesses.filter(pc.equal(guesses["attack"], attack))
        for epochs in sorted(pc.unique(of_attack["epochs"]).to_pylist()):
            chosen = of_attack.filter(pc.equal(of_attack["epochs"], epochs))
            for metric, value in _measure_attack(chosen, truths, (epochs - 1) * epoch_us).items():
                yield attack, metric, epochs, value


def _measure_attack(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    found: dict[str, float] = {}
    roles = set(pc.unique(guesses["role"]).to_pylist())
    for role in (role for role in _ROLES if role in roles):
        found |= _ROLES[role](guesses.filter(pc.equal(guesses["role"], role)), truths, since_us)
    if "delivered" in roles:
        found["linked"] = measure_linked_deliveries(guesses)
    return found


def measure_named_subscriptions(guesses: pa.Table, truth: pa.Table) -> float:
    """The share of users' subscriptions that a dictionary names, for any pseudonym of the user in any epoch."""
    owner = _columns_of(truth, "owner")
    owners = dict(zip(owner["node"].to_pylist(), owner["topic"].to_pylist(), strict=True))
    said = _columns_of(guesses, "pseudonym")
    said = said.filter(pc.greater(said["score"], 0))
    named = {
        (topic, owners[name]) for topic, name in zip(said["topic"].to_pylist(), said["node"].to_pylist(), strict=True)
    }
    held = _columns_of(truth, "subscriber")
    right = [pair in named for pair in zip(held["topic"].to_pylist(), held["node"].to_pylist(), strict=True)]
    return sum(right) / len(right)


def measure_linked_deliveries(guesses: pa.Table) -> float:
    """The share of deliveries whose sender the proxy knows by the body, after all epochs."""
    last = guesses.filter(pc.equal(guesses["epochs"], pc.max(guesses["epochs"])))
    linked, delivered = (pc.sum(_columns_of(last, role)["score"]).as_py() or 0.0 for role in ("reader", "delivered"))
    return float(linked / delivered) if delivered else 0.0


def measure_repeated_subscriptions(guesses: pa.Table) -> float:
    """The share of subscriptions at the proxy with a tag that another user has, too, after all epochs."""
    last = guesses.filter(pc.equal(guesses["epochs"], pc.max(guesses["epochs"])))
    several = _columns_of(last, "repeat")["score"].to_numpy() > 1
    return float(several.sum() / several.size)


def _columns_of(rows: pa.Table, role: str) -> pa.Table:
    return rows.filter(pc.equal(rows["role"], role))


class _RelayTruth:
    def __init__(self, truth: pa.Table) -> None:
        self._of_role = {
            role: truth.filter(pc.equal(truth["role"], role)) for role in pc.unique(truth["role"]).to_pylist()
        }
        self._none = truth.slice(0, 0)
        self.users = self.select("member")["node"].combine_chunks().sort()
        topics = pa.chunked_array(
            [chunk for role in ("subscriber", "publisher", "tag") for chunk in self._topics_of(role).chunks],
            pa.string(),
        )
        self.topics = pc.unique(topics).sort()

    def select(self, role: str, since_us: int | None = None) -> pa.Table:
        """The rows of a role; those of one epoch, if its begin is given."""
        rows = self._of_role.get(role, self._none)
        return rows if since_us is None else rows.filter(pc.equal(rows["since_us"], since_us))

    @cached_property
    def reads(self) -> Mask:
        return self._users_by_topics("subscriber")

    @cached_property
    def writes(self) -> Mask:
        return self._users_by_topics("publisher")

    def _topics_of(self, role: str) -> pa.ChunkedArray:
        return self.select(role)["topic"]

    def _users_by_topics(self, role: str) -> Mask:
        rows = self.select(role)
        found = np.zeros((len(self.users), len(self.topics)), np.bool_)
        found[_places(rows["node"], self.users), _places(rows["topic"], self.topics)] = True
        return found


def _measure_users(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    return relay_success.measure_users(_matrix(guesses, truths.topics, truths.users).T, truths.reads)


def _measure_readers(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    found = _matrix(guesses, truths.users, truths.users)
    return relay_success.measure_links(found, truths.writes, truths.reads)


def _measure_pseudonyms(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    held = truths.select("pseudonym", since_us)
    pseudonyms = pc.unique(held["node"].combine_chunks()).sort()
    holds = np.zeros((len(pseudonyms), len(truths.topics)), np.bool_)
    holds[_places(held["node"], pseudonyms), _places(held["topic"], truths.topics)] = True
    return relay_success.measure_subscriptions(_matrix(guesses, truths.topics, pseudonyms).T, holds)


def _measure_tags(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    """If two topics are confused, a user that wants both has neither of them named rightly."""
    tags = truths.select("tag", since_us)
    place = _places(truths.select("pseudonym", since_us)["topic"], truths.topics)
    subscriptions = np.bincount(place, minlength=len(truths.topics))
    names = tags["node"].combine_chunks()
    said = _matrix(guesses, truths.topics, names)
    topic = _places(tags["topic"], truths.topics)
    right, asked = said[topic, np.arange(len(names))] > 0, subscriptions[topic]
    return {"named": float(np.mean(right[asked > 0])), "named_readers": float(asked[right].sum() / asked.sum())}


def _measure_publications(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    sent = truths.select("sender", since_us).sort_by("node")
    scores = _matrix(guesses, sent["node"].combine_chunks(), truths.users)
    return relay_success.measure_publications(scores, _places(sent["topic"], truths.users))


def _measure_aliases(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    """Of the pairs of pseudonyms that are taken for one user's, the share that are; and the share of all such pairs."""
    owners = truths.select("owner")
    names, users = owners["node"].combine_chunks(), owners["topic"].combine_chunks()
    pairs = guesses.filter(pc.greater(guesses["score"], 0))
    owner = [users.take(pc.index_in(pairs[column], names)) for column in ("topic", "node")]
    return {
        "linked": float(np.mean(pc.equal(*owner).to_numpy(zero_copy_only=False))) if len(pairs) else 0.0,
        "linked_base": _share_of_pairs(pc.unique(pairs["topic"]), pc.unique(pairs["node"]), names, users),
    }


def _share_of_pairs(first: pa.Array, second: pa.Array, names: pa.Array, users: pa.Array) -> float:
    """The share of pairs of these pseudonyms that are of one user, if pairs are made at random."""
    held = [Counter(users.take(pc.index_in(each, names)).to_pylist()) for each in (first, second)]
    return sum(count * held[1][user] for user, count in held[0].items()) / max(1, len(first) * len(second))


def _measure_repeats(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    return {"repeats": measure_repeated_subscriptions(guesses)}


def _measure_places(guesses: pa.Table, truths: _RelayTruth, since_us: int) -> dict[str, float]:
    made = truths.select("value")
    place = _matrix(guesses, pa.array([""]), made["node"].combine_chunks())[0]
    return {"recovered": measure_order(place, np.array([int(value) for value in made["topic"].to_pylist()]))}


def _matrix(guesses: pa.Table, topics: pa.Array, nodes: pa.Array) -> Scores:
    """Topics x nodes; guesses about others are left out."""
    found = np.zeros((len(topics), len(nodes)))
    row, column = _places(guesses["topic"], topics), _places(guesses["node"], nodes)
    kept = (row >= 0) & (column >= 0)
    found[row[kept], column[kept]] = guesses["score"].to_numpy()[kept]
    return found


def _places(column: pa.ChunkedArray, names: pa.Array) -> Numbers:
    return np.asarray(pc.fill_null(pc.index_in(column, names), -1).to_numpy(), np.int64)


_ROLES: Final = {
    "pseudonym": _measure_pseudonyms,
    "tag": _measure_tags,
    "subscriber": _measure_users,
    "reader": _measure_readers,
    "publisher": _measure_publications,
    "alias": _measure_aliases,
    "repeat": _measure_repeats,
    "order": _measure_places,
}
"""The measures of each role, in an order in which later ones replace earlier ones of the same name."""
