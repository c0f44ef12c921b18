"""An invitation between an inviter and joiners: one use, one wrong guess, a time limit, and an adversary on the way."""

from __future__ import annotations

from random import Random

import pytest

from support.invitation_pair import LIFE, NOW, PATIENCE, SECOND, InvitationPair, make_offer
from veilcast.crypto.cpace import SHARE_SIZE
from veilcast.errors import LocalError
from veilcast.invitation.channel import SealedChannel, begin_run
from veilcast.invitation.inviter import FRAMES_MAX, MEETINGS_MAX, RUN_BURST, Inviter
from veilcast.invitation.joiner import CONFIRMATIONS_MAX, Joiner
from veilcast.invitation.messages import CONTENT_MAX, FrameKind, JoinReceipt, JoinReply, JoinRequest, Reason
from veilcast.machine import Address


def test_a_joiner_with_the_code_is_granted_what_it_asks_for() -> None:
    pair = InvitationPair()
    guest = pair.guest()
    pair.run(guest)
    assert pair.requests == [JoinRequest(guest.request, "127.0.0.1:5000")]
    assert guest.reply == b"reply" * 20_000
    assert guest.is_finished
    assert guest.failure is None
    assert pair.outcomes == ["used"]
    assert pair.inviter.next_timer() is None
    assert guest.machine.next_timer() is None


@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_code_burns_the_invitation(seed: int) -> None:
    pair = InvitationPair(seed)
    thief = pair.guest(pair.wrong_code())
    pair.run(thief)
    assert thief.failure is not None
    assert thief.failure.reason is Reason.WRONG_CODE
    assert pair.outcomes == ["burned"]
    late = pair.guest()
    pair.run(late)
    assert late.failure is not None
    assert late.failure.reason is Reason.OVER
    assert pair.requests == []


def test_an_observer_of_all_frames_sees_no_content_and_cannot_use_the_code_again() -> None:
    seen: list[tuple[str, bytes]] = []
    pair = InvitationPair()

    def watch(to: str, data: bytes) -> list[bytes]:
        seen.append((to, data))
        return [data]

    guest = pair.guest(on_way=watch)
    pair.run(guest)
    whole = b"".join(data for _, data in seen)
    for content in (b"news/eu", b"request", b"reply", pair.code.password.reveal() * 2, bytes(range(32))):
        assert content not in whole
    # The same frames again, to an inviter that serves the same code anew: its share is another.
    again = Inviter(pair.code, make_offer(), NOW + LIFE, Random(77).randbytes)
    for to, data in seen:
        if to == "inviter":
            again.receive(data, Address("in:0"), NOW)
    assert not any(frame.data[0] == FrameKind.SEALED for frame in again.frames_to_send(NOW, 100))


def test_whoever_stands_between_can_spoil_a_run_but_gets_nothing_of_it() -> None:
    """The adversary runs both roles with a guess of the password, one toward each side."""
    pair = InvitationPair()
    entropy = Random(8).randbytes
    false_run = begin_run(pair.wrong_code(), entropy)
    shown: list[bytes] = []

    def between(to: str, data: bytes) -> list[bytes]:
        if to == "joiner" and data[0] == FrameKind.SHARE:
            return [bytes((FrameKind.SHARE,)) + false_run.share]
        if to == "inviter" and data[0] == FrameKind.CONFIRM:
            shown.append(data[1:])
            return []
        return [data]

    guest = pair.guest(on_way=between)
    pair.skip(PATIENCE + SECOND, guest)
    assert guest.failure is not None
    assert guest.reply is None
    assert pair.requests == []
    assert pair.outcomes == []
    assert len(shown) == 1  # One confirmation, one guess.
    # The invitation still stands.
    honest = pair.guest()
    pair.run(honest)
    assert honest.is_finished


def test_a_false_inviter_gets_a_bounded_number_of_guesses_from_a_joiner() -> None:
    """It breaks the connection after each confirmation, and the joiner comes again."""
    pair = InvitationPair()
    entropy = Random(3).randbytes
    joiner = Joiner(pair.code, entropy, NOW, PATIENCE)
    peer = Address("join@127.0.0.1:4000")
    confirmations = 0
    for _ in range(10):
        joiner.peer_up(peer, NOW)
        for frame in joiner.frames_to_send(NOW, 10):
            if frame.data[0] == FrameKind.MEET:
                false_share = begin_run(pair.wrong_code(), entropy).share
                joiner.receive(bytes((FrameKind.SHARE,)) + false_share, peer, NOW)
        confirmations += sum(frame.data[0] == FrameKind.CONFIRM for frame in joiner.frames_to_send(NOW, 10))
        joiner.peer_lost(peer, NOW)
    assert confirmations == CONFIRMATIONS_MAX


def test_the_inviter_shows_nothing_that_depends_on_the_password_before_a_right_confirmation() -> None:
    """A guesser that stays silent learns one share, which fits every password; and nothing is burned."""
    pair = InvitationPair()
    for number in range(RUN_BURST):
        run = begin_run(pair.wrong_code(), pair.entropy)
        peer = Address(f"in:{number}")
        pair.inviter.receive(bytes((FrameKind.MEET, 0, 0)) + run.share, peer, NOW)
        pair.inviter.peer_lost(peer, NOW)
    frames = pair.inviter.frames_to_send(NOW, 100)
    assert {frame.data[0] for frame in frames} == {FrameKind.SHARE}
    assert pair.outcomes == []


@pytest.mark.parametrize("cut", range(12))
@pytest.mark.parametrize("stores", [True, False])
def test_a_connection_that_breaks_anywhere_loses_nothing(cut: int, stores: bool) -> None:
    """After `cut` frames the stream breaks; the joiner comes again and asks the same, and the authority grants once."""
    pair = InvitationPair()
    left = [cut]

    def cutting(to: str, data: bytes) -> list[bytes]:
        left[0] -= 1
        return [data] if left[0] >= 0 else []

    guest = pair.guest(on_way=cutting)
    guest.stores = stores
    pair.run(guest)
    guest.on_way = lambda to, data: [data]
    guest.disconnect()
    guest.connect()
    guest.stores = True
    pair.run(guest)
    if not stores and guest.reply is not None:
        guest.machine.finish(pair.now)
    pair.skip(PATIENCE, guest)
    assert guest.is_finished
    assert guest.failure is None
    assert len(pair.requests) == 1
    assert pair.outcomes in (["used"], ["unconfirmed"]) or pair.inviter.next_timer() is not None


def test_a_second_request_under_the_right_code_is_refused_while_the_first_is_served() -> None:
    pair = InvitationPair(answers=False)
    first = pair.guest()
    pair.run(first)
    second = pair.guest()
    second.request = b"another"
    pair.run(second)
    assert second.failure is not None
    assert second.failure.reason is Reason.OVER
    pair.inviter.answer(b"reply", pair.now)
    pair.run(first)
    assert first.reply == b"reply"
    assert pair.outcomes == ["used"]


def test_a_wrong_guess_after_the_right_code_spoils_nothing() -> None:
    pair = InvitationPair(answers=False)
    first = pair.guest()
    pair.run(first)
    thief = pair.guest(pair.wrong_code())
    pair.run(thief)
    assert thief.failure is not None
    assert pair.outcomes == []
    pair.inviter.answer(b"reply", pair.now)
    pair.run(first)
    assert first.is_finished
    assert pair.outcomes == ["used"]


def test_the_authoritys_refusal_reaches_the_joiner_with_its_text() -> None:
    pair = InvitationPair(answers=False)
    guest = pair.guest()
    pair.run(guest)
    pair.inviter.refuse("this sub-authority's delegation has ended", pair.now)
    pair.run(guest)
    assert guest.failure is not None
    assert guest.failure.text == "this sub-authority's delegation has ended"
    assert pair.outcomes == ["refused"]


def test_an_invitation_ends_when_its_time_is_over() -> None:
    pair = InvitationPair()
    pair.skip(LIFE)
    pair.inviter.handle_timer(pair.now)
    late = pair.guest()
    pair.run(late)
    assert pair.outcomes == ["expired"]
    assert late.failure is not None
    assert late.failure.reason is Reason.OVER


def test_a_joiner_that_never_says_that_it_has_the_reply_is_reported() -> None:
    pair = InvitationPair()
    guest = pair.guest()
    guest.stores = False
    pair.skip(LIFE, guest)
    assert pair.outcomes == ["unconfirmed"]


@pytest.mark.parametrize(
    ("up", "said"),
    [(False, "unreachable"), (True, "silent")],
)
def test_a_place_that_is_silent_or_gone_ends_the_try(up: bool, said: str) -> None:
    joiner = Joiner(InvitationPair().code, Random(1).randbytes, NOW, PATIENCE)
    if up:
        joiner.peer_up(Address("join@127.0.0.1:4000"), NOW)
    joiner.handle_timer(NOW + PATIENCE)
    events = [event for _ in range(5) if (event := joiner.next_event()) is not None]
    assert [getattr(event, "said", None) for event in events[1:2]] == [said]


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.BUSY])
def test_a_place_that_lies_about_a_refusal_ends_the_try_and_not_the_invitation(reason: Reason) -> None:
    pair = InvitationPair()

    def lie(to: str, data: bytes) -> list[bytes]:
        return [bytes((FrameKind.REFUSED, reason))] if to == "joiner" else [data]

    guest = pair.guest(on_way=lie)
    pair.skip(20 * SECOND, guest)
    assert guest.failure is not None
    assert guest.failure.reason is reason
    honest = pair.guest()
    pair.run(honest)
    assert honest.is_finished


def test_a_busy_inviter_is_asked_again() -> None:
    pair = InvitationPair()
    for number in range(RUN_BURST + 5):
        run = begin_run(pair.code, pair.entropy)
        pair.inviter.receive(bytes((FrameKind.MEET, 0, 0)) + run.share, Address(f"x:{number}"), NOW)
    pair.inviter.frames_to_send(NOW, 1000)
    guest = pair.guest()
    pair.run(guest)
    assert guest.failure is None
    assert guest.reply is None
    pair.skip(10 * SECOND, guest)
    assert guest.is_finished


def test_a_changed_frame_is_never_taken() -> None:
    for at in range(14):
        pair = InvitationPair(at)
        count = [0]

        def change(to: str, data: bytes, at: int = at, count: list[int] = count) -> list[bytes]:
            count[0] += 1
            return [data[:-1] + bytes((data[-1] ^ 1,))] if count[0] - 1 == at else [data]

        guest = pair.guest(on_way=change)
        pair.skip(PATIENCE + SECOND, guest)
        if count[0] > at:
            assert guest.reply is None or pair.requests[0].request == guest.request
            assert guest.reply in (None, b"reply" * 20_000)


def test_an_offer_that_changes_between_runs_ends_the_try() -> None:
    pair = InvitationPair(answers=False)
    guest = pair.guest()
    pair.run(guest)
    guest.disconnect()
    other = make_offer(root=bytes(32))
    pair.inviter = Inviter(pair.code, other, NOW + LIFE, pair.entropy)
    guest.connect()
    pair.run(guest)
    assert guest.failure is not None
    assert guest.failure.said == "garbled"


def test_what_strangers_can_fill_has_bounds() -> None:
    pair = InvitationPair()
    for number in range(10 * MEETINGS_MAX):
        run = begin_run(pair.code, pair.entropy)
        now = NOW + number * SECOND
        pair.inviter.receive(bytes((FrameKind.MEET, 0, 0)) + run.share, Address(f"in:{number}"), now)
    assert len(pair.inviter._meetings) == MEETINGS_MAX
    assert len(pair.inviter._frames) == FRAMES_MAX


def test_a_content_that_is_too_long_is_not_sent_and_not_taken() -> None:
    pair = InvitationPair()
    a, b = begin_run(pair.code, pair.entropy), begin_run(pair.code, pair.entropy)
    ours = SealedChannel(a, b.share, "joiner", pair.entropy)
    theirs = SealedChannel(b, a.share, "inviter", pair.entropy)
    with pytest.raises(LocalError):
        ours.seal(JoinReply(bytes(CONTENT_MAX)))
    frames = ours.seal(JoinRequest(bytes(CONTENT_MAX - 100)))
    contents = [theirs.open(frame[1:]) for frame in frames]
    assert contents[:-1] == [None] * (len(frames) - 1)
    assert isinstance(contents[-1], JoinRequest)
    assert theirs.open(ours.seal(JoinReceipt())[0][1:]) == JoinReceipt()


@pytest.mark.parametrize("seed", range(30))
def test_no_bytes_of_a_stranger_raise(seed: int) -> None:
    rng = Random(seed)
    pair = InvitationPair(seed)
    guest = pair.guest()
    peers = [Address(f"in:{number}") for number in range(3)]
    for _ in range(300):
        size = rng.choice((0, 1, 2, 3, 33, 34, 35, SHARE_SIZE + 3, 200))
        data = bytes((rng.randrange(9),)) + rng.randbytes(size)
        pair.inviter.receive(data, rng.choice(peers), pair.now)
        guest.machine.receive(data, Address("join@127.0.0.1:4000"), pair.now)
        pair.inviter.receive(data[:0], rng.choice(peers), pair.now)
    pair.run(guest)
    assert pair.requests == []
