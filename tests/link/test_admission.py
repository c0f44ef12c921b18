"""Links open despite losses, duplicates and recordings. Floods leave bounded state."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.link_pair import LATE, NOW, A, B, C, admission, identity, network, static
from veilcast.errors import ExpiredError, ForgedError, RemoteError, StaleError
from veilcast.link.admission import (
    HANDSHAKE_US,
    INBOUND_MAX,
    OUTBOUND_MAX,
    PROVEN_EVERY_US,
    AdmissionLimits,
    LinkAdmission,
)
from veilcast.link.envelope import HandshakePacket, HandshakePacketKind, PacketSealer
from veilcast.link.handshake import HandshakeResult
from veilcast.link.session import LinkSession
from veilcast.machine import Address
from veilcast.wire.geometry import CELL, CELL_BODY, HANDSHAKE_PAYLOAD_MAX

PEOPLE = network()
BODY = bytes(CELL_BODY)
ENVELOPES = PacketSealer(identity(PEOPLE.alice).envelope, random.Random(77).randbytes)
"""A member's who watches the wire."""


def doors() -> tuple[LinkAdmission, LinkAdmission]:
    """Alice at A, Bob at B."""
    return admission(PEOPLE.alice, 1), admission(PEOPLE.bob, 2)


def reply_of(one: LinkAdmission, datagram: bytes, source: Address, now: int = NOW) -> bytes:
    reply = one.receive(datagram, source, now).reply
    assert reply is not None
    return reply


def shown_hello(ours: LinkAdmission, theirs: LinkAdmission, remote: bytes | None, now: int = NOW) -> bytes:
    """Alice's first packet with Bob's cookie in it."""
    return reply_of(ours, reply_of(theirs, ours.initiate(B, now, remote), A, now), B, now)


def kind_of(datagram: bytes) -> HandshakePacketKind:
    return ENVELOPES.open(datagram).kind


def contact_of(contact: HandshakeResult | None) -> HandshakeResult:
    assert contact is not None
    return contact


def talk(ours: LinkSession, theirs: LinkSession, now: int = NOW) -> None:
    assert theirs.open(ours.seal(BODY, now), now) == BODY
    assert ours.open(theirs.seal(BODY, now), now) == BODY


def test_first_contact_takes_five_packets_and_a_known_peer_four() -> None:
    for remote, kinds in (
        (
            None,
            [
                HandshakePacketKind.HELLO,
                HandshakePacketKind.COOKIE,
                HandshakePacketKind.HELLO,
                HandshakePacketKind.ANSWER,
                HandshakePacketKind.FINISH,
            ],
        ),
        (
            static(PEOPLE.bob),
            [
                HandshakePacketKind.RETURN,
                HandshakePacketKind.COOKIE,
                HandshakePacketKind.RETURN,
                HandshakePacketKind.ANSWER,
            ],
        ),
    ):
        ours, theirs = doors()
        datagram: bytes | None = ours.initiate(B, NOW, remote)
        seen, contacts = list[HandshakePacketKind](), dict[int, HandshakeResult]()
        while datagram is not None:
            assert len(datagram) == CELL
            seen.append(kind_of(datagram))
            side = len(seen) % 2
            step = (theirs, ours)[1 - side].receive(datagram, (A, B)[1 - side], NOW)
            datagram = step.reply
            if step.result is not None:
                contacts[side] = step.result
        assert seen == kinds
        assert contacts[0].remote_static == static(PEOPLE.bob)
        assert contacts[1].remote_static == static(PEOPLE.alice)
        talk(contacts[0].session, contacts[1].session)


@pytest.mark.parametrize("known", [False, True])
def test_links_open_through_losses_and_copies(known: bool) -> None:
    """Half of all packets are lost, the rest may come twice. The initiator repeats until it hears a cell."""
    for seed in range(30):
        rng, (ours, theirs) = random.Random(seed), doors()
        contacts: dict[Address, HandshakeResult] = {}
        sent = [(B, ours.initiate(B, NOW, static(PEOPLE.bob) if known else None))]
        now, tries = NOW, 0
        while len(contacts) < 2:
            now, tries = now + 300_000, tries + 1
            assert tries < 60
            again = ours.repeat_last(B, now)
            sent += [] if again is None else [(B, again)]
            while sent:
                target, datagram = sent.pop(rng.randrange(len(sent)))
                if rng.random() < 0.5:
                    continue
                for _ in range(rng.choice((1, 1, 2))):
                    receiver, source = (theirs, A) if target == B else (ours, B)
                    try:
                        step = receiver.receive(datagram, source, now)
                    except StaleError:
                        continue
                    sent += [] if step.reply is None else [(source, step.reply)]
                    if step.result is not None:
                        assert target not in contacts, "a second session"
                        contacts[target] = step.result
        talk(contacts[A].session, contacts[B].session, now)


def test_a_first_packet_costs_no_curve_operation_and_no_memory() -> None:
    ours, theirs = doors()
    assert kind_of(reply_of(theirs, ours.initiate(B, NOW), A)) is HandshakePacketKind.COOKIE
    assert len(theirs) == 0


def test_a_packet_with_the_cookie_of_another_source_is_refused() -> None:
    ours, theirs = doors()
    hello = shown_hello(ours, theirs, None)
    with pytest.raises(StaleError, match="cookie"):
        theirs.receive(hello, C, NOW)
    assert len(theirs) == 0


def test_a_recorded_packet_makes_no_second_session_while_its_cookie_is_valid() -> None:
    ours, theirs = doors()
    hello = shown_hello(ours, theirs, static(PEOPLE.bob))
    first = theirs.receive(hello, A, NOW)
    contact = contact_of(ours.receive(first.reply or b"", B, NOW).result)
    talk(contact.session, contact_of(first.result).session)
    for step in range(1, 50):
        now = NOW + step * HANDSHAKE_US // 49
        try:
            assert theirs.receive(hello, A, now).result is None
        except StaleError:
            assert now - NOW >= HANDSHAKE_US // 2


def test_recordings_of_every_packet_have_no_effect() -> None:
    ours, theirs = doors()
    hello = shown_hello(ours, theirs, None)
    answer = reply_of(theirs, hello, A)
    step = ours.receive(answer, B, NOW)
    assert step.reply is not None
    assert theirs.receive(step.reply, A, NOW).result is not None
    with pytest.raises(StaleError):
        theirs.receive(step.reply, A, NOW)
    with pytest.raises(StaleError):
        ours.receive(answer, B, NOW)
    assert theirs.receive(hello, A, NOW).result is None
    late = NOW + HANDSHAKE_US
    for receiver, datagram, source in ((theirs, hello, A), (ours, answer, B), (theirs, step.reply, A)):
        with pytest.raises(StaleError):
            receiver.receive(datagram, source, late)
    assert len(ours) == len(theirs) == 0


def test_packets_reflected_to_their_sender_are_refused() -> None:
    ours, theirs = doors()
    knock = ours.initiate(B, NOW)
    assert kind_of(reply_of(ours, knock, B)) is HandshakePacketKind.COOKIE, "a stranger's, for all we know"
    for remote in (None, static(PEOPLE.bob)):
        hello = shown_hello(ours, theirs, remote)
        with pytest.raises(StaleError):
            ours.receive(hello, B, NOW)


def test_an_answer_counts_only_from_the_called_address_and_for_our_thread() -> None:
    ours, theirs = doors()
    answer = reply_of(theirs, shown_hello(ours, theirs, None), A)
    with pytest.raises(StaleError):
        ours.receive(answer, C, NOW)
    packet = ENVELOPES.open(answer)
    with pytest.raises(StaleError):
        ours.receive(ENVELOPES.seal(HandshakePacket(packet.kind, b"other  8", packet.content)), B, NOW)
    assert ours.receive(answer, B, NOW).result is not None


def test_endless_cookies_are_not_returned() -> None:
    ours, _ = doors()
    thread = ENVELOPES.open(ours.initiate(B, NOW)).thread
    for _ in range(3):
        reply_of(ours, ENVELOPES.seal(HandshakePacket(HandshakePacketKind.COOKIE, thread, cookie=b"x" * 16)), B)
    with pytest.raises(StaleError, match="too many cookies"):
        ours.receive(ENVELOPES.seal(HandshakePacket(HandshakePacketKind.COOKIE, thread, cookie=b"x" * 16)), B, NOW)


def test_a_forged_answer_ends_the_handshake_and_another_can_begin() -> None:
    ours, theirs = doors()
    thread = ENVELOPES.open(ours.initiate(B, NOW)).thread
    with pytest.raises(RemoteError):
        ours.receive(ENVELOPES.seal(HandshakePacket(HandshakePacketKind.ANSWER, thread, bytes(300))), B, NOW)
    assert ours.repeat_last(B, NOW) is None
    answer = reply_of(theirs, shown_hello(ours, theirs, None), A)
    assert ours.receive(answer, B, NOW).result is not None


def test_a_handshake_for_an_old_key_of_the_peer_gets_no_answer() -> None:
    ours, theirs = doors()
    hello = shown_hello(ours, theirs, static(PEOPLE.carol))
    with pytest.raises(ForgedError):
        theirs.receive(hello, A, NOW)


def test_finishing_ends_the_repetitions() -> None:
    ours, _ = doors()
    ours.initiate(B, NOW)
    first, second = ours.repeat_last(B, NOW), ours.repeat_last(B, NOW)
    assert first is not None
    assert second is not None
    assert first != second
    assert ENVELOPES.open(first) == ENVELOPES.open(second)
    assert ours.repeat_last(B, NOW + HANDSHAKE_US) is None
    ours.initiate(B, NOW)
    ours.finish(B)
    ours.finish(C)
    assert ours.repeat_last(B, NOW) is None


def test_handshakes_in_progress_are_bounded_in_both_directions() -> None:
    ours, theirs = doors()
    for number in range(OUTBOUND_MAX + 20):
        ours.initiate(Address(f"10.1.0.{number}:4000"), NOW)
    assert len(ours) == OUTBOUND_MAX
    for number in range(INBOUND_MAX + 20):
        guest, now = admission(PEOPLE.alice, 100 + number), NOW + number * PROVEN_EVERY_US
        source = Address(f"10.2.0.{number}:4000")
        hello = reply_of(guest, reply_of(theirs, guest.initiate(B, now), source, now), B, now)
        theirs.receive(hello, source, now)
    assert len(theirs) == INBOUND_MAX
    assert INBOUND_MAX * PROVEN_EVERY_US > 2_000_000


def test_a_flood_of_forged_datagrams_leaves_no_state() -> None:
    _, theirs = doors()
    noise = random.Random(5).randbytes
    for number in range(2_000):
        with pytest.raises(ForgedError):
            theirs.receive(noise(CELL), Address(f"10.3.0.{number}:1"), NOW)
    assert len(theirs) == 0
    assert len(theirs._limits._strangers) == 0


@given(st.sampled_from(HandshakePacketKind), st.binary(max_size=HANDSHAKE_PAYLOAD_MAX), st.booleans())
def test_any_packet_of_a_member_is_refused_with_a_remote_error(
    kind: HandshakePacketKind, content: bytes, waiting: bool
) -> None:
    ours, keeper = identity(PEOPLE.alice), AdmissionLimits(random.Random(3).randbytes)
    target, thread = LinkAdmission(ours, keeper), b"thread 8"
    if waiting:
        thread = ENVELOPES.open(target.initiate(A, NOW)).thread
    cookie = keeper.cookie(A, thread, NOW)
    if kind is HandshakePacketKind.COOKIE and waiting:
        assert target.receive(ENVELOPES.seal(HandshakePacket(kind, thread, content, cookie)), A, NOW).result is None
        return
    with pytest.raises(RemoteError):
        target.receive(ENVELOPES.seal(HandshakePacket(kind, thread, content, cookie)), A, NOW)


def test_an_ended_membership_is_reported_to_the_owner() -> None:
    ours, theirs = doors()
    for hello in (ours.initiate(B, NOW), ours.initiate(B, NOW, static(PEOPLE.bob))):
        assert hello
    with pytest.raises(ExpiredError):
        ours.initiate(B, LATE, static(PEOPLE.bob))
    keeper = AdmissionLimits(random.Random(3).randbytes)
    late = LinkAdmission(identity(PEOPLE.bob), keeper)
    packet = ENVELOPES.open(ours.initiate(B, NOW))
    shown = HandshakePacket(packet.kind, packet.thread, packet.content, keeper.cookie(A, packet.thread, LATE))
    with pytest.raises(ExpiredError):
        late.receive(ENVELOPES.seal(shown), A, LATE)
    assert len(theirs) == 0
