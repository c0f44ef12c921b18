"""Inference from tags by a relay's server: words by dictionary, topics by frequency, values by the trie of prefixes.

Dictionary: an observer that can compute the tag of a word tries every word. P2's server holds k_r, and so k_r H(word)
for any word (notes: flaw b). It fills the filters itself, but it need not even have looked. Each word has its positions
in a filter, and a filter that has them all holds the word, up to the false positives of its geometry. So all topics of
a subscriber are read off one filter. Where the tag needs a key that the server lacks, the computed tags are found
nowhere.

Tag frequency: a server that cannot compute a tag still counts how many subscribe by it. The mathematics are those of
tokens on a mesh (`token_inference`), and the view is better: all subscriptions come to one place, so every tag has the
same chance to be counted. Tags that never change are counted for ever; tags that change with the epoch, in one. Where a
pseudonym stands for a user and not for one subscription, it also shows which tags go together. A proxy that can tell
tags apart counts like the server, and knows its clients. A server that is also a user may query: it subscribes and sees
which tag comes. It then knows the topics of its queries and their subscribers, and names the rest by frequency. Its
proxy decides how often it may query.

Trie: tags of prefixes hide values, but not which values share a prefix or lie side by side. A publication asks for the
tags of all prefixes of its value. An observer of these sets knows the trie: a tag that comes with all publications of
another stands above it. That leaves open, at every fork, which side is left. Subscriptions tell: the pieces of a range
lie side by side. So a range that has a part of a branch and something beyond the branch has the part that is next to
what is beyond. From the root down, each fork is turned as most ranges want it. Only the first fork may be turned either
way, so values are ordered up to mirroring. The possible values and their frequency are often public; then the order is
as good as the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.insider.token_inference import assign_best, naming_likelihoods, refine_naming
from veilcast.lab.models.server_log import Numbers, ServerLog, cross_table

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


def find_words_in_filters(filters: Mask, positions: Numbers) -> Mask:
    """Filters x words: which filters hold a word. `positions` is words x hashes."""
    return np.asarray(filters[:, positions].all(axis=2), np.bool_)


def order_publications(asked: Numbers, ranges: Sequence[Numbers]) -> NDArray[np.float64]:
    """Its place from left to right, or from right to left, by publication; equal places for publications that cannot be
    told apart.

    `asked` has a row of tags for each publication, in any order; a range is the tags of its subscription.
    """
    tags, place, count = np.unique(asked, return_inverse=True, return_counts=True)
    place = place.reshape(asked.shape)
    # A tag above another comes at least as often; of two that always come together either may be above.
    paths = np.take_along_axis(place, np.lexsort((place, -count[place]), axis=1), axis=1)
    values, which = np.unique(paths, axis=0, return_inverse=True)
    inside = np.array([np.isin(tags[values], one).any(axis=1) for one in ranges]).reshape(len(ranges), len(values))
    left_to_right = _order_values(values, inside)
    rank = np.empty(len(values))
    rank[left_to_right] = np.arange(len(values))
    return rank[which.reshape(-1)]


class TagNames(NamedTuple):
    """The named tags, in order, and their topics. If there are more tags than topics, the most frequent are named."""

    tags: Numbers
    topics: Numbers

    def topics_of(self, tags: Numbers) -> Numbers:
        """Its topic, or -1, by tag."""
        if not self.tags.size:
            return np.full(tags.size, -1)
        place = np.minimum(np.searchsorted(self.tags, tags), self.tags.size - 1)
        return np.where(self.tags[place] == tags, self.topics[place], -1)


def name_tags(subscribed: ServerLog, users: float, popularity: Floats) -> TagNames:
    """Name tags by how many subscribe, of `users` that might have, summed over epochs."""
    return name_counted_tags(*np.unique(subscribed.what, return_counts=True), users, popularity)


def name_counted_tags(tags: Numbers, counts: Numbers, users: float, popularity: Floats) -> TagNames:
    """The same from counts; tags are in order."""
    kept, first = _likely(tags, counts, users, popularity)
    return TagNames(kept, assign_best(first))


def name_tags_by_pairs(subscribed: ServerLog, users: float, popularity: Floats, together: Floats) -> TagNames:
    """Also use which tags a pseudonym subscribes to together; `together` is the public share of users that subscribe to
    two topics."""
    tags, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    known = np.isin(subscribed.what, tags)
    held = cross_table(subscribed.who[known], subscribed.what[known])[0].astype(np.float64)
    return TagNames(tags, refine_naming(first, held.T @ held, together))


def name_tags_by_queries(
    subscribed: ServerLog, users: float, popularity: Floats, asked: Numbers, answers: Numbers
) -> TagNames:
    """Also use queries for the topics `asked`, which were answered with the tags `answers`."""
    tags, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    for topic, tag in zip(asked.tolist(), answers.tolist(), strict=True):
        first[:, topic] = np.where(tags == tag, _CERTAIN, -_CERTAIN)
    return TagNames(tags, assign_best(first))


def choose_queries(subscribed: ServerLog, users: float, popularity: Floats, many: int) -> Numbers:
    """The `many` topics of which most subscriptions would be named wrongly."""
    _, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    sure = softmax(first, axis=1)
    known = np.zeros(popularity.size)
    given = assign_best(first)
    known[given] = sure[np.arange(given.size), given]
    return np.argsort(-popularity * (1 - known), kind="stable")[:many]


def mark_interests(who: Numbers, topics: Numbers, shape: tuple[int, int]) -> Floats:
    """Users x topics: 1 where the user subscribed to a tag that is taken for this topic; -1 is no topic."""
    found = np.zeros(shape)
    known = topics >= 0
    found[who[known], topics[known]] = 1.0
    return found


def _order_values(values: Numbers, inside: Mask) -> list[int]:
    """Values from left to right: blocks that share a prefix fork until each holds one value."""
    blocks = [np.arange(len(values))]
    for level in range(values.shape[1]):
        forked: list[Numbers] = []
        for number, block in enumerate(blocks):
            parts = [block[values[block, level] == tag] for tag in np.unique(values[block, level])]
            if len(parts) == 2 and _is_turned(inside, parts[0], parts[1], forked, blocks[number + 1 :]):
                parts.reverse()
            forked += parts
        blocks = forked
    return [int(value) for block in blocks for value in block]


def _is_turned(inside: Mask, left: Numbers, right: Numbers, before: list[Numbers], after: list[Numbers]) -> bool:
    """Whether more ranges want the right part on the left."""
    more = inside[:, left].mean(axis=1) - inside[:, right].mean(axis=1)
    return bool((more * (_reaches(inside, after) - _reaches(inside, before))).sum() > 0)


def _reaches(inside: Mask, blocks: list[Numbers]) -> NDArray[np.float64]:
    """1 if it contains a value of these blocks, by range."""
    reached = np.zeros(len(inside))
    for block in blocks:
        reached[inside[:, block].any(axis=1)] = 1.0
    return reached


def _likely(tags: Numbers, counts: Numbers, users: float, popularity: Floats) -> tuple[Numbers, Floats]:
    most = np.sort(np.argsort(-counts, kind="stable")[: popularity.size])
    return tags[most], naming_likelihoods(counts[most].astype(np.float64), np.full(most.size, users), popularity)


_CERTAIN: Final = 1e9
