from __future__ import annotations

import numpy as np
import pytest

from support.relay_users import find_readers, run_small_relay
from veilcast.lab.attack.server import batch_disclosure
from veilcast.lab.models.relay import RelayService
from veilcast.lab.models.server_log import PUBLISHED


def linked(service: RelayService, epochs: int, seed: int, shuffled: int | None = None) -> float:
    people, shown, _ = run_small_relay(seed, service, epochs)
    return find_readers(people, batch_disclosure.fit_profiles(*shown.publishing), shuffled)


def publishers_found(service: RelayService, seed: int, *, learnt: bool) -> float:
    _, shown, answers = run_small_relay(seed, service, 1)
    published = shown.server.select(PUBLISHED)
    sent, windows = shown.publishing.sent, shown.windows(published)
    truth = np.array([answers.user[who] for who in published.who.tolist()])
    if not learnt:
        said = batch_disclosure.spread_over_senders(sent, windows)
    else:
        tags, tag = np.unique(published.what, return_inverse=True)
        usual = batch_disclosure.fit_profiles(
            sent, batch_disclosure.count_effects(windows, tag, (len(sent), tags.size))
        )
        said = batch_disclosure.match_senders(sent, windows, tag, usual)
    return float(said[np.arange(truth.size), truth].mean())


def test_without_batches_wires_reveal_the_subscribers_of_each_publisher() -> None:
    """The positive control."""
    assert np.mean([linked(RelayService("hardened"), 6, seed) for seed in range(3)]) > 0.97


def test_batches_slow_it_down_and_do_not_stop_it() -> None:
    batched = RelayService("hardened", batch=8)
    early, late = (np.mean([linked(batched, epochs, seed) for seed in range(3)]) for epochs in (1, 12))
    assert early < 0.75 < 0.9 < late


def test_shuffled_subscribers_are_not_found() -> None:
    """The null control."""
    found = [linked(RelayService("hardened"), 4, seed, shuffled=seed) for seed in range(10)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.04)


def test_windows_in_which_all_send_alike_reveal_nothing() -> None:
    people, shown, _ = run_small_relay(1, RelayService("hardened", batch=8), 3)
    alike = np.ones_like(shown.publishing.sent)
    assert not batch_disclosure.fit_profiles(alike, shown.publishing.got).any()
    windows = shown.windows(shown.server.select(PUBLISHED))
    assert np.allclose(batch_disclosure.spread_over_senders(alike, windows), 1 / people.users)


def test_a_request_is_spread_over_the_senders_of_its_window() -> None:
    assert publishers_found(RelayService("hardened"), 1, learnt=False) == 1.0
    in_batch = publishers_found(RelayService("hardened", batch=8), 1, learnt=False)
    assert 1 / 12 < in_batch < 1 / 4


def test_a_request_is_matched_to_the_user_that_usually_sends_such() -> None:
    batched = RelayService("hardened", batch=5)
    learnt, alone = (
        np.mean([publishers_found(batched, seed, learnt=known) for seed in range(4)]) for known in (True, False)
    )
    assert learnt > alone + 0.2


def test_a_user_that_sent_twice_in_a_window_may_get_two_requests() -> None:
    sent = np.array([[2.0, 1.0, 0.0]])
    usual = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    said = batch_disclosure.match_senders(sent, np.zeros(3, np.int64), np.array([0, 1, 0]), usual)
    assert said.argmax(axis=1).tolist() == [0, 1, 0]


def test_a_window_with_fewer_senders_than_requests_says_nothing() -> None:
    """Some deliveries belong to a user whose wire was not observed."""
    assert not batch_disclosure.match_senders(
        np.array([[1.0]]), np.zeros(2, np.int64), np.zeros(2, np.int64), np.ones((1, 1))
    ).any()
