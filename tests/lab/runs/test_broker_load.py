"""Publications at a steady rate beside Byzantine replicas wait for no key that was dealt ahead."""

from __future__ import annotations

from typing import Any

import pytest

from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.runs.table import ENGINES

NOTES = 40


def measured(lie: str, replicas: int = 3, **given: Any) -> dict[str, float]:
    params = make_params("brokers.load", {"lie": lie, "replicas": replicas, "notes": NOTES, **given})
    return {one.metric: one.value for one in ENGINES["machines"](params, 1, None)}


@pytest.mark.parametrize(
    ("lie", "replicas"),
    [
        *(("equivocate", 3), ("drop", 3), ("doze", 3)),
        *(
            pytest.param(lie, replicas, marks=pytest.mark.all_only)
            for lie in ("mute", "delay", "share", "block", "equivocate", "doze", "accuse", "misroute", "replay", "drop")
            for replicas in (3, 5)
            if (lie, replicas) not in (("equivocate", 3), ("drop", 3), ("doze", 3))
        ),
    ],
)
def test_a_liar_at_every_node_makes_no_publication_wait_for_a_key(lie: str, replicas: int) -> None:
    honest, lied = measured("none", replicas), measured(lie, replicas)
    assert lied["p50_ms"] <= 2 * honest["p50_ms"]
    assert lied["p99_ms"] <= 1_000
    assert lied["late"] == 0
    assert lied["rate"] >= honest["rate"] / 2


def test_keys_that_are_dealt_when_needed_make_publications_wait_beside_a_liar() -> None:
    """The control."""
    lied = measured("equivocate", ahead=False)
    assert lied["p99_ms"] > 5_000
    assert lied["late"] > 0.2
    assert lied["rate"] < measured("none", ahead=False)["rate"] / 4
