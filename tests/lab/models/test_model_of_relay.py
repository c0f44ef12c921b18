"""A modelled relay shows each of its parties what the recipes show it, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from support.relay_users import draw_users, run_small_relay
from veilcast.errors import ConfigError
from veilcast.lab.models.relay import EPOCH_US, RelayService, settle_users
from veilcast.lab.models.server_log import DELIVERED, PUBLISHED, SENT, SUBSCRIBED, cross_table
from veilcast.lab.runs.relay.relay_tables import observe_relay

PAPER, HARDENED = RelayService("paper"), RelayService("hardened")
BATCHED = RelayService("hardened", batch=5)


@pytest.mark.parametrize("service", [PAPER, HARDENED, BATCHED])
def test_every_match_of_who_is_there_is_delivered_and_nothing_else(service: RelayService) -> None:
    people, shown, answers = run_small_relay(1, service, 2)
    topic_of = [{int(tag): number for number, tag in enumerate(tags)} for tags in answers.topic]
    published = shown.server.select(PUBLISHED)
    by_request = {
        request: (epoch, topic_of[epoch][tag])
        for request, epoch, tag in zip(
            published.who.tolist(), published.epoch.tolist(), published.what.tolist(), strict=True
        )
    }
    expected = {
        (request, user)
        for request, (epoch, topic) in by_request.items()
        for user in np.flatnonzero(people.reads[:, topic] & shown.present[epoch]).tolist()
    }
    got = shown.server.select(DELIVERED)
    pairs = [(request, answers.user[who]) for request, who in zip(got.what.tolist(), got.who.tolist(), strict=True)]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


def test_who_publishes_may_write_and_is_there() -> None:
    people, shown, answers = run_small_relay(2, HARDENED, 3)
    published = shown.server.select(PUBLISHED)
    for request, epoch, tag in zip(published.who, published.epoch, published.what, strict=True):
        user, topic = answers.user[int(request)], int(np.flatnonzero(answers.topic[epoch] == tag)[0])
        assert people.writes[user, topic]
        assert shown.present[epoch, user]


def test_the_papers_tags_are_the_same_for_ever_and_for_both() -> None:
    _, shown, answers = run_small_relay(3, PAPER, 2)
    server, proxy = shown.server.select(SUBSCRIBED), shown.proxy.select(SUBSCRIBED)
    assert set(server.what.tolist()) == set(proxy.what.tolist()) <= set(answers.computed.tolist())
    assert set(shown.proxy.select(DELIVERED).what.tolist()) <= set(shown.proxy.select(SENT).what.tolist())
    held, _, _ = cross_table(server.who, server.what)
    assert held.sum(axis=1).max() > 1


def test_hardened_nothing_repeats_at_the_proxy_nor_over_epochs_at_the_server() -> None:
    _, shown, answers = run_small_relay(3, HARDENED, 2)
    assert np.unique(shown.proxy.what).size == len(shown.proxy)
    first, second = (set(shown.server.select(SUBSCRIBED, epoch, epoch).what.tolist()) for epoch in (0, 1))
    assert not first & second
    assert not (first | second) & set(answers.computed.tolist())
    asked = shown.server.select(SUBSCRIBED)
    assert np.unique(asked.who).size == len(asked)


@pytest.mark.parametrize("service", [PAPER, HARDENED, BATCHED])
def test_windows_of_the_server_are_those_of_the_wires(service: RelayService) -> None:
    people, shown, answers = run_small_relay(4, service, 3)
    for kind, wires in ((SUBSCRIBED, shown.subscribing), (PUBLISHED, shown.publishing)):
        asked = shown.server.select(kind)
        sent = np.zeros(wires.sent.shape)
        users = np.array([answers.user[who] for who in asked.who.tolist()])
        np.add.at(sent, (shown.windows(asked), users), 1.0)
        assert np.array_equal(sent, wires.sent)
    assert shown.publishing.got.sum() == len(shown.server.select(DELIVERED))
    assert people.users == shown.publishing.got.shape[1]


def test_batches_are_as_large_as_they_are_said_to_be_on_the_average() -> None:
    _, shown, _ = run_small_relay(5, BATCHED, 4)
    assert shown.publishing.sent.sum(axis=1).mean() == pytest.approx(5, abs=0.3)
    _, alone, _ = run_small_relay(5, HARDENED, 4)
    assert (alone.publishing.sent.sum(axis=1) == 1).all()


def test_rows_of_the_table_say_who_saw_what() -> None:
    people, shown, answers = run_small_relay(7, PAPER, 1)
    seen = observe_relay("r", people, PAPER, shown, answers, np.ones(people.reads.shape[1]), None, 0, 0.001)
    first = seen["server"].to_pylist()[-1]
    assert (first["run"], first["epoch"], first["role"]) == ("r", 0, "proxy:deliver")
    assert first["pseudonym"] in seen["topology"]["v"].to_pylist()
    assert 0 <= first["t_us"] < EPOCH_US


def test_the_same_seed_serves_the_same() -> None:
    first, second = run_small_relay(8, BATCHED, 2)[1], run_small_relay(8, BATCHED, 2)[1]
    assert np.array_equal(first.server.what, second.server.what)
    assert np.array_equal(first.proxy.t_us, second.proxy.t_us)


def test_a_topic_has_writers() -> None:
    with pytest.raises(ConfigError, match="writer"):
        settle_users(draw_users(1).reads, 0, 10.0, 0.0, 1)
