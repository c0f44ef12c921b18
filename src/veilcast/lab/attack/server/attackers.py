"""Attackers on a relay: one function for each attack and each kind of answer.

Every function returns a matrix of scores. Its rows and columns depend on the role that the attacker looks for:

| role | rows | columns |
|---|---|---|
| `subscriber` | topics | users |
| `pseudonym` | topics | pseudonyms of the last epoch: the topics of a pseudonym |
| `tag` | topics | tags of the last epoch: the topic of a tag |
| `reader` | users | users: the readers of a publisher |
| `publisher` | publications of the last epoch | users |
| `alias` | pseudonyms of the epoch before the last | pseudonyms of the last: 1 if both are taken for one user's |
| `repeat` | tags at the proxy | users: how many users have the tag, for each user that has it |
| `delivered` | one row | users: deliveries, whether their sender is known or not |
| `order` | one row | publications: their places from left to right |

A matrix without rows or columns says that the attack had nothing to work on.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.server import batch_disclosure, linkage, tag_inference
from veilcast.lab.attack.server.observations import ServerObservations, known
from veilcast.lab.attack.server.tag_inference import TagNames, mark_interests
from veilcast.lab.models.server_log import PUBLISHED, SUBSCRIBED, Numbers, cross_table
from veilcast.topics.bloom import PUBLIC_KEY, Geometry

Floats = NDArray[np.float64]


def score_dictionary(seen: ServerObservations) -> Floats:
    """The topics of which the filters of pseudonyms contain a word, or of which their tags are words."""
    held, _, tags = cross_table(seen.last_subscriptions.who, seen.last_subscriptions.what)
    words, sizes = known(seen.words), (len(held), seen.topics)
    row, column = np.nonzero(held)
    if not seen.filter_bound:
        return mark_interests(row, words.topics_of(tags)[column], sizes).T
    shape = Geometry.sized(elements=seen.topics, queries=1, bound=seen.filter_bound)
    bits = np.zeros((len(held), shape.rows), np.bool_)
    bits[row[:, None], _positions(seen, shape, tags)[column]] = True
    row, word = np.nonzero(tag_inference.find_words_in_filters(bits, _positions(seen, shape, words.tags)))
    return mark_interests(row, words.topics[word], sizes).T


def score_pseudonyms_by_count(seen: ServerObservations) -> Floats:
    return _topics_of_pseudonyms(seen, seen.names_by_count)


def score_tags_by_count(seen: ServerObservations) -> Floats:
    return _topics_of_tags(seen, seen.names_by_count)


def score_pseudonyms_by_pairs(seen: ServerObservations) -> Floats:
    return _topics_of_pseudonyms(seen, seen.names_by_pairs)


def score_tags_by_pairs(seen: ServerObservations) -> Floats:
    return _topics_of_tags(seen, seen.names_by_pairs)


def score_pseudonyms_by_queries(seen: ServerObservations) -> Floats:
    return _topics_of_pseudonyms(seen, seen.names_by_queries)


def score_tags_by_queries(seen: ServerObservations) -> Floats:
    return _topics_of_tags(seen, seen.names_by_queries)


def score_clients_by_count(seen: ServerObservations) -> Floats:
    """The proxy names its own clients' tags."""
    asked = known(seen.proxy).select(SUBSCRIBED, seen.first_counted, seen.last)
    names = tag_inference.name_tags(asked, seen.there, known(seen.popularity)).topics_of(asked.what)
    return mark_interests(asked.who, names, (seen.users, known(seen.popularity).size)).T


def score_repeated_tags(seen: ServerObservations) -> Floats:
    asked = known(seen.proxy).select(SUBSCRIBED, seen.first_counted, seen.last)
    tags, tag = np.unique(asked.what, return_inverse=True)
    found = np.zeros((tags.size, seen.users))
    found[tag, asked.who] = 1.0
    return np.asarray(found * found.sum(axis=1, keepdims=True), np.float64)


def score_bodies(seen: ServerObservations) -> Floats:
    bodies = known(seen.bodies)
    found = np.zeros((seen.users, seen.users))
    linked = (bodies.epoch < seen.epochs) & (bodies.sender >= 0)
    np.add.at(found, (bodies.sender[linked], bodies.receiver[linked]), bodies.bodies[linked])
    return found


def count_deliveries(seen: ServerObservations) -> Floats:
    bodies = known(seen.bodies)
    so_far = bodies.epoch < seen.epochs
    counts = np.bincount(bodies.receiver[so_far], bodies.bodies[so_far], seen.users)
    return counts.astype(np.float64).reshape(1, -1)


def score_filter_intersection(seen: ServerObservations) -> Floats:
    """Which user is present whenever a set of tags is, and the topics of these tags."""
    asked = seen.subscriptions
    tastes, counts, tags = linkage.group_by_filter(asked, seen.epochs)
    topic = seen.topics_of_subscriptions[np.unique(asked.what, return_index=True)[1]]
    holds = np.zeros((tags.size, known(seen.popularity).size))
    holds[np.flatnonzero(topic >= 0), topic[topic >= 0]] = 1.0
    likely = linkage.assign_users(counts, known(seen.present)[: seen.epochs])
    return np.asarray(likely @ (tastes @ holds > 0), np.float64).T


def score_linked_filters(seen: ServerObservations) -> Floats:
    """Pseudonyms of the last two epochs that are taken for one user's: those that are in both, and the others by their
    tags."""
    if seen.epochs < 2:
        return np.zeros((0, 0))
    log = known(seen.server)
    before, last = log.select(SUBSCRIBED, seen.last - 1, seen.last - 1), seen.last_subscriptions
    both = log.select(SUBSCRIBED, seen.last - 1, seen.last)
    held, pseudonyms, _ = cross_table(both.who, both.what)
    old, new = (np.isin(pseudonyms, each.who) for each in (before, last))
    found = np.diag(np.ones(pseudonyms.size))
    first, second = np.flatnonzero(old & ~new), np.flatnonzero(new & ~old)
    row, column = linkage.match_filters(held[first], held[second])
    found[first[row], second[column]] = 1.0
    return found[np.ix_(old, new)]


def score_times_of_subscriptions(seen: ServerObservations) -> Floats:
    """The topics that come in the windows in which a user subscribes."""
    wires, named = known(seen.wires), seen.topics_of_subscriptions
    end, found = wires.first_windows[seen.epochs, 0], named >= 0
    windows = wires.windows_of(seen.subscriptions)[found]
    came = batch_disclosure.count_effects(windows, named[found], (end, known(seen.popularity).size))
    return batch_disclosure.fit_profiles(wires.sent_subscribing[:end], came).T


def score_senders_of_window(seen: ServerObservations) -> Floats:
    windows = seen.windows_in_counted(seen.last_publications)
    return batch_disclosure.spread_over_senders(seen.sent_in_counted, windows)


def score_usual_senders(seen: ServerObservations) -> Floats:
    """The sender that usually sends such a tag."""
    last = seen.last_publications
    tag = np.searchsorted(np.unique(seen.counted_publications.what), last.what)
    windows = seen.windows_in_counted(last)
    return batch_disclosure.match_senders(seen.sent_in_counted, windows, tag, seen.usual_tags)


def score_followers(seen: ServerObservations) -> Floats:
    """By wires alone: the users that receive in the windows in which a user sends."""
    wires = known(seen.wires)
    end = wires.first_windows[seen.epochs, 1]
    return batch_disclosure.fit_profiles(wires.sent[:end], wires.got[:end])


def score_order(seen: ServerObservations) -> Floats:
    """For publications of one attribute, which all have the same number of tags, and several."""
    made, wanted = (known(seen.server).select(kind, seen.first_counted, seen.last) for kind in (PUBLISHED, SUBSCRIBED))
    requests = np.unique(made.who).size
    if not requests or len(made) % requests or len(made) == requests:
        return np.zeros((0, 0))
    ranges = [wanted.what[wanted.who == one] for one in np.unique(wanted.who)]
    asked = made.what[np.argsort(made.who, kind="stable")].reshape(requests, -1)
    return tag_inference.order_publications(asked, ranges).reshape(1, -1)


def _topics_of_pseudonyms(seen: ServerObservations, names: TagNames) -> Floats:
    last = seen.last_subscriptions
    row = np.searchsorted(seen.last_pseudonyms, last.who)
    return mark_interests(row, names.topics_of(last.what), (seen.last_pseudonyms.size, known(seen.popularity).size)).T


def _topics_of_tags(seen: ServerObservations, names: TagNames) -> Floats:
    topics = names.topics_of(seen.last_tags)
    return mark_interests(np.arange(topics.size), topics, (topics.size, known(seen.popularity).size)).T


def _positions(seen: ServerObservations, shape: Geometry, tags: Numbers) -> Numbers:
    return shape.positions([seen.tags[tag] for tag in tags.tolist()], PUBLIC_KEY)


PSEUDONYM: Final = "pseudonym"
TAG: Final = "tag"
READER: Final = "reader"
ALIAS: Final = "alias"
REPEAT: Final = "repeat"
DELIVERED: Final = "delivered"
ORDER: Final = "order"
"""Roles of the table above, beside those of every mode."""
