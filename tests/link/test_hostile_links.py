"""What strangers, eavesdroppers and hostile members can do to links: waste a little time, and no more."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from support.link_network import (
    A,
    B,
    MovingLinks,
    channel_of,
    count_entries,
    linked_machines,
    member_keyrings,
    packet_sealer,
    send_body,
    works,
)
from veilcast.link.admission import INBOUND_MAX, OUTBOUND_MAX, PREFIXES_MAX
from veilcast.link.config import LinkConfig
from veilcast.link.envelope import HandshakePacket, HandshakePacketKind
from veilcast.link.handshake import InitiatorHandshake
from veilcast.link.link import Link
from veilcast.link.machine import CELL_ALLOWANCE, STATICS_MAX, UNPROVEN_US
from veilcast.link.pacing import SECOND_US, SendJitter
from veilcast.machine import Address
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL, CELL_BODY, HANDSHAKE_ID


def test_garbage_of_every_size_and_source_changes_nothing() -> None:
    links, rng = linked_machines("a", "b"), random.Random(1)
    before = count_entries(links.machines["a"])
    for _ in range(3_000):
        source = rng.choice([B, Address("a"), Address(f"10.0.0.{rng.randrange(256)}:9")])
        links.inject(source, A, rng.randbytes(rng.choice([0, 1, 7, 24, CELL - 1, CELL, CELL, CELL, CELL + 1, 9000])))
    assert works(links, "a", "b")
    assert count_entries(links.machines["a"]) <= before + 2
    counts = links.machines["a"].counts
    assert sum(times for kind, times in counts.items() if kind.startswith("refused")) == 3_000


@pytest.mark.parametrize("wire", ["cells", "prompt"])
def test_replayed_datagrams_are_refused_and_move_no_link(wire: str) -> None:
    links = linked_machines("a", "b", config=LinkConfig(wire="prompt" if wire == "prompt" else "cells"))
    heard, sent = list(links.heard("a")), list(links.sent)
    for _, source, frame in sent:
        links.inject(source, frame.destination, frame.data)
        links.inject(Address("evil"), frame.destination, frame.data)
        links.run(50_000)
    assert links.heard("a") == heard
    links.run(SECOND_US)
    assert works(links, "a", "b")
    assert {frame.destination for _, _, frame in links.sent[-2:]} == {A, B}
    assert [kind for kind, _ in links.talker("a").notices] == ["up"]


def test_a_delayed_cell_moves_no_link() -> None:
    """An eavesdropper stops a cell, and sends it from elsewhere after later ones have arrived."""
    links = linked_machines("a", "b")
    held = channel_of(links, "b", "a").generations.session.seal(bytes(CELL_BODY), links.now)
    links.run(SECOND_US)
    taken = links.machines["a"].counts["cells taken"]
    links.inject(Address("evil"), A, held)
    links.run(0)
    assert links.machines["a"].counts["cells taken"] == taken + 1
    assert links.machines["a"]._links[B].route.addresses == (B,)
    links.run(SECOND_US)
    assert not [frame for _, _, frame in links.sent if frame.destination == "evil"]


def test_the_planted_roaming_without_a_check_of_the_counter_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "newest_received", property(lambda link: object()))
    with pytest.raises(AssertionError):
        test_a_delayed_cell_moves_no_link()


def test_a_peer_that_writes_anothers_address_does_not_cut_it_off() -> None:
    links = linked_machines("a", "b", "c")
    for _ in range(5):
        fresh = channel_of(links, "c", "a").generations.session.seal(bytes(CELL_BODY), links.now)
        links.inject(B, A, fresh)  # C's newest word, as if from where B is.
        links.run(SECOND_US)
    assert works(links, "a", "b")
    assert works(links, "a", "c")
    assert (
        links.talker("a").notices == [("up", Address("b")), ("up", Address("c"))] or len(links.talker("a").notices) == 2
    )


def test_a_peer_that_went_to_an_address_first_does_not_keep_others_from_it() -> None:
    links = linked_machines("a", "c")
    links.inject(Address("b"), A, channel_of(links, "c", "a").generations.session.seal(bytes(CELL_BODY), links.now))
    links.add("b", member_keyrings(3)[2])
    links.run(0)
    links.tell("b", "a", b"hello")
    links.run(2 * SECOND_US)
    assert works(links, "a", "b")
    assert works(links, "a", "c")


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
def test_a_peer_that_sends_malformed_bodies_is_dropped_and_others_stay(body: bytes) -> None:
    links = linked_machines("a", "b", "c")
    send_body(links, "c", "a", body)
    links.run(20_000)
    assert links.machines["a"].peers() == [B]
    assert links.talker("a").notices[-1] == ("lost", Address("c"))
    assert links.machines["a"].counts["refused MalformedError"] == 1
    assert works(links, "a", "b")


@pytest.mark.parametrize("message", [b"\1", b"\2" + bytes(96), b"\3", b"\1" + bytes(200)])
def test_a_peer_that_sends_malformed_control_messages_is_dropped(message: bytes) -> None:
    links = linked_machines("a", "b", "c")
    channel_of(links, "c", "a").transfer.put(message, control=True)
    links.run(SECOND_US)
    assert ("lost", Address("c")) in links.talker("a").notices
    assert works(links, "a", "b")


def test_a_peer_that_constantly_asks_for_new_keys_is_dropped() -> None:
    links = linked_machines("a", "c")
    generations = channel_of(links, "c", "a").generations
    party = generations._identity
    first = InitiatorHandshake(party, links.now, remote=generations.remote_static, generation=1).first_message
    for _ in range(3):
        channel_of(links, "c", "a").transfer.put(b"\1" + first, control=True)
    links.run(SECOND_US)
    assert links.machines["a"].counts["refused ExcessError"] == 1
    assert ("lost", Address("c")) in links.talker("a").notices


def test_a_peer_cannot_exceed_the_cell_rate_of_the_fastest_class() -> None:
    links = linked_machines("a", "b", "c")
    every_us, burst = CELL_ALLOWANCE
    taken = links.machines["a"].counts["cells taken"]
    for _ in range(100):
        for _ in range(10):
            send_body(links, "c", "a", bytes(CELL_BODY))
        links.run(100_000)
    of_both = links.machines["a"].counts["cells taken"] - taken
    assert of_both <= burst + 10 * SECOND_US // every_us + 10 * 4 + 2
    assert links.machines["a"].counts["refused ExcessError"] > 700
    assert works(links, "a", "b")
    links.run(10 * SECOND_US)
    assert works(links, "a", "c")


def test_an_honest_peer_of_the_fastest_class_is_within_its_allowance() -> None:
    links = linked_machines("a", "b", config=LinkConfig(rate=16))
    links.tell("b", "a", *[random.Random(turn).randbytes(40_000) for turn in range(4)])
    links.run(60 * SECOND_US)
    assert links.machines["a"].counts["refused ExcessError"] == 0


def test_one_member_at_many_addresses_has_one_link() -> None:
    links = linked_machines("a", "b")
    faces = [f"10.0.{place}.1:9" for place in range(12)]
    for face in faces:
        links.add(face, member_keyrings(3)[2])
        links.tell(face, "a", b"hello")
        links.run(300_000)
    links.run(5 * SECOND_US)
    assert len([peer for peer in links.machines["a"].peers() if peer in faces]) <= 1
    assert works(links, "a", "b")


def test_one_member_with_many_unproven_handshakes_takes_no_links_from_others() -> None:
    links = linked_machines("a", "b", config=LinkConfig(links_max=8))
    for place in range(40):
        face = f"10.0.{place}.1:9"
        machine = links.add(face, member_keyrings(3)[2])
        machine._statics[A] = machine_static(links)
        links.tell(face, "a", b"hello")
        while machine._links[A].channel is None:
            links.run(20_000)
        del links.machines[face], links.where[face]  # Gone before its first cell.
        assert len(links.machines["a"]) <= 8
    newcomer = links.add("10.1.0.1:9", member_keyrings(4)[3])
    links.tell("10.1.0.1:9", "a", b"hello")
    links.run(3 * SECOND_US)
    assert newcomer.peers() == [A]
    assert works(links, "a", "b")
    links.run(UNPROVEN_US + SECOND_US)
    assert len(links.machines["a"]) == 2


def machine_static(links: MovingLinks) -> bytes:
    return links.machines["a"]._identity.static.public


def test_a_recorded_handshake_opens_no_link() -> None:
    """A member can copy the first message of another into a packet of its own, with the cookie."""
    links = linked_machines("a", "b")
    sealed = packet_sealer()
    first = InitiatorHandshake(links.machines["b"]._identity, links.now, remote=machine_static(links)).first_message
    evil, thread = Address("10.9.9.9:9"), bytes(HANDSHAKE_ID)
    links.inject(evil, A, sealed.seal(HandshakePacket(HandshakePacketKind.RETURN, thread, first)))
    links.run(0)
    cookie = sealed.open(links.sent[-1][2].data).cookie
    links.inject(evil, A, sealed.seal(HandshakePacket(HandshakePacketKind.RETURN, thread, first, cookie)))
    links.run(SECOND_US)
    assert len(links.machines["a"]) == 2
    assert links.machines["a"].peers() == [B]
    assert works(links, "a", "b")
    links.run(UNPROVEN_US + SECOND_US)
    assert len(links.machines["a"]) == 1
    assert links.talker("a").notices == [("up", B)]


@pytest.mark.parametrize("insider", [False, True])
def test_a_flood_of_packets_fills_no_table_and_delays_no_cell(insider: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SendJitter, "draw", lambda self, below: 0)
    links, rng, sealed = linked_machines("a", "b"), random.Random(4), packet_sealer()
    sent = len(links.sent)
    for turn in range(6_000):
        packet = HandshakePacket(
            rng.choice(list(HandshakePacketKind)), rng.randbytes(HANDSHAKE_ID), rng.randbytes(96), rng.randbytes(16)
        )
        data = sealed.seal(packet) if insider else rng.randbytes(CELL)
        links.inject(Address(f"10.{turn % 250}.{turn // 250}.7:9"), A, data)
        if turn % 20 == 19:
            links.run(10_000)
    machine = links.machines["a"]
    # One link, its path, its key and alarm; doorbells; handshakes. Cookies of strangers leave at 200 a second at most.
    assert count_entries(machine) <= 8 + INBOUND_MAX + OUTBOUND_MAX + 2 * PREFIXES_MAX
    times = [at for at, source, frame in links.sent[sent:] if (source, frame.destination) == (A, B)]
    assert {later - earlier for earlier, later in pairwise(times)} == {SECOND_US // 4}
    assert works(links, "a", "b")


def test_keys_of_former_peers_are_bounded() -> None:
    links = linked_machines("a", "b")
    machine = links.machines["a"]
    link = machine._links[B]
    for number in range(STATICS_MAX + 10):
        link.name = Address(f"n{number}")
        link.is_reported_up = False
        machine._mark_up(link, links.now)
    assert len(machine._statics) == STATICS_MAX
