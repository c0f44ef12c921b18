"""Each Byzantine broker does its one thing, and no peer can detect it by its stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from veilcast.brokers.keys import agreement, redistribution
from veilcast.brokers.keys.agreement import AgreementMessage, AttendanceRoll, DealingRef, check_endorsements
from veilcast.brokers.keys.agreement import SignedBroadcast as Flooding
from veilcast.brokers.keys.paper_split import SplitShare, split_again, split_key
from veilcast.brokers.keys.redistribution import DealtShare
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.peer_sessions import PeerQueues
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import RemoteError
from veilcast.machine import Address, Frame, Machine
from veilcast.sim.brokers.adversaries import BEHAVIOURS, ReplicaView, make_byzantine, provable_lies
from veilcast.sim.brokers.rewritten_streams import RewritingBroker
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire.base import Message
from veilcast.wire.brokers import (
    AgreementWord,
    ConfirmContent,
    DisputeDealing,
    FloodKind,
    ForwardContent,
    NextShare,
    OverlayOrder,
    Routing,
    ShareReceived,
    VersionAdopted,
    WantKey,
)

ENTROPY = SeededEntropy(derive_bytes(1, "adversaries"))
OLD, HERE, NEXT = (Scheme(bytes((node,)) * 16, 0, 3) for node in (1, 2, 3))
SIGNING = SigningKey(Secret(bytes(32)))
PLACE = ReplicaId(HERE, 1)
PEERS = {
    Address(f"{scheme.node[0]}.{index}"): ReplicaId(scheme, index)
    for scheme in (OLD, HERE, NEXT)
    for index in (1, 2, 3)
}
ME = Address("2.1")
KEY = bytes(16)


class Talker:
    """A machine that sends the given messages through real queues, and keeps those that it receives."""

    version = 0

    def __init__(self, number: int) -> None:
        self.queues = PeerQueues(8, 1_000, 1 << 20, SeededEntropy(derive_bytes(number, "talker")))
        self.heard: list[Message] = []

    def receive(self, data: bytes, source: Address, now: int) -> None:
        message = self.queues.receive(data, source, now)
        if message is not None:
            self.heard.append(message)

    def handle_timer(self, now: int) -> None:
        self.queues.handle(now)

    def next_timer(self) -> int | None:
        return self.queues.next_us()

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return self.queues.frames(now, limit)

    def next_event(self) -> None:
        return None

    def peer_up(self, peer: Address, now: int) -> None:
        self.queues.peer_up(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.queues.peer_lost(peer)


class Pair:
    """A Byzantine broker and its peer, with a stream that can break and lose its frames."""

    def __init__(self, wrap: Callable[[Machine], MachineWrapper], peer: str = "3.2") -> None:
        self.inner, self.other, self.peer = Talker(1), Talker(2), Address(peer)
        self.liar = wrap(self.inner)
        self.now = 0
        self.connect()

    def connect(self) -> None:
        self.liar.peer_up(self.peer, self.now)
        self.other.peer_up(ME, self.now)

    def cut(self) -> None:
        self.liar.peer_lost(self.peer, self.now)
        self.other.peer_lost(ME, self.now)

    def run(self, steps: int = 100) -> None:
        for _ in range(steps):
            self.now += 25_000
            self.liar.handle_timer(self.now)
            self.other.handle_timer(self.now)
            for frame in self.liar.frames_to_send(self.now, 64):
                self.other.receive(frame.data, ME, self.now)
            for frame in self.other.frames_to_send(self.now, 64):
                self.liar.receive(frame.data, self.peer, self.now)

    def say(self, *messages: Message) -> list[Message]:
        """The messages that the peer receives."""
        before = len(self.other.heard)
        for message in messages:
            self.inner.queues.put(self.peer, message)
        self.run()
        return self.other.heard[before:]


def view(hardened: bool = True, seed: int = 1) -> ReplicaView:
    schemes = {scheme.node: scheme for scheme in (OLD, HERE, NEXT)}
    return ReplicaView(PLACE, SIGNING, PEERS, schemes, Random(seed), ENTROPY, hardened)


def pair(behaviour: str, peer: str = "3.2", *, hardened: bool = True) -> Pair:
    def wrap(inner: Machine) -> MachineWrapper:
        liar = make_byzantine(behaviour, inner, view(hardened), 500_000)
        return liar if isinstance(liar, MachineWrapper) else MachineWrapper(liar)

    return Pair(wrap, peer)


def number(at: int) -> WantKey:
    return WantKey(bytes(16), at.to_bytes(16, "big"))


def carry(block: bytes = b"block") -> ForwardContent:
    return ForwardContent(Routing(bytes(16), b"says", KEY, 0, bytes(8)), b"manifest", block, 1, 0)


class Every(RewritingBroker):
    """Drops each third message, and sends each fifth three times."""

    def rewrite(self, message: Message, peer: Address) -> list[Message]:
        assert isinstance(message, WantKey)
        at = int.from_bytes(message.key, "big")
        return [] if at % 3 == 0 else [message] * (3 if at % 5 == 0 else 1)


def test_what_is_said_otherwise_comes_in_order_and_once_over_streams_that_break() -> None:
    pair, expected = Pair(Every), deque[Message]()
    for at in range(1, 200):
        pair.inner.queues.put(pair.peer, number(at))
        expected.extend([] if at % 3 == 0 else [number(at)] * (3 if at % 5 == 0 else 1))
        if at % 7 == 0:
            pair.run(1)
        if at % 20 == 0:
            pair.cut()
            pair.liar.frames_to_send(pair.now, 1 << 20)
            pair.connect()
    pair.run(100)
    assert pair.other.heard == list(expected)
    assert pair.inner.queues.unacknowledged_count(pair.peer) <= 1, (
        "what is dropped last is acknowledged with what comes next"
    )


class Talkative(Every):
    """Repeats every message to its sender."""

    def on_message(self, message: Message, source: Address) -> None:
        self.inject(source, message)


def test_what_is_said_besides_comes_as_well_and_again_on_the_next_stream() -> None:
    pair = Pair(Talkative)
    for at in range(1, 100):
        pair.other.queues.put(ME, number(1_000 + at))
        if at % 2:
            pair.inner.queues.put(pair.peer, number(7))
        if at % 5 == 0:
            pair.run(1)
        if at % 20 == 0:
            pair.cut()
            pair.liar.frames_to_send(pair.now, 1 << 20)
            pair.connect()
    pair.run()
    said = [each for each in pair.other.heard if each != number(7)]
    assert said == [number(1_000 + at) for at in range(1, 100)]
    assert len(pair.other.heard) == 99 + 50


def test_a_peer_that_starts_anew_hears_the_liar_from_the_beginning() -> None:
    pair = Pair(Every)
    assert pair.say(number(1), number(2)) == [number(1), number(2)]
    pair.cut()
    pair.other = Talker(3)
    pair.connect()
    pair.run()
    assert pair.say(number(4)) == [number(4)]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_claims_of_what_is_none_of_its_business_pass_every_liar_but_the_mute(behaviour: str) -> None:
    heard = pair(behaviour).say(*map(number, range(1, 10)))
    once = list(dict.fromkeys(heard))
    assert once == ([] if behaviour == "mute" else [number(at) for at in range(1, 10)])
    assert behaviour == "replay" or len(once) == len(heard)


def test_who_drops_says_that_it_is_done() -> None:
    liar = pair("drop")
    liar.other.queues.put(ME, carry())
    liar.run()
    assert liar.other.heard == [ConfirmContent(carry().routing.content, 0)]
    heard = liar.say(*[carry(b"%d" % at) for at in range(20)])
    assert sum(isinstance(each, ForwardContent) for each in heard) < 20


def test_who_spoils_blocks_spoils_each() -> None:
    liar = pair("block")
    (heard,) = liar.say(carry())
    assert isinstance(heard, ForwardContent)
    assert heard.block != b"block"
    assert msgspec.structs.replace(heard, block=b"block") == carry()
    assert provable_lies(liar.liar).total() == 1


def dealt(to: Scheme = NEXT) -> list[DealtShare]:
    """The dealings that the replica sends for a key."""
    first, *_ = redistribution.deal_key(Scalar.draw(ENTROPY), KeyAttempt(KEY), HERE, SIGNING, ENTROPY)
    holding = redistribution.accept_publisher_share(first, PLACE, SIGNING.public)
    return redistribution.redistribute_share(holding, to, SIGNING, ENTROPY).shares


def roster() -> ReplicaKeys:
    known = ReplicaKeys(nodes=3)
    others = [SigningKey(Secret(bytes((at,)) * 32)).public for at in (1, 2)]
    for scheme in (OLD, HERE, NEXT):
        known.add(scheme, [SIGNING.public, *others])
    return known


def test_who_corrupts_shares_is_caught_by_who_gets_one() -> None:
    portion = dealt()[1]
    portion.check(roster())
    liar = pair("share")
    (heard,) = liar.say(NextShare(bytes(16), portion.encode().reveal()))
    assert isinstance(heard, NextShare)
    with pytest.raises(RemoteError):
        DealtShare.decode(heard.share).check(roster())
    assert provable_lies(liar.liar).total() == 1


def test_who_equivocates_deals_its_own_share_twice_and_both_hold() -> None:
    portions = dealt()
    seen = {}
    liars = make_byzantine("equivocate", inner := Talker(1), view(), 500_000)
    others = {Address(f"3.{index}"): Talker(10 + index) for index in (1, 2, 3)}
    for name, other in others.items():
        inner.queues.peer_up(name)
        other.queues.peer_up(ME)
        for frame in other.frames_to_send(0, 64):
            liars.receive(frame.data, name, 0)
    for index, name in enumerate(others):
        inner.queues.put(name, NextShare(bytes(16), portions[index].encode().reveal()))
    for frame in liars.frames_to_send(0, 64):
        others[frame.destination].receive(frame.data, ME, 0)
    for name, other in others.items():
        (message,) = other.heard
        assert isinstance(message, NextShare)
        seen[name] = DealtShare.decode(message.share)
        seen[name].check(roster())
        assert seen[name].share.index == PEERS[name].index
    one, two, three = (seen[name].holder_header.name for name in others)
    assert one == three != two
    assert provable_lies(liars).total() == 1


def test_who_equivocates_says_two_words_and_signs_both() -> None:
    context = digest(msgspec.msgpack.encode((KeyAttempt(KEY), OLD)), purpose=b"vc/attend")
    table = {holder: DealingRef(bytes(32), bytes(32)) for holder in (1, 2)}
    word = Flooding(context, PLACE, roster(), SIGNING).announce(agreement.encode_roll(AttendanceRoll(table)))
    spoken = AgreementWord(KEY, 0, OLD.node, FloodKind.ATTENDANCE, AgreementMessage(OLD, HERE, (word,)).encode())
    words = []
    for peer in ("2.2", "2.3"):
        (heard,) = pair("equivocate", peer).say(spoken)
        assert isinstance(heard, AgreementWord)
        (said,) = AgreementMessage.decode(heard.word).statements
        check_endorsements(said, context, PLACE, roster())
        words.append(agreement.decode_roll(said.payload).table)
    assert words == [{1: table[1]}, table]


@pytest.mark.parametrize("behaviour", ["share", "equivocate"])
def test_in_the_papers_way_it_signs_for_pieces_of_something_else(behaviour: str) -> None:
    parcel = split_key(Secret(b"k" * 32), KeyAttempt(KEY), HERE, SIGNING, ENTROPY)[0]
    pieces = split_again(parcel, NEXT, SIGNING, ENTROPY)
    liar = pair(behaviour, hardened=False)
    sent = NextShare(bytes(16), pieces[1].encode().reveal())
    heard = [each for _ in range(8) for each in liar.say(sent)]
    assert all(isinstance(each, NextShare) and each != sent for each in heard)
    made = [SplitShare.decode(each.share) for each in heard if isinstance(each, NextShare)]
    signed = [each for each in made if each.trail[-1] != pieces[1].trail[-1]]
    assert signed, "half of them, or all"
    assert all(each.trail[-1].commits_to(each.index, each.data) for each in signed)


def test_who_misroutes_sends_to_others_what_is_for_one() -> None:
    liar = pair("misroute")
    heard = liar.say(*[carry(b"%d" % at) for at in range(40)])
    assert 0 < len(heard) < 40


def test_an_accuser_says_that_all_others_lack_what_they_were_dealt() -> None:
    liar = pair("accuse", "1.2")
    portion = dealt(HERE)[0]
    liar.other.queues.put(ME, NextShare(bytes(16), portion.encode().reveal()))
    liar.run()
    assert liar.other.heard == [DisputeDealing(KEY, 0, portion.holder_header.name, (2, 3))]


def test_who_stalls_says_nothing_of_orders() -> None:
    assert pair("stall").say(OverlayOrder(b"o"), VersionAdopted(1, True), ShareReceived(KEY, 0)) == [
        ShareReceived(KEY, 0)
    ]


def test_who_dozes_says_nothing_of_some_keys_and_of_others_that_it_needs_nobody() -> None:
    table = {holder: DealingRef(bytes(32), bytes(32)) for holder in (1, 2, 3)}
    liar = pair("doze", "2.2")
    rolls = []
    for number in range(20):
        key = bytes([number]) * 16
        context = digest(msgspec.msgpack.encode((KeyAttempt(key), OLD)), purpose=b"vc/attend")
        word = Flooding(context, PLACE, roster(), SIGNING).announce(agreement.encode_roll(AttendanceRoll(table)))
        for heard in liar.say(
            AgreementWord(key, 0, OLD.node, FloodKind.ATTENDANCE, AgreementMessage(OLD, HERE, (word,)).encode())
        ):
            assert isinstance(heard, AgreementWord)
            (said,) = AgreementMessage.decode(heard.word).statements
            check_endorsements(said, context, PLACE, roster())
            rolls.append(agreement.decode_roll(said.payload))
    assert 0 < len(rolls) < 20
    assert {(roll.skipped_holders, len(roll.skipped_replicas)) for roll in rolls} == {((1,), HERE.max_faulty)}
    assert all(PLACE.index not in roll.skipped_replicas for roll in rolls)
