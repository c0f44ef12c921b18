"""Streams and what is asked on them: called for, answered, lost, hanging, idle, over."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from veilcast.errors import StaleError
from veilcast.machine import Address, Connect, Disconnect, Event
from veilcast.tree.config import TreeConfig
from veilcast.tree.streams import Answer, RequestStreams
from veilcast.wire.mesh import Message
from veilcast.wire.tree import FetchListing, RequestAck

SECOND = 1_000_000
CONFIG = TreeConfig(retry_us=10 * SECOND, connect_us=SECOND, streams_max=2)
PEER, OTHER, THIRD = Address("hop@a"), Address("hop@b"), Address("hop@c")


class Desk:
    def __init__(self, config: TreeConfig = CONFIG) -> None:
        self.sent: list[tuple[Address, Message]] = []
        self.answers: list[Answer | None] = []
        self.streams = RequestStreams(config, Random(1), lambda peer, message: self.sent.append((peer, message)))

    def ask(self, peer: Address = PEER, until_us: int = 60 * SECOND, linger_us: int = 0, now: int = 0) -> bool:
        return self.streams.request(
            peer,
            lambda number: FetchListing(number, 0, None),
            lambda answer, now: self.answers.append(answer),
            until_us=until_us,
            linger_us=linger_us,
            now=now,
        )

    def events(self) -> list[Event]:
        events = []
        while (event := self.streams.next_event()) is not None:
            events.append(event)
        return events

    @property
    def number(self) -> int:
        message = self.sent[-1][1]
        assert isinstance(message, FetchListing)
        return message.number


def test_a_request_leaves_when_the_stream_is_up_and_the_stream_ends_with_the_answer() -> None:
    desk = Desk()
    assert desk.ask()
    assert desk.events() == [Connect(PEER)]
    assert desk.sent == []
    desk.streams.peer_up(PEER, 1)
    desk.streams.handle_answer(PEER, RequestAck(desk.number), 2)
    assert desk.answers == [RequestAck(desk.number)]
    assert desk.events() == [Disconnect(PEER)]
    assert len(desk.streams) == 0


def test_an_answer_comes_once_and_only_for_what_was_asked() -> None:
    desk = Desk()
    desk.ask(linger_us=SECOND)
    desk.streams.peer_up(PEER, 1)
    with pytest.raises(StaleError):
        desk.streams.handle_answer(PEER, RequestAck(desk.number + 1), 2)
    desk.streams.handle_answer(PEER, RequestAck(desk.number), 2)
    for peer in (PEER, OTHER):
        with pytest.raises(StaleError):
            desk.streams.handle_answer(peer, RequestAck(desk.number), 3)
    assert len(desk.answers) == 1


def test_what_was_not_answered_is_asked_again_when_the_stream_is_back() -> None:
    desk = Desk()
    desk.ask()
    desk.streams.peer_up(PEER, 1)
    desk.streams.peer_lost(PEER, 2)
    desk.events()
    due = desk.streams.next_us()
    assert due is not None
    desk.streams.handle(due)
    assert desk.events() == [Connect(PEER)]
    desk.streams.peer_up(PEER, due + 1)
    assert len(desk.sent) == 2
    assert desk.sent[0] == desk.sent[1]


def test_a_stream_that_gives_no_answer_is_left_for_another() -> None:
    desk = Desk()
    desk.ask()
    desk.streams.peer_up(PEER, 0)
    desk.events()
    desk.streams.handle(CONFIG.retry_us)
    assert desk.events() == [Disconnect(PEER)]
    assert desk.answers == []
    desk.streams.handle(CONFIG.retry_us + 4 * CONFIG.connect_us)
    assert desk.events() == [Connect(PEER)]


def test_a_request_that_is_over_is_told_so_and_not_asked_any_more() -> None:
    desk = Desk()
    desk.ask(until_us=5 * SECOND)
    desk.streams.peer_lost(PEER, 0)
    while (due := desk.streams.next_us()) is not None:
        desk.streams.handle(due)
        desk.streams.peer_lost(PEER, due)
    assert desk.answers == [None]
    calls = [event for event in desk.events() if isinstance(event, Connect)]
    assert 2 <= len(calls) <= 6
    desk.streams.peer_up(PEER, 6 * SECOND)
    assert desk.events() == [Disconnect(PEER)]
    assert desk.sent == []


def test_an_idle_stream_serves_the_next_request_and_ends_when_there_is_none() -> None:
    desk = Desk()
    desk.ask(linger_us=SECOND)
    desk.streams.peer_up(PEER, 0)
    desk.streams.handle_answer(PEER, RequestAck(desk.number), 1)
    desk.ask(linger_us=SECOND, now=2)
    assert desk.events() == [Connect(PEER)]
    desk.streams.handle_answer(PEER, RequestAck(desk.number), 3)
    desk.streams.handle(SECOND + 3)
    assert desk.events() == [Disconnect(PEER)]


def test_there_is_room_for_so_many_streams_and_idle_ones_give_way() -> None:
    desk = Desk()
    assert desk.ask(PEER, linger_us=60 * SECOND)
    assert desk.ask(OTHER)
    assert not desk.ask(THIRD)
    desk.streams.peer_up(PEER, 0)
    desk.streams.handle_answer(PEER, RequestAck(desk.number), 1)
    assert desk.ask(THIRD, now=2)
    assert len(desk.streams) == 2
    assert PEER not in desk.streams


def test_whoever_is_told_that_there_is_no_answer_may_ask_again_at_once() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, streams_max=1))
    asked: list[int] = []

    def then(answer: Answer | None, now: int) -> None:
        asked.append(now)
        if len(asked) < 3:
            again(now)

    def again(now: int) -> None:
        desk.streams.request(
            PEER, lambda number: FetchListing(number, 0, None), then, until_us=now + SECOND, linger_us=0, now=now
        )

    again(0)
    while (due := desk.streams.next_us()) is not None:
        desk.streams.handle(due)
    assert asked == [SECOND, 2 * SECOND, 3 * SECOND]
    assert len(desk.streams) == 0


def answered(desk: Desk, peer: Address, now: int) -> None:
    """One more call, and what it was made for is answered at once."""
    desk.ask(peer, now=now)
    desk.streams.peer_up(peer, now + 1)
    desk.streams.handle_answer(peer, RequestAck(desk.number), now + 2)
    desk.events()


def test_a_call_that_hangs_is_given_up_for_another_when_others_have_overtaken_it() -> None:
    desk, half_us = Desk(), CONFIG.retry_us // 2
    answered(desk, OTHER, 0)
    desk.ask(now=10)
    assert desk.events() == [Connect(PEER)]
    for now in (20, 30):
        answered(desk, OTHER, now)
    desk.streams.handle(10 + half_us)
    assert desk.events() == []
    answered(desk, OTHER, 20 + half_us)
    due = desk.streams.next_us()
    assert due is not None
    desk.streams.handle(due)
    assert desk.events() == [Disconnect(PEER), Connect(PEER)]


def test_a_call_that_fails_is_made_again_when_we_say_so_and_not_the_driver() -> None:
    desk = Desk()
    desk.ask()
    desk.events()
    desk.streams.peer_lost(PEER, 1)
    assert desk.events() == [Disconnect(PEER)]
    desk.streams.handle(1 + CONFIG.connect_us)
    assert desk.events() == [Connect(PEER)]


def test_where_all_calls_have_become_slow_none_is_given_up_and_all_are_waited_for() -> None:
    desk = Desk(msgspec.structs.replace(CONFIG, retry_us=SECOND, streams_max=64))
    peers = [Address(f"hop@{number}") for number in range(8)]
    for peer in peers:
        answered(desk, peer, 0)
    assert desk.streams.patience_us == SECOND
    for peer in peers:
        desk.ask(peer, now=10)
    desk.events()
    for now in range(0, 3 * SECOND // 2, SECOND // 10):
        desk.streams.handle(now)
    assert desk.events() == []
    assert desk.streams.patience_us > 3 * SECOND


def test_who_is_called_in_vain_is_told_until_it_is_up() -> None:
    desk = Desk()
    assert not desk.streams.is_unreachable(PEER)
    desk.ask()
    assert not desk.streams.is_unreachable(PEER)
    desk.streams.peer_lost(PEER, 1)
    assert desk.streams.is_unreachable(PEER)
    desk.streams.handle(3 * SECOND)  # It is called again.
    assert desk.streams.is_unreachable(PEER)
    desk.streams.peer_up(PEER, 4 * SECOND)
    assert not desk.streams.is_unreachable(PEER)
