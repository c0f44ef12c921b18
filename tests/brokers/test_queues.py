"""Queues between peers: everything arrives once and in order, over breaking streams and restarts."""

from __future__ import annotations

import random

import pytest

from veilcast.brokers import peer_sessions as module
from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.errors import ExcessError, MalformedError, StaleError
from veilcast.machine import Address
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import ConfirmContent, CopyRouting, Hello, ItemAck, SessionItem

A, B = Address("a"), Address("b")


def content(number: int) -> ConfirmContent:
    """A droppable message."""
    return ConfirmContent(number.to_bytes(16, "big"), 0)


def claim(number: int) -> CopyRouting:
    """A message that is never dropped."""
    return CopyRouting(number)


class Pair:
    """Two ends and the stream between them, which can break with frames on it."""

    def __init__(self, seed: int = 1, window: int = 8, queue_max: int = 50) -> None:
        self.rng = random.Random(seed)
        self.window, self.queue_max = window, queue_max
        self.ends = {A: self.end(), B: self.end()}
        self.got: dict[Address, list[Message]] = {A: [], B: []}
        self.flying: dict[Address, list[bytes]] = {A: [], B: []}
        self.now = 0

    def end(self) -> PeerQueues:
        return PeerQueues(self.window, self.queue_max, 1 << 20, self.rng.randbytes)

    def connect(self) -> None:
        self.flying = {A: [], B: []}
        for one, other in ((A, B), (B, A)):
            self.ends[one].frames(self.now, 1 << 20)
            self.ends[one].peer_up(other)

    def cut(self) -> None:
        for one, other in ((A, B), (B, A)):
            self.ends[one].peer_lost(other)

    def step(self, to: Address) -> bool:
        """One frame arrives there."""
        other = B if to == A else A
        self.flying[to] += [frame.data for frame in self.ends[other].frames(self.now, 1 << 20)]
        if not self.flying[to]:
            return False
        message = self.ends[to].receive(self.flying[to].pop(0), other, self.now)
        if message is not None:
            self.got[to].append(message)
        return True

    def settle(self) -> None:
        """Run until nothing is in flight and no timer is due soon."""
        while True:
            while self.step(A) or self.step(B):
                pass
            soon = [when for end in self.ends.values() if (when := end.next_us()) is not None]
            if not soon or min(soon) > self.now + module.ACKNOWLEDGE_US:
                return
            self.now = max(self.now, min(soon))
            for end in self.ends.values():
                end.handle(self.now)


def test_everything_arrives_once_and_in_order_over_breaking_streams() -> None:
    for seed in range(30):
        pair = Pair(seed)
        pair.connect()
        said = 0
        for _ in range(200):
            match pair.rng.randrange(8):
                case 0:
                    pair.cut()
                    pair.connect()
                case 1 | 2 if said < 50:
                    said += 1
                    pair.ends[A].put(B, content(said))
                    pair.ends[B].put(A, claim(said))
                case _:
                    pair.step(pair.rng.choice((A, B)))
        pair.connect()
        pair.settle()
        assert pair.got[B] == [content(number) for number in range(1, said + 1)]
        assert pair.got[A] == [claim(number) for number in range(1, said + 1)]
        assert len(pair.ends[A]) == len(pair.ends[B]) == 0, "and all of it is acknowledged"


def test_a_restarted_peer_is_recognized_and_gets_what_it_lacks() -> None:
    pair = Pair()
    pair.connect()
    for number in range(20):
        pair.ends[A].put(B, claim(number))
    pair.settle()
    assert list(pair.ends[A].restarted) == [B]
    assert list(pair.ends[B].restarted) == [A]
    pair.ends[A].restarted.clear()
    pair.cut()
    pair.ends[A].put(B, claim(100))
    pair.connect()
    pair.settle()
    assert not pair.ends[A].restarted, "a stream is not a life"
    pair.cut()
    pair.ends[A].put(B, claim(101))
    pair.ends[B], pair.got[B] = pair.end(), []
    pair.connect()
    pair.settle()
    assert list(pair.ends[A].restarted) == [B]
    assert pair.got[B] == [claim(101)]
    pair.ends[B].put(A, claim(7))
    pair.settle()
    assert pair.got[A] == [claim(7)]


def test_content_is_dropped_oldest_first_and_counted_and_claims_are_not() -> None:
    pair = Pair(queue_max=10)
    pair.connect()
    pair.settle()
    pair.cut()
    pair.ends[A].put(B, claim(0))
    for number in range(25):
        pair.ends[A].put(B, content(number))
    pair.ends[A].put(B, claim(1))
    assert pair.ends[A].dropped == 15
    assert len(pair.ends[A]) == sum(pair.ends[A].queue_lengths()) == 12
    pair.connect()
    pair.settle()
    assert pair.got[B] == [claim(0), *(content(number) for number in range(15, 25)), claim(1)]


def test_bytes_are_bounded_too() -> None:
    rng = random.Random(1)
    end = PeerQueues(8, 1000, 300, rng.randbytes)
    end.peer_up(B)
    for number in range(100):
        end.put(B, content(number))
    size = len(encode(content(1)))
    assert len(end) == 300 // size
    assert end.dropped == 100 - len(end)


def test_many_stalled_peers_are_bounded_together_and_small_queues_lose_nothing() -> None:
    one = len(encode(content(1)))
    queues = PeerQueues(8, 1000, 100 * one, random.Random(1).randbytes)
    deaf = [Address(f"deaf {number}") for number in range(50)]
    for peer in (A, *deaf):
        queues.expect(peer)
    for number in range(3):
        queues.put(A, content(number))
    for number in range(200):
        for peer in deaf:
            queues.put(peer, content(number))
        assert len(queues) <= 2 * module._TOTAL_FACTOR * 100
    assert queues.unacknowledged_count(A) == 3
    assert max(map(queues.unacknowledged_count, deaf)) - min(map(queues.unacknowledged_count, deaf)) <= 1, (
        "none of them has another's part"
    )
    assert queues.dropped == 50 * 200 + 3 - len(queues)


def test_a_peer_that_is_offline_too_long_gets_everything_again() -> None:
    pair = Pair(queue_max=10)
    pair.connect()
    pair.settle()
    pair.ends[A].restarted.clear()
    pair.cut()
    for number in range(40):
        pair.ends[A].put(B, claim(number))
    assert len(pair.ends[A]) == 0, "no room for all, so there is no use in some"
    pair.connect()
    pair.settle()
    assert list(pair.ends[A].restarted) == [B]
    assert pair.got[B] == []
    pair.ends[A].put(B, claim(1))
    pair.settle()
    assert pair.got[B] == [claim(1)]


def test_a_connected_peer_that_never_acknowledges_is_disconnected() -> None:
    rng = random.Random(1)
    end = PeerQueues(2, 5, 1 << 20, rng.randbytes)
    end.peer_up(B)
    end.receive(encode(Hello(bytes(16), None, 0)), B, 0)
    for number in range(8):
        end.put(B, claim(number))
    assert list(end.stalled) == [B]
    assert not end.is_greeted(B)


def test_an_expected_peer_can_be_sent_all_claims_at_once() -> None:
    end = PeerQueues(2, 5, 1 << 20, random.Random(1).randbytes, claims_max=40)
    end.expect(B)
    end.peer_up(B)
    end.receive(encode(Hello(bytes(16), None, 0)), B, 0)
    for number in range(42):
        end.put(B, claim(number))
    assert (end.dropped, list(end.stalled), end.unacknowledged_count(B)) == (0, [], 42)
    end.put(B, claim(42))
    assert list(end.stalled) == [B]


def test_invalid_input_is_refused() -> None:
    rng = random.Random(1)
    end = PeerQueues(4, 10, 1 << 20, rng.randbytes)
    with pytest.raises(StaleError):
        end.receive(encode(Hello(bytes(16), None, 0)), B, 0)
    end.peer_up(B)
    with pytest.raises(MalformedError, match="before a greeting"):
        end.receive(encode(SessionItem(1, encode(claim(1)))), B, 0)
    end.receive(encode(Hello(bytes(16), None, 0)), B, 0)
    with pytest.raises(MalformedError, match="out of its order"):
        end.receive(encode(SessionItem(2, encode(claim(1)))), B, 0)
    with pytest.raises(MalformedError, match="never sent"):
        end.receive(encode(ItemAck(1)), B, 0)
    with pytest.raises(MalformedError, match="session"):
        end.receive(encode(claim(1)), B, 0)
    for _ in range(module.HELLOS_MAX - 1):
        end.receive(encode(Hello(bytes(16), None, 0)), B, 0)
    with pytest.raises(ExcessError):
        end.receive(encode(Hello(bytes(16), None, 0)), B, 0)


def test_many_items_are_acknowledged_at_once() -> None:
    pair = Pair(window=100, queue_max=500)
    pair.connect()
    pair.settle()
    for number in range(100):
        pair.ends[A].put(B, content(number))
    for _ in range(101):
        pair.step(B)
    acknowledgements = pair.ends[B].frames(pair.now, 1000)
    assert len(acknowledgements) == 100 // 25
    assert len(pair.got[B]) == 100


def test_messages_for_a_forgotten_peer_are_discarded() -> None:
    pair = Pair()
    pair.connect()
    pair.settle()
    pair.ends[A].forget(B)
    pair.ends[A].put(B, claim(1))
    assert len(pair.ends[A]) == 0
    assert B not in pair.ends[A]
    assert pair.ends[A].unacknowledged_count(B) == 0


def test_a_stream_reported_twice_continues() -> None:
    """As to a machine that connected twice; for the peer it is one stream, on which it greets once."""
    pair = Pair()
    pair.connect()
    pair.settle()
    pair.ends[A].peer_up(B)
    pair.ends[A].put(B, content(1))
    pair.ends[B].put(A, content(2))
    pair.settle()
    assert pair.got == {A: [content(2)], B: [content(1)]}


def test_unacknowledged_messages_are_known() -> None:
    pair = Pair()
    pair.connect()
    pair.settle()
    pair.cut()
    pair.ends[A].put(B, claim(1))
    assert pair.ends[A].is_unacknowledged(B, claim(1))
    assert not pair.ends[A].is_unacknowledged(B, claim(2))
    assert not pair.ends[B].is_unacknowledged(A, claim(1))
    pair.connect()
    pair.settle()
    assert not pair.ends[A].is_unacknowledged(B, claim(1))
