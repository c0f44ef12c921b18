"""Targets: foil. Candidates of events, requests, questions and answers, states and records on the disk."""

from __future__ import annotations

import random

import msgspec
import numpy as np

from support.foil_network import TOPIC, foil_keyring, price_publication
from support.fuzz.fuzz_target import Format, Group, Prepared
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import NumberedPublication
from veilcast.crypto.seal import seal
from veilcast.crypto.secret import Secret
from veilcast.errors import RemoteError, TamperedError
from veilcast.foil import confirmation, foiler, publisher_store, repeats
from veilcast.foil.event import CandidateHead, open_body, seal_body, seal_fake_body, split_candidate
from veilcast.foil.generators.movers import SignFlipState
from veilcast.foil.publisher_store import PublisherStore, StoredEvent
from veilcast.wire import pad

GROUP = Group()
ENTROPY = random.Random(9).randbytes


@GROUP.target("foil-candidate", "candidates of an event, from any customer of the broker", "foil.event:split_candidate")
def candidate() -> Prepared:
    secret, head = Secret(bytes(32)), CandidateHead(bytes(16), 1, 3, 1)

    def check(data: bytes) -> object:
        found, sealed = split_candidate(data)
        return found, len(open_body(found, secret, sealed))

    true = head.encode() + seal_body(head, secret, b"note", ENTROPY)
    other = CandidateHead(bytes(16), 1, 3, 2)
    fake = other.encode() + seal_fake_body(other, secret, len(true) - len(head.encode()))
    return Prepared(check, (RemoteError,), [true, fake], max_len=len(true) + 64)


@GROUP.target("foil-again", "requests for repeats, from members of the topic", "foil.repeats:open_repeat_request")
def again() -> Prepared:
    """A hostile member seals any bytes in place of a request; the same bytes also come as they are."""
    keys = foil_keyring("publisher", 1).keys_at(_epoch()).topic(TOPIC)

    def check(data: bytes) -> object:
        try:
            repeats.check_presence(keys, data)
            repeats.open_repeat_request(keys, data)
        except RemoteError:
            pass
        plain = pad(data[: repeats._ROOM - 8], repeats._ROOM)
        return repeats.open_repeat_request(
            keys, seal(repeats._key(keys), plain, context=repeats._AGAIN, entropy=ENTROPY)
        )

    absences = [repeats.Absence(bytes(8), 1, 2), repeats.Absence(b"a" * 8, 0, 1 << 50)]
    examples = [msgspec.msgpack.encode(absences[:size]) for size in range(3)]
    return Prepared(check, (RemoteError,), examples, Format.MSGPACK)


@GROUP.target("foil-confirmation", "questions and answers about candidates", "foil.confirmation:_ASKS")
def confirmations() -> Prepared:
    chain = foil_keyring("subscriber", 2).membership.certificate

    def check(data: bytes) -> object:
        found = []
        for decoder in (confirmation._ASKS, confirmation._TELLS):
            try:
                found.append(type(decoder.decode(data)).__name__)
            except RemoteError as error:
                found.append(type(error).__name__)
        return "".join(found)

    asks = confirmation.PositionQuestion(bytes(16), 1, bytes(16), bytes(16), chain)
    tells = confirmation.PositionAnswer(bytes(16), bytes(16), 1, bytes(32))
    return Prepared(check, (), [msgspec.msgpack.encode(each) for each in (asks, tells)], Format.MSGPACK)


@GROUP.target("foil-states", "states of generators, from the publisher's disk", "foil.foiler:unpack_states")
def generator_states() -> Prepared:
    made = [
        (None, 1, -5),
        (np.arange(6, dtype="<i8").reshape(2, 3), (1, None)),
        (SignFlipState(np.ones(3), None, 1),),
        (np.zeros(0, dtype="<f8"),),
    ]
    return Prepared(foiler.unpack_states, (TamperedError,), [foiler.pack_states(each) for each in made], Format.MSGPACK)


@GROUP.target("foil-records", "a publisher's records, from its disk", "foil.publisher_store:PublisherStore")
def records() -> Prepared:
    letter = PendingPublication(TOPIC, NumberedPublication(bytes(8), 1, price_publication(5.0)))
    item = StoredEvent(
        letter, 5, ((1,), ("bid",)), 1, 1, bytes(16), 1, bytes(32), b"sealed", foiler.pack_states((None,))
    )
    values = (
        publisher_store._Own(bytes(32)),
        publisher_store._Events((item,)),
        publisher_store._Read(bytes(32)),
        publisher_store._Open(1),
    )

    def check(data: bytes) -> object:
        kept = PublisherStore({1: data}, 5, 5, 0)
        return len(kept), kept.pending_count, len(kept.streams())

    examples = [msgspec.msgpack.encode(value) for value in values]
    return Prepared(check, (TamperedError,), examples, Format.MSGPACK)


def _epoch() -> int:
    from support.foil_network import EPOCH_US
    from veilcast.sim.engine import START_US

    return START_US // EPOCH_US
