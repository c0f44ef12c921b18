from __future__ import annotations

import numpy as np

from support.relay_users import run_small_relay
from veilcast.lab.attack.server import linkage
from veilcast.lab.measure import ranking
from veilcast.lab.models.relay import RelayService
from veilcast.lab.models.server_log import SUBSCRIBED


def right(profile: str, epochs: int, seed: int, *, shuffled: bool = False) -> float:
    """How well the users of a taste stand out among all, by who was there; that some are common is no secret."""
    people, shown, answers = run_small_relay(
        seed,
        RelayService(profile),  # type: ignore[arg-type]
        epochs,
        users=60,
        topics=12,
        most=0.6,
        churn=0.4,
    )
    asked = shown.server.select(SUBSCRIBED)
    tastes, counts, tags = linkage.group_by_filter(asked, epochs)
    owner = np.array([answers.user[who] for who in asked.who.tolist()])
    if shuffled:
        owner = np.random.default_rng(seed).permutation(people.users)[owner]
    truth = np.zeros((people.users, len(tastes)), np.bool_)
    column = np.searchsorted(tags, asked.what)
    for number, taste in enumerate(tastes):
        of_it = [who for who in np.unique(asked.who) if set(column[asked.who == who]) == set(np.flatnonzero(taste))]
        truth[owner[np.isin(asked.who, of_it)], number] = True
    said = linkage.assign_users(counts, shown.present)
    return float(np.mean([ranking.auc(*columns) for columns in zip(said.T, truth.T, strict=True)]))


def test_filters_that_share_a_rare_bit_are_more_alike_than_those_that_share_a_common_one() -> None:
    before = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0]], np.bool_)
    old, new = linkage.match_filters(before, before[[2, 0, 1, 0]])
    assert dict(zip(old.tolist(), new.tolist(), strict=True))[1] == 2
    assert new.size == 3
    assert linkage.compare_filters(before, before)[0, 0] > linkage.compare_filters(before, before)[2, 2]
    assert linkage.compare_filters(before, ~before)[0, 0] == 0


def test_a_set_of_tags_is_counted_in_each_epoch_of_its_pseudonyms() -> None:
    _, shown, _ = run_small_relay(1, RelayService("paper"), 3)
    asked = shown.server.select(SUBSCRIBED)
    tastes, counts, tags = linkage.group_by_filter(asked, 3)
    assert counts.sum() == np.unique(asked.who).size
    assert tastes.shape[1] == tags.size == np.unique(asked.what).size
    assert len(np.unique(tastes, axis=0)) == len(tastes)


def test_a_user_never_present_without_a_filter_owns_it() -> None:
    """The positive control, on tags that do not change; it grows with the epochs."""
    few, many = (np.mean([right("paper", epochs, seed) for seed in range(3)]) for epochs in (2, 16))
    assert many > 0.95
    assert many > few + 0.05


def test_shuffled_users_are_not_assigned() -> None:
    """The null control."""
    found = [right("paper", 8, seed, shuffled=True) for seed in range(6)]
    assert abs(np.mean(found) - 0.5) < 0.05


def test_tags_that_change_leave_nothing_to_follow() -> None:
    _, shown, _ = run_small_relay(2, RelayService("hardened"), 6)
    _, counts, _ = linkage.group_by_filter(shown.server.select(SUBSCRIBED), 6)
    assert (np.count_nonzero(counts, axis=1) == 1).all()
    always = shown.present.all(axis=0)
    said = linkage.assign_users(counts, shown.present)[always]
    assert np.allclose(said, said[0])
