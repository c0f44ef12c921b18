"""Live, in every mode: one poisoned notification costs nobody a process, a stream or a later notification."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from veilcast.cli import crew

sys.path.insert(0, str(Path(__file__).parent))
from foil_house import is_here
from poison_net import NOTES, poison

MODES = ["mesh", "relay", "tree", "brokers"]
FOIL = pytest.param("foil", marks=pytest.mark.skipif(not is_here(), reason="mosquitto is not installed"))


@pytest.mark.all_only
@pytest.mark.parametrize("mode", [*MODES, FOIL])
def test_a_poisoned_notification_costs_nobody_anything(mode: str, tmp_path: Path) -> None:
    outcome = poison(tmp_path / "net", mode)
    assert outcome.alive == crew.WORKERS
    assert outcome.faults == 0
    assert set(outcome.arrived.values()) == {NOTES}
