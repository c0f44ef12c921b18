"""What strangers, eavesdroppers and hostile members can do to links: waste a little time, and no more."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from support.link_network import MovingLinks, member_keyrings
from support.link_town import A, B, envelopes, line_of, remembered, send_body, town_of, works
from veilcast.core.rate_limit import TokenBucket
from veilcast.link.admission import INBOUND_MAX, OUTBOUND_MAX, PREFIXES_MAX
from veilcast.link.config import LinkConfig
from veilcast.link.envelope import HandshakePacket, HandshakePacketKind
from veilcast.link.handshake import InitiatorHandshake
from veilcast.link.link import Link
from veilcast.link.link_table import LinkTimers
from veilcast.link.machine import CELL_ALLOWANCE, STATICS_MAX, UNPROVEN_US
from veilcast.link.pacing import SECOND_US, CellSlots, SendJitter
from veilcast.link.path_validation import PeerPath
from veilcast.machine import Address
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL, CELL_BODY, HANDSHAKE_ID


def test_garbage_of_every_size_and_source_changes_nothing() -> None:
    town, rng = town_of("a", "b"), random.Random(1)
    before = remembered(town.machines["a"])
    for _ in range(3_000):
        source = rng.choice([B, Address("a"), Address(f"10.0.0.{rng.randrange(256)}:9")])
        town.inject(source, A, rng.randbytes(rng.choice([0, 1, 7, 24, CELL - 1, CELL, CELL, CELL, CELL + 1, 9000])))
    assert works(town, "a", "b")
    assert remembered(town.machines["a"]) <= before + 2
    counts = town.machines["a"].counts
    assert sum(times for kind, times in counts.items() if kind.startswith("refused")) == 3_000


@pytest.mark.parametrize("wire", ["cells", "prompt"])
def test_what_was_on_the_wire_before_is_taken_no_second_time_and_moves_nobody(wire: str) -> None:
    town = town_of("a", "b", config=LinkConfig(wire="prompt" if wire == "prompt" else "cells"))
    heard, sent = list(town.heard("a")), list(town.sent)
    for _, source, frame in sent:
        town.inject(source, frame.destination, frame.data)
        town.inject(Address("evil"), frame.destination, frame.data)
        town.run(50_000)
    assert town.heard("a") == heard
    town.run(SECOND_US)
    assert works(town, "a", "b")
    assert {frame.destination for _, _, frame in town.sent[-2:]} == {A, B}
    assert [kind for kind, _ in town.talker("a").notices] == ["up"]


def test_a_cell_that_was_held_back_moves_nobody() -> None:
    """An eavesdropper stops a cell, and sends it from elsewhere after later ones have arrived."""
    town = town_of("a", "b")
    held = line_of(town, "b", "a").generations.session.seal(bytes(CELL_BODY), town.now)
    town.run(SECOND_US)
    taken = town.machines["a"].counts["cells taken"]
    town.inject(Address("evil"), A, held)
    town.run(0)
    assert town.machines["a"].counts["cells taken"] == taken + 1
    assert town.machines["a"]._links[B].route.addresses == (B,)
    town.run(SECOND_US)
    assert not [frame for _, _, frame in town.sent if frame.destination == "evil"]


def test_the_planted_roaming_without_a_look_at_the_counter_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "newest_received", property(lambda link: object()))
    with pytest.raises(AssertionError):
        test_a_cell_that_was_held_back_moves_nobody()


def test_a_peer_that_writes_anothers_address_does_not_cut_it_off() -> None:
    town = town_of("a", "b", "c")
    for _ in range(5):
        fresh = line_of(town, "c", "a").generations.session.seal(bytes(CELL_BODY), town.now)
        town.inject(B, A, fresh)  # C's newest word, as if from where B is.
        town.run(SECOND_US)
    assert works(town, "a", "b")
    assert works(town, "a", "c")
    assert (
        town.talker("a").notices == [("up", Address("b")), ("up", Address("c"))] or len(town.talker("a").notices) == 2
    )


def test_a_peer_that_went_to_an_address_first_does_not_keep_others_from_it() -> None:
    town = town_of("a", "c")
    town.inject(Address("b"), A, line_of(town, "c", "a").generations.session.seal(bytes(CELL_BODY), town.now))
    town.add("b", member_keyrings(3)[2])
    town.run(0)
    town.tell("b", "a", b"hello")
    town.run(2 * SECOND_US)
    assert works(town, "a", "b")
    assert works(town, "a", "c")


@pytest.mark.parametrize(
    "body",
    [
        b"\xff" * CELL_BODY,
        bytes(ACKNOWLEDGEMENTS) + b"\xff" * (CELL_BODY - ACKNOWLEDGEMENTS),
        bytes(CELL_BODY - 1) + b"\1",
        b"\0\0\0\7" + bytes(CELL_BODY - 4),
    ],
    ids=["all ones", "no chunk", "something at the end", "an acknowledgement of nothing"],
)
def test_a_peer_that_sends_nonsense_is_given_up_and_others_stay(body: bytes) -> None:
    town = town_of("a", "b", "c")
    send_body(town, "c", "a", body)
    town.run(20_000)
    assert town.machines["a"].peers() == [B]
    assert town.talker("a").notices[-1] == ("lost", Address("c"))
    assert town.machines["a"].counts["refused MalformedError"] == 1
    assert works(town, "a", "b")


@pytest.mark.parametrize("message", [b"\1", b"\2" + bytes(96), b"\3", b"\1" + bytes(200)])
def test_a_peer_that_talks_nonsense_about_keys_is_given_up(message: bytes) -> None:
    town = town_of("a", "b", "c")
    line_of(town, "c", "a").transfer.put(message, control=True)
    town.run(SECOND_US)
    assert ("lost", Address("c")) in town.talker("a").notices
    assert works(town, "a", "b")


def test_a_peer_that_wants_new_keys_all_the_time_is_given_up() -> None:
    town = town_of("a", "c")
    generations = line_of(town, "c", "a").generations
    party = generations._party
    first = InitiatorHandshake(party, town.now, remote=generations.remote_static, generation=1).first_message
    for _ in range(3):
        line_of(town, "c", "a").transfer.put(b"\1" + first, control=True)
    town.run(SECOND_US)
    assert town.machines["a"].counts["refused ExcessError"] == 1
    assert ("lost", Address("c")) in town.talker("a").notices


def test_a_peer_makes_us_take_no_more_cells_than_any_class_has() -> None:
    town = town_of("a", "b", "c")
    every_us, burst = CELL_ALLOWANCE
    taken = town.machines["a"].counts["cells taken"]
    for _ in range(100):
        for _ in range(10):
            send_body(town, "c", "a", bytes(CELL_BODY))
        town.run(100_000)
    of_both = town.machines["a"].counts["cells taken"] - taken
    assert of_both <= burst + 10 * SECOND_US // every_us + 10 * 4 + 2
    assert town.machines["a"].counts["refused ExcessError"] > 700
    assert works(town, "a", "b")
    town.run(10 * SECOND_US)
    assert works(town, "a", "c")


def test_an_honest_peer_of_the_fastest_class_is_within_its_allowance() -> None:
    town = town_of("a", "b", config=LinkConfig(rate=16))
    town.tell("b", "a", *[random.Random(turn).randbytes(40_000) for turn in range(4)])
    town.run(60 * SECOND_US)
    assert town.machines["a"].counts["refused ExcessError"] == 0


def test_one_member_at_many_addresses_has_one_link() -> None:
    town = town_of("a", "b")
    faces = [f"10.0.{place}.1:9" for place in range(12)]
    for face in faces:
        town.add(face, member_keyrings(3)[2])
        town.tell(face, "a", b"hello")
        town.run(300_000)
    town.run(5 * SECOND_US)
    assert len([peer for peer in town.machines["a"].peers() if peer in faces]) <= 1
    assert works(town, "a", "b")


def test_one_member_that_knocks_everywhere_and_proves_nothing_takes_no_place_from_others() -> None:
    town = town_of("a", "b", config=LinkConfig(links_max=8))
    for place in range(40):
        face = f"10.0.{place}.1:9"
        machine = town.add(face, member_keyrings(3)[2])
        machine._statics[A] = machine_static(town)
        town.tell(face, "a", b"hello")
        while machine._links[A].channel is None:
            town.run(20_000)
        del town.machines[face], town.where[face]  # Gone before its first cell.
        assert len(town.machines["a"]) <= 8
    newcomer = town.add("10.1.0.1:9", member_keyrings(4)[3])
    town.tell("10.1.0.1:9", "a", b"hello")
    town.run(3 * SECOND_US)
    assert newcomer.peers() == [A]
    assert works(town, "a", "b")
    town.run(UNPROVEN_US + SECOND_US)
    assert len(town.machines["a"]) == 2


def machine_static(town: MovingLinks) -> bytes:
    return town.machines["a"]._party.static.public


def test_a_recorded_knock_opens_nothing() -> None:
    """A member can copy the first message of another into a packet of its own, with the cookie."""
    town = town_of("a", "b")
    sealed = envelopes()
    first = InitiatorHandshake(town.machines["b"]._party, town.now, remote=machine_static(town)).first_message
    evil, thread = Address("10.9.9.9:9"), bytes(HANDSHAKE_ID)
    town.inject(evil, A, sealed.seal(HandshakePacket(HandshakePacketKind.RETURN, thread, first)))
    town.run(0)
    cookie = sealed.open(town.sent[-1][2].data).cookie
    town.inject(evil, A, sealed.seal(HandshakePacket(HandshakePacketKind.RETURN, thread, first, cookie)))
    town.run(SECOND_US)
    assert len(town.machines["a"]) == 2
    assert town.machines["a"].peers() == [B]
    assert works(town, "a", "b")
    town.run(UNPROVEN_US + SECOND_US)
    assert len(town.machines["a"]) == 1
    assert town.talker("a").notices == [("up", B)]


@pytest.mark.parametrize("insider", [False, True])
def test_a_flood_of_letters_fills_no_table_and_delays_no_cell(insider: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SendJitter, "draw", lambda self, below: 0)
    town, rng, sealed = town_of("a", "b"), random.Random(4), envelopes()
    sent = len(town.sent)
    for turn in range(6_000):
        letter = HandshakePacket(
            rng.choice(list(HandshakePacketKind)), rng.randbytes(HANDSHAKE_ID), rng.randbytes(96), rng.randbytes(16)
        )
        data = sealed.seal(letter) if insider else rng.randbytes(CELL)
        town.inject(Address(f"10.{turn % 250}.{turn // 250}.7:9"), A, data)
        if turn % 20 == 19:
            town.run(10_000)
    machine = town.machines["a"]
    # One link, its path, its key and alarm; doorbells; handshakes. Cookies of strangers leave at 200 a second at most.
    assert remembered(machine) <= 8 + INBOUND_MAX + OUTBOUND_MAX + 2 * PREFIXES_MAX
    times = [at for at, source, frame in town.sent[sent:] if (source, frame.destination) == (A, B)]
    assert {later - earlier for earlier, later in pairwise(times)} == {SECOND_US // 4}
    assert works(town, "a", "b")


def test_keys_of_former_peers_are_few() -> None:
    town = town_of("a", "b")
    machine = town.machines["a"]
    link = machine._links[B]
    for number in range(STATICS_MAX + 10):
        link.name = Address(f"n{number}")
        link.is_reported_up = False
        machine._come_up(link, town.now)
    assert len(machine._statics) == STATICS_MAX


def test_alarms_that_nobody_wants_any_more_are_thrown_away() -> None:
    alarms = LinkTimers()
    link = Link(PeerPath(A, bytes), CellSlots(4, phase_us=0, now=0), TokenBucket(1, 1), 0)
    for at_us in (50, 40, 60, 30, 20, 25):
        alarms.set(link, at_us)
    assert (len(alarms), alarms.next_us) == (4, 20)
    assert alarms.pop_due(19) == []
    assert alarms.pop_due(20) == [link]
    assert alarms.pop_due(60) == []
    assert (len(alarms), alarms.next_us) == (0, None)
