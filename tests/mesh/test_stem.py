"""Stems: the way from a publisher to the root, hop by hop, and the acknowledgement's way back."""

from __future__ import annotations

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
    lot_rank,
    member,
    only,
    ring,
    root_advert,
    token,
    with_rules,
)
from support.mesh_network import publication
from veilcast.machine import Address, Overdue
from veilcast.mesh import hardened
from veilcast.mesh.stem import cargo_id
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.sim.engine import START_US
from veilcast.sim.links import Weather
from veilcast.sim.mesh.population import TOPIC
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Call, Greet, Heartbeat, Notify, Stem, StemReceipt, Subscribe

Said = list[tuple[int, str, Message]]


def walking(cargo: Message) -> Stem:
    return Stem(False, encode(cargo))


def climbing(cargo: Message) -> Stem:
    return Stem(True, encode(cargo))


def name_of(cargo: Message) -> bytes:
    return cargo_id(encode(cargo))


def hops(said: Said) -> list[tuple[str, bool]]:
    return [(name, message.climbing) for _, name, message in said if isinstance(message, Stem)]


def taken(said: Said) -> list[tuple[str, bytes]]:
    return [(name, message.name) for _, name, message in said if isinstance(message, StemReceipt)]


def relay(*, passes: bool, neighbours: str = "a b c d", **changed: object) -> SingleHardenedNode:
    """A relay that forwards, or ends, stems from a. Its way to the root is over d."""
    coins = {n: StickyChoices(ring("forwarder", n).membership.link).continues_stem(b"a", 0.5) for n in range(20)}
    number = next(n for n, coin in coins.items() if coin == passes)
    bench = SingleHardenedNode("forwarder", neighbours, with_rules(**changed), number=number)
    bench.hear("d", root_advert())
    bench.run(1)
    return bench


def publisher(neighbours: str = "a b c", **changed: object) -> tuple[SingleHardenedNode, str]:
    """A publisher that knows a root, and the first neighbour of its stems."""
    bench = SingleHardenedNode("publisher", neighbours, with_rules(**changed), seed=5)
    bench.node.advertise(TOPIC, bench.now)
    for name in bench.names:
        bench.hear(name, root_advert())
    bench.run(2)
    successor = StickyChoices(ring("publisher").membership.link).choose_first_relay(
        name.encode() for name in bench.names
    )
    assert successor is not None
    return bench, successor.decode()


def away(bench: SingleHardenedNode, name: str) -> None:
    bench.node.peer_lost(Address(name), bench.now)
    bench.names.remove(Address(name))


def back(bench: SingleHardenedNode, name: str) -> None:
    bench.names.append(Address(name))
    bench.hear(name, Greet(), root_advert())


# --- the first hop ------------------------------------------------------------------------------------------


def test_the_first_successor_is_the_same_for_every_note_and_after_a_restart() -> None:
    for _ in range(2):
        bench, successor = publisher()
        for number in range(5):
            bench.node.publish(publication(b"%d" % number), bench.now)
            assert hops(bench.sort(bench.frames())) == [(successor, False)]


def test_a_note_waits_while_the_successor_is_away_and_goes_when_it_is_back() -> None:
    bench, successor = publisher()
    away(bench, successor)
    bench.node.publish(publication(b"x"), bench.now)
    assert hops(bench.run(30)) == []
    assert bench.node.sizes()["pending"] == 1
    back(bench, successor)
    assert hops(bench.run(2)) == [(successor, False)]


def test_the_owner_is_told_of_an_overdue_notification_which_leaves_when_there_is_a_way() -> None:
    bench, successor = publisher(wait_epochs=1)
    away(bench, successor)
    bench.node.publish(publication(b"x"), bench.now)
    assert hops(bench.run_until(START_US + EPOCH_US - PERIOD_US)) == []
    assert bench.events() == []
    assert hops(bench.run(10)) == []
    assert bench.events() == [Overdue(2, publication(b"x"))]
    assert hops(bench.run_until(START_US + 2 * EPOCH_US + 20 * PERIOD_US)) == []
    assert bench.events() == [Overdue(2, publication(b"x"))]
    back(bench, successor)
    bench.hear(successor, root_advert(later=2, at_us=bench.now))
    assert (successor, False) in hops(bench.run(2))


def test_an_unacknowledged_notification_is_repeated_over_the_same_way_only() -> None:
    bench, successor = publisher()
    bench.node.publish(publication(b"x"), bench.now)
    said = bench.run(3 * RULES.retry_periods + 1)
    assert hops(said) == [(successor, False)] * 4
    assert len({encode(message) for _, _, message in only(said, Stem)}) == 1


def test_an_acknowledgement_ends_the_retries() -> None:
    bench, successor = publisher()
    bench.node.publish(publication(b"x"), bench.now)
    [(_, _, stem)] = only(bench.sort(bench.frames()), Stem)
    assert isinstance(stem, Stem)
    bench.send(successor, acknowledgement_by(50, cargo_id(stem.cargo)))
    assert bench.node.sizes()["pending"] == 0
    assert hops(bench.run(3 * RULES.retry_periods)) == []


def test_a_relay_that_drops_a_note_cannot_acknowledge_it_in_the_root_s_place() -> None:
    bench, successor = publisher()
    bench.node.publish(publication(b"x"), bench.now)
    [(_, _, stem)] = only(bench.sort(bench.frames()), Stem)
    assert isinstance(stem, Stem)
    name = cargo_id(stem.cargo)
    for forged in (
        StemReceipt(name, bytes(64)),
        acknowledgement_by(51, name),
        StemReceipt(name, acknowledgement_by(50, bytes(16)).receipt),
    ):
        bench.send(successor, forged)
        assert bench.node.sizes()["pending"] == 1
        assert hops(bench.run(RULES.retry_periods + 1)) == [(successor, False)]
    bench.send(successor, acknowledgement_by(50, name))
    assert bench.node.sizes()["pending"] == 0


def suspects() -> list[tuple[str, SingleHardenedNode, str, Stem]]:
    """A publisher and a relay, with the next hop of the cargo of each."""
    found = []
    bench, successor = publisher()
    bench.node.publish(publication(b"x"), bench.now)
    [(_, _, stem)] = only(bench.sort(bench.frames()), Stem)
    assert isinstance(stem, Stem)
    found.append(("publisher", bench, successor, stem))
    bench = relay(passes=True)
    stem = walking(certified_notify(b"x"))
    [(target, _)] = hops(bench.send("a", stem))
    found.append(("relay", bench, target, stem))
    return found


def test_a_false_acknowledgement_before_the_true_one_does_not_tell_a_publisher_from_a_relay() -> None:
    for role, bench, target, stem in suspects():
        name = cargo_id(stem.cargo)
        bench.send(target, StemReceipt(name, bytes(64)))
        bench.send(target, acknowledgement_by(50, name))
        if role == "relay":  # Whom it has the cargo from was told the false one, and tries again.
            bench.run(RULES.retry_periods - 1)
            again = hops(bench.send("a", stem))
        else:
            again = hops(bench.run(RULES.retry_periods))
        assert again == [(target, False)], role


def test_a_cargo_that_is_sent_back_after_a_while_is_acknowledged_by_its_publisher_too() -> None:
    for role, bench, target, stem in suspects():
        bench.run(RULES.retry_periods // 2 + 1)
        [(onward, _)] = hops(bench.send(target, stem))
        receipt = acknowledgement_by(50, cargo_id(stem.cargo))
        assert taken(bench.send(onward, receipt)) == [(target, cargo_id(stem.cargo))], role
        if role == "publisher":
            assert bench.node.sizes()["pending"] == 0


def test_only_a_next_hop_can_acknowledge_a_notification() -> None:
    bench, successor = publisher()
    bench.node.publish(publication(b"x"), bench.now)
    [(_, _, stem)] = only(bench.sort(bench.frames()), Stem)
    assert isinstance(stem, Stem)
    other = next(name for name in bench.names if name != successor)
    bench.send(other, StemReceipt(cargo_id(stem.cargo), bytes(64)))
    bench.send(successor, StemReceipt(bytes(16), bytes(64)))
    assert bench.node.sizes()["pending"] == 1
    assert bench.node.refused == {"StaleError": 2}


# --- relays -------------------------------------------------------------------------------------------------


def test_the_next_hop_depends_on_the_predecessor_alone() -> None:
    bench = relay(passes=True)
    ways = [hops(bench.send("a", walking(certified_notify(b"%d" % n, n, seed=n)))) for n in range(1, 8)]
    ways.append(hops(bench.send("a", walking(call(1)))))
    assert all(way == ways[0] for way in ways)
    [(_, climbs)] = ways[0]
    assert not climbs


def test_the_coin_of_a_predecessor_is_thrown_once() -> None:
    bench = relay(passes=False)
    for number in range(1, 8):
        assert hops(bench.send("a", walking(certified_notify(b"%d" % number, number, seed=number)))) == [("d", True)]


def test_a_relay_skips_an_absent_neighbour() -> None:
    bench = relay(passes=True)
    [(first, _)] = hops(bench.send("a", walking(certified_notify(b"1"))))
    away(bench, first)
    [(second, _)] = hops(bench.send("a", walking(certified_notify(b"2", 2, seed=2))))
    assert second not in (first, "a")


def test_a_cargo_that_comes_back_ends_its_walk_and_is_acknowledged_to_its_first_sender() -> None:
    bench, cargo = relay(passes=True), certified_notify(b"x")
    [(first, _)] = hops(bench.send("a", walking(cargo)))
    other = next(name for name in "bcd" if name not in (first, "d"))
    assert hops(bench.send(other, walking(cargo))) == [("d", True)]
    assert taken(bench.send("d", StemReceipt(name_of(cargo), bytes(64)))) == [("a", name_of(cargo))]


def test_a_cargo_that_climbs_through_its_own_circle_is_acknowledged_by_its_first_next_hop() -> None:
    bench, cargo = relay(passes=True, neighbours="a d i k"), certified_notify(b"x")
    [(first, _)] = hops(bench.send("a", walking(cargo)))
    assert first != "d"
    assert hops(bench.send("d", walking(cargo))) == [("d", True)]
    assert taken(bench.send(first, StemReceipt(name_of(cargo), bytes(64)))) == [("a", name_of(cargo))]


def test_a_cargo_that_climbs_in_a_circle_is_refused() -> None:
    bench, cargo = relay(passes=False), certified_notify(b"x")
    assert hops(bench.send("a", climbing(cargo))) == [("d", True)]
    assert hops(bench.send("b", climbing(cargo))) == []
    assert bench.node.refused == {"StaleError": 1}


def test_a_copy_of_a_cargo_is_not_forwarded_but_another_try_is() -> None:
    for passes in (True, False):
        bench, cargo = relay(passes=passes), certified_notify(b"x")
        first = hops(bench.send("a", walking(cargo)))
        assert hops(bench.send("a", walking(cargo))) == []
        assert bench.node.refused == {"StaleError": 1}
        bench.run(RULES.retry_periods)
        assert hops(bench.send("a", walking(cargo))) == first


def test_a_cargo_that_climbs_back_over_its_walk_is_no_copy() -> None:
    bench, cargo = relay(passes=True), certified_notify(b"x")
    bench.send("a", walking(cargo))
    assert hops(bench.send("a", climbing(cargo))) == [("d", True)]


def test_a_cargo_that_comes_by_another_way_later_is_another_try() -> None:
    bench, cargo = relay(passes=False), certified_notify(b"x")
    bench.send("a", climbing(cargo))
    bench.run(RULES.retry_periods)
    assert hops(bench.send("b", climbing(cargo))) == [("d", True)]
    assert taken(bench.send("d", StemReceipt(name_of(cargo), bytes(64)))) == [("b", name_of(cargo))]


def test_an_acknowledgement_goes_back_once() -> None:
    bench, cargo = relay(passes=False), certified_notify(b"x")
    bench.send("a", walking(cargo))
    assert taken(bench.send("b", StemReceipt(name_of(cargo), bytes(64)))) == []
    assert taken(bench.send("d", StemReceipt(name_of(cargo), bytes(64)))) == [("a", name_of(cargo))]
    assert taken(bench.send("d", StemReceipt(name_of(cargo), bytes(64)))) == []
    assert bench.node.refused == {"StaleError": 2}


def test_a_notification_without_a_way_is_not_sent() -> None:
    bench = SingleHardenedNode("forwarder", "a b", with_rules(onward=0.0))
    assert hops(bench.send("a", walking(certified_notify(b"x")))) == []
    assert bench.node.refused == {"StaleError": 1}
    assert bench.node.sizes()["passages"] == 0


def test_a_call_for_which_there_is_no_root_is_flooded_by_the_end_of_the_stem() -> None:
    bench = SingleHardenedNode("forwarder", "a b c", with_rules(onward=0.0))
    bench.send("a", walking(call()))
    assert [name for _, name, _ in only(bench.run(2), Call)] == ["a", "b", "c"]


def forged() -> dict[str, Message]:
    right = certified_notify(b"x")
    return {
        "no certificate": msgspec.structs.replace(right, certificate=None),
        "a wrong signature": msgspec.structs.replace(right, signature=bytes(64)),
        "another's certificate": msgspec.structs.replace(
            right, certificate=ring("forwarder", 9).membership.certificate
        ),
        "another text": msgspec.structs.replace(right, sealed=bytes(len(right.sealed))),
        "another token": msgspec.structs.replace(right, token=token(1)),
        "an epoch to come": certified_notify(b"x", later=2),
        "a call without a signature": Call(call().token, call().certificate, bytes(64)),
        "a call of a time to come": call(2),
        "no cargo": Subscribe(token()),
        "a heartbeat": Heartbeat(1, ()),
        "a stem in a stem": walking(right),
    }


@pytest.mark.parametrize("lie", forged())
@pytest.mark.parametrize("climbs", [False, True])
def test_forged_cargo_is_not_forwarded(lie: str, climbs: bool) -> None:
    bench = relay(passes=True)
    assert bench.send("a", Stem(climbs, encode(forged()[lie]))) == []
    assert bench.node.refused.total() == 1
    assert bench.node.sizes()["passages"] == 0


def test_cargo_of_past_epochs_is_not_forwarded() -> None:
    bench = relay(passes=True)
    bench.run_until(START_US + 2 * EPOCH_US + PERIOD_US)
    assert hops(bench.send("a", walking(certified_notify(b"x")))) == []
    assert hops(bench.send("a", walking(call()))) == []


def test_the_planted_bug_of_unchecked_cargo_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardened, "check_certified_notify", lambda *_: None)
    with pytest.raises(AssertionError):
        test_forged_cargo_is_not_forwarded("a wrong signature", False)


def test_passages_are_bounded_and_the_oldest_makes_room() -> None:
    bench = relay(passes=False, passages_max=3)
    cargoes = [certified_notify(b"%d" % number, number, seed=number) for number in range(1, 6)]
    for cargo in cargoes:
        bench.send("a", walking(cargo))
    assert bench.node.sizes()["passages"] == 3
    assert taken(bench.send("d", StemReceipt(name_of(cargoes[0]), bytes(64)))) == []
    assert taken(bench.send("d", StemReceipt(name_of(cargoes[-1]), bytes(64)))) == [("a", name_of(cargoes[-1]))]


# --- the root -----------------------------------------------------------------------------------------------


def root(**changed: object) -> SingleHardenedNode:
    """The root of the first epoch, with a child b."""
    bench = SingleHardenedNode("forwarder", "a b c", with_rules(onward=0.0, **changed))
    bench.hear("a", call())
    bench.run(20)
    assert bench.node.overlay.originates(token())
    bench.hear("b", Subscribe(token()))
    bench.run(RULES.lead_periods)
    return bench


def test_the_root_sends_a_note_down_its_mesh_and_acknowledges_it() -> None:
    bench, cargo = root(), certified_notify(b"x")
    said = bench.send("a", climbing(cargo))
    assert [(name, message) for _, name, message in only(said, Notify)] == [("b", cargo)]
    assert taken(said) == [("a", name_of(cargo))]


def test_the_root_acknowledges_a_repetition_again_and_sends_it_down_once() -> None:
    bench, cargo = root(), certified_notify(b"x")
    bench.send("a", climbing(cargo))
    for source in ("a", "c"):
        bench.run(RULES.retry_periods)
        said = bench.send(source, climbing(cargo))
        assert only(said, Notify) == []
        assert taken(said) == [(source, name_of(cargo))]


def test_a_former_root_forwards_a_stem_to_the_current_root() -> None:
    """Two roots for two epochs: the root of the first follows another in the second."""
    bench = root()
    better = next(number for number in range(50, 99) if lot_rank(member(number)) < lot_rank(member(0)))
    bench.run_until(START_US + EPOCH_US - RULES.lead_periods * PERIOD_US)
    bench.hear("c", root_advert(number=better, later=1))
    bench.run(1)
    assert hops(bench.send("a", climbing(certified_notify(b"x", later=1)))) == [("c", True)]


# --- whole hamlets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_notifications_arrive_once_despite_lost_frames(seed: int) -> None:
    """Only on the way to the root: a loss below it is final, as in the papers."""
    network = HardenedMeshNetwork("p-a a-b b-p a-c c-d d-a b-d s-c s-d s-a s-b s-p", seed=seed, cover=1).run_until(0.4)
    for way in ("a", "b", "s"):
        network.world.block(Address("p"), Address(way))
    network.publish(b"x", wait=1)
    assert network.delivered("s") == []
    for way in ("a", "b", "s"):
        network.world.unblock(Address("p"), Address(way))
    network.run(4 * RULES.retry_periods)
    assert network.delivered("s") == [b"x"]
    assert network.node("p").sizes()["pending"] == 0


def test_a_publisher_on_lossy_links_gets_everything_to_the_root() -> None:
    network = HardenedMeshNetwork("p-a p-b a-r b-r r-s", cover=1, config=with_rules(wait_epochs=4)).run_until(0.4)
    network.world.set_weather(Weather(loss_ppm=100_000))
    for number in range(10):
        network.publish(b"%d" % number, wait=1)
    network.run(20)
    network.world.set_weather(Weather())
    network.run_until(1.5)
    assert network.node("p").sizes()["pending"] == 0
    assert len(network.delivered("s")) == len(set(network.delivered("s")))
    assert not any(isinstance(event, Overdue) for _, event in network.events)
