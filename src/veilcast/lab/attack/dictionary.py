"""The dictionary: who can compute the tag of a word tries every word that anybody might subscribe to.

P2's server holds k_r, and so k_r H(word) for any word (notes: flaw b). It fills the filters itself, but it need not
even have looked: each word has its positions in a filter, and a filter that has them all holds the word, or is wrong
once in as many as its geometry allows. So all of a subscriber's topics are read off one filter.

Where the tag of a word needs a key that the reader of the filters lacks, what it computes is found nowhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.kernels.ledger import Numbers

Mask = NDArray[np.bool_]


def in_filters(filters: Mask, positions: Numbers) -> Mask:
    """Filters x words: which filters hold a word, whose positions are a row of words x hashes."""
    return np.asarray(filters[:, positions].all(axis=2), np.bool_)


def in_tags(tags: Numbers, computed: Numbers) -> Mask:
    """Tags x words: the same where tags lie open."""
    equal: Mask = tags[:, None] == computed
    return equal
