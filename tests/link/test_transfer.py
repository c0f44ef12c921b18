"""How the room of bodies is used, how fast losses are repaired, and the bounds of queues, windows and timeouts."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.transfer_pair import AT_ONCE, LOST, PERIOD_US, ROOM, transfer_pair
from veilcast.errors import LocalError
from veilcast.link.chunks import SHORT, read_chunks
from veilcast.link.lanes import MESSAGE_COST, QUEUE_MAX, WINDOW
from veilcast.link.transfer import (
    ACK_DELAY_US,
    PATIENCE_MAX,
    PROMPT_TIMEOUT_US,
    SHORT_MAX,
    TIMEOUT_CELLS,
    ZEROS_MAX,
    Transfer,
)
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL_BODY_MIN, CHUNK_MAX, MESSAGE_MAX

HEARTBEAT = b"a beat of thirty bytes, or so.".ljust(1184, b"\0")


def test_a_message_arrives_with_the_next_body() -> None:
    pair = transfer_pair()
    pair.sides[0].put(HEARTBEAT)
    pair.sides[0].put(b"rekey", control=True)
    pair.period()
    assert pair.got[1] == [(b"rekey", True), (HEARTBEAT, False)]


def test_a_quiet_link_sends_one_body_over_and_over() -> None:
    side = Transfer(timeout_us=1)
    body = side.fill(ROOM, 1)
    assert side.fill(ROOM, 2) is body
    assert body == bytes(ROOM)
    assert len(side.fill(ROOM + 1, 3)) == ROOM + 1


def test_a_quiet_link_notices_queued_and_received_messages() -> None:
    pair = transfer_pair()
    pair.period()
    for number in range(3):
        pair.sides[0].put(bytes((1, number)))
        pair.period()
    assert pair.got[1] == [(bytes((1, number)), False) for number in range(3)]
    assert pair.sides[0].is_settled


@given(st.binary(min_size=1, max_size=40), st.integers(0, MESSAGE_MAX - 40))
def test_of_the_zeros_at_the_end_of_a_message_only_their_number_travels(content: bytes, zeros: int) -> None:
    side, message = Transfer(timeout_us=1), content + bytes(zeros)
    side.put(message)
    rest = message.rstrip(b"\0") or b"\0"
    assert read_chunks(side.fill(ROOM, 1)) == [(SHORT, 0, rest, len(message) - len(rest))]


def test_an_idle_heartbeat_takes_some_thirty_bytes_of_a_cell() -> None:
    side = Transfer(timeout_us=1)
    side.put(HEARTBEAT)
    assert len(side.fill(ROOM, 1).rstrip(b"\0")) == ACKNOWLEDGEMENTS + 8 + 30


@pytest.mark.parametrize("length", [1, 2, CHUNK_MAX, CHUNK_MAX + 1, SHORT_MAX, SHORT_MAX + 1, MESSAGE_MAX])
@pytest.mark.parametrize("byte", [b"\0", b"x"])
def test_messages_of_every_length_arrive(byte: bytes, length: int) -> None:
    pair = transfer_pair()
    pair.sides[0].put(byte * length)
    for _ in range(60):
        pair.period()
    assert pair.got[1] == [(byte * length, False)]


@pytest.mark.parametrize("length", [0, MESSAGE_MAX + 1])
def test_messages_of_illegal_length_are_local_errors(length: int) -> None:
    with pytest.raises(LocalError):
        Transfer(timeout_us=1).put(bytes(length))


def test_a_body_without_room_for_a_chunk_is_a_local_error() -> None:
    with pytest.raises(LocalError):
        Transfer(timeout_us=1).fill(CELL_BODY_MIN - 1, 1)
    with pytest.raises(LocalError):
        Transfer(timeout_us=0)


def test_a_long_message_delays_no_short_one() -> None:
    pair = transfer_pair()
    for _ in range(3):
        pair.sides[0].put(b"n" * MESSAGE_MAX)
    for period in range(40):
        pair.sides[0].put(HEARTBEAT)
        pair.period()
        assert pair.got[1].count((HEARTBEAT, False)) == period + 1


def test_many_short_messages_leave_half_the_room_to_a_long_one() -> None:
    pair = transfer_pair()
    pair.sides[0].put(b"n" * MESSAGE_MAX)
    for _ in range(2 * MESSAGE_MAX // CHUNK_MAX + 4):
        pair.sides[0].put(b"s" * CHUNK_MAX)
        pair.period()
    assert (b"n" * MESSAGE_MAX, False) in pair.got[1]


def test_control_messages_go_before_all_others() -> None:
    pair = transfer_pair()
    for _ in range(20):
        pair.sides[0].put(b"s" * CHUNK_MAX)
    pair.period()
    pair.sides[0].put(b"rekey", control=True)
    pair.period()
    assert (b"rekey", True) in pair.got[1]
    assert len(pair.got[1]) < 5


def test_with_room_to_spare_a_loss_costs_one_period() -> None:
    pair = transfer_pair()
    pair.sides[0].put(HEARTBEAT)
    pair.period((LOST, AT_ONCE))
    assert pair.got[1] == []
    pair.period()
    assert pair.got[1] == [(HEARTBEAT, False)]


def test_without_room_to_spare_a_loss_is_repaired_once_something_later_arrived() -> None:
    pair = transfer_pair()
    for number in range(30):
        pair.sides[0].put(bytes((number + 1,)) * CHUNK_MAX)
    pair.period((LOST, AT_ONCE))
    for _ in range(3):
        pair.period()
    assert pair.got[1][0] == (bytes((1,)) * CHUNK_MAX, False)
    assert pair.sides[0].bytes_again == CHUNK_MAX + 6


def test_an_unacknowledged_chunk_goes_before_new_ones_after_its_timeout() -> None:
    pair = transfer_pair()
    pair.sides[0].put(b"lost")
    pair.period((LOST, LOST))
    for _ in range(TIMEOUT_CELLS - 1):
        # These fill a body; and the other side's cells are all lost, so nothing is heard.
        pair.sides[0].put(b"s" * CHUNK_MAX)
        pair.sides[0].put(b"s" * (ROOM - ACKNOWLEDGEMENTS - CHUNK_MAX - 12))
        pair.period((AT_ONCE, LOST))
    assert pair.got[1] == []
    pair.sides[0].put(b"s" * CHUNK_MAX)
    pair.period()
    assert pair.got[1][0] == (b"lost", False)


def test_a_busy_link_with_a_long_round_trip_repeats_nothing_without_need() -> None:
    pair = transfer_pair()
    for _ in range(100):
        pair.sides[0].put(b"s" * CHUNK_MAX)
        pair.period(((6,), (6,)))
    assert pair.sides[0].bytes_again == 0
    assert len(pair.got[1]) == 100 - 6


def test_at_most_a_window_is_in_flight_and_then_all_room_is_spare() -> None:
    side = Transfer(timeout_us=1_000 * PERIOD_US)
    for _ in range(2 * WINDOW):
        side.put(b"s" * 100)
    numbers = set()
    for period in range(3 * WINDOW):
        chunks = read_chunks(side.fill(ROOM, period * PERIOD_US))
        assert chunks
        numbers |= {number for lane, number, _, _ in chunks if lane == SHORT}
    assert numbers == set(range(WINDOW))
    assert side.waiting == WINDOW


def test_a_full_queue_drops_the_oldest_that_wait_and_counts_them() -> None:
    pair = transfer_pair()
    content = 1000
    fit = QUEUE_MAX // (content + MESSAGE_COST)
    messages = [number.to_bytes(4, "big") * (content // 4 - 1) + b"last" for number in range(fit + 7)]
    for message in messages:
        pair.sides[0].put(message)
    assert (pair.sides[0].waiting, pair.sides[0].dropped) == (fit, 7)
    for _ in range(2 * fit):
        pair.period()
    assert [message for message, _ in pair.got[1]] == messages[7:]


def test_a_message_that_has_begun_to_leave_is_never_dropped() -> None:
    pair = transfer_pair()
    messages = [bytes((number + 1,)) * MESSAGE_MAX for number in range(8)]
    pair.sides[0].put(messages[0])
    pair.period()
    for message in messages[1:]:
        pair.sides[0].put(message)
    assert pair.sides[0].dropped == 3
    for _ in range(300):
        pair.period()
    assert [message for message, _ in pair.got[1]] == [messages[0], *messages[4:]]


def test_zeros_in_flight_are_bounded_and_all_arrive() -> None:
    pair = transfer_pair()
    messages = [b"z".ljust(MESSAGE_MAX - number, b"\0") for number in range(12)]
    for message in messages:
        pair.sides[0].put(message)
    pair.period((LOST, AT_ONCE))
    assert pair.sides[0].waiting == len(messages) - ZEROS_MAX // MESSAGE_MAX
    for _ in range(12):
        pair.period()
    assert [message for message, _ in pair.got[1]] == messages


@pytest.mark.parametrize("loss", [0.1, 0.3, 0.5])
def test_short_messages_pass_a_lossy_link_in_about_a_period_a_loss(loss: float) -> None:
    """With spare room the delay is that of the cells alone: the number of tries until one arrives."""
    pair, rng, waits = transfer_pair(), random.Random(4), []
    for number in range(400):
        message = number.to_bytes(2, "big") + b"."
        pair.sides[0].put(message)
        waited = 0
        while (message, False) not in pair.got[1][-1:]:
            pair.period([LOST if rng.random() < loss else AT_ONCE for _ in range(2)])
            waited += 1
        waits.append(waited)
    assert sum(waits) / len(waits) < 1 / (1 - loss) + 0.1


class TestPrompt:
    def test_a_message_leaves_at_once_in_a_body_of_its_size(self) -> None:
        side = Transfer(timeout_us=PROMPT_TIMEOUT_US)
        assert side.prompt(ROOM, 5) is None
        assert side.next_prompt_us is None
        side.put(b"x" * 100)
        body = side.prompt(ROOM, 5)
        assert body is not None
        assert len(body) == ACKNOWLEDGEMENTS + 6 + 100
        assert side.prompt(ROOM, 5) is None
        assert side.next_prompt_us == 5 + PROMPT_TIMEOUT_US

    def test_what_was_padded_leaves_in_one_size_whatever_is_inside(self) -> None:
        sizes = []
        for content in (b"", b"x" * 300, b"x" * 900):
            side = Transfer(timeout_us=PROMPT_TIMEOUT_US, padded=True)
            side.put(content.ljust(1_000, b"\0"))
            body = side.prompt(ROOM, 5)
            assert body is not None
            sizes.append(len(body))
        assert sizes == [ACKNOWLEDGEMENTS + 6 + 1_000] * 3

    def test_a_long_message_leaves_in_many_bodies_at_once_and_is_acknowledged_by_one(self) -> None:
        pair = transfer_pair(cells=False)
        pair.sides[0].put(b"x" * MESSAGE_MAX)
        begun_us = pair.now
        assert pair.prompt() == -(-MESSAGE_MAX // CHUNK_MAX)
        assert pair.got[1] == [(b"x" * MESSAGE_MAX, False)]
        assert pair.sides[1].next_prompt_us == begun_us + ACK_DELAY_US
        assert pair.prompt() == 1
        assert pair.sides[0].is_settled
        assert pair.sides[0].next_prompt_us is pair.sides[1].next_prompt_us is None

    def test_what_is_lost_is_repeated_when_its_time_is_up(self) -> None:
        pair = transfer_pair(cells=False)
        pair.sides[0].put(b"lost")
        pair.prompt((LOST, AT_ONCE))
        due = pair.sides[0].next_prompt_us
        assert due is not None
        pair.now = due - 1
        assert pair.sides[0].prompt(ROOM, pair.now) is None
        pair.now = due
        pair.prompt()
        assert pair.got[1] == [(b"lost", False)]

    def test_a_silent_peer_is_asked_less_and_less_often(self) -> None:
        side = Transfer(timeout_us=PROMPT_TIMEOUT_US)
        for _ in range(WINDOW):
            side.put(b"s" * CHUNK_MAX)
        while side.prompt(ROOM, 0) is not None:
            pass
        asked = [0]
        for _ in range(6):
            assert side.next_prompt_us is not None
            asked.append(side.next_prompt_us)
            assert side.prompt(ROOM, asked[-1] - 1) is None
            assert side.prompt(ROOM, asked[-1]) is not None
            assert side.prompt(ROOM, asked[-1]) is None
        waits = [(later - earlier) // PROMPT_TIMEOUT_US for earlier, later in pairwise(asked)]
        assert waits == [1, 2, 4, PATIENCE_MAX, PATIENCE_MAX, PATIENCE_MAX]
