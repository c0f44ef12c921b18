from __future__ import annotations

import sys
from pathlib import Path

from veilcast.lab.attack import sights

sys.path.insert(0, str(Path(__file__).parent))
from coalitions import case


def test_the_coalition_is_who_observes() -> None:
    world = case("BL", 1, 1, nodes=200)
    assert not (sights.hostile(world.view) & ~world.people.insiders).any()


def test_what_was_shown_until_an_epoch_is_what_shorter_runs_show() -> None:
    short, long = case("SG", 1, 3, nodes=200).view, sights.until(case("SG", 1, 6, nodes=200).view, 3)
    for field in ("observer", "peer", "origin", "present", "seen", "delay", "handed"):
        assert (getattr(short, field) == getattr(long, field)).all()
