"""The confirmation protocol (P3, steps 4 and 5): a reader asks which candidate is true, a publisher tells it or not.

Paper. Positions come from a secret of the publisher's own. A reader that is brought something of a chain it knows
nothing of asks on the MQTT topic `<prefix>/ask/<stream>`, sealed for the members of the topic and with its certificate;
the publisher answers on `<prefix>/tell/<a name that the reader drew>`, in a box for the certified key, with the secret
of the event that was asked for. All that follows in the chain needs no question; what was before stays unknown. While
the answer is on its way notifications wait, as many as there is room for.

What the broker sees of it: somebody asks about this stream, just now. Only notifications of authentic subscriptions are
asked about, so with k_s fake ones beside it, the authentic one is known; that is the paper's, and why the hardened
profile asks for nothing.

Another member of the topic, together with the broker, could answer in the publisher's place; what it tells opens
nothing, and keeps the reader from what it wants, as the broker can by itself.

Names are in plain text, so any customer of the broker can send candidates of streams that it makes up, and a reader has
to ask about each. Streams that nobody ever answered for have half of the questions at the most, and make room for newer
ones: a true stream is asked about at once, and told in one round trip. What waits for them goes before what waits for
others. And no asker has more than a sixteenth of the answers that are under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring, TopicKeys
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
    """From which event on, to whom, and where the answer is awaited; `nonce` comes back with it."""

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
    """The reader's side: `Chains` of a winnower. `heard` is handed what has waited, as if it came just now.

    Bounded: `seeds_max` chains that are known, as many that are asked for, and `held_max` notifications that wait.
    """

    def __init__(self, config: FoilConfig, keyring: Keyring, heard: ResumeHeld, rng: Random, entropy: Entropy) -> None:
        self._config, self._keyring, self._heard, self._rng, self._entropy = config, keyring, heard, rng, entropy
        self._pair = Keypair(keyring.membership.link)
        self._reply = entropy(NONCE_BYTES)
        self._known: dict[tuple[bytes, int], PositionChain] = {}
        self._asked: dict[tuple[bytes, int], _Question] = {}
        self._held: dict[tuple[bytes, int, bytes], tuple[SessionPeriod, str, bytes]] = {}
        """By stream, number, and all of it: under the same head a stranger may send something else."""
        self._alarms: Timers[tuple[bytes, int]] = Timers()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def chains(self) -> int:
        return max(len(self._known), len(self._asked))

    @property
    def filter(self) -> str:
        """Where answers come."""
        return f"{self._config.prefix}/{TELL}/{self._reply.hex()}"

    def __call__(self, span: SessionPeriod, topic: str, head: CandidateHead) -> PositionChain | None:
        chain = self._known.get((head.stream, chain_number(head.number)))
        return chain if chain is not None and chain.covers(head.number) else None

    def hold(self, span: SessionPeriod, topic: str, payload: bytes, now: int) -> None:
        """Wait with this notification, and ask about it unless that is done."""
        head, _ = split_candidate(payload)
        key = (head.stream, chain_number(head.number))
        self._held[head.stream, head.number, payload] = (span, topic, payload)
        self._make_room()
        question = self._asked.get(key)
        if question is None or head.number < question.number:
            if question is None:
                self._make_way(head.stream)
            self._asked[key] = question = _Question(span, topic, head.stream, head.number, self._entropy(NONCE_BYTES))
            self._ask(key, question, now)

    def _make_room(self) -> None:
        """Among what waits."""
        if len(self._held) > self._config.held_max:
            told = {each for each, _ in self._known}
            del self._held[next((held for held in self._held if held[0] not in told), next(iter(self._held)))]

    def _make_way(self, stream: bytes) -> None:
        """For one more question, or `ExcessError`."""
        told = {each for each, _ in self._known}
        strange = [key for key in self._asked if key[0] not in told]
        if stream not in told and len(strange) >= max(1, self._config.seeds_max // 2):
            del self._asked[strange[0]]
            self._alarms.cancel(strange[0])
        elif len(self._asked) >= self._config.seeds_max:
            raise ExcessError("more chains than are asked for at a time")

    def handle_answer(self, payload: bytes, now: int) -> None:
        """An answer has come; raises `RemoteError` for what is none of ours."""
        told = _TELLS.decode(unbox(self._pair, payload, purpose=_BOX))
        key = (told.stream, chain_number(told.number))
        question = self._asked.get(key)
        if question is None or (question.nonce, question.number) != (told.nonce, told.number):
            raise ForgedError("an answer to what was not asked")
        del self._asked[key]
        self._alarms.cancel(key)
        self._known[key] = PositionChain(told.number, Secret(told.secret))
        while len(self._known) > self._config.seeds_max:
            del self._known[next(iter(self._known))]
        waited = [held for held in self._held if (held[0], chain_number(held[1])) == key and held[1] >= told.number]
        for held in waited:
            self._heard(*self._held.pop(held), now)

    def handle(self, now: int) -> None:
        for key in self._alarms.pop_due(now):
            question = self._asked[key]
            if question.tries < TRIES_MAX:
                self._ask(key, question, now)
            else:
                del self._asked[key]
                for held in [held for held in self._held if (held[0], chain_number(held[1])) == key]:
                    del self._held[held]

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def _ask(self, key: tuple[bytes, int], question: _Question, now: int) -> None:
        self._alarms.set(key, now + backoff(self._rng, self._config.asking_us, question.tries))
        question.tries += 1
        if question.waits:
            return  # The last one has not left yet, and will.
        question.waits = True
        certificate = self._keyring.membership.certificate
        ask = PositionQuestion(question.stream, question.number, question.nonce, self._reply, certificate)
        keys = question.span.keys(question.topic)
        payload = seal(_key(keys), pad(_ENCODER.encode(ask), _ROOM), context=_ASK, entropy=self._entropy)

        def done(now: int) -> None:
            question.waits = False

        question.span.session.publish(question_topic(self._config.prefix, question.stream), payload, done, now)


class _Question:
    def __init__(self, span: SessionPeriod, topic: str, stream: bytes, number: int, nonce: bytes) -> None:
        self.span, self.topic, self.stream, self.number, self.nonce = span, topic, stream, number, nonce
        self.tries, self.waits = 0, False


class PositionTeller:
    """The publisher's side: `Seeds` of what it publishes, and its policy. Bounded: `seeds_max` answers under way."""

    def __init__(self, config: FoilConfig, keyring: Keyring, secret: Secret, entropy: Entropy) -> None:
        self._config, self._keyring, self._secret, self._entropy = config, keyring, secret, entropy
        self._answers: Counter[bytes] = Counter()
        """Under way, to whom."""
        self.denied = 0

    def __call__(self, keys: TopicKeys, stream: bytes, chain: int) -> PositionChain:
        return derive_publisher_chain(self._secret, stream, chain)

    def answer(self, span: SessionPeriod, topic: str, stream: bytes, payload: bytes, now: int) -> None:
        """A question about a stream of ours, or a `RemoteError`. Whoever is not to be told hears nothing."""
        plain = unseal(_key(span.keys(topic)), payload, context=_ASK)
        ask = _ASKS.decode(unpad(plain))
        if ask.stream != stream:
            raise ForgedError("a question about another stream")
        ask.certificate.verify(self._keyring.root, CertificateKind.MEMBER, epoch_of(now, self._keyring.epoch_us))
        asker = ask.certificate.leaf.subject
        if self._config.allow and fingerprint(asker).hex() not in self._config.allow:
            self.denied += 1
            return
        most = self._config.seeds_max
        if self._answers.total() >= most or self._answers[asker] >= max(1, most // ASKER_SHARE):
            raise ExcessError("more questions than are answered at a time")
        secret = derive_publisher_chain(self._secret, stream, chain_number(ask.number)).at(ask.number)
        told = _ENCODER.encode(PositionAnswer(ask.nonce, stream, ask.number, secret.reveal()))
        answer = box(asker, told, purpose=_BOX, entropy=self._entropy)
        self._answers[asker] += 1
        span.session.publish(
            f"{self._config.prefix}/{TELL}/{ask.reply.hex()}", answer, lambda _: self._answered(asker), now
        )

    def _answered(self, asker: bytes) -> None:
        self._answers[asker] -= 1
        self._answers += Counter()  # Without those who wait for nothing.


def question_topic(prefix: str, stream: bytes) -> str:
    """Where questions about a stream are heard."""
    return f"{prefix}/{ASK}/{stream.hex()}"


def _key(keys: TopicKeys) -> Secret:
    return derive(keys.content, b"vc/foil-ask")


ASKER_SHARE: Final = 16

TRIES_MAX: Final = 8
"""A publisher that has not answered by then is away, or does not want to."""

_ROOM: Final = 1024
_NEITHER: Final = "not a question or an answer"
_ASK: Final = b"veilcast/foil-ask"
_BOX: Final = b"vc/foil-tell"
_ENCODER: Final = msgspec.msgpack.Encoder()
_ASKS: Final = MsgpackDecoder(PositionQuestion, MalformedError, _NEITHER)
_TELLS: Final = MsgpackDecoder(PositionAnswer, MalformedError, _NEITHER)
