"""Runs of a relay for hours: what times tell its server, before and after."""

from __future__ import annotations

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.relay_params import RelayTiming
from veilcast.lab.runs.relay.timing import run

Measured = dict[tuple[str, str], float]


def measured(relay: str, seed: int, **more: float) -> Measured:
    params = RelayTiming(relay=relay, nodes=16, steps=(4,), absences=12.0, **more)  # type: ignore[arg-type]
    return {(each.attack, each.metric): each.value for each in run(params, seed)}


@pytest.mark.all_only
def test_a_proxy_that_holds_presence_ends_what_times_tell() -> None:
    """Before: rhythm, silences and returns name the leases of a member. After: none does, by the mean of some runs."""
    before = measured("answers", 1)
    assert before["lease-rhythm", "auc"] > 0.75
    assert before["lease-silences", "lift"] > 3
    assert before["lease-returns", "lift"] > 3
    after = [measured("held", seed) for seed in range(1, 5)]
    for attack in ("lease-rhythm", "lease-receipts", "lease-silences", "lease-returns"):
        for metric in ("auc", "auc_across"):
            assert sum(each[attack, metric] for each in after) / len(after) == pytest.approx(0.5, abs=0.08), attack
        assert sum(each[attack, "lift"] for each in after) / len(after) < 2
    assert after[0]["", "server_messages"] < before["", "server_messages"]
    assert after[0]["", "delay_ms"] == pytest.approx(before["", "delay_ms"], rel=0.2)


def test_a_short_run_has_all_measures() -> None:
    found = measured("held", 1, publications=20.0)
    assert {metric for attack, metric in found if attack == "lease-rhythm"} == {
        "auc",
        "auc_across",
        "lift",
        "precision",
    }
    assert {"member_messages", "member_bytes", "server_messages", "server_bytes", "delay_ms"} <= {
        metric for attack, metric in found if not attack
    }


def test_a_run_has_one_step() -> None:
    with pytest.raises(ConfigError, match="one number of hours"):
        RelayTiming(relay="held", steps=(1, 2))
