from __future__ import annotations

from support.coalition_view import make_case


def test_the_coalition_is_who_observes() -> None:
    world = make_case("BL", 1, 1, nodes=200)
    assert not (world.view.coalition & ~world.people.insiders).any()


def test_what_was_shown_until_an_epoch_is_what_shorter_runs_show() -> None:
    short, long = make_case("SG", 1, 3, nodes=200).view, make_case("SG", 1, 6, nodes=200).view.first_epochs(3)
    for field in ("observer", "peer", "origin", "present", "seen", "delay", "handovers"):
        assert (getattr(short, field) == getattr(long, field)).all()
