"""Messages that may not have arrived are sent again on the next channel of a link, to the same peer, within bounds."""

from __future__ import annotations

from support.link_pair import NOW, B, identity, network, shake_hands
from veilcast.authority.keyring import Keyring
from veilcast.core.rate_limit import TokenBucket
from veilcast.link.generations import SessionGenerations
from veilcast.link.link import EARLY_MAX, UNCONFIRMED_MAX, KeyedChannel, Link
from veilcast.link.pacing import CellSlots
from veilcast.link.path_validation import PeerPath
from veilcast.link.transfer import Transfer
from veilcast.wire.geometry import CELL_BODY


def link() -> Link:
    return Link(PeerPath(B, bytes), CellSlots(4, phase_us=0, now=NOW), TokenBucket(1, 1), NOW)


def line(keyring: Keyring, seed: int = 1) -> tuple[KeyedChannel, KeyedChannel]:
    """Both ends, ours first."""
    ours, theirs = identity(network().alice, seed), identity(keyring, seed + 1)
    ends = []
    for side, contact in zip((ours, theirs), shake_hands(ours, theirs), strict=True):
        ends.append(KeyedChannel(SessionGenerations(side, contact), Transfer(timeout_us=1_000_000), NOW))
    return ends[0], ends[1]


def carried(one: KeyedChannel, other: KeyedChannel) -> list[bytes]:
    arrived = []
    for _ in range(40):
        arrived += [message for message, _ in other.transfer.take(one.transfer.fill(CELL_BODY, NOW), NOW)]
        one.transfer.take(other.transfer.fill(CELL_BODY, NOW), NOW)
    return arrived


def test_of_messages_before_the_keys_only_the_newest_are_sent() -> None:
    one, (near, far) = link(), line(network().bob)
    for number in range(EARLY_MAX + 3):
        one.send(b"%d" % number, NOW + number)
    assert one.oldest_waiting_us == NOW + 3
    one.connect(near, NOW + 10)
    assert one.oldest_waiting_us == NOW + 3
    assert carried(near, far) == [b"3", b"4", b"5", b"6"]
    assert one.oldest_waiting_us is None


def test_messages_that_may_not_have_arrived_are_sent_again_on_the_next_channel() -> None:
    one, (near, far), (second, other) = link(), line(network().bob), line(network().bob, 5)
    one.connect(near, NOW)
    one.send(b"arrived", NOW)
    carried(near, far)
    for number in range(UNCONFIRMED_MAX + 5):
        one.send(b"%d" % number, NOW)
    one.connect(second, NOW)
    assert carried(second, other) == [b"%d" % number for number in range(5, UNCONFIRMED_MAX + 5)]


def test_messages_for_one_member_are_not_sent_to_another() -> None:
    one, (near, _), (second, other) = link(), line(network().bob), line(network().carol, 5)
    one.connect(near, NOW)
    one.send(b"for Bob", NOW)
    one.connect(second, NOW)
    assert carried(second, other) == []


def test_a_rival_channel_takes_over_with_its_first_datagram() -> None:
    one, (near, far), (second, other) = link(), line(network().bob), line(network().bob, 5)
    one.connect(near, NOW)
    one.rival_channel = second
    body = bytes(CELL_BODY)
    assert one.open(far.generations.session.seal(body, NOW), NOW) == body
    newest = one.newest_received
    assert one.open(other.generations.session.seal(body, NOW), NOW) == body
    assert one.channel is second
    assert one.newest_received != newest
    assert one.open(far.generations.session.seal(body, NOW), NOW) is None
