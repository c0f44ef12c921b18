"""A script reads, drops, changes and adds messages, and an outsider sees nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from support.frame_adversaries import ScriptedPeer
from veilcast.machine import Address, Frame, Machine
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.sim.insiders.attacks import (
    BogusSetInsider,
    IntermittentInsider,
    RefusingInsider,
    ReplayingInsider,
    TaggingInsider,
)
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.sim.insiders.timing_probes import ANSWER_TIMEOUT_US, REST_US, ProbeSchedule, ProbingInsider
from veilcast.sim.rng import derive_rng
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.mesh import Heartbeat, Notify, Subscribe, SwapAnswer, SwapVote, Unsubscribe

A, B, P, Q = map(Address, "abpq")
TOKEN = bytes(32)
SIZE = 400


def beat(*messages: Message, number: int = 1) -> bytes:
    return pad(encode(Heartbeat(number, tuple(encode(message) for message in messages))), SIZE)


def said(frames: Sequence[Frame]) -> list[Message]:
    riders = [rider for frame in frames for rider in read_heartbeat(frame.data, SIZE).riders]
    return [decode(rider) for rider in riders]


def note(body: bytes = b"sealed") -> Notify:
    return Notify(TOKEN, body, bytes(64))


class Listener(ActiveInsider):
    def __init__(self, inner: Machine) -> None:
        super().__init__(inner)
        self.heard: list[Message] = []

    def on_message(self, message: Message, source: Address, now: int) -> None:
        self.heard.append(message)

    def rewrite(self, message: Message, destination: Address, now: int) -> Message | None:
        return None if isinstance(message, Unsubscribe) else message


def speaking(*frames: Frame) -> ScriptedPeer:
    puppet = ScriptedPeer([(0, frame) for frame in frames])
    puppet.handle_timer(0)
    return puppet


def test_a_script_hears_what_rides_in_heartbeats_and_what_comes_alone_and_its_node_gets_all_of_it() -> None:
    node = ScriptedPeer()
    ears = Listener(node)
    for data in (beat(), beat(Subscribe(TOKEN)), encode(note())):
        ears.receive(data, A, 5)
    assert ears.heard == [Subscribe(TOKEN), note()]
    assert [data for _, _, data in node.received] == [beat(), beat(Subscribe(TOKEN)), encode(note())]


def test_words_kept_back_and_words_added_leave_every_heartbeat_of_its_size_and_number() -> None:
    mouth = Listener(speaking(Frame(A, beat(Unsubscribe(TOKEN), Subscribe(TOKEN), number=7)), Frame(B, beat(number=7))))
    mouth.add_to_heartbeat(Unsubscribe(TOKEN), B)
    frames = mouth.frames_to_send(0, 8)
    assert [len(frame.data) for frame in frames] == [SIZE, SIZE]
    assert [read_heartbeat(frame.data, SIZE).number for frame in frames] == [7, 7]
    assert said(frames) == [Subscribe(TOKEN), Unsubscribe(TOKEN)]


def test_words_that_do_not_fit_wait_for_the_next_heartbeat() -> None:
    mouth = ActiveInsider(speaking(*(Frame(A, beat(number=number)) for number in range(40))))
    for _ in range(30):
        mouth.add_to_heartbeat(Subscribe(TOKEN), A)
    counts = [len(said([frame])) for frame in mouth.frames_to_send(0, 64)]
    assert sum(counts) == 30
    assert 1 < max(counts) < 30


def test_a_limit_of_frames_loses_none() -> None:
    mouth = ActiveInsider(speaking(*(Frame(A, beat(number=number)) for number in range(5))))
    sent = mouth.frames_to_send(0, 2) + mouth.frames_to_send(0, 2) + mouth.frames_to_send(0, 2)
    assert [read_heartbeat(frame.data, SIZE).number for frame in sent] == [0, 1, 2, 3, 4]


def test_probers_ask_one_node_at_a_time_leave_it_when_they_have_their_answer_and_rest() -> None:
    survey = ProbeSchedule({A: P, B: Q}, start_us=10)
    first, second = (ProbingInsider(ScriptedPeer(), name, survey) for name in (P, Q))
    first.token = second.token = TOKEN
    assert _turns(9, first, second) == [[], []]
    assert _turns(10, first, second) == [[], [Subscribe(TOKEN)]]
    second.receive(encode(note()), A, 300)
    second.receive(encode(note()), B, 400)
    assert survey.delay_us == {B: 390}
    assert _turns(399 + REST_US, first, second) == [[], [Unsubscribe(TOKEN)]]
    assert _turns(400 + REST_US, first, second) == [[Subscribe(TOKEN)], []]
    assert _turns(401 + REST_US + ANSWER_TIMEOUT_US, first, second) == [[Unsubscribe(TOKEN)], []]
    assert survey.delay_us == {B: 390, A: 1 + ANSWER_TIMEOUT_US}


def test_who_asks_one_of_them_is_in_the_mesh_and_need_not_be_asked() -> None:
    survey = ProbeSchedule({A: P}, start_us=0)
    prober = ProbingInsider(ScriptedPeer(), P, survey)
    prober.token = TOKEN
    prober.receive(beat(Subscribe(TOKEN)), A, 1)
    assert _turns(2, prober) == [[]]
    assert survey.delay_us == {A: 0}


@pytest.mark.parametrize(("odd", "speaks"), [(False, [9, 20, 25, 40]), (True, [9, 10, 19, 30, 39])])
def test_a_quitter_is_silent_in_every_other_turn(odd: bool, speaks: list[int]) -> None:
    for now in (9, 10, 19, 20, 25, 30, 39, 40):
        quitter = IntermittentInsider(speaking(Frame(A, beat())), start_us=10, turn_us=10, odd=odd)
        assert bool(quitter.frames_to_send(now, 8)) == (now in speaks)


def test_a_refuser_never_agrees_and_never_lets_itself_be_locked() -> None:
    game = bytes(16)
    words = [SwapAnswer(game, True, (B,)), SwapVote(game, True)]
    refuser = RefusingInsider(speaking(Frame(A, beat(*words))))
    assert said(refuser.frames_to_send(0, 8)) == [SwapAnswer(game, False, ()), SwapVote(game, False)]


def test_a_liar_names_as_many_friends_as_it_has_neighbours() -> None:
    game, friends = bytes(16), [Address("x"), Address("y"), Address("z")]
    liar = BogusSetInsider(speaking(Frame(A, beat(SwapAnswer(game, True, (A, B))))), friends)
    assert said(liar.frames_to_send(0, 8)) == [SwapAnswer(game, True, ("x", "y"))]


def test_a_tag_changes_one_bit_of_what_is_sealed_and_nothing_else() -> None:
    tagger = TaggingInsider(speaking(Frame(A, encode(note()))), derive_rng(1, "tag"))
    (frame,) = tagger.frames_to_send(0, 8)
    changed = decode(frame.data)
    assert isinstance(changed, Notify)
    assert msgspec.structs.replace(changed, sealed=b"sealed") == note()
    assert (int.from_bytes(changed.sealed, "big") ^ int.from_bytes(b"sealed", "big")).bit_count() == 1


def test_an_echo_sends_the_same_bytes_again_later() -> None:
    echo = ReplayingInsider(speaking(Frame(A, encode(note()))), later_us=50)
    first = echo.frames_to_send(0, 8)
    echo.handle_timer(49)
    assert echo.frames_to_send(49, 8) == []
    echo.handle_timer(50)
    assert echo.frames_to_send(50, 8) == first


def _turns(now: int, *probers: ProbingInsider) -> list[list[Message]]:
    """The messages that each insider adds to the next heartbeats of its node."""
    words = []
    for prober in probers:
        prober.handle_timer(now)
        prober.inner._due = [Frame(name, beat()) for name in (A, B)]
        words.append(said(prober.frames_to_send(now, 8)))
    return words
