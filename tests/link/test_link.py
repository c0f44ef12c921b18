"""What was said on a link and may not have arrived is said again on its next line, to the same peer, within bounds."""

from __future__ import annotations

from support.pairs import NOW, B, met, network, party
from veilcast.authority.keyring import Keyring
from veilcast.link.bucket import TokenBucket
from veilcast.link.generations import Generations
from veilcast.link.link import EARLY_MAX, UNSURE_MAX, Line, Link
from veilcast.link.pacing import Slots
from veilcast.link.path_validation import Route
from veilcast.link.transfer import Transfer
from veilcast.wire.geometry import CELL_BODY


def link() -> Link:
    return Link(Route(B, bytes), Slots(4, phase_us=0, now=NOW), TokenBucket(1, 1), NOW)


def line(keyring: Keyring, seed: int = 1) -> tuple[Line, Line]:
    """Both ends, ours first."""
    ours, theirs = party(network().alice, seed), party(keyring, seed + 1)
    ends = []
    for side, contact in zip((ours, theirs), met(ours, theirs), strict=True):
        ends.append(Line(Generations(side, contact), Transfer(timeout_us=1_000_000), NOW))
    return ends[0], ends[1]


def carried(one: Line, other: Line) -> list[bytes]:
    arrived = []
    for _ in range(40):
        arrived += [message for message, _ in other.transfer.take(one.transfer.fill(CELL_BODY, NOW), NOW)]
        one.transfer.take(other.transfer.fill(CELL_BODY, NOW), NOW)
    return arrived


def test_of_what_is_said_before_there_are_keys_the_newest_is_carried() -> None:
    one, (near, far) = link(), line(network().bob)
    for number in range(EARLY_MAX + 3):
        one.say(b"%d" % number, NOW + number)
    assert one.oldest_us == NOW + 3
    one.connect(near, NOW + 10)
    assert one.oldest_us == NOW + 3
    assert carried(near, far) == [b"3", b"4", b"5", b"6"]
    assert one.oldest_us is None


def test_what_may_not_have_arrived_is_said_again_on_the_next_line() -> None:
    one, (near, far), (second, other) = link(), line(network().bob), line(network().bob, 5)
    one.connect(near, NOW)
    one.say(b"arrived", NOW)
    carried(near, far)
    for number in range(UNSURE_MAX + 5):
        one.say(b"%d" % number, NOW)
    one.connect(second, NOW)
    assert carried(second, other) == [b"%d" % number for number in range(5, UNSURE_MAX + 5)]


def test_what_was_said_to_one_member_is_not_said_to_another() -> None:
    one, (near, _), (second, other) = link(), line(network().bob), line(network().carol, 5)
    one.connect(near, NOW)
    one.say(b"for Bob", NOW)
    one.connect(second, NOW)
    assert carried(second, other) == []


def test_a_rival_takes_over_with_its_first_datagram_and_not_before() -> None:
    one, (near, far), (second, other) = link(), line(network().bob), line(network().bob, 5)
    one.connect(near, NOW)
    one.rival = second
    body = bytes(CELL_BODY)
    assert one.open(far.generations.session.seal(body, NOW), NOW) == body
    newest = one.newest
    assert one.open(other.generations.session.seal(body, NOW), NOW) == body
    assert one.line is second
    assert one.newest != newest
    assert one.open(far.generations.session.seal(body, NOW), NOW) is None
