"""What an active observer, which drops, delays, repeats, splices and records datagrams, learns or achieves on links.

The wire of a busy link is compared with the wire of a quiet one, cell by cell, while the observer interferes with both
in the same way.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial

import pytest

from support.link_network import LinkWorld, count_entries, linked_machines, works
from support.link_pair import NOW, A, B, admission, network
from veilcast.crypto import _primitives as primitives
from veilcast.errors import ExcessError
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address
from veilcast.sim.links import Weather
from veilcast.wire.geometry import CELL

CLEAR = Weather()
INTERFERENCE = {
    "drops one cell in ten": [(5, Weather(loss_ppm=100_000))],
    "delays and repeats cells": [(5, Weather(0, 200_000, 200_000, 2 * SECOND_US))],
    "cuts the wire for eight seconds": [(60, Weather(loss_ppm=1_000_000)), (68, CLEAR)],
    "cuts the wire until the link ends": [(60, Weather(loss_ppm=1_000_000)), (160, CLEAR)],
}


def wire_of(interference: list[tuple[int, Weather]], *, busy: bool) -> list[tuple[int, Address, Address, int]]:
    """All datagrams of a link in 300 seconds: time, source, destination, length."""
    world = LinkWorld("a", "b", seed=4, watched=True)
    for second in range(0, 300, 20):
        for name, peer in (("a", "b"), ("b", "a")):
            world.after(second * SECOND_US, partial(world.tell, name, peer, b"keeps the link wanted"))
            if busy:
                world.after(second * SECOND_US + 1, partial(world.tell, name, peer, b"\1" * 3_000, b"\2" * 200))
    for second, weather in interference:
        world.after(second * SECOND_US, partial(world.set_weather, weather))
    world.run(300 * SECOND_US)
    assert (b"\1" * 3_000 in world.heard("b")) == busy
    return world.wire.seen


@pytest.mark.parametrize("what", INTERFERENCE)
def test_interference_does_not_tell_a_busy_link_from_a_quiet_one(what: str) -> None:
    busy, quiet = (wire_of(INTERFERENCE[what], busy=each) for each in (True, False))
    assert busy == quiet
    assert len(busy) > 1_000


def test_splices_of_recorded_datagrams_get_no_answer_and_no_memory() -> None:
    """A stranger without the network key splices recordings of valid packets and cells."""
    links, rng = linked_machines("a", "b"), random.Random(2)
    recorded = [frame.data for _, _, frame in links.sent]
    before, sent = count_entries(links.machines["a"]), len(links.sent)
    for number in range(3_000):
        one, other = rng.sample(recorded, 2)
        cut = rng.choice((1, 8, 16, 24, 32, 48, 64, rng.randrange(1, CELL)))
        splice = one[:cut] + other[cut:]
        if splice in recorded:  # Where the first bytes are the same by chance, it is a whole packet, sent again.
            continue
        links.inject(Address(f"10.1.{number % 250}.7:9"), Address("a"), splice)
        if number % 500 == 0:
            links.run(10_000)
    links.run(10_000)
    strangers = {frame.destination for _, _, frame in links.sent[sent:]} - {Address("a"), Address("b")}
    assert strangers == set()
    assert count_entries(links.machines["a"]) <= before + 2
    assert works(links, "a", "b")


def test_no_curve_operation_is_spent_before_a_cookie_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member floods from addresses at which it does not receive: each first packet is sealed with the network key."""
    people, operations = network(), list[str]()
    theirs = admission(people.bob, 2)
    flood = [admission(people.alice, seed).initiate(B, NOW) for seed in range(100)]
    for name in ("x25519", "x25519_public"):

        def counted(*args: bytes, of: str = name, real: object = getattr(primitives, name)) -> bytes:
            operations.append(of)
            assert callable(real)
            result = real(*args)
            assert isinstance(result, bytes)
            return result

        monkeypatch.setattr(primitives, name, counted)
    for number, packet in enumerate(flood):
        with contextlib.suppress(ExcessError):
            theirs.receive(packet, Address(f"10.2.0.{number}:1"), NOW)
    assert operations == []
    assert len(theirs) == 0
    ours, theirs = admission(people.alice, 1), admission(people.bob, 2)
    cookie = theirs.receive(ours.initiate(B, NOW), A, NOW).reply
    assert cookie is not None
    hello = ours.receive(cookie, B, NOW).reply
    assert hello is not None
    operations.clear()
    assert theirs.receive(hello, A, NOW).reply is not None
    assert operations, "the count sees what a handshake costs"
