"""Send slots: a publisher's notifications and calls leave once in several epochs, and still arrive."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hardened_mesh_network import (
    EPOCH_US,
    FIRST,
    PERIOD_US,
    HardenedMeshNetwork,
    SingleHardenedNode,
    acknowledgement_by,
    call,
    certified_notify,
    only,
    root_advert,
    with_rules,
)
from support.mesh_network import publication
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.machine import Address, Overdue
from veilcast.mesh.config import DEPARTURE_EPOCHS_MAX, HardeningConfig
from veilcast.mesh.roots import RootDelay
from veilcast.mesh.send_slots import SendSlots
from veilcast.mesh.stem import cargo_id
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.sim.mesh.population import TOPIC
from veilcast.wire import decode
from veilcast.wire.mesh import Call, Notify, Stem

LINEAGE = bytes(16)
WORLD = "p-a a-b b-c c-d d-s s-e e-p a-d b-e"


def make_slots(epochs: int, member: int = 1) -> SendSlots:
    return SendSlots(StickyChoices(Secret(member.to_bytes(32, "big"))), epochs, epoch_us=EPOCH_US)


@given(st.integers(1, DEPARTURE_EPOCHS_MAX), st.integers(0, 10**9), st.integers(0, 100))
def test_there_is_one_send_slot_in_each_stretch_and_none_is_missed(epochs: int, now: int, member: int) -> None:
    some, stretch_us = make_slots(epochs, member), epochs * EPOCH_US
    after = some.next_us(LINEAGE, now)
    assert now <= after < (now // stretch_us + 2) * stretch_us
    assert some.next_us(LINEAGE, after) == after == some.last_before_us(LINEAGE, after)
    following = some.next_us(LINEAGE, after + 1)
    assert following // stretch_us == after // stretch_us + 1
    assert some.last_before_us(LINEAGE, following - 1) == after


def test_slots_are_a_members_own_and_the_same_after_a_restart() -> None:
    def moments(member: int, lineage: bytes) -> list[int]:
        return [make_slots(4, member).next_us(lineage, stretch * 4 * EPOCH_US) for stretch in range(20)]

    assert moments(1, LINEAGE) == moments(1, LINEAGE)
    assert moments(1, LINEAGE) != moments(2, LINEAGE)
    assert moments(1, LINEAGE) != moments(1, bytes(15) + b"1")
    within = [moment % (4 * EPOCH_US) / EPOCH_US for moment in moments(1, LINEAGE)]
    assert min(within) < 1
    assert max(within) > 3


def test_a_repetition_in_the_same_epoch_need_not_wait_and_a_later_one_does() -> None:
    some = make_slots(4)
    left_us = some.next_us(LINEAGE, 0) // EPOCH_US * EPOCH_US
    assert some.retry_us(LINEAGE, left_us + 5, left_us) == left_us + 5
    assert some.retry_us(LINEAGE, left_us + EPOCH_US, left_us) == some.next_us(LINEAGE, left_us + EPOCH_US)


def test_without_send_slots_everything_leaves_at_once() -> None:
    some = make_slots(0)
    assert (some.is_unrestricted, some.epochs_ahead, some.next_us(LINEAGE, 77)) == (True, 1, 77)
    assert some.retry_us(LINEAGE, 3 * EPOCH_US, 0) == 3 * EPOCH_US


@pytest.mark.parametrize("epochs", [-1, DEPARTURE_EPOCHS_MAX + 1])
def test_impossible_send_slots_are_refused(epochs: int) -> None:
    with pytest.raises(ConfigError, match="departure_epochs"):
        HardeningConfig(departure_epochs=epochs)


def departed(epochs: int, lasting: int, seed: int = 3) -> tuple[list[int], list[int]]:
    """The epochs in which the notifications of a publisher left, with one for each sixth of an epoch; and the epochs
    for which it called for a root. There is always a root, which acknowledges at once."""
    bench = SingleHardenedNode("publisher", config=with_rules(departure_epochs=epochs), seed=seed)
    bench.node.advertise(TOPIC, bench.now)
    left, called = [], []
    for later in range(lasting):
        for name in bench.names:
            bench.hear(name, root_advert(later=later, at_us=bench.now))
        for _ in range(6):
            bench.node.publish(publication(b"x"), bench.now)
            for _, sender, message in only(bench.run(EPOCH_US / PERIOD_US / 6), Stem):
                assert isinstance(message, Stem)
                cargo = decode(message.cargo)
                if isinstance(cargo, Notify):
                    left.append(later)
                elif isinstance(cargo, Call):
                    called.append(cargo.certificate.leaf.first - FIRST)
                bench.send(sender, acknowledgement_by(50, cargo_id(message.cargo)))
    return left, called


def test_notifications_leave_in_one_epoch_of_each_stretch_and_calls_for_all_later_epochs_with_them() -> None:
    left, called = departed(3, 9)
    stretches = {(FIRST + later) // 3 for later in left}
    assert len(set(left)) == len(stretches) >= 3
    # Every epoch has a call, once: for those that are over before the first slot there need be none.
    assert len(set(called)) == len(called)
    assert set(range(min(left) + 1, 9)) - set(called) <= {min(left) + 1}


def test_the_check_detects_notifications_that_leave_at_any_time() -> None:
    """The planted bug: without send slots there are notifications in all epochs."""
    assert len(set(departed(0, 4)[0])) == 4


def test_relays_and_roots_accept_calls_as_early_as_send_slots_make_them_and_no_earlier() -> None:
    for epochs, later, taken in ((0, 1, True), (0, 2, False), (2, 4, True), (2, 5, False)):
        bench = SingleHardenedNode("forwarder", "a b c", with_rules(departure_epochs=epochs))
        bench.hear("a", call(later))
        assert (bench.node.sizes()["calls"] == 1) is taken


@pytest.mark.parametrize("hold", [0.0, 1.0])
def test_all_notifications_sent_in_slots_reach_the_subscribers_in_order(hold: float) -> None:
    network = HardenedMeshNetwork(
        WORLD, cover=0.5, config=with_rules(departure_epochs=2, hold_back_epochs=hold)
    ).run_until(0.1)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        network.publish(body, wait=10 + Random(body).random())
    network.run_until(9)
    assert network.delivered("s") == bodies


def test_a_publisher_that_missed_its_slot_sends_when_it_is_back() -> None:
    network = HardenedMeshNetwork(WORLD, cover=0.5, config=with_rules(departure_epochs=2)).run_until(0.1)
    network.publish(b"1", wait=1)
    network.world.crash(Address("p"))
    network.run_until(2.2)
    network.world.restart(Address("p"))
    network.run_until(2.4)
    network.publish(b"2", wait=1)
    network.run_until(7)
    assert network.delivered("s")[-1:] == [b"2"]


def test_a_notification_that_waits_for_its_slot_is_not_overdue() -> None:
    bench = SingleHardenedNode("publisher", config=with_rules(departure_epochs=2, wait_epochs=1))
    bench.node.publish(publication(b"x"), bench.now)
    bench.run_until(bench.now + 5 * EPOCH_US - PERIOD_US)
    assert bench.events() == []
    bench.run(2)
    assert bench.events() == [Overdue(2, publication(b"x"))]


@pytest.mark.parametrize(("epochs", "sent"), [(0, True), (DEPARTURE_EPOCHS_MAX, False)])
def test_a_mass_failure_repeats_sent_notifications_and_sends_none_before_its_slot(epochs: int, sent: bool) -> None:
    bench = SingleHardenedNode("publisher", "a b c d e", with_rules(departure_epochs=epochs, retry_periods=50))
    for name in bench.names:
        bench.hear(name, root_advert())
    bench.run(2)
    bench.node.publish(publication(b"x"), bench.now)
    bench.run(2)
    del bench.names[1:]  # All others fall silent at once.
    stems = [message for _, _, message in only(bench.run(12), Stem) if isinstance(message, Stem)]
    assert any(isinstance(decode(stem.cargo), Notify) for stem in stems) is sent


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 30))
def test_a_root_releases_held_notifications_in_order_and_in_time(waits: list[int], hold_us: int) -> None:
    holding, now, put, got = RootDelay(Random(1), hold_us=hold_us, room=8), 0, [], []
    for number, wait in enumerate(waits):
        name, cargo = b"%d" % number, certified_notify(b"x", number + 1)
        if holding.can_hold(name) and holding.hold(name, cargo, 0, now):
            assert not holding.can_hold(name)
            put.append(name)
        now += wait
        while (held := holding.pop_due(now)) is not None:
            got.append(held[0])
        assert len(holding) <= 8
    while (held := holding.pop_due(now + hold_us)) is not None:
        got.append(held[0])
    assert got == put
    assert len(holding) == 0


def test_held_notifications_are_bounded_by_room() -> None:
    holding = RootDelay(Random(1), hold_us=0, room=2)
    for number in range(2):
        assert holding.hold(b"%d" % number, certified_notify(b"x", number + 1), 10, 0)
    assert not holding.can_hold(b"2")


def test_a_notification_that_comes_after_the_mesh_formed_does_not_overtake_waiting_ones() -> None:
    holding, first, second = (
        RootDelay(Random(1), hold_us=0, room=8),
        certified_notify(b"1", 1),
        certified_notify(b"2", 2),
    )
    assert holding.hold(b"1", first, 10, 0)
    assert holding.hold(b"2", second, 10, 10)
    assert [holding.pop_due(10), holding.pop_due(10), holding.pop_due(10)] == [(b"1", first), (b"2", second), None]
    assert not holding.hold(b"3", second, 10, 11)
