"""Links between machines open, carry messages, renew their keys, survive faults and close. The wire shows none of
it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest

from support.link_network import LinkWorld, MovingLinks, member_keyrings
from veilcast.errors import ConfigError
from veilcast.link.admission import OUTBOUND_MAX
from veilcast.link.config import LINKS_MAX, LinkConfig
from veilcast.link.machine import IDLE_US, SILENT_US
from veilcast.link.pacing import RATES, SECOND_US, SendJitter
from veilcast.link.session import REFUSE_US, REKEY_US
from veilcast.machine import Address
from veilcast.sim.links import Weather
from veilcast.wire.geometry import CELL

A, B = Address("a"), Address("b")
PROMPT = LinkConfig(wire="prompt")
BOTH = pytest.mark.parametrize("config", [LinkConfig(), PROMPT], ids=["cells", "prompt"])
LOSSY = Weather(loss_ppm=300_000)


def chat(world: LinkWorld, seconds: int, *, every_us: int = SECOND_US) -> tuple[list[bytes], list[bytes]]:
    """Let both sides send short and long messages at intervals. Returns the messages."""
    said: tuple[list[bytes], list[bytes]] = ([], [])
    for turn in range(seconds * SECOND_US // every_us):
        for place, (name, peer) in enumerate(((A, B), (B, A))):
            message = b"%s %d " % (name.encode(), turn) + b"x" * (5000 if turn % 10 == 9 else 20)
            said[place].append(message)
            world.after(turn * every_us, partial(world.tell, name, peer, message))
    return said


def lanes(messages: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    return [m for m in messages if len(m) < 2000], [m for m in messages if len(m) >= 2000]


@BOTH
def test_the_first_message_opens_a_link_and_arrives(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config)
    world.tell("a", "b", b"hello", b"there")
    world.run(4 * SECOND_US)
    assert world.heard("b") == [b"hello", b"there"]
    assert world.talker("b").notices == [("up", A)]
    assert world.talker("a").notices == [("up", B)]
    world.tell("b", "a", b"hello yourself")
    world.run(SECOND_US)
    assert world.heard("a") == [b"hello yourself"]


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_two_simultaneous_handshakes_give_one_link(config: LinkConfig, seed: int) -> None:
    world = LinkWorld("a", "b", config=config, seed=seed, latency_us=(1_000, 200_000)[seed % 2])
    world.tell("a", "b", b"from a")
    world.tell("b", "a", b"from b")
    world.run(5 * SECOND_US)
    assert (world.heard("a"), world.heard("b")) == ([b"from b"], [b"from a"])
    world.tell("a", "b", b"more of a")
    world.tell("b", "a", b"more of b")
    world.run(60 * SECOND_US)
    assert (world.heard("a")[1:], world.heard("b")[1:]) == ([b"more of b"], [b"more of a"])
    assert world.links("a").peers() == [B]
    assert [kind for kind, _ in world.talker("a").notices] == ["up"]


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_through_losses_and_new_keys_every_message_arrives_once_and_in_order(config: LinkConfig, seed: int) -> None:
    world = LinkWorld("a", "b", config=config, seed=seed)
    world.set_weather(LOSSY)
    said_a, said_b = chat(world, 380)
    world.run(400 * SECOND_US)
    assert world.talker("a").notices == [("up", B)]
    # What is said before there is a link waits for it, but only the newest few.
    for said, heard in ((said_a, world.heard("b")), (said_b, world.heard("a"))):
        for sent, got in zip(lanes(said), lanes(heard), strict=True):
            assert got == sent[-len(got) :]
            assert len(got) >= len(sent) - 8


def test_losses_duplicates_and_reordering_change_nothing() -> None:
    weather = Weather(100_000, 200_000, 200_000, 2 * SECOND_US, 100_000, 150 * SECOND_US)
    world = LinkWorld("a", "b", seed=5)
    world.set_weather(weather)
    said_a, said_b = chat(world, 280)
    world.run(300 * SECOND_US)
    assert lanes(world.heard("b")) == lanes(said_a)
    assert lanes(world.heard("a")) == lanes(said_b)


@pytest.mark.parametrize("rate", RATES)
def test_the_wire_of_a_busy_link_is_that_of_a_quiet_one(rate: int) -> None:
    """Times, sizes and directions, over three generations of keys. The busy link has more messages than fit."""
    wires, kinds = [], []
    for busy in (False, True):
        world = LinkWorld("a", "b", config=LinkConfig(rate=rate), seed=3, watched=True)
        chat(world, 400, every_us=50 * SECOND_US)
        if busy:
            for second in range(5, 390):
                world.after(second * SECOND_US, partial(world.tell, "a", "b", b"\1" * (1200 * rate)))
        world.run(400 * SECOND_US)
        wires.append(world.wire.seen)
        kinds.append(world.links("a").status(world.now)["padding share"])
    assert wires[0] == wires[1]
    assert {size for *_, size in wires[0]} == {CELL}
    assert kinds[1] < 0.2 < 0.8 < kinds[0]


@pytest.fixture
def on_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells have no jitter, so that the grid of slots shows."""
    monkeypatch.setattr(SendJitter, "draw", lambda self, below: 0)


@pytest.mark.usefixtures("on_the_slot")
def test_the_wire_of_a_link_that_renews_its_keys_is_a_grid() -> None:
    world = LinkWorld("a", "b", watched=True)
    chat(world, 400, every_us=30 * SECOND_US)
    world.run(400 * SECOND_US)
    for name in (A, B):
        times = [at for at, source, *_ in world.wire.seen if source == name and at > 4 * SECOND_US]
        assert {later - earlier for earlier, later in pairwise(times)} == {SECOND_US // 4}


def test_the_planted_burst_is_detected_on_the_wire() -> None:
    """Validates the comparison above: a machine that sends one additional cell is detected."""
    wires = []
    for planted in (False, True):
        world = LinkWorld("a", "b", watched=True)
        world.tell("a", "b", b"hello")
        world.run(5 * SECOND_US)
        if planted:
            world.call(A, lambda machine, now: machine._handle_slot(machine._links[B], now))
        world.run(SECOND_US)
        wires.append(world.wire.seen)
    assert wires[0] != wires[1]


@pytest.mark.usefixtures("on_the_slot")
def test_late_timers_never_burst() -> None:
    world = LinkWorld("a", "b", watched=True)
    chat(world, 60)
    world.run(20 * SECOND_US)
    world.pause(A)
    world.run(8 * SECOND_US)
    world.resume(A)
    world.run(30 * SECOND_US)
    times = [at for at, source, *_ in world.wire.seen if source == A and at > 4 * SECOND_US]
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    assert gaps[-1] >= 8 * SECOND_US
    # The late cell leaves between two slots, and the next one in its slot.
    assert [gap for gap in gaps if gap < SECOND_US // 4] == gaps[: sum(gap < SECOND_US // 4 for gap in gaps)]
    assert sum(gap < SECOND_US // 4 for gap in gaps) <= 1
    assert world.links("a").status(world.now)["slots missed"] > 20
    assert world.talker("a").notices == [("up", B)]


@pytest.mark.usefixtures("on_the_slot")
def test_a_change_of_rate_waits_for_the_edge_on_old_links_and_new_ones() -> None:
    world = LinkWorld("a", "b", "c", watched=True)
    chat(world, 60)
    world.run(20 * SECOND_US)
    edge_us = 40 * SECOND_US
    # A world begins at the edge of an epoch; the machine is told that epochs are shorter here.
    world.call(A, lambda machine, now: setattr(machine, "_epoch_us", edge_us))
    start = world.now % edge_us
    world.call(A, lambda machine, now: machine.change_rate(16, now))
    world.tell("a", "c", b"a new link before the edge")
    world.run(edge_us)
    for peer in ("b", "c"):
        times = [at for at, source, to, _ in world.wire.seen if (source, to) == (A, peer) and at > 24 * SECOND_US]
        edge = world.start + 20 * SECOND_US + edge_us - start - world.start
        before = [b - a for a, b in pairwise(times) if b < edge]
        after = [b - a for a, b in pairwise(times) if a > edge + SECOND_US]
        assert set(before) == {SECOND_US // 4}
        assert set(after) == {SECOND_US // 16}


def test_a_peer_that_never_renews_is_lost_at_the_end_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LinkWorld("a", "b")
    monkeypatch.setattr("veilcast.link.generations.SessionGenerations.renew", lambda self, now: None)
    chat(world, 178, every_us=10 * SECOND_US)
    world.run(REFUSE_US - SECOND_US)
    assert world.links("a").peers() == [B]
    world.run(8 * SECOND_US)
    assert ("lost", B) in world.talker("a").notices
    assert ("lost", A) in world.talker("b").notices


def test_keys_are_renewed_in_time_and_the_old_ones_forgotten() -> None:
    world = LinkWorld("a", "b")
    chat(world, 400, every_us=10 * SECOND_US)
    for second in range(1, 40):
        world.run(10 * SECOND_US)
        for name, peer in (("a", B), ("b", A)):
            line = world.links(name)._links[peer].channel
            assert line is not None
            kept = line.generations
            assert world.now - kept.session.born_us <= REKEY_US + 10 * SECOND_US
            for session in (kept._old, kept._next):
                assert session.ends_us > world.now - SECOND_US, second
    assert kept.session.generation == 3


@BOTH
def test_a_peer_that_restarts_is_reached_again(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config)
    world.tell("a", "b", b"one")
    world.run(5 * SECOND_US)
    world.crash(B)
    world.run(SECOND_US)
    world.restart(B)
    # B says something: A learns at once that B has forgotten all, and what it says then arrives.
    world.tell("b", "a", b"who is there")
    world.run(5 * SECOND_US)
    assert world.talker("a").notices == [("up", B), ("lost", B), ("up", B)]
    assert world.heard("a") == [b"who is there"]
    world.tell("a", "b", b"two")
    world.run(3 * SECOND_US)
    assert world.heard("b")[-1] == b"two"


@BOTH
def test_a_restarted_silent_peer_is_reached_when_it_is_missed(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config)
    world.tell("a", "b", b"one")
    world.run(5 * SECOND_US)
    world.crash(B)
    world.restart(B)
    for _ in range(30):
        world.tell("a", "b", b"two")
        world.run(SECOND_US)
    assert world.talker("a").notices == [("up", B), ("lost", B), ("up", B)]
    assert b"two" in world.heard("b")


@BOTH
def test_a_silent_peer_is_lost(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config)
    world.tell("a", "b", b"one")
    world.run(5 * SECOND_US)
    world.crash(B)
    world.tell("a", "b", b"two")
    world.run(SILENT_US + 2 * SECOND_US)
    assert world.talker("a").notices == [("up", B), ("lost", B)]
    assert len(world.links("a")) == 0


def test_a_quiet_peer_is_not_lost_without_cells() -> None:
    world = LinkWorld("a", "b", config=PROMPT)
    world.tell("a", "b", b"one")
    world.run(IDLE_US - 10 * SECOND_US)
    world.tell("a", "b", b"two")
    world.run(5 * SECOND_US)
    assert world.heard("b") == [b"one", b"two"]
    assert world.talker("a").notices == [("up", B)]


def test_handshakes_with_an_absent_peer_repeat_while_there_are_messages() -> None:
    world = LinkWorld("a", "b")
    world.crash(B)
    world.tell("a", "b", b"one")
    world.run(IDLE_US - SECOND_US)
    assert len(world.links("a")) == 1
    world.run(3 * SECOND_US)
    assert len(world.links("a")) == 0
    assert world.talker("a").notices == []


def test_messages_for_a_late_peer_arrive() -> None:
    world = LinkWorld("a", "b")
    world.crash(B)
    world.tell("a", "b", b"one")
    world.run(30 * SECOND_US)
    world.restart(B)
    world.run(5 * SECOND_US)
    assert world.heard("b") == [b"one"]


@BOTH
def test_idle_links_close_and_open_again(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config, watched=True)
    world.tell("a", "b", b"one")
    world.run(IDLE_US + 5 * SECOND_US)
    assert (len(world.links("a")), len(world.links("b"))) == (0, 0)
    seen = len(world.wire.seen)
    world.run(10 * SECOND_US)
    assert len(world.wire.seen) == seen
    world.tell("b", "a", b"two")
    world.run(5 * SECOND_US)
    assert world.heard("a") == [b"two"]
    assert [kind for kind, _ in world.talker("a").notices] == ["up", "up"]


@BOTH
def test_links_end_with_the_membership_and_nothing_breaks(config: LinkConfig) -> None:
    world = LinkWorld("a", "b", config=config, keyrings=dict(zip("ab", member_keyrings(2, epochs=1), strict=True)))
    world.tell("a", "b", b"one")
    world.run(3_550 * SECOND_US)
    chat(world, 600, every_us=10 * SECOND_US)
    world.run(40 * SECOND_US)
    assert world.links("a").peers() == [B]
    world.run(600 * SECOND_US)
    assert world.links("a").peers() == world.links("b").peers() == []
    assert world.links("a").counts["refused ExpiredError"] > 0
    assert ("lost", B) in world.talker("a").notices


def test_no_more_links_than_there_is_room_for() -> None:
    names = [f"n{place}" for place in range(6)]
    world = LinkWorld(*names, config=LinkConfig(links_max=4))
    for name in names[1:5]:
        world.tell("n0", name, b"hello")
    world.run(5 * SECOND_US)
    world.tell("n0", "n5", b"no room")
    world.run(5 * SECOND_US)
    assert (len(world.links("n0")), world.heard("n5")) == (4, [])
    assert world.links("n0").counts["refused for want of room"] == 1
    # Ten seconds later the link that was of no use for longest can be spared.
    for name in names[2:5]:
        world.tell("n0", name, b"hello again")
    world.run(6 * SECOND_US)
    world.tell("n0", "n5", b"hello")
    world.run(5 * SECOND_US)
    assert world.heard("n5") == [b"hello"]
    assert Address("n1") not in world.links("n0").peers()
    assert world.talker("n0").notices[-2:] == [("lost", Address("n1")), ("up", Address("n5"))]


def test_an_unresponsive_peer_is_evicted_although_it_has_many_messages() -> None:
    names = [f"n{place}" for place in range(4)]
    world = LinkWorld(*names, config=LinkConfig(links_max=2))
    world.crash(Address("n1"))
    world.crash(Address("n2"))
    for _ in range(12):
        world.tell("n0", "n1", b"are you there")
        world.tell("n0", "n2", b"are you there")
        world.run(SECOND_US)
    world.tell("n0", "n3", b"hello")
    world.run(5 * SECOND_US)
    assert world.heard("n3") == [b"hello"]


def test_there_are_never_more_links_than_handshakes_in_progress() -> None:
    assert LINKS_MAX <= OUTBOUND_MAX
    for links_max in (0, LINKS_MAX + 1):
        with pytest.raises(ConfigError, match="links_max"):
            LinkConfig(links_max=links_max)


@BOTH
def test_cells_follow_a_peer_that_moves(config: LinkConfig) -> None:
    moving = MovingLinks(config, "a", "b")
    moving.tell("a", "b", b"one")
    moving.run(5 * SECOND_US)
    moving.where["a"] = Address("a2")
    moving.tell("a", "b", b"two")
    moving.run(2 * SECOND_US)
    moving.tell("b", "a", b"three")
    moving.run(2 * SECOND_US)
    assert moving.heard("b") == [b"one", b"two"]
    assert moving.heard("a") == [b"three"]
    assert moving.talker("b").heard[-1][0] == A  # Under its old name.
    assert moving.sent[-1][2].destination in ("a2", "b")
    assert moving.talker("b").notices == [("up", A)]
    # And home again.
    moving.where["a"] = A
    moving.tell("a", "b", b"four")
    moving.run(2 * SECOND_US)
    moving.tell("b", "a", b"five")
    moving.run(2 * SECOND_US)
    assert (moving.heard("b")[-1], moving.heard("a")[-1]) == (b"four", b"five")


def test_status_has_numbers_and_no_names() -> None:
    world = LinkWorld("alice", "bob")
    world.tell("alice", "bob", b"one")
    world.run(5 * SECOND_US)
    world.tell("alice", "bob", *[b"x" * 30_000] * 3)
    world.run(3 * SECOND_US)
    status = world.links("alice").status(world.now)
    assert (status["links"], status["links up"], status["letters"]) == (1, 1, 3)
    assert 2.5 * SECOND_US < status["queue age us"] <= 3 * SECOND_US
    assert 0 < status["padding share"] < 1
    assert status["messages waiting"] >= 2
    assert status["cells"] >= status["cells taken"] > 20
    assert not any(name in str(status) for name in ("alice", "bob"))
    world.run(60 * SECOND_US)
    assert world.links("alice").status(world.now)["queue age us"] == 0
