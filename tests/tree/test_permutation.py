"""The keyed permutation: a bijection whose two directions and two forms agree, and that depends on its key."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.tree import permutation
from veilcast.tree.permutation import NODES_MAX, Permutation

sizes = st.integers(1, 3000)
keys = st.binary(min_size=16, max_size=16).map(Secret)


@given(keys, sizes)
@example(Secret(bytes(16)), 1)
@example(Secret(bytes(16)), 2)
@settings(max_examples=60)
def test_the_permutation_is_a_bijection_with_its_inverse(key: Secret, n: int) -> None:
    shuffled = Permutation(key, n)
    everyone = np.arange(n)
    places = shuffled.places(everyone)
    assert np.array_equal(np.sort(places), everyone)
    assert np.array_equal(shuffled.nodes(places), everyone)


@given(keys, sizes, st.data())
@settings(max_examples=60)
def test_single_and_array_results_agree(key: Secret, n: int, data: st.DataObject) -> None:
    shuffled = Permutation(key, n)
    some = data.draw(st.lists(st.integers(0, n - 1), max_size=8))
    assert shuffled.places(np.array(some, dtype=np.int64)).tolist() == [shuffled.place(node) for node in some]
    assert shuffled.nodes(np.array(some, dtype=np.int64)).tolist() == [shuffled.node(place) for place in some]


def test_cycle_walking_is_rare() -> None:
    for n in (2, 500, 10_000, 99_999):
        shuffled = Permutation(Secret(b"a key"), n)
        assert 0 <= shuffled.left * shuffled.right - n < shuffled.left


def test_places_are_uniform_over_keys() -> None:
    """Of 6 nodes, in 3,600 permutations, each of the 36 (node, place) pairs occurs 600 times, give or take 22."""
    pairs: Counter[tuple[int, int]] = Counter()
    orders: set[tuple[int, ...]] = set()
    for key in range(3600):
        places = Permutation(Secret(key.to_bytes(4, "big")), 6).places(np.arange(6)).tolist()
        pairs.update(enumerate(places))
        orders.add(tuple(places))
    assert max(abs(count - 600) for count in pairs.values()) < 5 * 22.4
    assert len(orders) > 700, "nearly all of the 720 orders"


def test_a_permutation_with_repeated_rounds_is_not_uniform() -> None:
    """The planted bug: with equal tables, the test above would fail."""
    real = Permutation._table
    orders: set[tuple[int, ...]] = set()
    with patch.object(Permutation, "_table", lambda self, key, number: real(self, key, number % 2)):
        for key in range(3600):
            orders.add(tuple(Permutation(Secret(key.to_bytes(4, "big")), 6).places(np.arange(6)).tolist()))
    assert len(orders) < 700


def test_numbers_and_sizes_outside_are_refused() -> None:
    shuffled = Permutation(Secret(b"a key"), 10)
    for wrong in (-1, 10):
        with pytest.raises(LocalError):
            shuffled.place(wrong)
        with pytest.raises(LocalError):
            shuffled.node(wrong)
        with pytest.raises(LocalError):
            shuffled.places(np.array([0, wrong]))
    for n, rounds in ((0, 10), (NODES_MAX + 1, 10), (10, 3), (10, 0)):
        with pytest.raises(LocalError):
            Permutation(Secret(b"a key"), n, rounds)
    assert permutation.NODES_MAX == 1 << 24
