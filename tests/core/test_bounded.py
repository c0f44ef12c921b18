"""Bounded maps, sets and quotas: the oldest entry leaves first, and the bound is never exceeded."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.core.bounded import BoundedMap, BoundedSet, PeerQuota, remember

KEYS = st.lists(st.integers(0, 9), max_size=60)


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from(["set", "renew", "touch", "pop"]), st.integers(0, 9))))
def test_a_bounded_map_is_a_dict_without_its_oldest_entries(capacity: int, steps: list[tuple[str, int]]) -> None:
    bounded: BoundedMap[int, int] = BoundedMap(capacity)
    model: list[tuple[int, int]] = []
    for step, (action, key) in enumerate(steps):
        known = dict(model)
        match action:
            case "set":
                bounded[key] = step
                model = [(k, step if k == key else v) for k, v in model]
                model += [] if key in known else [(key, step)]
            case "renew":
                bounded.renew(key, step)
                model = [(k, v) for k, v in model if k != key] + [(key, step)]
            case "touch":
                value = known.get(key, -step)
                assert bounded.touch(key, partial(int, -step)) == value
                model = [(k, v) for k, v in model if k != key] + [(key, value)]
            case _:
                assert bounded.pop(key, None) == known.get(key)
                model = [(k, v) for k, v in model if k != key]
        model = model[-capacity:]
        assert list(bounded.items()) == model


def test_no_way_of_filling_a_bounded_map_exceeds_its_capacity() -> None:
    bounded: BoundedMap[int, str] = BoundedMap(2)
    bounded.update({1: "a", 2: "b", 3: "c"})
    bounded.update([(4, "d")])
    assert bounded == {3: "c", 4: "d"}
    assert bounded.setdefault(3, "x") == "c"
    assert bounded.setdefault(5, "e") == "e"
    assert list(bounded) == [4, 5]
    with pytest.raises(TypeError):
        bounded |= {6: "f"}


@given(KEYS)
def test_a_bounded_set_has_the_last_keys_that_were_new_when_they_were_added(keys: list[int]) -> None:
    bounded: BoundedSet[int] = BoundedSet(3)
    model: list[int] = []
    for key in keys:
        bounded.add(key)
        model = (model if key in model else [*model, key])[-3:]
        assert list(bounded) == model


@given(KEYS)
def test_remember_renews_the_entries_of_a_plain_dict_as_a_bounded_map_does(keys: list[int]) -> None:
    plain: dict[int, int] = {}
    bounded: BoundedMap[int, int] = BoundedMap(3)
    for step, key in enumerate(keys):
        remember(plain, key, step, 3)
        bounded.renew(key, step)
        assert list(plain.items()) == list(bounded.items())


def test_a_peer_over_its_quota_pays_with_its_own_oldest_item() -> None:
    quota: PeerQuota[str, int] = PeerQuota()
    for item in (1, 2, 3, 2):
        quota.charge("greedy", item)
    quota.charge("modest", 4)
    assert quota.oldest_over("greedy", 2) == 1
    assert quota.oldest_over("modest", 2) is None
    quota.release("greedy", 1)
    assert quota.oldest_over("greedy", 2) is None
    assert len(quota) == 3


def test_an_account_without_items_is_forgotten() -> None:
    quota: PeerQuota[str, int] = PeerQuota()
    quota.charge("peer", 1)
    quota.release("peer", 1)
    quota.release("stranger", 1)
    assert len(quota) == 0
    assert quota._items == {}
