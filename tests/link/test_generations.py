"""Sessions of a link follow one another: at the right time, begun by the right side, and no key outlives its
session."""

from __future__ import annotations

import pytest

from support.link_pair import LATE, NOW, identity, network, shake_hands
from veilcast.errors import ExcessError, ExpiredError, MalformedError, RemoteError, StaleError
from veilcast.link.generations import EARLIEST_US, SessionGenerations
from veilcast.link.session import REFUSE_US, REKEY_US
from veilcast.wire.geometry import CELL_BODY

BODY = bytes(CELL_BODY)
RENEWED = NOW + REKEY_US


def both() -> tuple[SessionGenerations, SessionGenerations]:
    """The initiator and the responder."""
    ours, theirs = identity(network().alice, 1), identity(network().bob, 2)
    contact, other = shake_hands(ours, theirs)
    return SessionGenerations(ours, contact), SessionGenerations(theirs, other)


def passes(one: SessionGenerations, other: SessionGenerations, now: int) -> bool:
    return other.open(one.session.seal(BODY, now), now) == BODY


def renewed(now: int = RENEWED) -> tuple[SessionGenerations, SessionGenerations]:
    ours, theirs = both()
    assert passes(ours, theirs, NOW)
    assert passes(theirs, ours, NOW)
    first = ours.renew(now)
    assert first is not None
    answer = theirs.handle_control(first, now)
    assert answer is not None
    assert ours.handle_control(answer, now) is None
    return ours, theirs


def test_only_the_initiator_renews_when_due_and_once() -> None:
    ours, theirs = both()
    assert ours.renew(RENEWED - 1) is None
    assert theirs.renew(RENEWED + REKEY_US) is None
    assert ours.renew(RENEWED) is not None
    assert ours.renew(RENEWED) is None


def test_the_initiator_uses_the_new_keys_at_once_and_the_responder_after_their_first_datagram() -> None:
    ours, theirs = renewed()
    assert (ours.session.generation, theirs.session.generation) == (1, 0)
    assert passes(theirs, ours, RENEWED)
    assert passes(ours, theirs, RENEWED)
    assert theirs.session.generation == 1
    assert passes(theirs, ours, RENEWED)


def test_datagrams_of_the_old_keys_still_open_once() -> None:
    ours, theirs = both()
    assert passes(ours, theirs, NOW)
    early = ours.session.seal(BODY, NOW)
    first = ours.renew(RENEWED)
    assert first is not None
    answer = theirs.handle_control(first, RENEWED)
    assert answer is not None
    ours.handle_control(answer, RENEWED)
    assert passes(ours, theirs, RENEWED)
    assert theirs.open(early, RENEWED) == BODY
    with pytest.raises(StaleError):
        theirs.open(early, RENEWED)


def test_the_old_keys_are_gone_when_their_session_is_over() -> None:
    ours, theirs = renewed()
    assert passes(ours, theirs, RENEWED)
    end = NOW + REFUSE_US
    for side in (ours, theirs):
        side.renew(end - 1)
        assert side._old is not side.session
        side.renew(end)
        assert side._old is side.session


def test_a_session_past_its_end_opens_nothing() -> None:
    ours, theirs = both()
    late = ours.session.seal(BODY, NOW + REFUSE_US - 1)
    with pytest.raises(StaleError):
        theirs.open(late, NOW + REFUSE_US)


def test_an_early_request_for_new_keys_is_refused() -> None:
    ours, theirs = both()
    ours.session.rekey_us = NOW  # type: ignore[misc]
    first = ours.renew(NOW)
    assert first is not None
    with pytest.raises(ExcessError):
        theirs.handle_control(first, NOW + EARLIEST_US - 1)
    assert theirs.handle_control(first, NOW + EARLIEST_US) is not None
    with pytest.raises(ExcessError):
        theirs.handle_control(first, NOW + EARLIEST_US)


def test_malformed_control_messages_are_refused() -> None:
    ours, theirs = both()
    for message in (b"", b"\0", b"\3abc"):
        with pytest.raises(MalformedError):
            theirs.handle_control(message, RENEWED)
    with pytest.raises(StaleError):
        theirs.handle_control(b"\2abc", RENEWED)
    with pytest.raises(RemoteError):
        theirs.handle_control(b"\1" + bytes(300), RENEWED)
    with pytest.raises(MalformedError):
        ours.handle_control(b"\1" + bytes(300), RENEWED)  # It is ours to begin.


def test_an_invalid_answer_does_not_change_the_keys() -> None:
    ours, theirs = both()
    assert ours.renew(RENEWED) is not None
    with pytest.raises(RemoteError):
        ours.handle_control(b"\2" + bytes(300), RENEWED)
    assert ours.session.generation == 0
    assert passes(ours, theirs, RENEWED)


def test_a_handshake_of_another_member_does_not_renew() -> None:
    ours, theirs = both()
    carol = identity(network().carol, 3)
    contact, _ = shake_hands(carol, identity(network().bob, 2))
    stranger = SessionGenerations(carol, contact)
    first = stranger.renew(RENEWED)
    assert first is not None
    with pytest.raises(RemoteError):
        theirs.handle_control(first, RENEWED)
    assert passes(ours, theirs, RENEWED)


def test_a_former_member_does_not_renew() -> None:
    ours, theirs = both()
    with pytest.raises(ExpiredError):
        ours.renew(LATE)
    first = ours.renew(RENEWED)
    assert first is not None
    with pytest.raises((RemoteError, ExpiredError)):
        theirs.handle_control(first, LATE)
