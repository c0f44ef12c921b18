"""The machines of secret forwarding send as many messages as the models count; liars cost so much and no more."""

from __future__ import annotations

from typing import Any

import pytest

from veilcast.brokers.keys.share_counts import (
    messages_redistributed,
    messages_redistributed_at_worst,
    shares_received,
    shares_sent,
)
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.runs.table import ENGINES


def found(engine: str = "machines", seed: int = 0, **given: Any) -> dict[tuple[str, float], float]:
    params = make_params("brokers.messages" if engine == "machines" else "brokers.delays", given)
    return {(one.metric, one.step): one.value for one in ENGINES[engine](params, seed, None)}


@pytest.mark.parametrize("replicas", [3, 5])
def test_redistribution_sends_what_the_model_counts_but_nothing_to_oneself(replicas: int) -> None:
    counted = found(counts=(1, 2, 3), replicas=replicas)
    for hops in (1, 2, 3):
        sizes = [replicas] * hops
        assert counted["messages", hops] == messages_redistributed(sizes) - (hops - 1) * replicas
        # At most 2 r^2 from node to node; and beside these, those before are told who has a share.
        assert counted["messages", hops] <= 2 * replicas**2 * (hops - 1) + 2 * replicas
        assert counted["taken", hops] == replicas**2 * (hops - 1)
        assert counted["delivered", hops] == counted["attempts", hops] == 1


@pytest.mark.parametrize("replicas", [3, 5])
def test_splitting_again_sends_what_the_model_counts(replicas: int) -> None:
    counted = found(counts=(1, 2, 3), replicas=replicas, sharing="paper")
    for hops in (1, 2, 3):
        sizes = [replicas] * hops
        assert counted["shares", hops] == shares_sent(sizes)
        assert counted["received", hops] == shares_received(sizes)
        assert counted["delivered", hops] == 1


@pytest.mark.parametrize(
    "lie",
    [
        *("drop", "share", "block", "equivocate", "stall", "pool"),
        *(
            pytest.param(lie, marks=pytest.mark.all_only)
            for lie in ("replay", "doze", "misroute", "accuse", "delay", "mute")
        ),
    ],
)
def test_liars_make_the_honest_send_no_more_than_the_worst_for_each_attempt(lie: str) -> None:
    quiet = found(counts=(2, 3))
    lied = found(counts=(2, 3), lie=lie)
    for hops in (2, 3):
        assert lied["delivered", hops] == 1
        assert lied["of_honest", hops] <= messages_redistributed_at_worst([3] * hops) * lied["attempts", hops]
        if lie in ("block", "stall", "pool"):
            assert lied["messages", hops] == quiet["messages", hops]


def test_latency_grows_with_the_hops_whoever_shares() -> None:
    for sharing in ("paper", "hardened"):
        took = found("live", counts=(1, 4), sharing=sharing)
        assert 0 < took["latency_ms", 1] < took["latency_ms", 4]
