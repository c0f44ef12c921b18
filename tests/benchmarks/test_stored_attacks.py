"""The benchmark of stored attacks: a difference is no result, and processes that were killed are counted."""

from __future__ import annotations

import os
from typing import Any

import pytest

import stored_attacks
from measurement import process_usage
from measurement.process_usage import ProcessUsage, TreeUsage
from veilcast.errors import LocalError

SCORE = {
    "cell": "a",
    "attack": "leaf",
    "metric": "auc",
    "step": 0.0,
    "value": 0.7500000000000001,
    "low": float("-inf"),
    "high": float("inf"),
    "seeds": 1,
}
NO_INTERVAL = {**SCORE, "low": None, "high": None}


def attacked(*scores: dict[str, Any], different: int = 0) -> dict[str, Any]:
    return {"scores": list(scores), "compared": 9, "different": different}


def test_scores_that_are_equal_to_the_last_digit_are_counted() -> None:
    assert stored_attacks.compare_scores([NO_INTERVAL, {**NO_INTERVAL, "attack": "chance"}], attacked(SCORE)) == 1


@pytest.mark.parametrize(
    "found",
    [attacked({**SCORE, "value": 0.75}), attacked(), attacked(SCORE, different=1)],
    ids=["digit", "none", "guess"],
)
def test_a_difference_in_the_last_digit_or_in_one_guess_is_no_result(found: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match="differ"):
        stored_attacks.compare_scores([NO_INTERVAL], found)


def test_the_time_of_a_killed_process_counts_and_memory_is_that_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    second = os.sysconf("SC_CLK_TCK")
    ticks = {1: 5 * second, 2: 3 * second}
    monkeypatch.setattr(process_usage, "process_tree", lambda root: list(ticks))
    monkeypatch.setattr(process_usage, "own_ticks", lambda process: ticks[process])
    monkeypatch.setattr(process_usage, "held_bytes", lambda process: 100 << 20)
    usage = ProcessUsage({"executors": (1,)})
    ticks |= {2: 7 * second, 3: 2 * second}
    usage.sample()
    del ticks[2]
    ticks[1] = 6 * second
    usage.sample()
    assert usage.usage_of("executors") == TreeUsage(1.0 + 4.0 + 2.0, 300)
