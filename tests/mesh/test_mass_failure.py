"""If most neighbours fall silent at once, notifications still reach the remaining nodes. In normal times nothing is
flooded."""

from __future__ import annotations

import pytest

from support.hardened_mesh_network import certified_notify
from support.mass_crash import CLAIM, beats_until_heard
from support.neighbourhood_network import CertifiedNetwork
from veilcast.machine import Address
from veilcast.mesh.certified import LONELY_LEAST, LOOKS_MAX
from veilcast.mesh.config import CertifiedConfig as Rules
from veilcast.mesh.mass_failure import DURATION_PERIODS, NEIGHBOURS_MIN, RECENT_MAX, RECENT_PERIODS, MassFailure
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.wire.mesh import Knock

SECOND_US = 1_000_000


def test_a_mass_failure_is_when_less_than_half_of_several_neighbours_are_heard() -> None:
    failure = MassFailure(SECOND_US)
    assert not failure.observe(NEIGHBOURS_MIN - 1, 0, 1)
    assert not failure.observe(10, 5, 1)
    assert not failure.is_active(1)
    assert failure.observe(10, 4, 1)
    assert failure.is_active(2)


def test_a_mass_failure_begins_once_and_lasts_from_its_last_observation() -> None:
    failure, lasts_us = MassFailure(SECOND_US), DURATION_PERIODS * SECOND_US
    assert failure.observe(10, 0, 1)
    assert not failure.observe(10, 0, 5)
    assert failure.is_active(4 + lasts_us)
    assert not failure.is_active(5 + lasts_us)
    assert failure.observe(10, 0, 5 + lasts_us)


def test_recent_notifications_are_bounded() -> None:
    failure = MassFailure(SECOND_US)
    notes = [certified_notify(b"%d" % number) for number in range(RECENT_MAX + 3)]
    for place, note in enumerate(notes):
        failure.remember(note, place)
    assert failure.recent_notifications(RECENT_MAX) == notes[3:]
    assert failure.recent_notifications(RECENT_PERIODS * SECOND_US + 4) == notes[4:]


def test_a_stopped_node_sees_no_mass_failure_in_the_silence_of_others() -> None:
    names = [Address(f"n{place}") for place in range(5)]
    members = NeighbourTable(names, period_us=SECOND_US, silent_periods=5, now=0)
    for name in names:
        members.hear(name, 1, 1)
    members.find_silent(SECOND_US)
    for second in (2, 3):
        members.hear(names[0], second, second * SECOND_US)
        members.find_silent(second * SECOND_US)
    assert [members.is_fresh(name, 3 * SECOND_US) for name in names] == [True, False, False, False, False]
    members.find_silent(60 * SECOND_US)  # Our own timer comes a minute late.
    assert all(members.is_fresh(name, 60 * SECOND_US) for name in names)
    assert not any(members.was_heard_within(name, 60 * SECOND_US) for name in names)


def test_a_node_that_hears_few_neighbours_knocks_at_many_others_once() -> None:
    network = CertifiedNetwork(Rules(knock_burst=100), neighbours_max=24)
    network.grow(40)
    network.beat(10)
    lonely = network.nodes[Address("n7")]
    assert len(lonely.slots.links) >= LONELY_LEAST
    before = len(network.sent)
    context = network.contexts[Address("n7")]
    context.fresh = False
    lonely.beat(network.now)
    knocked = [to for by, to, word in network.sent[before:] if by == "n7" and isinstance(word, Knock)]
    assert 4 < len(knocked) <= LOOKS_MAX
    lonely.beat(network.now)
    assert lonely.sizes()["tries"] <= LOOKS_MAX
    linked = len(lonely.slots.links)
    network.deliver()
    assert len(lonely.slots.links) > linked


@pytest.mark.parametrize("seed", range(2))
def test_a_surviving_fifth_of_a_small_network_still_delivers(seed: int) -> None:
    beats, lost = beats_until_heard(seed, links=False, nodes=24)
    assert beats is not None
    assert beats <= CLAIM
    assert lost == 0


def test_without_flooding_a_surviving_fifth_does_not_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validates the test above: the root was killed."""
    monkeypatch.setattr(MassFailure, "observe", lambda *_: False)
    outcomes = [beats_until_heard(seed, links=False, nodes=24)[0] for seed in range(2)]
    assert any(beats is None or beats > CLAIM for beats in outcomes)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_a_surviving_fifth_of_a_network_over_links_still_delivers(seed: int) -> None:
    """In seed 1 all eight links that the publisher had opened die. The survivors had come or come now."""
    beats, _ = beats_until_heard(seed, links=True, nodes=24)
    assert beats is not None
    assert beats <= CLAIM
