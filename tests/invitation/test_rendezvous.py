"""A rendezvous: an inviter and a joiner that both call it meet, strangers have no use of it, and it learns nothing."""

from __future__ import annotations

from random import Random

import pytest

from support.invitation_pair import LIFE, NOW, PLACE, SECOND
from support.rendezvous_network import EPOCH_US, KEY, RendezvousNetwork
from veilcast.authority import issuer
from veilcast.authority.revocation import RevokedKeys
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.invitation import rendezvous
from veilcast.invitation.channel import begin_run
from veilcast.invitation.code import draw_code
from veilcast.invitation.inviter import InvitationOver, RendezvousOpened
from veilcast.invitation.joiner import Granted, JoinFailed, JoinFinished
from veilcast.invitation.messages import FrameKind, Reason
from veilcast.invitation.rendezvous import Rendezvous, sign_permit
from veilcast.machine import Address, Event


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_two_that_call_a_rendezvous_meet_there() -> None:
    network = RendezvousNetwork()
    code, inviter = network.invite()
    joiner = network.join(code)
    network.run()
    assert any(isinstance(event, RendezvousOpened) for event in network.events[inviter])
    assert [event.reply for event in network.events[joiner] if isinstance(event, Granted)] == [network.reply]
    assert any(isinstance(event, JoinFinished) for event in network.events[joiner])
    assert [event.outcome for event in network.events[inviter] if isinstance(event, InvitationOver)] == ["used"]


def test_several_invitations_are_open_at_once() -> None:
    network = RendezvousNetwork()
    pairs = [network.invite() for _ in range(8)]
    joiners = [network.join(code) for code, _ in reversed(pairs)]
    network.run()
    for name in joiners:
        assert "JoinFinished" in kinds(network.events[name])


def test_the_rendezvous_passes_on_nothing_that_it_could_read() -> None:
    network = RendezvousNetwork()
    heard: list[bytes] = []
    receive = network.place.receive

    def listen(data: bytes, source: Address, now: int) -> None:
        heard.append(data)
        receive(data, source, now)

    network.place.receive = listen  # type: ignore[method-assign]
    code, _ = network.invite()
    network.join(code)
    network.run()
    whole = b"".join(heard)
    for content in (b"news/eu", b"request", b"reply", code.password.reveal() * 2):
        assert content not in whole


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_code_at_a_rendezvous_burns_the_invitation(seed: int) -> None:
    network = RendezvousNetwork(seed)
    code, inviter = network.invite()
    wrong = draw_code(PLACE, Random(99).randbytes, rendezvous=True)
    thief = network.join(type(code)(wrong.password, code.place, code.number))
    network.run()
    assert [event.outcome for event in network.events[inviter] if isinstance(event, InvitationOver)] == ["burned"]
    (failed,) = [event for event in network.events[thief] if isinstance(event, JoinFailed)]
    assert failed.reason is Reason.WRONG_CODE


def test_only_the_authority_and_its_delegates_open_numbers() -> None:
    entropy = Random(3).randbytes
    root = issuer.create(EPOCH_US, entropy)
    epoch = NOW // EPOCH_US
    root, child = issuer.delegate(root, "news", epoch, 5, entropy)
    network = RendezvousNetwork()
    network.place = Rendezvous(root.root, EPOCH_US, PLACE)
    code = draw_code(PLACE, entropy, rendezvous=True)
    stranger = SigningKey(Secret(bytes(31) + b"\1"))
    for key, delegation, opens in (
        (stranger, None, False),
        (stranger, child.delegation, False),
        (child.key, None, False),
        (child.key, child.delegation, True),
    ):
        _, name = network.invite(code, network.permit(code, key, delegation=delegation))
        network.run()
        assert ("RendezvousOpened" in kinds(network.events[name])) == opens
        if not opens:
            (over,) = [event for event in network.events[name] if isinstance(event, InvitationOver)]
            assert over.reason is Reason.FORBIDDEN
    assert network.place.sizes()["numbers"] == 1


def test_a_delegate_that_was_ended_opens_no_number() -> None:
    entropy = Random(3).randbytes
    root = issuer.create(EPOCH_US, entropy)
    epoch = NOW // EPOCH_US
    root, child = issuer.delegate(root, "news", epoch - 1, 5, entropy)
    root = issuer.revoke_group(root, "news", epoch - 1, entropy)
    assert root.bulletin is not None
    revoked = RevokedKeys(root.root, 100)
    revoked.add(root.bulletin, epoch)
    network = RendezvousNetwork()
    network.place = Rendezvous(root.root, EPOCH_US, PLACE, revoked)
    code = draw_code(PLACE, entropy, rendezvous=True)
    _, name = network.invite(code, network.permit(code, child.key, delegation=child.delegation))
    network.run()
    assert "RendezvousOpened" not in kinds(network.events[name])


@pytest.mark.parametrize(
    ("place", "until"),
    [("127.0.0.2:4000", NOW + LIFE), (PLACE, NOW), (PLACE, NOW + rendezvous.LIFE_US + SECOND)],
)
def test_a_permit_for_another_place_or_time_opens_nothing(place: str, until: int) -> None:
    network = RendezvousNetwork()
    permit = sign_permit(KEY, None, 7, Address(place), until)
    assert network.send("x", b"\x06\x00\x07" + permit) == [bytes((FrameKind.REFUSED, Reason.FORBIDDEN))]
    assert network.place.sizes()["numbers"] == 0


def test_an_open_number_is_not_given_to_another() -> None:
    network = RendezvousNetwork()
    code, first = network.invite()
    network.run()
    _, second = network.invite(code)
    network.run()
    assert [event.reason for event in network.events[second] if isinstance(event, InvitationOver)] == [Reason.FULL]
    joiner = network.join(code)
    network.run()
    assert "JoinFinished" in kinds(network.events[joiner])
    assert "Requested" in kinds(network.events[first])


def test_a_joiner_waits_for_an_inviter_whose_stream_has_broken() -> None:
    network = RendezvousNetwork()
    code, inviter = network.invite()
    network.run()
    machine = network.callers[inviter]
    network.hang_up(inviter)
    joiner = network.join(code)
    network.run()
    assert kinds(network.events[joiner]) == ["Connect"]
    network.call(machine)
    network.skip(5 * SECOND)
    assert "JoinFinished" in kinds(network.events[joiner])


def test_a_number_that_nobody_opens_is_told_in_the_end() -> None:
    network = RendezvousNetwork()
    joiner = network.join(draw_code(PLACE, network.entropy, rendezvous=True))
    network.skip(20 * SECOND)
    assert [event.reason for event in network.events[joiner] if isinstance(event, JoinFailed)] == [Reason.UNKNOWN]


def test_a_second_joiner_comes_again_and_a_silent_one_gives_way() -> None:
    network = RendezvousNetwork()
    code, _ = network.invite()
    network.run()
    silent = bytes((FrameKind.MEET,)) + code.number.to_bytes(2, "big") + begin_run(code, network.entropy).share
    network.send("silent", silent)
    joiner = network.join(code)
    network.skip(5 * SECOND)
    assert "JoinFinished" not in kinds(network.events[joiner])
    network.skip(30 * SECOND)
    assert "JoinFinished" in kinds(network.events[joiner])


@pytest.mark.parametrize("kind", [FrameKind.REFUSED, FrameKind.OPENED, FrameKind.SHARE, FrameKind.OPEN])
def test_a_joiner_cannot_speak_for_the_rendezvous(kind: FrameKind) -> None:
    network = RendezvousNetwork()
    code, inviter = network.invite()
    network.run()
    meet = bytes((FrameKind.MEET,)) + code.number.to_bytes(2, "big") + begin_run(code, network.entropy).share
    network.send("false", meet)
    before = kinds(network.events[inviter])
    network.send("false", bytes((kind, Reason.OVER)))
    assert kinds(network.events[inviter]) == before
    joiner = network.join(code)
    network.run()
    assert "JoinFinished" in kinds(network.events[joiner])


def test_all_that_can_be_filled_has_bounds() -> None:
    network = RendezvousNetwork()
    full: list[bytes] = []
    for number in range(1, 2 * rendezvous.NUMBERS_MAX):
        network.now += 2 * SECOND
        permit = sign_permit(KEY, None, number, PLACE, NOW + LIFE)
        full = network.send(f"i{number}", bytes((FrameKind.OPEN,)) + number.to_bytes(2, "big") + permit)
    assert network.place.sizes()["numbers"] == rendezvous.NUMBERS_MAX
    assert full == [bytes((FrameKind.REFUSED, Reason.FULL))]
    for stranger in range(1000):
        network.send(f"s{stranger}", bytes((FrameKind.MEET, 0xFF, 0xFF)) + bytes(32))
    assert network.place.sizes()["peers"] == rendezvous.NUMBERS_MAX
    network.skip(LIFE)
    assert network.place.sizes() == {"numbers": 0, "peers": 0, "frames": 0}


def test_traffic_beyond_the_bound_ends_the_number() -> None:
    network = RendezvousNetwork()
    code, inviter = network.invite()
    network.run()
    meet = bytes((FrameKind.MEET,)) + code.number.to_bytes(2, "big") + begin_run(code, network.entropy).share
    network.send("greedy", meet)
    for _ in range(rendezvous.BYTES_MAX // 30_000 + 1):
        network.send("greedy", bytes((FrameKind.SEALED,)) + bytes(30_000))
    assert network.place.sizes()["numbers"] == 0
    assert inviter not in network.callers


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_of_a_stranger_raise_or_end_an_invitation(seed: int) -> None:
    rng = Random(seed)
    network = RendezvousNetwork(seed)
    code, _ = network.invite()
    network.run()
    for _ in range(300):
        data = bytes((rng.randrange(9),)) + rng.randbytes(rng.choice((0, 1, 2, 34, 35, 200)))
        network.send(f"s{rng.randrange(4)}", data)
    joiner = network.join(code)
    network.skip(40 * SECOND)
    assert "JoinFinished" in kinds(network.events[joiner])
