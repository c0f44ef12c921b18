"""Request streams: opened, answered, lost, hanging, idle, expired."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from veilcast.errors import StaleError
from veilcast.machine import Address, Connect, Disconnect, Event
from veilcast.tree.config import TreeConfig
from veilcast.tree.streams import Answer, RequestStreams
from veilcast.wire.base import Message
from veilcast.wire.tree import FetchListing, RequestAck

SECOND = 1_000_000
CONFIG = TreeConfig(retry_us=10 * SECOND, connect_us=SECOND, streams_max=2)
PEER, OTHER, THIRD = Address("hop@a"), Address("hop@b"), Address("hop@c")


class StreamHost:
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


def test_a_request_leaves_once_its_stream_is_up_and_the_answer_closes_the_stream() -> None:
    host = StreamHost()
    assert host.ask()
    assert host.events() == [Connect(PEER)]
    assert host.sent == []
    host.streams.peer_up(PEER, 1)
    host.streams.handle_answer(PEER, RequestAck(host.number), 2)
    assert host.answers == [RequestAck(host.number)]
    assert host.events() == [Disconnect(PEER)]
    assert len(host.streams) == 0


def test_an_answer_counts_once_and_only_if_requested() -> None:
    host = StreamHost()
    host.ask(linger_us=SECOND)
    host.streams.peer_up(PEER, 1)
    with pytest.raises(StaleError):
        host.streams.handle_answer(PEER, RequestAck(host.number + 1), 2)
    host.streams.handle_answer(PEER, RequestAck(host.number), 2)
    for peer in (PEER, OTHER):
        with pytest.raises(StaleError):
            host.streams.handle_answer(peer, RequestAck(host.number), 3)
    assert len(host.answers) == 1


def test_an_unanswered_request_is_repeated_when_the_stream_is_back() -> None:
    host = StreamHost()
    host.ask()
    host.streams.peer_up(PEER, 1)
    host.streams.peer_lost(PEER, 2)
    host.events()
    due = host.streams.next_us()
    assert due is not None
    host.streams.handle(due)
    assert host.events() == [Connect(PEER)]
    host.streams.peer_up(PEER, due + 1)
    assert len(host.sent) == 2
    assert host.sent[0] == host.sent[1]


def test_a_stream_without_an_answer_is_replaced() -> None:
    host = StreamHost()
    host.ask()
    host.streams.peer_up(PEER, 0)
    host.events()
    host.streams.handle(CONFIG.retry_us)
    assert host.events() == [Disconnect(PEER)]
    assert host.answers == []
    host.streams.handle(CONFIG.retry_us + 4 * CONFIG.connect_us)
    assert host.events() == [Connect(PEER)]


def test_an_expired_request_is_reported_and_not_repeated() -> None:
    host = StreamHost()
    host.ask(until_us=5 * SECOND)
    host.streams.peer_lost(PEER, 0)
    while (due := host.streams.next_us()) is not None:
        host.streams.handle(due)
        host.streams.peer_lost(PEER, due)
    assert host.answers == [None]
    calls = [event for event in host.events() if isinstance(event, Connect)]
    assert 2 <= len(calls) <= 6
    host.streams.peer_up(PEER, 6 * SECOND)
    assert host.events() == [Disconnect(PEER)]
    assert host.sent == []


def test_an_idle_stream_serves_the_next_request_or_closes() -> None:
    host = StreamHost()
    host.ask(linger_us=SECOND)
    host.streams.peer_up(PEER, 0)
    host.streams.handle_answer(PEER, RequestAck(host.number), 1)
    host.ask(linger_us=SECOND, now=2)
    assert host.events() == [Connect(PEER)]
    host.streams.handle_answer(PEER, RequestAck(host.number), 3)
    host.streams.handle(SECOND + 3)
    assert host.events() == [Disconnect(PEER)]


def test_the_number_of_streams_is_bounded_and_idle_ones_are_replaced() -> None:
    host = StreamHost()
    assert host.ask(PEER, linger_us=60 * SECOND)
    assert host.ask(OTHER)
    assert not host.ask(THIRD)
    host.streams.peer_up(PEER, 0)
    host.streams.handle_answer(PEER, RequestAck(host.number), 1)
    assert host.ask(THIRD, now=2)
    assert len(host.streams) == 2
    assert PEER not in host.streams


def test_a_caller_without_an_answer_may_request_again_at_once() -> None:
    host = StreamHost(msgspec.structs.replace(CONFIG, streams_max=1))
    asked: list[int] = []

    def then(answer: Answer | None, now: int) -> None:
        asked.append(now)
        if len(asked) < 3:
            again(now)

    def again(now: int) -> None:
        host.streams.request(
            PEER, lambda number: FetchListing(number, 0, None), then, until_us=now + SECOND, linger_us=0, now=now
        )

    again(0)
    while (due := host.streams.next_us()) is not None:
        host.streams.handle(due)
    assert asked == [SECOND, 2 * SECOND, 3 * SECOND]
    assert len(host.streams) == 0


def answered(host: StreamHost, peer: Address, now: int) -> None:
    """Open one more stream, and answer its request at once."""
    host.ask(peer, now=now)
    host.streams.peer_up(peer, now + 1)
    host.streams.handle_answer(peer, RequestAck(host.number), now + 2)
    host.events()


def test_a_hanging_stream_is_replaced_when_others_overtake_it() -> None:
    host, half_us = StreamHost(), CONFIG.retry_us // 2
    answered(host, OTHER, 0)
    host.ask(now=10)
    assert host.events() == [Connect(PEER)]
    for now in (20, 30):
        answered(host, OTHER, now)
    host.streams.handle(10 + half_us)
    assert host.events() == []
    answered(host, OTHER, 20 + half_us)
    due = host.streams.next_us()
    assert due is not None
    host.streams.handle(due)
    assert host.events() == [Disconnect(PEER), Connect(PEER)]


def test_a_failed_stream_is_reopened_by_the_node_and_not_the_driver() -> None:
    host = StreamHost()
    host.ask()
    host.events()
    host.streams.peer_lost(PEER, 1)
    assert host.events() == [Disconnect(PEER)]
    host.streams.handle(1 + CONFIG.connect_us)
    assert host.events() == [Connect(PEER)]


def test_if_all_streams_are_slow_none_is_replaced() -> None:
    host = StreamHost(msgspec.structs.replace(CONFIG, retry_us=SECOND, streams_max=64))
    peers = [Address(f"hop@{number}") for number in range(8)]
    for peer in peers:
        answered(host, peer, 0)
    assert host.streams.patience_us == SECOND
    for peer in peers:
        host.ask(peer, now=10)
    host.events()
    for now in range(0, 3 * SECOND // 2, SECOND // 10):
        host.streams.handle(now)
    assert host.events() == []
    assert host.streams.patience_us > 3 * SECOND


def test_an_unreachable_peer_is_reported_until_it_is_up() -> None:
    host = StreamHost()
    assert not host.streams.is_unreachable(PEER)
    host.ask()
    assert not host.streams.is_unreachable(PEER)
    host.streams.peer_lost(PEER, 1)
    assert host.streams.is_unreachable(PEER)
    host.streams.handle(3 * SECOND)  # It is called again.
    assert host.streams.is_unreachable(PEER)
    host.streams.peer_up(PEER, 4 * SECOND)
    assert not host.streams.is_unreachable(PEER)
