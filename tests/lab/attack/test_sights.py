from __future__ import annotations

import sys
from pathlib import Path

from veilcast.lab.attack import sights
from veilcast.lab.kernels import insiders

sys.path.insert(0, str(Path(__file__).parent))
from coalitions import case


def test_attackers_read_what_insiders_are_shown() -> None:
    for code in ("AWAY", "SILENT", "ASKED", "RECRUITED", "REFUSED", "INVITED", "FOLLOWED"):
        assert getattr(sights, code) == getattr(insiders, code)


def test_the_coalition_is_who_observes() -> None:
    world = case("BL", 1, 1, nodes=200)
    assert not (sights.hostile(world.view) & ~world.people.insiders).any()
