"""Cells, mostly from the view of an adversary that records, changes, repeats and reorders them."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.link_pair import NOW, handshake_pair, identity, network, shake_hands
from veilcast.crypto.noise import Handshake, HandshakeRole
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.link.handshake import XX_LINK
from veilcast.link.replay_window import WINDOW_SIZE
from veilcast.link.session import AHEAD, COUNTERS, GENERATIONS, REFUSE_US, REKEY_US, LinkSession
from veilcast.wire.geometry import CELL, CELL_BODY, CELL_PAYLOAD, DATAGRAM_MIN, LINK_HEADER

BODY = bytes(range(256)) * 4 + bytes(CELL_BODY - 1024)


def sessions(*, known: bool = False, uniform: bool = True) -> tuple[LinkSession, LinkSession]:
    ours, theirs = handshake_pair(known=known, uniform=uniform)
    return ours.session, theirs.session


@pytest.mark.parametrize("known", [False, True])
def test_each_side_opens_what_the_other_seals(known: bool) -> None:
    ours, theirs = sessions(known=known)
    for number in range(3):
        body = bytes([number]) * CELL_BODY
        assert theirs.open(ours.seal(body, NOW), NOW) == body
        assert ours.open(theirs.seal(body, NOW), NOW) == body
    assert (ours.newest, theirs.newest) == (2, 2)


def test_a_cell_has_one_size_with_room_for_the_payload_and_takes_no_other_body() -> None:
    ours, theirs = sessions()
    assert len(ours.seal(BODY, NOW)) == CELL
    assert CELL_BODY > CELL_PAYLOAD
    for size in (0, 1, CELL_BODY - 1, CELL_BODY + 1, 5000):
        with pytest.raises(LocalError, match="does not fit"):
            theirs.seal(bytes(size), NOW)


def test_in_a_non_uniform_session_bodies_have_any_size_up_to_a_cell() -> None:
    ours, theirs = sessions(uniform=False)
    for size in (0, 1, 700, CELL_BODY):
        datagram = ours.seal(bytes(size), NOW)
        assert len(datagram) == size + DATAGRAM_MIN
        assert theirs.recognises(datagram)
        assert theirs.open(datagram, NOW) == bytes(size)
    with pytest.raises(LocalError):
        ours.seal(bytes(CELL_BODY + 1), NOW)


@pytest.mark.parametrize("uniform", [True, False])
def test_datagrams_cut_short_or_drawn_long_are_refused(uniform: bool) -> None:
    ours, theirs = sessions(uniform=uniform)
    cell = ours.seal(BODY, NOW)
    for size in (0, 1, LINK_HEADER, DATAGRAM_MIN - 1, DATAGRAM_MIN, 600, CELL - 1):
        with pytest.raises(RemoteError):
            theirs.open(cell[:size], NOW)
    for more in (b"\0", bytes(CELL), bytes(65_000)):
        with pytest.raises(MalformedError):
            theirs.open(cell + more, NOW)
        assert not theirs.recognises(cell + more)
    assert theirs.open(cell, NOW) == BODY


def test_every_single_changed_bit_of_a_cell_is_refused_and_changes_nothing() -> None:
    ours, theirs = sessions()
    theirs.open(ours.seal(BODY, NOW), NOW)
    cell = ours.seal(BODY, NOW)
    bits = [*range(64 * 8), *range(64 * 8, CELL * 8, 41), *range((CELL - 16) * 8, CELL * 8)]
    for bit in bits:
        changed = bytearray(cell)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ForgedError):
            theirs.open(bytes(changed), NOW)
    assert theirs.newest == 0
    assert theirs.open(cell, NOW) == BODY


def test_a_cell_opens_once() -> None:
    ours, theirs = sessions()
    cells = [ours.seal(BODY, NOW) for _ in range(20)]
    for cell in cells:
        theirs.open(cell, NOW)
    for cell in cells:
        with pytest.raises(StaleError):
            theirs.open(cell, NOW)


@given(st.permutations(range(12)))
def test_cells_may_overtake_one_another_and_each_opens_once(order: list[int]) -> None:
    ours, theirs = sessions()
    cells = [ours.seal(bytes([number]) * CELL_BODY, NOW) for number in range(12)]
    for place, number in enumerate(order):
        assert theirs.open(cells[number], NOW)[0] == number
        assert theirs.newest == max(order[: place + 1])


def test_the_window_ends_where_it_says() -> None:
    ours, theirs = sessions()
    cells = [ours.seal(BODY, NOW) for _ in range(WINDOW_SIZE + 2)]
    theirs.open(cells[-1], NOW)
    with pytest.raises(StaleError):
        theirs.open(cells[1], NOW)
    assert not theirs.recognises(cells[1])
    assert theirs.recognises(cells[2])
    theirs.open(cells[2], NOW)
    with pytest.raises(StaleError):
        theirs.open(cells[2], NOW)


def test_a_cell_of_ours_does_not_open_when_it_is_sent_back_to_us() -> None:
    ours, theirs = sessions()
    cell = ours.seal(BODY, NOW)
    assert not ours.recognises(cell)
    with pytest.raises(ForgedError):
        ours.open(cell, NOW)
    assert theirs.recognises(cell)


def test_a_session_recognises_only_its_own_cells() -> None:
    people = network()
    alice, bob = identity(people.alice, 1), identity(people.bob, 2)
    pairs = [shake_hands(alice, bob, generation=generation) for generation in (0, 0, 1, GENERATIONS - 1)]
    for place, (ours, _) in enumerate(pairs):
        cell = ours.session.seal(BODY, NOW)
        assert [theirs.session.recognises(cell) for _, theirs in pairs] == [place == other for other in range(4)]
    noise = random.Random(3).randbytes
    assert not any(pairs[0][1].session.recognises(noise(CELL)) for _ in range(20_000))


def test_counters_far_ahead_are_not_tried() -> None:
    ours, theirs = sessions()
    ours._sender._nonce = AHEAD - 1
    assert theirs.recognises(ours.seal(BODY, NOW))
    assert not theirs.recognises(ours.seal(BODY, NOW))


def test_counters_end_before_they_come_again() -> None:
    ours, theirs = sessions()
    ours._sender._nonce = COUNTERS - 1
    assert theirs.open(ours.seal(BODY, NOW), NOW) == BODY
    with pytest.raises(LocalError, match="no counter left"):
        ours.seal(BODY, NOW)


def test_a_session_neither_sends_nor_receives_past_its_time() -> None:
    ours, theirs = sessions()
    assert ours.rekey_us == NOW + REKEY_US
    last = NOW + REFUSE_US - 1
    cell, late = ours.seal(BODY, last), ours.seal(BODY, last)
    assert theirs.open(cell, last) == BODY
    with pytest.raises(StaleError):
        theirs.open(late, last + 1)
    with pytest.raises(LocalError, match="over"):
        ours.seal(BODY, last + 1)


def test_a_session_is_confirmed_by_the_first_cell_that_opens() -> None:
    ours, theirs = sessions()
    assert not theirs.is_confirmed
    with pytest.raises(ForgedError):
        theirs.open(bytes(CELL), NOW)
    assert not theirs.is_confirmed
    theirs.open(ours.seal(BODY, NOW), NOW)
    assert theirs.is_confirmed


def test_generations_come_round() -> None:
    people = network()
    ours, _ = shake_hands(identity(people.alice), identity(people.bob, 1), generation=GENERATIONS - 1)
    assert ours.session.next_generation == 0
    for none in (-1, GENERATIONS):
        with pytest.raises(LocalError, match="generation"):
            shake_hands(identity(people.alice), identity(people.bob, 1), generation=none)


def test_a_handshake_gives_one_session_and_an_unfinished_one_none() -> None:
    alice = identity(network().alice)
    unfinished = Handshake(XX_LINK, HandshakeRole.INITIATOR, static=alice.static, entropy=alice.entropy, psk=alice.psk)
    with pytest.raises(LocalError):
        LinkSession(unfinished, generation=0, born_us=NOW)
    with pytest.raises(LocalError, match="generation"):
        LinkSession(unfinished, generation=GENERATIONS, born_us=NOW)


def test_a_session_cannot_be_doubled_and_so_uses_no_counter_twice() -> None:
    ours, theirs = sessions()
    with pytest.raises(LocalError, match="copied"):
        copy.deepcopy(ours)
    for sender in (ours, copy.copy(ours), ours):
        theirs.open(sender.seal(BODY, NOW), NOW)


@given(st.binary(max_size=40) | st.binary(min_size=CELL - 2, max_size=CELL + 2))
def test_any_arriving_bytes_are_refused_with_a_remote_error(datagram: bytes) -> None:
    for uniform in (True, False):
        _, theirs = sessions(uniform=uniform)
        assert not theirs.recognises(datagram)
        with pytest.raises(RemoteError):
            theirs.open(datagram, NOW)


def test_the_repr_of_a_session_shows_no_key() -> None:
    assert repr(sessions()[0]) == "<Session of generation 0, newest -1>"
