"""Connections: every Connect is answered, and connected peers hear of one another in order."""

from __future__ import annotations

import pytest

from support.event_logger import LoggerPair
from veilcast.machine import Address, Connect, Disconnect


@pytest.fixture
def pair() -> LoggerPair:
    return LoggerPair()


def test_connected_machines_are_told_of_one_another_and_of_a_crash(pair: LoggerPair) -> None:
    pair.world.connect(pair.a, pair.b)
    pair.world.run(0)
    start = pair.world.now
    pair.world.crash(pair.a)
    pair.world.run(5_000)
    pair.world.restart(pair.a)
    pair.world.run(5_000)
    notices = [("up", pair.a, start), ("lost", pair.a, start + 1_000), ("up", pair.a, start + 6_000)]
    assert pair.at(pair.b).notices == notices
    assert pair.at(pair.a).notices == [("up", pair.b, start + 5_000)]


def test_connect_is_answered_after_a_round_trip(pair: LoggerPair) -> None:
    pair.at(pair.a).asks.append(Connect(pair.b))
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(5_000)
    when = pair.world.start + 2_000
    assert pair.at(pair.a).notices == [("up", pair.b, when)]
    assert pair.at(pair.b).notices == [("up", pair.a, when)]
    pair.at(pair.a).asks.append(Disconnect(pair.b))
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(5_000)
    assert pair.at(pair.a).notices == [("up", pair.b, when)]
    assert pair.at(pair.b).notices == [("up", pair.a, when), ("lost", pair.a, pair.world.start + 6_000)]


@pytest.mark.parametrize("trouble", ["dead", "blocked", "unknown"])
def test_connect_to_a_peer_out_of_reach_is_answered_by_peer_lost(pair: LoggerPair, trouble: str) -> None:
    peer = pair.b
    if trouble == "dead":
        pair.world.crash(pair.b)
    elif trouble == "blocked":
        pair.world.block(pair.b, pair.a)
    else:
        peer = Address("nobody")
    pair.at(pair.a).asks.append(Connect(peer))
    pair.world.call(pair.a, lambda machine, now: None)
    pair.world.run(1_000_000)
    assert [notice[:2] for notice in pair.at(pair.a).notices] == [("lost", peer)]


def test_connect_on_a_laid_tie_to_a_dead_peer_is_answered(pair: LoggerPair) -> None:
    pair.world.connect(pair.a, pair.b)
    pair.world.crash(pair.b)
    pair.world.run(5_000)
    pair.heard(pair.a)
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    assert pair.heard(pair.a) == [("lost", pair.b)]
    pair.world.restart(pair.b)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == [("up", pair.b)]


def test_connect_on_a_tie_that_stands_is_answered_to_the_asker_alone(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    assert (pair.heard(pair.a), pair.heard(pair.b)) == ([("up", pair.b)], [("up", pair.a)])
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    assert (pair.heard(pair.a), pair.heard(pair.b)) == ([("up", pair.b)], [])


def test_connect_on_a_tie_that_no_longer_carries_ends_it_and_the_peer_hears_of_it_when_it_can(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    pair.heard(pair.a)
    pair.heard(pair.b)
    pair.world.block(pair.a, pair.b)
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    assert (pair.heard(pair.a), pair.heard(pair.b)) == ([("lost", pair.b)], [])
    pair.world.unblock(pair.a, pair.b)
    pair.world.run(5_000)
    assert (pair.heard(pair.a), pair.heard(pair.b)) == ([], [("lost", pair.a)])


def test_the_loss_of_an_old_tie_is_not_taken_for_that_of_the_new(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    pair.heard(pair.a)
    # The loss would arrive half a millisecond after the answer, which has tied the pair anew.
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(1_500)
    pair.world.crash(pair.b)
    pair.world.restart(pair.b)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == [("up", pair.b)]
    assert pair.heard(pair.b) == [("up", pair.a)]


def test_a_tie_that_ended_before_it_was_known_is_not_announced(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.pause(pair.b)
    pair.world.run(5_000)
    pair.ask(pair.a, Disconnect(pair.b))
    pair.world.run(500)
    pair.world.resume(pair.b)
    pair.world.run(0)
    assert pair.heard(pair.b) == []


def test_an_answer_does_not_reach_the_next_life_of_the_asker(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(500)
    pair.world.crash(pair.a)
    pair.world.restart(pair.a)
    pair.world.run(5_000)
    assert (pair.heard(pair.a), pair.heard(pair.b)) == ([], [])


def test_a_notice_does_not_reach_the_next_life_of_its_addressee(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    pair.world.crash(pair.b)
    pair.world.run(500)
    pair.world.crash(pair.a)
    pair.world.restart(pair.a)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == []


def test_a_tie_that_machines_made_ends_with_either_life(pair: LoggerPair) -> None:
    pair.ask(pair.a, Connect(pair.b))
    pair.world.run(5_000)
    pair.world.crash(pair.b)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == [("up", pair.b), ("lost", pair.b)]
    pair.world.restart(pair.b)
    pair.world.run(5_000)
    pair.world.crash(pair.b)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == []


def test_a_notice_waits_at_a_block_and_arrives_after_it(pair: LoggerPair) -> None:
    pair.world.connect(pair.a, pair.b)
    pair.world.run(0)
    pair.heard(pair.a)
    pair.world.block(pair.b, pair.a)
    pair.world.crash(pair.b)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == []
    pair.world.restart(pair.b)
    pair.world.run(5_000)
    assert (pair.heard(pair.a), pair.heard(pair.b)) == ([], [("up", pair.a)])
    pair.world.unblock(pair.b, pair.a)
    pair.world.run(999)
    assert pair.heard(pair.a) == []
    pair.world.run(1)
    assert pair.heard(pair.a) == [("lost", pair.b), ("up", pair.b)]


def test_a_block_holds_back_two_notices_at_most(pair: LoggerPair) -> None:
    pair.world.connect(pair.a, pair.b)
    pair.world.run(0)
    pair.heard(pair.a)
    pair.world.block(pair.b, pair.a)
    for _ in range(10):
        pair.world.crash(pair.b)
        pair.world.restart(pair.b)
    pair.world.unblock(pair.b, pair.a)
    pair.world.run(5_000)
    assert pair.heard(pair.a) == [("lost", pair.b), ("up", pair.b)]
