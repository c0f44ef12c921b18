"""A peer that holds the keys and sends the worst possible bodies costs no more than the bounds."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.transfer_pair import ROOM
from veilcast.errors import ExcessError, MalformedError, RemoteError
from veilcast.link.chunks import CONTROL, LONG, SHORT, write_chunk
from veilcast.link.lanes import WINDOW
from veilcast.link.transfer import ZEROS_MAX, Transfer
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CHUNK_MAX, LANES, MESSAGE_MAX

NOTHING = bytes(ACKNOWLEDGEMENTS)


def body(*chunks: bytes) -> bytes:
    return NOTHING + b"".join(chunks)


def acks(expected: int, beyond: int = 0) -> bytes:
    return struct.pack(">IQIQIQ", 0, 0, expected, beyond, 0, 0)


@pytest.fixture
def side() -> Transfer:
    return Transfer(timeout_us=1_000_000)


@pytest.mark.parametrize(
    ("expected", "beyond"), [(4, 0), (1 << 31, 0), (0, 1 << 2), (3, 1), (1, 1 << 1), (0, 1 << 63), (2, (1 << 64) - 1)]
)
def test_acknowledging_what_was_never_sent_is_refused_and_changes_nothing(
    side: Transfer, expected: int, beyond: int
) -> None:
    for _ in range(3):
        side.put(b"s" * 100)
    sent = side.fill(ROOM, 1)
    if expected == 1 << 31:
        # Half a turn away is as far back as ahead; it counts as an old one.
        assert side.take(acks(expected, beyond), 2) == ()
    else:
        with pytest.raises(MalformedError):
            side.take(acks(expected, beyond), 2)
    assert side.fill(ROOM, 3) == sent
    side.take(acks(3), 4)
    assert side.is_settled


def test_contradictory_acknowledgements_do_no_harm(side: Transfer) -> None:
    for _ in range(4):
        side.put(b"s" * 100)
    side.fill(ROOM, 1)
    side.take(acks(0, 0b1), 2)
    side.take(acks(1, 0b10), 2)
    side.take(acks(3), 2)
    side.take(acks(2, 0b1), 2)
    side.take(acks(4), 2)
    assert side.is_settled


@pytest.mark.parametrize("ahead", [WINDOW, WINDOW + 1, 1 << 20, (1 << 31) - 1])
def test_chunks_far_ahead_are_refused(side: Transfer, ahead: int) -> None:
    with pytest.raises(MalformedError):
        side.take(body(write_chunk(SHORT, ahead, b"x", 0)), 1)


def test_chunks_that_are_long_past_are_ignored(side: Transfer) -> None:
    assert list(side.take(body(write_chunk(SHORT, (1 << 32) - 1, b"x", 0)), 1)) == []


def test_at_most_a_window_of_early_chunks_is_stored(side: Transfer) -> None:
    for lane in (CONTROL, SHORT, LONG):
        for number in range(1, WINDOW):
            for _ in range(2):
                assert list(side.take(body(write_chunk(lane, number, b"x" * CHUNK_MAX, None)), 1)) == []
    assert _kept(side) == LANES * (WINDOW - 1) * CHUNK_MAX


def test_endless_fragments_end_at_the_longest_message(side: Transfer) -> None:
    for number in range(MESSAGE_MAX // CHUNK_MAX):
        side.take(body(write_chunk(LONG, number, b"x" * CHUNK_MAX, None)), 1)
    assert _kept(side) == MESSAGE_MAX
    with pytest.raises(ExcessError):
        side.take(body(write_chunk(LONG, MESSAGE_MAX // CHUNK_MAX, b"x", None)), 1)
    assert _kept(side) == MESSAGE_MAX


def test_zeros_do_not_make_a_message_too_long(side: Transfer) -> None:
    assert len(side.take(body(write_chunk(SHORT, 0, b"x", MESSAGE_MAX - 1)), 1)[0][0]) == MESSAGE_MAX
    with pytest.raises(ExcessError):
        side.take(body(write_chunk(SHORT, 1, b"x", MESSAGE_MAX)), 1)


def test_one_body_restores_no_more_zeros_than_may_be_in_flight(side: Transfer) -> None:
    zeros = MESSAGE_MAX - 1
    most = ZEROS_MAX // zeros
    taken = side.take(body(*(write_chunk(SHORT, number, b"x", zeros) for number in range(most))), 1)
    assert len(taken) == most
    with pytest.raises(ExcessError):
        side.take(body(*(write_chunk(SHORT, most + number, b"x", zeros) for number in range(most + 1))), 1)


def test_zeros_that_waited_for_a_gap_are_bounded_too(side: Transfer) -> None:
    for number in range(1, 8):
        side.take(body(write_chunk(SHORT, number, b"x", MESSAGE_MAX - 1)), 1)
    with pytest.raises(ExcessError):
        side.take(body(write_chunk(SHORT, 0, b"x", 0)), 1)


@pytest.mark.parametrize("length", [0, 1, ACKNOWLEDGEMENTS - 1])
def test_a_body_without_acknowledgements_is_refused(side: Transfer, length: int) -> None:
    with pytest.raises(MalformedError):
        side.take(bytes(length), 1)


@given(st.binary(max_size=120), st.binary(max_size=40))
def test_random_bodies_raise_nothing_but_remote_errors(data: bytes, start: bytes) -> None:
    side = Transfer(timeout_us=1)
    side.put(b"something is under way")
    side.fill(ROOM, 1)
    for junk in (data, NOTHING + data, NOTHING + write_chunk(SHORT, 0, b"x", None) + start):
        try:
            side.take(junk, 2)
        except RemoteError:
            continue


def test_the_worst_of_legal_traffic_keeps_within_the_bounds(side: Transfer) -> None:
    """Chunks of one byte and of the largest size, early, late and repeated, for long. A lane without such a gap
    continues."""
    rng, most = random.Random(11), 0
    for number in range(3_000):
        early = write_chunk(LONG, rng.randrange(1, WINDOW), b"x" * rng.choice((1, CHUNK_MAX)), rng.choice((None, 0, 9)))
        assert list(side.take(body(early, write_chunk(SHORT, number, b"s", 0)), 1)) == [(b"s", False)]
        most = max(most, _kept(side))
    assert CHUNK_MAX < most <= (WINDOW - 1) * CHUNK_MAX


def _kept(side: Transfer) -> int:
    return sum(len(lane) for lane in side._in)
