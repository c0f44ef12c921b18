"""Keys that serve for several publications: who has to be sent one, by each reading."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.models.broker_keys import KeyedInteractions, KeyOwner

SAID = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=60).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)


def keyed(said: list[tuple[int, int]], bulk: int, owner: KeyOwner) -> list[bool]:
    ends = np.array(said, np.int32).reshape(-1, 2)
    return [bool(one) for one in KeyedInteractions(ends[:, 0].copy(), ends[:, 1].copy()).needs_key(bulk, owner)]


def plainly(said: list[tuple[int, int]], bulk: int, owner: KeyOwner) -> list[bool]:
    """One after the other, with a memory."""
    count: Counter[object] = Counter()
    found, seen = [], set()
    for publisher, subscriber in said:
        if owner == "readers":
            key = (publisher, count[publisher] // bulk, subscriber)
            found.append(key not in seen)
            seen.add(key)
            count[publisher] += 1
        else:
            who = publisher if owner == "publisher" else (publisher, subscriber)
            found.append(count[who] % bulk == 0)
            count[who] += 1
    return found


@given(SAID, st.integers(1, 6), st.sampled_from(["publisher", "pair", "readers"]))
def test_they_are_those_who_have_no_key_yet(said: list[tuple[int, int]], bulk: int, owner: KeyOwner) -> None:
    assert keyed(said, bulk, owner) == plainly(said, bulk, owner)


@given(SAID)
def test_a_key_for_each_publication_is_sent_with_each(said: list[tuple[int, int]]) -> None:
    for owner in get_args(KeyOwner):
        assert all(keyed(said, 1, owner))


@given(SAID, st.integers(1, 6))
def test_all_who_read_need_more_than_the_first_publication_of_a_bulk(said: list[tuple[int, int]], bulk: int) -> None:
    first, readers = keyed(said, bulk, "publisher"), keyed(said, bulk, "readers")
    assert all(reads for reads, leads in zip(readers, first, strict=True) if leads)


def test_no_bulk_and_no_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="one publication at least"):
        keyed([(0, 1)], 0, "pair")
    with pytest.raises(ConfigError, match="order of their publishers"):
        keyed([(1, 0), (0, 1)], 2, "pair")
