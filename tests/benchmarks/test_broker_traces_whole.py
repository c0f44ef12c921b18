"""The benchmark of traces as a whole, in a file of its own: it makes its own session of Spark."""

from __future__ import annotations

import pytest

import broker_traces


@pytest.mark.all_only
@pytest.mark.heavy
def test_a_small_one_runs_whole() -> None:
    lines: list[str] = []
    found = broker_traces.run(10_000, lines.append)
    assert [one["rows"] for one in found["measured"]] == [28_300, 1_400, 1_400, 100, 1_000, 10_000]
    assert found["hops"][0.5] > found["hops"][1.0] > found["hops"][2.0]
    assert len(lines) == 10
