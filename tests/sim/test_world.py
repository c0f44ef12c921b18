"""Each fault of a host does what it says, and only that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.event_logger import EventLogger, LoggerPair
from support.frame_adversaries import ScriptedPeer
from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Address, Event, Listen, Machine, Record
from veilcast.sim.checkers import AtMostOnce
from veilcast.sim.engine import FRAMES_LIMIT
from veilcast.sim.flood import FloodNode
from veilcast.sim.host import Birth
from veilcast.sim.links import LinkDelays, Weather
from veilcast.sim.world import World


@pytest.fixture
def pair() -> LoggerPair:
    return LoggerPair()


# --- crash and restart --------------------------------------------------------------------------------------


def test_a_crash_loses_what_was_not_stored_and_keeps_what_was(pair: LoggerPair) -> None:
    pair.at(pair.a).record(1, b"kept")
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(1_000)
    assert pair.at(pair.a).notices == [("stored", 1, pair.world.now)]
    pair.at(pair.a).record(2, b"lost")
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(999)
    pair.world.crash(pair.a)
    pair.world.run(10_000)
    assert pair.world.machine(pair.a) is None
    pair.world.restart(pair.a)
    pair.world.run(10_000)
    assert pair.at(pair.a).restored == {1: b"kept"}
    assert pair.at(pair.a).notices == []
    assert pair.world.incarnation(pair.a) == 1


def test_stored_records_come_back_in_order_of_writing(pair: LoggerPair) -> None:
    for number, data in ((1, b"one"), (2, b"two"), (1, b"three")):
        pair.at(pair.a).record(number, data)
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(1_000)
    pair.world.crash(pair.a)
    pair.world.restart(pair.a)
    assert list(pair.at(pair.a).restored.items()) == [(2, b"two"), (1, b"three")]


def test_a_machine_that_dies_in_the_middle_of_its_step_does_no_more_of_it() -> None:
    seen: list[Event] = []

    def die_at_the_first(address: Address, event: Event, now: int) -> None:
        seen.append(event)
        world.crash(address)
        world.restart(address)

    world = World(seed=1, on_event=die_at_the_first)
    world.add(LoggerPair.a, lambda birth: EventLogger(birth.stored))
    for number in (1, 2):
        world.machine(LoggerPair.a).record(number, b"x")
    world.machine(LoggerPair.a).deadline = world.now + 5
    world.run(1_000_000)
    assert seen == [Record(1, b"x")]
    assert world.machine(LoggerPair.a).restored == {}
    assert world.incarnation(LoggerPair.a) == 1


def test_a_machine_that_dies_in_its_step_leaves_no_timer_behind() -> None:
    world = World(seed=1, on_event=lambda address, event, now: world.crash(address))
    world.add(LoggerPair.a, lambda birth: EventLogger())
    world.machine(LoggerPair.a).asks.append(Listen("all"))
    world.machine(LoggerPair.a).deadline = world.now + 5
    world.run(100)
    world.restart(LoggerPair.a)
    world.machine(LoggerPair.a).deadline = world.now + 5
    world.run(100)
    assert world.machine(LoggerPair.a).fired == [world.start + 105]


def test_a_machine_that_dies_in_a_call_sends_nothing_of_it(pair: LoggerPair) -> None:
    def last_words(machine: EventLogger, now: int) -> None:
        machine.send(pair.b, b"x")
        pair.world.crash(pair.a)

    pair.world.call(pair.a, last_words)
    pair.world.run(5_000)
    assert pair.world.counts.sent == 0


def test_a_write_of_the_dead_does_not_land_in_the_next_life(pair: LoggerPair) -> None:
    pair.at(pair.a).record(1, b"x")
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(500)
    pair.world.crash(pair.a)
    pair.world.restart(pair.a)
    pair.world.run(5_000)
    assert pair.at(pair.a).notices == []
    pair.world.crash(pair.a)
    pair.world.restart(pair.a)
    assert pair.at(pair.a).restored == {}


def test_what_is_stored_for_the_dead_is_not_told_to_the_next_life(pair: LoggerPair) -> None:
    pair.at(pair.a).record(1, b"x")
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(0)
    # At the instant of the writing, after it and before the notice of it.
    pair.world.after(1_000, lambda: pair.world.crash(pair.a))
    pair.world.after(1_000, lambda: pair.world.restart(pair.a))
    pair.world.run(5_000)
    assert pair.at(pair.a).restored == {1: b"x"}
    assert pair.heard(pair.a) == []


def test_frames_to_a_dead_host_are_lost_and_frames_it_sent_before_arrive(pair: LoggerPair) -> None:
    pair.send(b"from a")
    pair.send(b"to a", back=True)
    pair.world.run(500)
    pair.world.crash(pair.a)
    pair.world.run(5_000)
    assert pair.got() == [(1_000, b"from a")]
    assert pair.world.counts.lost == 1
    pair.world.restart(pair.a)
    pair.send(b"again", back=True)
    pair.world.run(5_000)
    assert [data for _, data in pair.got(back=True)] == [b"again"]


def test_a_timer_of_the_dead_does_not_wake_the_living(pair: LoggerPair) -> None:
    pair.at(pair.a).deadline = pair.world.now + 3_000
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(1_000)
    pair.world.crash(pair.a)
    pair.world.restart(pair.a)
    pair.world.run(10_000)
    assert pair.at(pair.a).fired == []


def test_an_incarnation_has_its_own_chance_and_others_keep_theirs() -> None:
    def luck(addresses: str, crash: str = "") -> dict[str, int]:
        world, drawn = World(seed=3), dict[str, int]()

        def born(birth: Birth) -> Machine:
            drawn[birth.address] = birth.rng.getrandbits(64) ^ int.from_bytes(birth.entropy(8), "big")
            return ScriptedPeer()

        for name in addresses:
            world.add(Address(name), born)
        if crash:
            world.crash(Address(crash))
            world.restart(Address(crash))
        return drawn

    alone, more, again = luck("ab"), luck("axb"), luck("ab", crash="a")
    assert (alone["a"], alone["b"]) == (more["a"], more["b"])
    assert again["a"] != alone["a"]
    assert again["b"] == alone["b"]


# --- pause --------------------------------------------------------------------------------------------------


def test_a_pause_delays_frames_timers_and_calls_but_loses_nothing(pair: LoggerPair) -> None:
    pair.at(pair.b).deadline = pair.world.now + 2_000
    pair.world.call(pair.b, lambda machine, now: None)
    pair.world.run(0)
    pair.world.pause(pair.b)
    for number in range(3):
        pair.send(b"%d" % number)
    called: list[int] = []
    pair.world.call(pair.b, lambda machine, now: called.append(now))
    pair.world.run(5_000)
    assert (pair.got(), pair.at(pair.b).fired, called) == ([], [], [])
    assert pair.world.counts.in_flight == 3
    pair.world.resume(pair.b)
    pair.world.run(0)
    assert pair.got() == [(5_000, b"0"), (5_000, b"1"), (5_000, b"2")]
    assert pair.at(pair.b).fired == called == [pair.world.now]
    assert pair.world.counts.lost == 0


def test_what_waits_for_a_paused_host_is_lost_if_it_dies(pair: LoggerPair) -> None:
    pair.world.pause(pair.b)
    pair.send(b"x")
    pair.world.run(5_000)
    pair.world.crash(pair.b)
    pair.world.restart(pair.b)
    pair.world.run(5_000)
    assert pair.got() == []
    assert pair.world.counts.lost == 1


def test_a_resumed_host_gets_the_frames_of_a_link_in_their_order(pair: LoggerPair) -> None:
    pair.world.after(100, lambda: pair.world.pause(pair.b))
    pair.world.after(2_000, lambda: pair.world.resume(pair.b))
    pair.world.after(500, lambda: pair.send(b"held"))
    pair.world.after(1_000, lambda: pair.send(b"due as it resumes"))
    pair.world.run(5_000)
    assert pair.got() == [(2_000, b"held"), (2_000, b"due as it resumes")]


def test_a_host_that_is_paused_again_while_it_catches_up_loses_nothing(pair: LoggerPair) -> None:
    pair.world.pause(pair.b)
    for number in range(4):
        pair.send(b"%d" % number)
    pair.world.run(5_000)
    pair.world.resume(pair.b)
    pair.world.call(pair.b, lambda machine, now: pair.world.pause(pair.b))
    pair.world.run(5_000)
    assert len(pair.got()) + pair.world.counts.in_flight == 4
    pair.world.resume(pair.b)
    pair.world.run(0)
    assert [data for _, data in pair.got()] == [b"0", b"1", b"2", b"3"]
    assert pair.world.counts.in_flight == 0


def test_a_host_paused_between_two_batches_of_frames_sends_the_second_when_it_resumes(pair: LoggerPair) -> None:
    for _ in range(FRAMES_LIMIT + 1):
        pair.at(pair.a).send(pair.b, b"x")
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.after(0, lambda: pair.world.pause(pair.a))
    pair.world.run(5_000)
    assert len(pair.got()) == FRAMES_LIMIT
    pair.world.resume(pair.a)
    pair.world.run(5_000)
    assert len(pair.got()) == FRAMES_LIMIT + 1


# --- links --------------------------------------------------------------------------------------------------


def test_a_block_closes_one_way_and_leaves_the_other_open(pair: LoggerPair) -> None:
    pair.send(b"under way")
    pair.world.run(500)
    pair.world.block(pair.a, pair.b)
    pair.send(b"blocked")
    pair.send(b"open", back=True)
    pair.world.run(5_000)
    assert pair.got() == [(1_000, b"under way")]
    assert pair.got(back=True) == [(1_500, b"open")]
    pair.world.unblock(pair.a, pair.b)
    pair.send(b"healed")
    pair.world.run(5_000)
    assert [data for _, data in pair.got()] == [b"under way", b"healed"]


def test_a_way_blocked_twice_needs_two_unblocks(pair: LoggerPair) -> None:
    pair.world.block(pair.a, pair.b)
    pair.world.block(pair.a, pair.b)
    pair.world.unblock(pair.a, pair.b)
    pair.send(b"x")
    pair.world.run(5_000)
    assert pair.got() == []


def test_a_frame_arrives_after_the_latency_of_its_link(pair: LoggerPair) -> None:
    pair.send(b"x")
    pair.world.run(999)
    assert pair.got() == []
    pair.world.run(1)
    assert pair.got() == [(1_000, b"x")]


def test_weather_begins_and_ends(pair: LoggerPair) -> None:
    pair.world.set_weather(Weather(loss_ppm=1_000_000))
    pair.send(b"lost")
    pair.world.run(0)
    pair.world.set_weather(Weather())
    pair.send(b"kept")
    pair.world.run(5_000)
    assert pair.got() == [(1_000, b"kept")]


# --- clocks -------------------------------------------------------------------------------------------------


def test_a_skewed_host_is_told_its_own_time_and_others_the_worlds(pair: LoggerPair) -> None:
    pair.world.set_clock(pair.b, offset_us=70_000, drift_ppm=0)
    pair.send(b"x")
    pair.send(b"y", back=True)
    pair.world.run(5_000)
    assert pair.got() == [(71_000, b"x")]
    assert pair.got(back=True) == [(1_000, b"y")]


def test_a_clock_set_back_stands_still_until_time_catches_up(pair: LoggerPair) -> None:
    told: list[int] = []
    pair.world.run(10_000)
    pair.world.set_clock(pair.a, offset_us=-5_000, drift_ppm=0)
    for _ in range(12):
        pair.world.call(pair.a, lambda machine, now: told.append(now - pair.world.start))
        pair.world.run(1_000)
    assert told == [10_000] * 6 + [11_000, 12_000, 13_000, 14_000, 15_000, 16_000]


def test_a_clock_put_ahead_and_set_right_again_does_not_go_back(pair: LoggerPair) -> None:
    pair.world.set_clock(pair.a, offset_us=50_000, drift_ppm=0)
    pair.world.run(1_000)
    assert pair.world.clock(pair.a) == pair.world.start + 51_000
    pair.world.set_clock(pair.a, offset_us=0, drift_ppm=0)
    assert pair.world.clock(pair.a) == pair.world.start + 51_000
    pair.world.run(60_000)
    assert pair.world.clock(pair.a) == pair.world.start + 61_000


def test_timers_fire_on_the_hosts_own_time(pair: LoggerPair) -> None:
    pair.world.set_clock(pair.a, offset_us=0, drift_ppm=1_000_000)
    pair.at(pair.a).deadline = pair.world.now + 10_000
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(4_999)
    assert pair.at(pair.a).fired == []
    pair.world.run(1)
    assert pair.at(pair.a).fired == [pair.world.start + 10_000]


def test_a_clock_put_ahead_makes_an_armed_timer_due(pair: LoggerPair) -> None:
    pair.at(pair.a).deadline = pair.world.now + 10_000
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(1_000)
    pair.world.set_clock(pair.a, offset_us=50_000, drift_ppm=0)
    pair.world.run(0)
    assert pair.at(pair.a).fired == [pair.world.start + 51_000]


# --- events -------------------------------------------------------------------------------------------------


def test_events_are_handed_out_with_their_place_and_time() -> None:
    seen: list[object] = []
    world = World(seed=1, links=LinkDelays(), on_event=lambda *what: seen.append(what))

    class Asker(ScriptedPeer):
        asked = False

        def next_event(self) -> Listen | None:
            self.asked, before = True, self.asked
            return None if before else Listen("all")

    world.add(Address("a"), lambda birth: Asker())
    world.run(10)
    assert seen == [("a", Listen("all"), world.start)]


# --- misuse -------------------------------------------------------------------------------------------------


def test_misuse_is_refused(pair: LoggerPair) -> None:
    with pytest.raises(ConfigError, match="already"):
        pair.world.add(pair.a, lambda birth: pair.at(pair.a))
    with pytest.raises(ConfigError, match="itself"):
        pair.world.connect(pair.a, pair.a)
    with pytest.raises(LocalError, match="before the first"):
        pair.world.watch(AtMostOnce())
    with pytest.raises(LocalError, match="back"):
        pair.world.run(-1)
    with pytest.raises(LocalError, match="past"):
        pair.world.after(-1, lambda: None)


def test_looking_for_one_who_is_not_there_changes_nothing() -> None:
    def trace(*, look: bool) -> str:
        world = World(seed=1)
        ghost = Address("ghost")
        if look:
            assert world.machine(ghost) is None
            assert world.incarnation(ghost) == -1
            assert world.clock(ghost) == world.now
        world.add(LoggerPair.a, lambda birth: EventLogger())
        world.machine(LoggerPair.a).asks.append(Listen("all"))
        world.run(10)
        return world.trace_hash

    assert trace(look=False) == trace(look=True)


@pytest.mark.parametrize("known", [False, True], ids=["never named", "named by a frame"])
def test_nothing_befalls_one_who_was_never_added(pair: LoggerPair, known: bool) -> None:
    world, typo = pair.world, Address("typo")
    if known:
        world.call(pair.a, lambda machine, now: machine.send(typo, b"x"))
        world.run(0)
    before = world.trace_hash
    acts: list[Callable[[], None]] = [
        lambda: world.call(typo, lambda machine, now: None),
        lambda: world.crash(typo),
        lambda: world.restart(typo),
        lambda: world.pause(typo),
        lambda: world.resume(typo),
        lambda: world.block(pair.a, typo),
        lambda: world.block(typo, pair.a),
        lambda: world.unblock(pair.a, typo),
        lambda: world.set_clock(typo, 0, 0),
    ]
    for act in acts:
        with pytest.raises(LocalError, match="typo"):
            act()
    assert world.trace_hash == before


def test_repeating_a_fault_that_is_there_changes_nothing(pair: LoggerPair) -> None:
    before = pair.world.trace_hash
    pair.world.restart(pair.a)
    pair.world.resume(pair.a)
    assert pair.world.incarnation(pair.a) == 0
    pair.world.crash(pair.a)
    after = pair.world.trace_hash
    pair.world.crash(pair.a)
    pair.world.pause(pair.a)
    assert before != after == pair.world.trace_hash


def test_a_machine_that_is_to_come_later_is_known_and_down_until_then() -> None:
    world = World(seed=1)
    late = Address("late")
    world.add(late, lambda birth: FloodNode(), after_us=1_000)
    world.crash(late)
    world.run(999)
    assert world.machine(late) is None
    world.run(1)
    assert isinstance(world.machine(late), FloodNode)
