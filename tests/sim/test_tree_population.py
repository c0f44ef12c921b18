"""The tree's population: its machines, its adversaries and its checkers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.frame_adversaries import ScriptedPeer
from veilcast.errors import ConfigError
from veilcast.machine import Address, Frame
from veilcast.sim.checkers import ViolationError
from veilcast.sim.links import LinkDelays
from veilcast.sim.tree.adversaries import HoardingNode
from veilcast.sim.tree.checkers import PARENTS_MAX, CopyCounter, NoMultiplication
from veilcast.sim.tree.load import measure_load
from veilcast.sim.tree.population import DIRECTORY, TreePopulation
from veilcast.sim.world import World
from veilcast.tree.config import TreeConfig
from veilcast.wire import decode, encode
from veilcast.wire.tree import ForwardPublication, Install, Offer, RequestAck

STREAM = Address("in:1")
WORLD = World(seed=1, links=LinkDelays())


def carry(number: int, entry: bytes, message: bytes = b"m" * 16) -> bytes:
    return encode(ForwardPublication(number, entry * 16, message, b"body"))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"nodes": 0}, "nodes"),
        ({"subscribers": 0}, "subscribers"),
        ({"notes": -1}, "notes"),
        ({"publishers": 13}, "more than its nodes"),
        ({"hoarders": 8}, "hoarders"),
        ({"checks": ("none",)}, "no check"),
        ({"checks": ("frugal",), "tree": TreeConfig(profile="paper")}, "frugal"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TreePopulation(**wrong)


def test_publishers_come_first_subscribers_last_and_hoarders_between() -> None:
    population = TreePopulation(nodes=6, publishers=1, subscribers=2, hoarders=3)
    assert population.publisher_names() == ("n0",)
    assert population.hoarder_names() == ("n1", "n2", "n3")
    assert population.subscriber_names() == ("n4", "n5")
    assert population.addresses()[0] == DIRECTORY
    assert set(population.draw_subscriptions(1)) == {"n4", "n5"}


def test_a_hoarder_says_it_has_heard_and_keeps_what_it_should_pass_on() -> None:
    inner = ScriptedPeer()
    hoarder = HoardingNode(inner, random.Random(1))
    hoarder.receive(carry(7, b"e"), STREAM, 0)
    hoarder.receive(encode(Offer(8, b"m" * 16, ((b"t",),), None, b"body")), STREAM, 0)
    assert [decode(frame.data) for frame in hoarder.frames_to_send(0, 64)] == [RequestAck(7), RequestAck(8)]
    assert not inner.received
    passed = encode(Install(9, 1, ((b"t",),), b"sealed"))
    hoarder.receive(passed, STREAM, 0)
    hoarder.receive(b"\xff\xff", STREAM, 0)
    assert [data for _, _, data in inner.received] == [passed, b"\xff\xff"]


def test_a_hoarder_of_nothing_does_as_it_should() -> None:
    inner = ScriptedPeer([(0, Frame(STREAM, b"x"))])
    hoarder = HoardingNode(inner, random.Random(1), keep_ppm=0)
    hoarder.receive(carry(7, b"e"), STREAM, 0)
    hoarder.handle_timer(0)
    assert hoarder.frames_to_send(0, 64) == [Frame(STREAM, b"x")]
    assert len(inner.received) == 1


def test_who_sends_under_more_entries_than_came_to_it_is_found() -> None:
    frugal, a, b = NoMultiplication(wanted=1), Address("a"), Address("b")
    offer = Frame(Address("publish-1@a"), encode(Offer(1, b"m" * 16, ((b"t",),), None, b"body")))
    frugal.on_frames(WORLD, Address("p"), [offer])
    for entry in range(PARENTS_MAX):
        frugal.on_frames(WORLD, a, [Frame(Address("hop@b"), carry(1, b"%d" % entry))] * 2)
    with pytest.raises(ViolationError):
        frugal.on_frames(WORLD, a, [Frame(Address("hop@b"), carry(1, b"x"))])
    frugal.on_frames(WORLD, Address("s"), [Frame(Address("probe-1@b"), carry(1, b"9", b"n" * 16))])
    sent = [Frame(Address("hop@a"), carry(1, b"%d" % entry, b"n" * 16)) for entry in range(PARENTS_MAX + 1)]
    with pytest.raises(ViolationError):
        frugal.on_frames(WORLD, b, sent)


def test_copies_to_parents_are_counted_and_an_end_is_made_of_too_many() -> None:
    traffic = CopyCounter(most=2)
    sent = [Frame(Address("hop@b"), carry(1, b"1")), Frame(Address("publish-1@b"), carry(1, b"1"))]
    traffic.on_frames(WORLD, Address("a"), [*sent, Frame(Address("hop@b"), encode(RequestAck(1)))])
    assert (traffic.total, traffic.sent["a"]) == (1, 1)  # type: ignore[index]
    with pytest.raises(ViolationError):
        traffic.on_frames(WORLD, Address("a"), sent * 2)


def test_trees_that_are_kept_apart_cost_a_way_each_and_those_that_mix_cost_more() -> None:
    apart, mixed = (measure_load(30, 2, routing, 4, seed=1) for routing in ("trees", "seen"))
    assert apart.delivered == mixed.delivered == 8
    assert 2 * 4 <= apart.copies <= 2 * 4 * 3
    assert mixed.copies > 3 * apart.copies
    assert apart.busiest <= apart.copies
    assert not apart.cut


def test_labels_keep_messages_from_circling_and_not_from_being_copied() -> None:
    labels = measure_load(30, 2, "labels", 1, seed=1, most=60)
    assert labels.cut
    assert labels.copies > 10 * 2 * 3
