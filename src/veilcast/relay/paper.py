"""The paper's relay (P2, section 4.1), to the letter: what client, proxy and server do with keys.

A client has one pseudonym and one filter for all that it wants, for as long as it is there. The publication's body is
sealed under a random point that travels re-routable. The paper says nothing of repeats and of what a body holds: here
an id of 16 bytes stands before the body, by which the server knows a repeat, and inside stands the publication with its
topic and its place in the publisher's stream. Subjects are elements with the topic's name in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from veilcast.authority import subjects
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeys, Keyring, TopicKeys
from veilcast.authority.letters import Letter
from veilcast.authority.subjects import Groups
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy, Publication
from veilcast.relay import bodies, joining
from veilcast.relay.hardened import place_key, submission_id
from veilcast.relay.joining import Begun, ServerKeys
from veilcast.relay.profile import Opened, Reader, Span, Taken, Taking
from veilcast.relay.subjects import move, tag, upload
from veilcast.topics import Conjunction
from veilcast.wire.geometry import ADDRESSEES_MAX, BODY_MAX, LEASE_NAME, MOMENT_MAX, NOTE_ID, TICKET
from veilcast.wire.relay import Delivery, Enrol, Lease, Release, Subjects, Submit


class PaperClient:
    def __init__(self, keyring: Keyring, entropy: Entropy) -> None:
        self._keyring, self._entropy, self._places = keyring, entropy, place_key(keyring)
        self._at_hand: EpochKeys | None = None

    def enrol(self, number: int, begun: Begun) -> Enrol:
        return Enrol(number, begun.ratio.reveal(), None, begun.sealed)

    def spans(self, now: int, ahead: int) -> list[Span]:
        return [_ALWAYS]

    def past(self, now: int, retention_us: int) -> list[Span]:
        return []

    def turn_us(self, now: int) -> int | None:
        return None

    def keys(self, topic: str, span: Span, now: int) -> TopicKeys:
        epoch = epoch_of(now, self._keyring.epoch_us)
        if self._at_hand is None or self._at_hand.epoch != epoch:
            self._at_hand = self._keyring.at(epoch)
        return self._at_hand.topic(topic)

    def wanted(self, keys: TopicKeys, interest: Conjunction) -> Groups:
        return subjects.named_groups(keys.record.topic, subjects.poured(interest, keys.record))

    def name(self, interest: bytes, span: Span) -> bytes:
        return FILTER

    def lease(self, number: int, name: bytes, span: Span, groups: Groups, key: Scalar) -> Lease:
        return Lease(number, name, span.until_us, _uploaded(groups, key), None)

    def lease_proof(self, name: bytes) -> bytes | None:
        return None

    def release(self, number: int, name: bytes, groups: Groups, key: Scalar) -> Release:
        return Release(number, name, _uploaded(groups, key))

    def check(self, keys: TopicKeys, letter: Letter) -> None:
        if len(_ENCODER.encode(letter)) > BODY_MAX:
            raise LocalError(f"a publication has at most {BODY_MAX} bytes")
        _said(keys, letter.content.publication)

    def submit(self, number: int, span: Span, keys: TopicKeys, letter: Letter, key: Scalar) -> Submit:
        cipher, sealed = bodies.seal_body(_ENCODER.encode(letter), key, self._entropy)
        uploaded = _uploaded(_said(keys, letter.content.publication), key)
        return Submit(number, uploaded, cipher.encode(), submission_id(self._places, letter) + sealed)

    def submit_proof(self, letter: Letter) -> bytes | None:
        return None

    def open(self, delivery: Delivery, topic: str, span: Span, key: Scalar, now: int) -> Letter:
        if delivery.cipher is None:
            raise MalformedError("a delivery without the point of its key")
        body = bodies.open_body(Ciphertext.decode(delivery.cipher), delivery.sealed[NOTE_ID:], key)
        return _DECODER.decode(body)


class PaperProxy:
    own_pseudonym = True

    def check(self, transformation: Scalar, enrol: Enrol) -> None:
        """The paper has nothing to compare with: the server is trusted to have one key for all."""

    def move(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        return tuple(tuple(move(Point(each), transformation).encode() for each in group) for group in subjects)

    def up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        return bodies.move_up(_point_of(cipher), transformation).encode()

    def down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        return bodies.move_down(_point_of(cipher), transformation).encode()


class PaperServer:
    def __init__(self, keys: ServerKeys, entropy: Entropy) -> None:
        self._keys, self._entropy = keys, entropy
        self._tickets = derive(keys.box, b"vc/relay-tickets")

    def share(self, sealed: bytes) -> bytes:
        return joining.answer(self._keys, sealed).reveal()

    def tags(self, subjects: Subjects, bond: Scalar | None) -> Groups:
        return tuple(tuple(tag(Point(each)) for each in group) for group in subjects)

    def part(self, tags: Groups) -> bytes:
        together = sorted(each for group in tags for each in group)
        return digest(b"".join(together), purpose=b"vc/relay-part", size=LEASE_NAME)

    def open_lease(self, lease: Lease) -> Opened:
        return Opened(b"", None, None)

    def take(self, submit: Submit) -> Taking:
        if submit.cipher is None or len(submit.sealed) <= NOTE_ID:
            raise MalformedError("a publication without the point of its key, or without a body")
        return Taking(Taken(submit.sealed[:NOTE_ID], submit.cipher, submit.sealed), MOMENT_MAX, None, None)

    def ticket(self, name: bytes, publication: bytes) -> bytes:
        """One for all readers: the paper's proxy is told all identities at once."""
        return derive(self._tickets, b"vc/relay-ticket", publication, size=TICKET).reveal()

    def deliveries(self, taken: Taken, readers: Sequence[Reader]) -> Iterator[Delivery]:
        """One re-randomised message with the identities of all, or of as many as it has room for."""
        for start in range(0, len(readers), ADDRESSEES_MAX):
            some = readers[start : start + ADDRESSEES_MAX]
            cipher = bodies.refresh(_point_of(taken.cipher), self._keys, self._entropy).encode()
            yield Delivery(tuple(reader.name for reader in some), some[0].ticket, cipher, taken.sealed)


def _said(keys: TopicKeys, publication: Publication) -> Groups:
    """What a publication answers to."""
    return subjects.named_groups(keys.record.topic, subjects.asked(publication, keys.record))


def _uploaded(groups: Groups, key: Scalar) -> Subjects:
    return tuple(tuple(upload(element, key).encode() for element in group) for group in groups)


def _point_of(cipher: bytes | None) -> Ciphertext:
    if cipher is None:
        raise MalformedError("no point of the key")
    return Ciphertext.decode(cipher)


FILTER: Final = bytes(LEASE_NAME)
"""What a client calls the one filter that it has."""
_ALWAYS: Final = Span(0, MOMENT_MAX)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(Letter, MalformedError, "what was sealed is not a publication")
