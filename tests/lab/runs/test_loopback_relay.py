"""A relay on the loopback interface, timed: real streams, a few clients."""

from __future__ import annotations

from typing import get_args

import pytest

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.experiment.relay_params import RelayDelays
from veilcast.lab.runs.relay.delays import run_on_sockets
from veilcast.lab.runs.relay.loopback_relay import LoopbackRelay


@pytest.mark.parametrize("profile", get_args(Profile))
def test_whoever_subscribes_gets_what_any_of_them_publishes(profile: Profile) -> None:
    with LoopbackRelay(profile, "news", 1) as desk:
        clients = desk.join(4)
        assert desk.subscribe(clients[:3]) > 0
        own, *others = desk.publish(clients[:2], clients[:3])
        assert own > 0
        assert len(others) == 2


def test_who_waits_in_vain_is_told_after_a_while() -> None:
    with LoopbackRelay("paper", "news", 1) as desk:
        one, other = desk.join(2)
        desk._patience_s = 0.2
        with pytest.raises(StorageError, match="did not answer all of its clients"):
            desk.publish([one], [other])


def test_a_timed_run_on_real_sockets_has_the_measures_of_one_in_the_simulator() -> None:
    params = RelayDelays(nodes=60, timed="publishing", steps=(1.0, 3.0), relay="hardened")
    found = [(each.metric, each.step) for each in run_on_sockets(params, 1)]
    assert found == [("own_s", 1.0), ("last_s", 1.0), ("own_s", 3.0), ("last_s", 3.0)]


def test_on_real_sockets_proxies_do_not_wait_for_each_answer() -> None:
    with pytest.raises(ConfigError, match="serial"):
        run_on_sockets(RelayDelays(timed="crowd", steps=(1.0,), relay="paper", serial=True), 1)
