"""Streams that fail silently: the loss is noticed, the stream is replaced, nothing is missed."""

from __future__ import annotations

import pytest

from support.simulated_overlay import EPOCH_US, NODES, TOPIC, SimulatedOverlay, names_of
from veilcast.authority.topic_record import Profile
from veilcast.brokers.peer_sessions import STALL_US, PeerQueues
from veilcast.errors import MalformedError
from veilcast.machine import Address
from veilcast.sim.rng import SeededEntropy
from veilcast.topics import Label
from veilcast.wire.brokers import ConfirmContent

A, B = Address("a"), Address("b")
HOUR = 3_600_000_000


def pair() -> tuple[PeerQueues, PeerQueues]:
    """Two ends that have greeted one another, at an hour."""
    ends = PeerQueues(8, 50, 1 << 20, SeededEntropy(b"a")), PeerQueues(8, 50, 1 << 20, SeededEntropy(b"b"))
    ends[0].peer_up(B)
    ends[1].peer_up(A)
    for _ in range(4):
        for here, there, name in ((ends[0], ends[1], A), (ends[1], ends[0], B)):
            for frame in here.frames(HOUR, 100):
                there.receive(frame.data, name, HOUR)
    for end in ends:
        end.handle(HOUR)
        end.handle(HOUR + STALL_US)
    return ends


def said(number: int) -> ConfirmContent:
    return ConfirmContent(number.to_bytes(16, "big"), 0)


def test_a_gap_is_noticed_at_the_next_item_and_the_stream_is_closed() -> None:
    one, other = pair()
    one.put(B, said(1))
    one.frames(HOUR, 100)
    one.put(B, said(2))
    (frame,) = one.frames(HOUR, 100)
    for _ in range(3):
        with pytest.raises(MalformedError):
            other.receive(frame.data, A, HOUR)
    assert list(other.stalled) == [A]


def test_a_stream_with_a_lost_last_item_is_closed_after_the_stall_time_and_not_before() -> None:
    one, _ = pair()
    later = 2 * HOUR  # Nobody has told the queues meanwhile what time it is.
    one.put(B, said(1))
    one.frames(later, 100)
    one.handle(later + STALL_US - 1)
    assert not one.stalled
    assert one.next_us() == later + STALL_US
    one.handle(later + STALL_US)
    assert list(one.stalled) == [B]


def test_a_stream_with_progress_is_not_closed_however_much_is_sent() -> None:
    one, other = pair()
    for number in range(40):
        now = 2 * HOUR + number * STALL_US // 4
        one.put(B, said(number))
        one.handle(now)
        for frame in one.frames(now, 100):
            other.receive(frame.data, A, now)
        other.handle(now + STALL_US // 8)
        for frame in other.frames(now + STALL_US // 8, 100):
            one.receive(frame.data, B, now + STALL_US // 8)
    assert not one.stalled
    assert not other.stalled


def test_a_peer_that_never_greets_is_closed_and_an_idle_one_is_not() -> None:
    one, _ = pair()
    assert one.next_us() is None
    stranger = PeerQueues(8, 50, 1 << 20, SeededEntropy(b"c"))
    stranger.peer_up(B)
    stranger.frames(HOUR, 100)
    stranger.handle(HOUR + STALL_US)
    assert list(stranger.stalled) == [B]


@pytest.mark.parametrize("seconds", [5, 100])
@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_nothing_is_lost_when_a_node_is_silently_cut_off_even_over_an_epoch_change(
    profile: Profile, seconds: int
) -> None:
    net = SimulatedOverlay(profile, clients={"p": "a", "s": "c", "t": "a"})
    for name in ("s", "t"):
        net.subscribe(name, Label(TOPIC))
    net.stand()
    net.publish("p", b"before")
    net.run(2)
    here = [Address(name) for name in (*names_of("a"), "p", "t")]
    there = [Address(name) for node in NODES[1:] for name in names_of(node)]
    for change in (net.world.block, net.world.unblock):
        for one in here:
            for other in there:
                change(one, other)
                change(other, one)
        if change == net.world.block:
            net.publish("p", b"meanwhile")
            net.run(seconds)
    net.run_until(lambda: not net.pending("p"), 120)
    net.run(EPOCH_US / 1_000_000)
    net.publish("p", b"after")
    net.run_until(lambda: not net.pending("p"), 30)
    for name in ("s", "t"):
        assert net.delivered_to(name) == [b"before", b"meanwhile", b"after"]
