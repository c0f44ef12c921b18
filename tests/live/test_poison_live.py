"""Live, in every mode: one poisoned notification ends no process and no stream, and no later notification is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.live_foil import has_mosquitto
from support.poisoned_network import NOTES, run_poisoned_network
from veilcast.cli.local import workers

MODES = ["mesh", "relay", "tree", "brokers"]
FOIL = pytest.param("foil", marks=pytest.mark.skipif(not has_mosquitto(), reason="mosquitto is not installed"))


@pytest.mark.all_only
@pytest.mark.parametrize("mode", [*MODES, FOIL])
def test_a_poisoned_notification_costs_nobody_anything(mode: str, tmp_path: Path) -> None:
    outcome = run_poisoned_network(tmp_path / "net", mode)
    assert outcome.alive == workers.WORKERS
    assert outcome.faults == 0
    assert set(outcome.arrived.values()) == {NOTES}
