"""A publisher's outbox, and the root's side of it: nothing is lost, doubled or out of order."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from support.hardened_mesh_network import (
    EPOCH_US,
    PERIOD_US,
    RULES,
    HardenedMeshNetwork,
    SingleHardenedNode,
    acknowledgement_by,
    call,
    certified_notify,
    only,
    ring,
    root_advert,
    token,
    topic_keys,
    with_rules,
)
from support.mesh_network import LABEL, publication
from veilcast.authority.keyring import TopicKeys
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication, open_notify
from veilcast.errors import ExpiredError, LocalError
from veilcast.machine import Address, Delivered, Overdue, Publication
from veilcast.mesh.outbox import StemOutbox
from veilcast.mesh.send_slots import SendSlots
from veilcast.mesh.stem import Cargo, cargo_id
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.sim.engine import START_US
from veilcast.sim.mesh.population import TOPIC
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.geometry import BODY_MAX
from veilcast.wire.mesh import Call, Notify, Stem, StemReceipt, Subscribe, Unsubscribe


def publisher(**changed: object) -> SingleHardenedNode:
    bench = SingleHardenedNode("publisher", config=with_rules(**changed))
    bench.node.advertise(TOPIC, bench.now)
    for name in bench.names:
        bench.hear(name, root_advert())
    bench.run(2)
    return bench


def cargoes(said: list[tuple[int, str, Message]], kind: type[Message] = Notify) -> list[Message]:
    found = [decode(message.cargo) for _, _, message in said if isinstance(message, Stem)]
    return [cargo for cargo in found if isinstance(cargo, kind)]


# --- what waits ---------------------------------------------------------------------------------------------


def test_notifications_leave_in_the_order_of_publication() -> None:
    bench = publisher()
    numbers = []
    for number in range(5):
        bench.node.publish(publication(b"%d" % number), bench.now)
    for cargo in cargoes(bench.sort(bench.frames())):
        assert isinstance(cargo, Notify)
        numbers.append(open_notify(topic_keys(), cargo).number)
    assert numbers == [1, 2, 3, 4, 5]


def test_waiting_publications_are_bounded_and_the_owner_is_told() -> None:
    bench = SingleHardenedNode("publisher", config=with_rules(pending_max=3))
    for number in range(3):
        bench.node.publish(publication(b"%d" % number), bench.now)
    with pytest.raises(LocalError, match="3 publications wait already"):
        bench.node.publish(publication(b"x"), bench.now)
    assert bench.node.sizes()["pending"] == 3


def test_an_unsendable_publication_is_refused_and_leaves_no_gap() -> None:
    bench = publisher()
    with pytest.raises(LocalError, match="bytes"):
        bench.node.publish(Publication((LABEL.pair,), bytes(BODY_MAX)), bench.now)
    assert bench.node.sizes()["pending"] == 0
    bench.node.publish(publication(b"x"), bench.now)
    [cargo] = cargoes(bench.sort(bench.frames()))
    assert isinstance(cargo, Notify)
    assert open_notify(topic_keys(), cargo).number == 1


def test_after_an_edge_a_notification_is_sealed_again_and_delivered_once() -> None:
    bench = publisher()
    bench.node.publish(publication(b"x"), bench.now)
    [before] = cargoes(bench.sort(bench.frames()))
    bench.run_until(START_US + EPOCH_US)
    for name in bench.names:
        bench.hear(name, root_advert(later=1))
    after = cargoes(bench.run(RULES.retry_periods + 2))[-1]
    assert isinstance(before, Notify)
    assert isinstance(after, Notify)
    assert (before.token, after.token) == (token(), token(1))
    reader = SingleHardenedNode("subscriber", cover=0)
    reader.node.subscribe(LABEL, reader.now)
    reader.hear("a", root_advert())
    reader.run(RULES.window_periods + 2)
    reader.send("a", before)
    [first] = reader.events()[-1:]
    assert isinstance(first, Delivered)
    assert first.note.publication.body == b"x"
    reader.node.acknowledge(first.note.id, reader.now)
    reader.run_until(START_US + EPOCH_US - RULES.lead_periods * PERIOD_US)
    reader.hear("a", root_advert(later=1))
    reader.run_until(START_US + EPOCH_US + PERIOD_US)
    reader.send("a", after)
    assert reader.delivered() == []
    assert not reader.node.refused


def test_the_acknowledgement_of_either_sealing_settles_it() -> None:
    for which in (0, -1):
        bench = publisher()
        bench.node.publish(publication(b"x"), bench.now)
        sent = [(name, message) for _, name, message in only(bench.sort(bench.frames()), Stem)]
        bench.run_until(START_US + EPOCH_US)
        for name in bench.names:
            bench.hear(name, root_advert(later=1))
        said = only(bench.run(RULES.retry_periods + 2), Stem)
        sent += [(n, m) for _, n, m in said if isinstance(m, Stem) and isinstance(decode(m.cargo), Notify)]
        target, stem = sent[which]
        assert isinstance(stem, Stem)
        bench.send(target, acknowledgement_by(50, cargo_id(stem.cargo)))
        assert bench.node.sizes()["pending"] == 0


# --- calls --------------------------------------------------------------------------------------------------


def test_a_publisher_calls_for_the_next_epoch_at_a_moment_of_its_own() -> None:
    """Between now and two leads before the edge, and not twice once it is acknowledged."""
    moments = []
    for seed in range(12):
        bench = SingleHardenedNode("publisher", seed=seed)
        bench.node.advertise(TOPIC, bench.now)
        bench.hear("a", root_advert())
        said = only(bench.run_until(START_US + EPOCH_US - 2 * RULES.lead_periods * PERIOD_US + 2 * PERIOD_US), Stem)
        calls = [
            (at, decode(m.cargo)) for at, _, m in said if isinstance(m, Stem) and isinstance(decode(m.cargo), Call)
        ]
        next_ones = [at for at, cargo in calls if isinstance(cargo, Call) and cargo.token == token(1)]
        moments.append(next_ones[0] - START_US)
    assert max(moments) - min(moments) > EPOCH_US // 4


def test_an_acknowledged_call_is_repeated_only_if_no_mesh_forms() -> None:
    bench = publisher()
    lead_us = START_US + EPOCH_US - RULES.lead_periods * PERIOD_US
    calls = 0
    while bench.now < lead_us:
        for _, name, message in only(bench.run(1), Stem):
            assert isinstance(message, Stem)
            calls += 1
            bench.send(name, acknowledgement_by(50, cargo_id(message.cargo)))
    assert calls == 1
    assert len(only(bench.run_until(START_US + EPOCH_US), Stem)) == 1


def test_a_member_that_is_no_publisher_can_neither_advertise_nor_publish() -> None:
    bench = SingleHardenedNode("subscriber")
    with pytest.raises(LocalError, match="only a publisher"):
        bench.node.advertise(TOPIC, bench.now)
    with pytest.raises(LocalError, match="only a publisher"):
        bench.node.publish(publication(b"x"), bench.now)
    assert bench.node.sizes()["pending"] == 0


def test_a_former_publisher_that_still_subscribes_makes_no_more_calls() -> None:
    """The grant to publish ends with the first epoch, and one to subscribe does not."""
    publishing, reading = ring("publisher"), ring("subscriber")
    [grant] = publishing.grants
    ended = msgspec.structs.replace(grant, keys=grant.keys[:1], signatures=grant.signatures[:1])
    keyring = msgspec.structs.replace(publishing, grants=(ended, *reading.grants))
    bench = SingleHardenedNode("publisher", config=with_rules(wait_epochs=1), keyring=keyring)
    bench.node.publish(publication(b"x"), bench.now)
    said = bench.run_until(START_US + 2 * EPOCH_US)
    assert {cargo.token for cargo in cargoes(said, Call) if isinstance(cargo, Call)} == {token()}
    assert bench.events() == [Overdue(2, publication(b"x"))]


def test_after_the_grant_ended_an_already_sealed_notification_is_not_sent() -> None:
    def keys_of(topic: str, epoch: int) -> TopicKeys:
        if epoch > START_US // EPOCH_US:
            raise ExpiredError("the grant has ended")
        return topic_keys()

    def launch(cargo: Cargo, lineage: bytes, now: int) -> bool:
        sent.append(now)
        return True

    sent: list[int] = []
    rng = Random(1)
    config = with_rules()
    outbox = StemOutbox(
        config,
        keys_of,
        lambda token: True,
        lambda token: True,
        lambda token, lineage, members, now: now,
        lambda: 0,
        launch,
        lambda lineage, now: 0,
        SendSlots(StickyChoices(ring("publisher").membership.link), 0, epoch_us=EPOCH_US),
        lambda record, pending: None,
        rng,
        rng.randbytes,
        epoch_us=EPOCH_US,
    )
    outbox.put(2, PendingPublication(TOPIC, NumberedPublication(bytes(8), 1, publication(b"x"))), START_US)
    for now in range(START_US, START_US + 2 * EPOCH_US, PERIOD_US):
        outbox.beat(now)
    assert sent
    assert sent[-1] < START_US + EPOCH_US


# --- the root's side ----------------------------------------------------------------------------------------


def root(**changed: object) -> SingleHardenedNode:
    """The root of the first epoch, with a child b and a formed mesh."""
    bench = SingleHardenedNode("forwarder", "a b c", with_rules(onward=0.0, **changed))
    bench.hear("a", call())
    bench.run(20)
    bench.hear("b", Subscribe(token()))
    bench.run(RULES.lead_periods)
    return bench


def test_a_root_that_holds_back_releases_in_time_and_in_order_and_acknowledges_then() -> None:
    bench = root(hold_back_epochs=0.5)
    arrived, released, acknowledged = {}, [], []
    for number in range(1, 21):
        cargo = certified_notify(b"%d" % number, number, seed=number)
        arrived[cargo_id(encode(cargo))] = bench.now
        assert bench.send("a", Stem(True, encode(cargo))) == []
        bench.run(0.5)
    assert bench.node.sizes()["held"] > 0
    for at_us, _, message in bench.run(0.5 * EPOCH_US / PERIOD_US + 2):
        if isinstance(message, Notify):
            name = cargo_id(encode(message))
            assert at_us - arrived[name] <= 0.5 * EPOCH_US + PERIOD_US
            released.append(name)
        elif isinstance(message, StemReceipt):
            acknowledged.append(message.name)
    assert acknowledged == released
    early = len(arrived) - len(released)
    assert released == list(arrived)[early:]
    assert bench.node.sizes()["held"] == 0


def test_a_notification_held_over_an_edge_is_released_in_the_current_mesh() -> None:
    """Into the second epoch after its own: late, but all receivers know its lineage."""
    bench = root(hold_back_epochs=1.5)
    bench.hear("a", call(1))
    bench.run_until(START_US + EPOCH_US - 3 * PERIOD_US)
    bench.hear("c", Subscribe(token(1)))
    cargo = certified_notify(b"x")
    said = bench.send("a", Stem(True, encode(cargo)))
    bench.hear("a", call(2))
    said += bench.run_until(START_US + 2 * EPOCH_US - 2 * PERIOD_US)
    bench.hear("c", Subscribe(token(2)))
    said += bench.run_until(START_US + 3 * EPOCH_US)
    assert [message for _, _, message in only(said, Notify)][:1] == [cargo]
    assert bench.node.sizes()["held"] == 0


def test_a_late_notification_held_over_the_next_edge_is_still_released() -> None:
    bench = root(hold_back_epochs=0.5)
    bench.hear("a", call(1))
    bench.run_until(START_US + EPOCH_US)
    bench.hear("a", call(2))
    bench.run_until(START_US + 2 * EPOCH_US - 5 * PERIOD_US)
    bench.hear("b", Subscribe(token(1)), Subscribe(token(2)))
    late = [certified_notify(b"%d" % number, number, seed=number) for number in range(1, 6)]
    said = [told for cargo in late for told in bench.send("a", Stem(True, encode(cargo)))]
    said += bench.run(0.5 * EPOCH_US / PERIOD_US + 2)
    assert len(only(said, Notify)) == len(only(said, StemReceipt)) == 5


def test_a_former_root_drops_held_notifications_without_acknowledgement() -> None:
    bench = root(hold_back_epochs=0.5)
    bench.run_until(START_US + EPOCH_US - 2 * PERIOD_US)
    for number in range(1, 6):
        bench.send("a", Stem(True, encode(certified_notify(b"%d" % number, number, seed=number))))
    held = bench.node.sizes()["held"]
    bench.hear("b", Unsubscribe(token()))
    said = bench.run_until(START_US + 2 * EPOCH_US)
    assert bench.node.sizes()["held"] == 0
    assert len(only(said, StemReceipt)) < held


def test_a_mesh_that_forms_does_not_get_a_note_at_the_moment_of_another_mesh() -> None:
    bench = root(hold_back_epochs=0.05)
    bench.hear("a", call(1))
    edge_us = START_US + EPOCH_US
    bench.run_until(edge_us - (RULES.lead_periods - 3) * PERIOD_US)
    bench.hear("c", Subscribe(token(1)))
    early, due = certified_notify(b"early", later=1), certified_notify(b"due", seed=6)
    said = bench.send("a", Stem(True, encode(early))) + bench.send("a", Stem(True, encode(due)))
    said += bench.run_until(edge_us - PERIOD_US)
    assert list(dict.fromkeys(message for _, _, message in only(said, Notify))) == [due]  # In both meshes.
    assert [message for _, _, message in only(bench.run(4), Notify)] == [early]


def test_held_notifications_are_bounded() -> None:
    bench = root(hold_back_epochs=1.0, pending_max=3)
    for number in range(1, 9):
        bench.send("a", Stem(True, encode(certified_notify(b"%d" % number, number, seed=number))))
    assert bench.node.sizes()["held"] <= 3


# --- whole networks ------------------------------------------------------------------------------------------

WORLD = "p-a a-b b-c c-d d-s s-e e-p a-d b-e"


def test_publications_before_the_first_root_reach_the_subscribers() -> None:
    network = HardenedMeshNetwork(WORLD, cover=0.5)
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        network.publish(body, wait=1)
    network.run_until(0.9)
    assert network.delivered("s") == bodies


@pytest.mark.parametrize("seed", range(4))
def test_publications_during_the_absence_of_a_root_reach_the_subscribers(seed: int) -> None:
    network = HardenedMeshNetwork(WORLD, cover=0.5, seed=seed).run_until(0.35)
    [root] = network.roots()
    if root in "ps":
        pytest.skip("the root is the publisher or the reader of this test")
    network.publish(b"before", wait=4)
    network.world.crash(Address(root))
    network.run(8)
    for number in range(5):
        network.publish(b"%d" % number, wait=1)
    network.run_until(0.95)
    assert network.delivered("s") == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_a_notification_lost_on_its_stem_is_delivered_before_later_ones() -> None:
    network = HardenedMeshNetwork("p-a a-b b-s", cover=1).run_until(0.4)
    network.publish(b"0", wait=2)
    network.world.block(Address("p"), Address("a"))
    network.publish(b"1", wait=0.01)
    network.world.unblock(Address("p"), Address("a"))
    network.publish(b"2", wait=1)
    network.run(2 * RULES.retry_periods)
    assert network.delivered("s") == [b"0", b"1", b"2"]


def test_a_publisher_that_was_away_over_an_edge_is_heard_when_it_is_back() -> None:
    """It could not call for the epoch: the mesh forms late, and its notifications wait at the root."""
    network = HardenedMeshNetwork(WORLD, cover=0.5).run_until(0.5)
    network.publish(b"1", wait=4)
    network.world.crash(Address("p"))
    network.run_until(1.3)
    network.world.restart(Address("p"))
    network.run(2)
    network.publish(b"2", wait=1)
    network.run_until(1.9)
    assert network.delivered("s") == [b"1", b"2"]


@pytest.mark.parametrize("seed", range(3))
def test_every_edge_is_crossed_without_loss_and_in_order(seed: int) -> None:
    network = HardenedMeshNetwork(WORLD, cover=0.5, seed=seed).run_until(0.8)
    bodies = [b"%d" % number for number in range(150)]
    for body in bodies:
        network.publish(body, wait=1 + Random(body).random())
    network.run(20)
    assert network.world.now > START_US + 2 * EPOCH_US
    assert network.delivered("s") == bodies
