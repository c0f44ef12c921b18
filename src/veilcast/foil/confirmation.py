"""The confirmation protocol (P3, steps 4 and 5): a subscriber asks a publisher which candidate is true.

Paper profile. The publisher may tell, or not. Positions are derived from the publisher's own secret. A subscriber that
receives a candidate of an unknown chain asks on the MQTT topic `<prefix>/ask/<stream>`. The question is sealed for the
members of the topic and carries the subscriber's certificate. The publisher answers on `<prefix>/tell/<a name that the
subscriber drew>`, in a box for the certified key, with the secret of the event in question. All later events of the
chain need no question; earlier ones stay unknown. Meanwhile notifications wait, up to a bound.

The broker sees that a member asks about this stream at this moment. Members ask only about notifications of authentic
subscriptions, so with k_s fake subscriptions beside it, the authentic one is revealed. That is the paper's flaw, and
the reason why the hardened profile asks for nothing.

Another member of the topic, together with the broker, could answer in the publisher's place. Such an answer opens
nothing, and keeps the subscriber from the truth, as the broker can by itself.

Names are in plain text, so any customer of the broker can send candidates of invented streams, and a subscriber has to
ask about each. Claim: invented streams do not keep a subscriber from a true one. Reason: streams without any answer so
far have at most half of the questions, and the oldest of them is evicted for a new one; a true stream is asked about at
once, and answered in one round trip. Notifications that wait for unanswered streams are evicted before all others.
Also, no asker has more than a sixteenth of the answers in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.core.bounded import BoundedMap
from veilcast.core.connector import backoff
from veilcast.core.timers import Timers
from veilcast.crypto.certificate import CertificateChain as Certificate
from veilcast.crypto.certificate import CertificateKind
from veilcast.crypto.derive import derive, fingerprint
from veilcast.crypto.noise import Keypair
from veilcast.crypto.seal import seal, unseal
from veilcast.crypto.sealed_box import box, unbox
from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ExcessError, ForgedError, MalformedError
from veilcast.foil.config import FoilConfig
from veilcast.foil.event import NUMBER_MAX, STREAM_BYTES, CandidateHead, split_candidate
from veilcast.foil.positions import PositionChain, chain_number, derive_publisher_chain
from veilcast.foil.session_periods import SessionPeriod
from veilcast.foil.topic_names import ASK, TELL
from veilcast.machine import Entropy
from veilcast.wire.padding import pad, unpad

NONCE_BYTES: Final = 16

_Stream = Annotated[bytes, msgspec.Meta(min_length=STREAM_BYTES, max_length=STREAM_BYTES)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]
_Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Message = TypeVar("_Message")
ResumeHeld: TypeAlias = Callable[[SessionPeriod, str, bytes, int], None]


class PositionQuestion(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The event from which on the subscriber asks, and the topic for the answer; the answer repeats `nonce`."""

    stream: _Stream
    number: _Number
    nonce: _Nonce
    reply: _Nonce
    certificate: Certificate


class PositionAnswer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    nonce: _Nonce
    stream: _Stream
    number: _Number
    secret: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class PositionAsker:
    """The subscriber's side; serves as `FindKnownChain` of a winnower.

    `resume_held` receives held notifications as if they arrived now.

    Bounded: `seeds_max` known chains, as many questions, and `held_max` waiting notifications.
    """

    def __init__(
        self, config: FoilConfig, keyring: Keyring, resume_held: ResumeHeld, rng: Random, entropy: Entropy
    ) -> None:
        self._config, self._keyring, self._resume_held, self._rng, self._entropy = (
            config,
            keyring,
            resume_held,
            rng,
            entropy,
        )
        self._pair = Keypair(keyring.membership.link)
        self._reply = entropy(NONCE_BYTES)
        self._known: BoundedMap[tuple[bytes, int], PositionChain] = BoundedMap(config.seeds_max)
        self._asked: dict[tuple[bytes, int], _Question] = {}
        self._held: dict[tuple[bytes, int, bytes], tuple[SessionPeriod, str, bytes]] = {}
        """By stream, number and payload: an adversary may send another payload under the same head."""
        self._timers: Timers[tuple[bytes, int]] = Timers()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def chains(self) -> int:
        return max(len(self._known), len(self._asked))

    @property
    def filter(self) -> str:
        """The filter for answers."""
        return f"{self._config.prefix}/{TELL}/{self._reply.hex()}"

    def __call__(self, period: SessionPeriod, topic: str, head: CandidateHead) -> PositionChain | None:
        chain = self._known.get((head.stream, chain_number(head.number)))
        return chain if chain is not None and chain.covers(head.number) else None

    def hold(self, period: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        """Hold this notification, and ask about its chain unless that has been done."""
        head, _ = split_candidate(payload)
        key = (head.stream, chain_number(head.number))
        self._held[head.stream, head.number, payload] = (period, topic, payload)
        self._make_room()
        question = self._asked.get(key)
        if question is None or head.number < question.number:
            if question is None:
                self._make_way(head.stream)
            self._asked[key] = question = _Question(period, topic, head.stream, head.number, self._entropy(NONCE_BYTES))
            self._ask(key, question, now)

    def _make_room(self) -> None:
        """Evict a held notification if there are too many."""
        if len(self._held) > self._config.held_max:
            answered = {each for each, _ in self._known}
            del self._held[next((held for held in self._held if held[0] not in answered), next(iter(self._held)))]

    def _make_way(self, stream: bytes) -> None:
        """Make room for one more question, or raise `ExcessError`."""
        answered = {each for each, _ in self._known}
        unanswered = [key for key in self._asked if key[0] not in answered]
        if stream not in answered and len(unanswered) >= max(1, self._config.seeds_max // 2):
            del self._asked[unanswered[0]]
            self._timers.cancel(unanswered[0])
        elif len(self._asked) >= self._config.seeds_max:
            raise ExcessError("too many questions are open")

    def handle_answer(self, payload: bytes, now: int) -> None:
        """Handle an answer; raises `RemoteError` if it answers no question of this member."""
        answered = _TELLS.decode(unbox(self._pair, payload, purpose=_BOX))
        key = (answered.stream, chain_number(answered.number))
        question = self._asked.get(key)
        if question is None or (question.nonce, question.number) != (answered.nonce, answered.number):
            raise ForgedError("an answer that was not requested")
        del self._asked[key]
        self._timers.cancel(key)
        self._known[key] = PositionChain(answered.number, Secret(answered.secret))
        released = [
            held for held in self._held if (held[0], chain_number(held[1])) == key and held[1] >= answered.number
        ]
        for held in released:
            self._resume_held(*self._held.pop(held), now)

    def handle(self, now: int) -> None:
        for key in self._timers.pop_due(now):
            question = self._asked[key]
            if question.tries < TRIES_MAX:
                self._ask(key, question, now)
            else:
                del self._asked[key]
                for held in [held for held in self._held if (held[0], chain_number(held[1])) == key]:
                    del self._held[held]

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def _ask(self, key: tuple[bytes, int], question: _Question, now: int) -> None:
        self._timers.set(key, now + backoff(self._rng, self._config.asking_us, question.tries))
        question.tries += 1
        if question.is_waiting:
            return  # The previous question is still waiting to leave.
        question.is_waiting = True
        certificate = self._keyring.membership.certificate
        ask = PositionQuestion(question.stream, question.number, question.nonce, self._reply, certificate)
        keys = question.period.keys(question.topic)
        payload = seal(_key(keys), pad(_ENCODER.encode(ask), _ROOM), context=_ASK, entropy=self._entropy)

        def on_sent(now: int) -> None:
            question.is_waiting = False

        question.period.session.publish(question_topic(self._config.prefix, question.stream), payload, on_sent, now)


class _Question:
    def __init__(self, period: SessionPeriod, topic: str, stream: bytes, number: int, nonce: bytes) -> None:
        self.period, self.topic, self.stream, self.number, self.nonce = period, topic, stream, number, nonce
        self.tries, self.is_waiting = 0, False


class PositionTeller:
    """The publisher's side: the chains of its streams, and its policy. Bounded: `seeds_max` answers in flight."""

    def __init__(self, config: FoilConfig, keyring: Keyring, secret: Secret, entropy: Entropy) -> None:
        self._config, self._keyring, self._secret, self._entropy = config, keyring, secret, entropy
        self._answers: Counter[bytes] = Counter()
        """Answers in flight, by asker."""
        self.denied = 0

    def __call__(self, keys: TopicKeys, stream: bytes, chain: int) -> PositionChain:
        return derive_publisher_chain(self._secret, stream, chain)

    def answer(self, period: SessionPeriod, topic: str, stream: bytes, payload: bytes, now: int) -> None:
        """Answer a question about a stream of this publisher, or raise `RemoteError`. An excluded member gets no
        answer."""
        plain = unseal(_key(period.keys(topic)), payload, context=_ASK)
        ask = _ASKS.decode(unpad(plain))
        if ask.stream != stream:
            raise ForgedError("a question about another stream")
        ask.certificate.verify(self._keyring.root, CertificateKind.MEMBER, epoch_of(now, self._keyring.epoch_us))
        asker = ask.certificate.leaf.subject
        if self._config.allow and fingerprint(asker).hex() not in self._config.allow:
            self.denied += 1
            return
        answers_max = self._config.seeds_max
        if self._answers.total() >= answers_max or self._answers[asker] >= max(1, answers_max // ASKER_SHARE):
            raise ExcessError("too many answers are in flight")
        secret = derive_publisher_chain(self._secret, stream, chain_number(ask.number)).at(ask.number)
        answered = _ENCODER.encode(PositionAnswer(ask.nonce, stream, ask.number, secret.reveal()))
        answer = box(asker, answered, purpose=_BOX, entropy=self._entropy)
        self._answers[asker] += 1
        period.session.publish(
            f"{self._config.prefix}/{TELL}/{ask.reply.hex()}", answer, lambda _: self._answered(asker), now
        )

    def _answered(self, asker: bytes) -> None:
        self._answers[asker] -= 1
        self._answers += Counter()  # Drops askers without open answers.


def question_topic(prefix: str, stream: bytes) -> str:
    """The MQTT topic for questions about a stream."""
    return f"{prefix}/{ASK}/{stream.hex()}"


def _key(keys: TopicKeys) -> Secret:
    return derive(keys.content, b"vc/foil-ask")


ASKER_SHARE: Final = 16

TRIES_MAX: Final = 8
"""A publisher that has not answered by then is absent or refuses."""

_ROOM: Final = 1024
_NEITHER: Final = "not a question or an answer"
_ASK: Final = b"veilcast/foil-ask"
_BOX: Final = b"vc/foil-tell"
_ENCODER: Final = msgspec.msgpack.Encoder()
_ASKS: Final = MsgpackDecoder(PositionQuestion, MalformedError, _NEITHER)
_TELLS: Final = MsgpackDecoder(PositionAnswer, MalformedError, _NEITHER)
