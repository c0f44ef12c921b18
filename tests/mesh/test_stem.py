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
from veilcast.wire.mesh import Call, Greet, Heartbeat, Message, Notify, Stem, StemReceipt, Subscribe

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
    cottage = SingleHardenedNode("forwarder", neighbours, with_rules(**changed), number=number)
    cottage.hear("d", root_advert())
    cottage.run(1)
    return cottage


def publisher(neighbours: str = "a b c", **changed: object) -> tuple[SingleHardenedNode, str]:
    """A publisher that knows a root, and the first neighbour of its stems."""
    cottage = SingleHardenedNode("publisher", neighbours, with_rules(**changed))
    cottage.node.advertise(TOPIC, cottage.now)
    for name in cottage.names:
        cottage.hear(name, root_advert())
    cottage.run(2)
    successor = StickyChoices(ring("publisher").membership.link).choose_first_relay(
        name.encode() for name in cottage.names
    )
    assert successor is not None
    return cottage, successor.decode()


def away(cottage: SingleHardenedNode, name: str) -> None:
    cottage.node.peer_lost(Address(name), cottage.now)
    cottage.names.remove(Address(name))


def back(cottage: SingleHardenedNode, name: str) -> None:
    cottage.names.append(Address(name))
    cottage.hear(name, Greet(), root_advert())


# --- the first hop ------------------------------------------------------------------------------------------


def test_the_first_successor_is_the_same_for_every_note_and_after_a_restart() -> None:
    for _ in range(2):
        cottage, successor = publisher()
        for number in range(5):
            cottage.node.publish(publication(b"%d" % number), cottage.now)
            assert hops(cottage.sort(cottage.frames())) == [(successor, False)]


def test_a_note_waits_while_the_successor_is_away_and_goes_when_it_is_back() -> None:
    cottage, successor = publisher()
    away(cottage, successor)
    cottage.node.publish(publication(b"x"), cottage.now)
    assert hops(cottage.run(30)) == []
    assert cottage.node.sizes()["pending"] == 1
    back(cottage, successor)
    assert hops(cottage.run(2)) == [(successor, False)]


def test_of_a_note_that_waits_too_long_the_owner_is_told_and_it_goes_when_there_is_a_way() -> None:
    cottage, successor = publisher(wait_epochs=1)
    away(cottage, successor)
    cottage.node.publish(publication(b"x"), cottage.now)
    assert hops(cottage.run_until(START_US + EPOCH_US - PERIOD_US)) == []
    assert cottage.events() == []
    assert hops(cottage.run(10)) == []
    assert cottage.events() == [Overdue(2, publication(b"x"))]
    assert hops(cottage.run_until(START_US + 2 * EPOCH_US + 20 * PERIOD_US)) == []
    assert cottage.events() == [Overdue(2, publication(b"x"))]
    back(cottage, successor)
    cottage.hear(successor, root_advert(later=2, at_us=cottage.now))
    assert (successor, False) in hops(cottage.run(2))


def test_what_nobody_acknowledges_is_sent_again_by_the_same_way_only() -> None:
    cottage, successor = publisher()
    cottage.node.publish(publication(b"x"), cottage.now)
    said = cottage.run(3 * RULES.retry_periods + 1)
    assert hops(said) == [(successor, False)] * 4
    assert len({encode(message) for _, _, message in only(said, Stem)}) == 1


def test_an_acknowledgement_ends_the_retries() -> None:
    cottage, successor = publisher()
    cottage.node.publish(publication(b"x"), cottage.now)
    [(_, _, stem)] = only(cottage.sort(cottage.frames()), Stem)
    assert isinstance(stem, Stem)
    cottage.send(successor, acknowledgement_by(50, cargo_id(stem.cargo)))
    assert cottage.node.sizes()["pending"] == 0
    assert hops(cottage.run(3 * RULES.retry_periods)) == []


def test_a_relay_that_drops_a_note_cannot_acknowledge_it_in_the_root_s_place() -> None:
    cottage, successor = publisher()
    cottage.node.publish(publication(b"x"), cottage.now)
    [(_, _, stem)] = only(cottage.sort(cottage.frames()), Stem)
    assert isinstance(stem, Stem)
    name = cargo_id(stem.cargo)
    for forged in (
        StemReceipt(name, bytes(64)),
        acknowledgement_by(51, name),
        StemReceipt(name, acknowledgement_by(50, bytes(16)).receipt),
    ):
        cottage.send(successor, forged)
        assert cottage.node.sizes()["pending"] == 1
        assert hops(cottage.run(RULES.retry_periods + 1)) == [(successor, False)]
    cottage.send(successor, acknowledgement_by(50, name))
    assert cottage.node.sizes()["pending"] == 0


def suspects() -> list[tuple[str, SingleHardenedNode, str, Stem]]:
    """A publisher and a relay, with the next hop of the cargo of each."""
    found = []
    cottage, successor = publisher()
    cottage.node.publish(publication(b"x"), cottage.now)
    [(_, _, stem)] = only(cottage.sort(cottage.frames()), Stem)
    assert isinstance(stem, Stem)
    found.append(("publisher", cottage, successor, stem))
    cottage = relay(passes=True)
    stem = walking(certified_notify(b"x"))
    [(target, _)] = hops(cottage.send("a", stem))
    found.append(("relay", cottage, target, stem))
    return found


def test_a_false_acknowledgement_before_the_true_one_does_not_tell_a_publisher_from_a_relay() -> None:
    for role, cottage, target, stem in suspects():
        name = cargo_id(stem.cargo)
        cottage.send(target, StemReceipt(name, bytes(64)))
        cottage.send(target, acknowledgement_by(50, name))
        if role == "relay":  # Whom it has the cargo from was told the false one, and tries again.
            cottage.run(RULES.retry_periods - 1)
            again = hops(cottage.send("a", stem))
        else:
            again = hops(cottage.run(RULES.retry_periods))
        assert again == [(target, False)], role


def test_a_cargo_that_is_sent_back_after_a_while_is_acknowledged_by_its_publisher_too() -> None:
    for role, cottage, target, stem in suspects():
        cottage.run(RULES.retry_periods // 2 + 1)
        [(onward, _)] = hops(cottage.send(target, stem))
        receipt = acknowledgement_by(50, cargo_id(stem.cargo))
        assert taken(cottage.send(onward, receipt)) == [(target, cargo_id(stem.cargo))], role
        if role == "publisher":
            assert cottage.node.sizes()["pending"] == 0


def test_only_whom_it_went_to_can_acknowledge_a_note() -> None:
    cottage, successor = publisher()
    cottage.node.publish(publication(b"x"), cottage.now)
    [(_, _, stem)] = only(cottage.sort(cottage.frames()), Stem)
    assert isinstance(stem, Stem)
    other = next(name for name in cottage.names if name != successor)
    cottage.send(other, StemReceipt(cargo_id(stem.cargo), bytes(64)))
    cottage.send(successor, StemReceipt(bytes(16), bytes(64)))
    assert cottage.node.sizes()["pending"] == 1
    assert cottage.node.refused == {"StaleError": 2}


# --- relays -------------------------------------------------------------------------------------------------


def test_the_next_hop_depends_on_the_predecessor_alone() -> None:
    cottage = relay(passes=True)
    ways = [hops(cottage.send("a", walking(certified_notify(b"%d" % n, n, seed=n)))) for n in range(1, 8)]
    ways.append(hops(cottage.send("a", walking(call(1)))))
    assert all(way == ways[0] for way in ways)
    [(_, climbs)] = ways[0]
    assert not climbs


def test_the_coin_of_a_predecessor_is_thrown_once() -> None:
    cottage = relay(passes=False)
    for number in range(1, 8):
        assert hops(cottage.send("a", walking(certified_notify(b"%d" % number, number, seed=number)))) == [("d", True)]


def test_a_relay_passes_over_a_neighbour_that_is_away() -> None:
    cottage = relay(passes=True)
    [(first, _)] = hops(cottage.send("a", walking(certified_notify(b"1"))))
    away(cottage, first)
    [(second, _)] = hops(cottage.send("a", walking(certified_notify(b"2", 2, seed=2))))
    assert second not in (first, "a")


def test_a_cargo_that_comes_back_ends_its_walk_and_is_acknowledged_to_whom_it_came_from_first() -> None:
    cottage, cargo = relay(passes=True), certified_notify(b"x")
    [(first, _)] = hops(cottage.send("a", walking(cargo)))
    other = next(name for name in "bcd" if name not in (first, "d"))
    assert hops(cottage.send(other, walking(cargo))) == [("d", True)]
    assert taken(cottage.send("d", StemReceipt(name_of(cargo), bytes(64)))) == [("a", name_of(cargo))]


def test_what_climbs_through_the_circle_it_walked_is_acknowledged_by_whom_it_went_to_first() -> None:
    cottage, cargo = relay(passes=True, neighbours="a d i k"), certified_notify(b"x")
    [(first, _)] = hops(cottage.send("a", walking(cargo)))
    assert first != "d"
    assert hops(cottage.send("d", walking(cargo))) == [("d", True)]
    assert taken(cottage.send(first, StemReceipt(name_of(cargo), bytes(64)))) == [("a", name_of(cargo))]


def test_a_cargo_that_climbs_in_a_circle_is_refused() -> None:
    cottage, cargo = relay(passes=False), certified_notify(b"x")
    assert hops(cottage.send("a", climbing(cargo))) == [("d", True)]
    assert hops(cottage.send("b", climbing(cargo))) == []
    assert cottage.node.refused == {"StaleError": 1}


def test_a_copy_of_a_cargo_is_not_passed_on_but_another_try_is() -> None:
    for passes in (True, False):
        cottage, cargo = relay(passes=passes), certified_notify(b"x")
        first = hops(cottage.send("a", walking(cargo)))
        assert hops(cottage.send("a", walking(cargo))) == []
        assert cottage.node.refused == {"StaleError": 1}
        cottage.run(RULES.retry_periods)
        assert hops(cottage.send("a", walking(cargo))) == first


def test_a_cargo_that_turns_round_and_climbs_by_where_it_walked_is_no_copy() -> None:
    cottage, cargo = relay(passes=True), certified_notify(b"x")
    cottage.send("a", walking(cargo))
    assert hops(cottage.send("a", climbing(cargo))) == [("d", True)]


def test_a_cargo_that_comes_by_another_way_later_is_another_try() -> None:
    cottage, cargo = relay(passes=False), certified_notify(b"x")
    cottage.send("a", climbing(cargo))
    cottage.run(RULES.retry_periods)
    assert hops(cottage.send("b", climbing(cargo))) == [("d", True)]
    assert taken(cottage.send("d", StemReceipt(name_of(cargo), bytes(64)))) == [("b", name_of(cargo))]


def test_an_acknowledgement_goes_back_once() -> None:
    cottage, cargo = relay(passes=False), certified_notify(b"x")
    cottage.send("a", walking(cargo))
    assert taken(cottage.send("b", StemReceipt(name_of(cargo), bytes(64)))) == []
    assert taken(cottage.send("d", StemReceipt(name_of(cargo), bytes(64)))) == [("a", name_of(cargo))]
    assert taken(cottage.send("d", StemReceipt(name_of(cargo), bytes(64)))) == []
    assert cottage.node.refused == {"StaleError": 2}


def test_a_note_for_which_there_is_no_way_goes_nowhere() -> None:
    cottage = SingleHardenedNode("forwarder", "a b", with_rules(onward=0.0))
    assert hops(cottage.send("a", walking(certified_notify(b"x")))) == []
    assert cottage.node.refused == {"StaleError": 1}
    assert cottage.node.sizes()["passages"] == 0


def test_a_call_for_which_there_is_no_root_is_flooded_by_the_end_of_the_stem() -> None:
    cottage = SingleHardenedNode("forwarder", "a b c", with_rules(onward=0.0))
    cottage.send("a", walking(call()))
    assert [name for _, name, _ in only(cottage.run(2), Call)] == ["a", "b", "c"]


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
        "a call that nobody signed": Call(call().token, call().certificate, bytes(64)),
        "a call of a time to come": call(2),
        "no cargo": Subscribe(token()),
        "a heartbeat": Heartbeat(1, ()),
        "a stem in a stem": walking(right),
    }


@pytest.mark.parametrize("lie", forged())
@pytest.mark.parametrize("climbs", [False, True])
def test_forged_cargo_is_not_passed_on(lie: str, climbs: bool) -> None:
    cottage = relay(passes=True)
    assert cottage.send("a", Stem(climbs, encode(forged()[lie]))) == []
    assert cottage.node.refused.total() == 1
    assert cottage.node.sizes()["passages"] == 0


def test_cargo_of_the_past_is_not_passed_on() -> None:
    cottage = relay(passes=True)
    cottage.run_until(START_US + 2 * EPOCH_US + PERIOD_US)
    assert hops(cottage.send("a", walking(certified_notify(b"x")))) == []
    assert hops(cottage.send("a", walking(call()))) == []


def test_the_planted_bug_of_cargo_that_nobody_checks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardened, "check_certified_notify", lambda *_: None)
    with pytest.raises(AssertionError):
        test_forged_cargo_is_not_passed_on("a wrong signature", False)


def test_passages_are_bounded_and_the_oldest_makes_room() -> None:
    cottage = relay(passes=False, passages_max=3)
    cargoes = [certified_notify(b"%d" % number, number, seed=number) for number in range(1, 6)]
    for cargo in cargoes:
        cottage.send("a", walking(cargo))
    assert cottage.node.sizes()["passages"] == 3
    assert taken(cottage.send("d", StemReceipt(name_of(cargoes[0]), bytes(64)))) == []
    assert taken(cottage.send("d", StemReceipt(name_of(cargoes[-1]), bytes(64)))) == [("a", name_of(cargoes[-1]))]


# --- the root -----------------------------------------------------------------------------------------------


def root(**changed: object) -> SingleHardenedNode:
    """The root of the first epoch, with a child b."""
    cottage = SingleHardenedNode("forwarder", "a b c", with_rules(onward=0.0, **changed))
    cottage.hear("a", call())
    cottage.run(20)
    assert cottage.node.overlay.originates(token())
    cottage.hear("b", Subscribe(token()))
    cottage.run(RULES.lead_periods)
    return cottage


def test_the_root_sends_a_note_down_its_mesh_and_acknowledges_it() -> None:
    cottage, cargo = root(), certified_notify(b"x")
    said = cottage.send("a", climbing(cargo))
    assert [(name, message) for _, name, message in only(said, Notify)] == [("b", cargo)]
    assert taken(said) == [("a", name_of(cargo))]


def test_the_root_acknowledges_again_what_comes_again_and_sends_it_down_once() -> None:
    cottage, cargo = root(), certified_notify(b"x")
    cottage.send("a", climbing(cargo))
    for source in ("a", "c"):
        cottage.run(RULES.retry_periods)
        said = cottage.send(source, climbing(cargo))
        assert only(said, Notify) == []
        assert taken(said) == [(source, name_of(cargo))]


def test_who_was_root_once_passes_a_stem_on_to_who_is_now() -> None:
    """Two roots for two epochs: the root of the first follows another in the second."""
    cottage = root()
    better = next(number for number in range(50, 99) if lot_rank(member(number)) < lot_rank(member(0)))
    cottage.run_until(START_US + EPOCH_US - RULES.lead_periods * PERIOD_US)
    cottage.hear("c", root_advert(number=better, later=1))
    cottage.run(1)
    assert hops(cottage.send("a", climbing(certified_notify(b"x", later=1)))) == [("c", True)]


# --- whole hamlets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_notes_arrive_once_although_frames_are_lost_now_and_then(seed: int) -> None:
    """Only on the way to the root: a loss below it is final, as in the papers."""
    hamlet = HardenedMeshNetwork("p-a a-b b-p a-c c-d d-a b-d s-c s-d s-a s-b s-p", seed=seed, cover=1).run_until(0.4)
    for way in ("a", "b", "s"):
        hamlet.world.block(Address("p"), Address(way))
    hamlet.publish(b"x", wait=1)
    assert hamlet.delivered("s") == []
    for way in ("a", "b", "s"):
        hamlet.world.unblock(Address("p"), Address(way))
    hamlet.run(4 * RULES.retry_periods)
    assert hamlet.delivered("s") == [b"x"]
    assert hamlet.node("p").sizes()["pending"] == 0


def test_a_publisher_in_bad_weather_gets_everything_to_the_root() -> None:
    hamlet = HardenedMeshNetwork("p-a p-b a-r b-r r-s", cover=1, config=with_rules(wait_epochs=4)).run_until(0.4)
    hamlet.world.set_weather(Weather(loss_ppm=100_000))
    for number in range(10):
        hamlet.publish(b"%d" % number, wait=1)
    hamlet.run(20)
    hamlet.world.set_weather(Weather())
    hamlet.run_until(1.5)
    assert hamlet.node("p").sizes()["pending"] == 0
    assert len(hamlet.delivered("s")) == len(set(hamlet.delivered("s")))
    assert not any(isinstance(event, Overdue) for _, event in hamlet.events)
