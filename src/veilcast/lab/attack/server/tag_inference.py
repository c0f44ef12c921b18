"""Tag frequency: a server that cannot compute a tag still counts how many subscribe by it.

The mathematics are those of tokens on a mesh (`token_frequency`), and the sight is better: all subscriptions come to
one place, so every tag has the same chance to be counted. Tags that never change are counted for ever; tags that change
with the epoch, in one. Where a pseudonym stands for a user, and not for one subscription, it also shows which tags go
together. A proxy that can tell tags apart counts like the server, and knows who its clients are.

A server that is also a user may ask: it subscribes, and sees which tag comes. What it asked for it knows, and by whom
else it is wanted; the rest is named by how often it comes. How often it may ask, its proxy decides.


The dictionary: who can compute the tag of a word tries every word that anybody might subscribe to.

P2's server holds k_r, and so k_r H(word) for any word (notes: flaw b). It fills the filters itself, but it need not
even have looked: each word has its positions in a filter, and a filter that has them all holds the word, or is wrong
once in as many as its geometry allows. So all of a subscriber's topics are read off one filter.

Where the tag of a word needs a key that the reader of the filters lacks, what it computes is found nowhere.


The trie: tags of prefixes hide values, and not which of them have which prefix, nor which lie side by side.

A publication asks for the tags of all prefixes of its value. Who sees these sets knows the trie: a tag that comes with
all publications that another comes with stands above it. That leaves open, at every fork, which side is the left one.
Subscriptions tell: the pieces of a range lie side by side, so a range that has a part of a branch, and something beyond
it, has that part of it that is next to what is beyond. From the root down, each fork is turned the way that most ranges
want it; only the first may be turned either way, so values are put in order up to mirroring. What values there are, and
how frequent, is often public; then the order is as good as the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veilcast.lab.attack.insider.token_inference import assign_best, naming_likelihoods, refine_naming
from veilcast.lab.models.server_log import Numbers, ServerLog, cross_table

_WordMask = NDArray[np.bool_]


def find_words_in_filters(filters: _WordMask, positions: Numbers) -> _WordMask:
    """Filters x words: which filters hold a word, whose positions are a row of words x hashes."""
    return np.asarray(filters[:, positions].all(axis=2), np.bool_)


def find_words_in_tags(tags: Numbers, computed: Numbers) -> _WordMask:
    """Tags x words: the same where tags lie open."""
    equal: _WordMask = tags[:, None] == computed
    return equal


_TagNumbers = NDArray[np.int64]
_RangeMask = NDArray[np.bool_]


def order_publications(asked: _TagNumbers, ranges: Sequence[_TagNumbers]) -> NDArray[np.float64]:
    """By publication its place from left to right, or from right to left; those that cannot be told apart share one.

    `asked` has a row of tags for each publication, in any order; a range is the tags of its subscription.
    """
    tags, place, count = np.unique(asked, return_inverse=True, return_counts=True)
    place = place.reshape(asked.shape)
    # What is above comes at least as often; of two that always come together either may be above.
    paths = np.take_along_axis(place, np.lexsort((place, -count[place]), axis=1), axis=1)
    values, which = np.unique(paths, axis=0, return_inverse=True)
    inside = np.array([np.isin(tags[values], one).any(axis=1) for one in ranges]).reshape(len(ranges), len(values))
    left_to_right = _ordered(values, inside)
    rank = np.empty(len(values))
    rank[left_to_right] = np.arange(len(values))
    return rank[which.reshape(-1)]


def _ordered(values: _TagNumbers, inside: _RangeMask) -> list[int]:
    """Values from left to right: blocks of those that share a prefix, which fork until each holds one."""
    blocks = [np.arange(len(values))]
    for level in range(values.shape[1]):
        forked: list[_TagNumbers] = []
        for number, block in enumerate(blocks):
            parts = [block[values[block, level] == tag] for tag in np.unique(values[block, level])]
            if len(parts) == 2 and _turned(inside, parts[0], parts[1], forked, blocks[number + 1 :]):
                parts.reverse()
            forked += parts
        blocks = forked
    return [int(value) for block in blocks for value in block]


def _turned(
    inside: _RangeMask, left: _TagNumbers, right: _TagNumbers, before: list[_TagNumbers], after: list[_TagNumbers]
) -> bool:
    """Whether more ranges want the right part to be the left one."""
    more = inside[:, left].mean(axis=1) - inside[:, right].mean(axis=1)
    return bool((more * (_reaches(inside, after) - _reaches(inside, before))).sum() > 0)


def _reaches(inside: _RangeMask, blocks: list[_TagNumbers]) -> NDArray[np.float64]:
    """By range, 1 where it has something of these."""
    reached = np.zeros(len(inside))
    for block in blocks:
        reached[inside[:, block].any(axis=1)] = 1.0
    return reached


Floats = NDArray[np.float64]


class TagNames(NamedTuple):
    """The tags that have a name, in order, and their topics. Of more tags than topics the most frequent have one."""

    tags: Numbers
    topics: Numbers

    def topics_of(self, tags: Numbers) -> Numbers:
        """By tag its topic, or -1."""
        if not self.tags.size:
            return np.full(tags.size, -1)
        place = np.minimum(np.searchsorted(self.tags, tags), self.tags.size - 1)
        return np.where(self.tags[place] == tags, self.topics[place], -1)


def name_tags(subscribed: ServerLog, users: float, popularity: Floats) -> TagNames:
    """By how many subscribe, of so many who might have, summed over epochs."""
    return name_counted_tags(*np.unique(subscribed.what, return_counts=True), users, popularity)


def name_counted_tags(tags: Numbers, counts: Numbers, users: float, popularity: Floats) -> TagNames:
    """The same of who has counted; tags are in order."""
    kept, first = _likely(tags, counts, users, popularity)
    return TagNames(kept, assign_best(first))


def name_tags_by_pairs(subscribed: ServerLog, users: float, popularity: Floats, together: Floats) -> TagNames:
    """Also by what pseudonyms subscribe to together, where it is public which share of users reads two topics."""
    tags, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    known = np.isin(subscribed.what, tags)
    held = cross_table(subscribed.who[known], subscribed.what[known])[0].astype(np.float64)
    return TagNames(tags, refine_naming(first, held.T @ held, together))


def name_tags_by_queries(
    subscribed: ServerLog, users: float, popularity: Floats, asked: Numbers, answers: Numbers
) -> TagNames:
    """Also by asking for these topics, and seeing these tags."""
    tags, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    for topic, tag in zip(asked.tolist(), answers.tolist(), strict=True):
        first[:, topic] = np.where(tags == tag, _CERTAIN, -_CERTAIN)
    return TagNames(tags, assign_best(first))


def choose_queries(subscribed: ServerLog, users: float, popularity: Floats, many: int) -> Numbers:
    """The topics of which most subscriptions would be named wrongly, so many."""
    _, first = _likely(*np.unique(subscribed.what, return_counts=True), users, popularity)
    sure = softmax(first, axis=1)
    known = np.zeros(popularity.size)
    given = assign_best(first)
    known[given] = sure[np.arange(given.size), given]
    return np.argsort(-popularity * (1 - known), kind="stable")[:many]


def mark_interests(who: Numbers, topics: Numbers, shape: tuple[int, int]) -> Floats:
    """People x topics: 1 where somebody subscribed to what is taken for this topic; -1 is taken for none."""
    found = np.zeros(shape)
    known = topics >= 0
    found[who[known], topics[known]] = 1.0
    return found


def _likely(tags: Numbers, counts: Numbers, users: float, popularity: Floats) -> tuple[Numbers, Floats]:
    most = np.sort(np.argsort(-counts, kind="stable")[: popularity.size])
    return tags[most], naming_likelihoods(counts[most].astype(np.float64), np.full(most.size, users), popularity)


_CERTAIN: Final = 1e9
