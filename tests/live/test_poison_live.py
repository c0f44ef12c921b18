"""Live, in every mode: one poisoned notification costs nobody a process, a stream or a later notification."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.foil_house import is_here
from support.poison_net import NOTES, poison
from veilcast.cli import crew

MODES = ["mesh", "relay", "tree", "brokers"]
FOIL = pytest.param("foil", marks=pytest.mark.skipif(not is_here(), reason="mosquitto is not installed"))


@pytest.mark.all_only
@pytest.mark.parametrize("mode", [*MODES, FOIL])
def test_a_poisoned_notification_costs_nobody_anything(mode: str, tmp_path: Path) -> None:
    outcome = poison(tmp_path / "net", mode)
    assert outcome.alive == crew.WORKERS
    assert outcome.faults == 0
    assert set(outcome.arrived.values()) == {NOTES}
