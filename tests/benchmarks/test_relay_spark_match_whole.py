"""The benchmark of matching in bulk as a whole, in a file of its own: it makes its own sessions of Spark."""

from __future__ import annotations

import pytest

import relay_spark_match


@pytest.mark.all_only
@pytest.mark.heavy
def test_all_of_it_runs_at_a_small_size_and_agrees_on_bulk() -> None:
    lines: list[str] = []
    found = relay_spark_match.run(1_000, lines.append)
    assert len(found["measured"]) == len(lines) - 1 == 2 * 5
