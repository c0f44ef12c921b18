"""The hardened relay: what client, proxy and server do with keys, so that each of them knows less than P2 gives it.

Leases are for one epoch each, under names, pseudonyms and delivery keys of their own: from epoch to epoch there is
nothing that the server could hold together but time. A client derives names and keys from its membership's secret, so
it needs no disk to come back to its leases. The recipes are in `subjects` and `bodies`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from veilcast.authority import subjects
from veilcast.authority.content import check_content
from veilcast.authority.epoch import epoch_of
from veilcast.authority.filling import filled
from veilcast.authority.keyring import EpochKeys, Keyring, TopicKeys
from veilcast.authority.letters import Letter
from veilcast.authority.notes import Opener
from veilcast.authority.subjects import Groups
from veilcast.crypto.bulk import Multiply
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.crypto.seal import KEY, Sealer
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy
from veilcast.relay import bodies, joining
from veilcast.relay.hiding import Hiding
from veilcast.relay.joining import Begun, ServerKeys, ServerPublic
from veilcast.relay.profile import Opened, Reader, Span, Taken, Taking
from veilcast.relay.subjects import move_many, tag_many, unveil, veil_many
from veilcast.topics import Conjunction
from veilcast.wire.geometry import LEASE_NAME, NOTE_ID, SCALAR, TICKET
from veilcast.wire.relay import Delivery, Enrol, Lease, Release, Subjects, Submit


class HardenedClient:
    """Bounded: the keys of `AT_HAND_MAX` epochs, and what `OPENED_MAX` leases and topics are opened with."""

    def __init__(self, keyring: Keyring, server: ServerPublic, entropy: Entropy, multiply: Multiply) -> None:
        self._keyring, self._server, self._entropy, self._multiply = keyring, server, entropy, multiply
        self._own = derive(keyring.membership.link, b"vc/relay-client", server.encode())
        self._places = place_key(keyring)
        self._at_hand: dict[int, EpochKeys] = {}
        self._hiding = Hiding(multiply)
        self._layer = lru_cache(OPENED_MAX)(self._make_layer)
        self._opener = lru_cache(OPENED_MAX)(self._make_opener)

    def enrol(self, number: int, begun: Begun) -> Enrol:
        return Enrol(number, begun.ratio.reveal(), begun.claim.encode(), begun.sealed)

    def spans(self, now: int, ahead: int) -> list[Span]:
        epoch = epoch_of(now, self._keyring.epoch_us)
        return [self._span(each) for each in range(epoch, epoch + ahead + 1)]

    def past(self, now: int, retention_us: int) -> list[Span]:
        epoch = epoch_of(now, self._keyring.epoch_us)
        spans = [self._span(each) for each in range(max(0, epoch - PAST_MAX), epoch)]
        return [span for span in spans if span.until_us + retention_us > now]

    def turn_us(self, now: int) -> int | None:
        return (epoch_of(now, self._keyring.epoch_us) + 1) * self._keyring.epoch_us

    def keys(self, topic: str, span: Span, now: int) -> TopicKeys:
        return self._keys(topic, span)

    def wanted(self, keys: TopicKeys, interest: Conjunction) -> Groups:
        return subjects.keyed_groups(_subject_key(keys), subjects.wanted(interest, keys.record))

    def name(self, interest: bytes, span: Span) -> bytes:
        return derive(self._own, b"vc/relay-lease", interest, span.epoch.to_bytes(8, "big"), size=LEASE_NAME).reveal()

    def lease(self, number: int, name: bytes, span: Span, groups: Groups, key: Scalar) -> Lease:
        bond = Scalar.draw(self._entropy)
        inside = bond.reveal() + self._delivery_key(name).reveal()
        boxed = bodies.wrap_for_server(self._server.box, inside, purpose=_LEASE, entropy=self._entropy)
        full = filled(groups, lambda place: _filler(self._own, place, name))
        return Lease(number, name, span.until_us, self._upload(full, key, bond), boxed)

    def lease_proof(self, name: bytes) -> bytes | None:
        return proof_of(self._delivery_key(name).reveal())

    def release(self, number: int, name: bytes, groups: Groups, key: Scalar) -> Release:
        return Release(number, name, ())

    def check(self, keys: TopicKeys, letter: Letter) -> None:
        check_content(keys, letter.content)
        subjects.said(letter.content.publication, keys.record)

    def submit(self, number: int, span: Span, keys: TopicKeys, letter: Letter, key: Scalar) -> Submit:
        bond = Scalar.draw(self._entropy)
        head = bond.reveal() + submission_id(self._places, letter) + span.until_us.to_bytes(_UNTIL, "big")
        note = head + bodies.seal_note(keys, letter.content, self._entropy)
        boxed = bodies.wrap_for_server(self._server.box, note, purpose=_SUBMIT, entropy=self._entropy)
        topic = _subject_key(keys)
        said = subjects.keyed_groups(topic, subjects.said(letter.content.publication, keys.record))
        full = filled(said, lambda place: _filler(topic, place))
        return Submit(number, self._upload(full, key, bond), None, boxed)

    def submit_proof(self, letter: Letter) -> bytes | None:
        return proof_of(submission_id(self._places, letter))

    def open(self, delivery: Delivery, topic: str, span: Span, key: Scalar, now: int) -> Letter:
        inner = bodies.open_at_reader(self._layer(delivery.names[0]), delivery.sealed)
        return Letter(topic, self._opener(topic, span).open(inner))

    def _span(self, epoch: int) -> Span:
        """To the end of its epoch and of one more: what was published just before the edge may be under way."""
        return Span(epoch, (epoch + 2) * self._keyring.epoch_us)

    def _keys(self, topic: str, span: Span) -> TopicKeys:
        if span.epoch not in self._at_hand:
            while len(self._at_hand) >= AT_HAND_MAX:
                del self._at_hand[next(iter(self._at_hand))]
            self._at_hand[span.epoch] = self._keyring.at(span.epoch)
        keys = self._at_hand[span.epoch].topic(topic)
        if keys.record.profile != "hardened":
            raise LocalError(f"{topic!r} is a topic of the paper profile; this client is hardened")
        return keys

    def _delivery_key(self, name: bytes) -> Secret:
        return derive(self._own, b"vc/relay-reader", name)

    def _make_layer(self, name: bytes) -> Sealer:
        return Sealer(self._delivery_key(name))

    def _make_opener(self, topic: str, span: Span) -> Opener:
        return bodies.opener(self._keys(topic, span), self._keyring.root, span.epoch)

    def _upload(self, groups: Groups, key: Scalar, bond: Scalar) -> Subjects:
        flat = [element for group in groups for element in group]
        hidden = self._hiding.under(key, flat)
        uploaded = veil_many(hidden, self._server.subject, bond, self._entropy, self._multiply)
        return _regrouped([each.encode() for each in uploaded], groups)


class HardenedProxy:
    own_pseudonym = False

    def __init__(self, public: ServerPublic, mask: Scalar, multiply: Multiply) -> None:
        self._public, self._mask, self._multiply = public, mask, multiply

    def check(self, transformation: Scalar, enrol: Enrol) -> None:
        if enrol.claim is None:
            raise MalformedError("an enrolment without a claim")
        joining.check(transformation, Point(enrol.claim), self._public)

    def move(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        moved = move_many(_flat(subjects), transformation, self._mask, self._multiply)
        return _regrouped([each.encode() for each in moved], subjects)

    def up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        _check_none(cipher)
        return None

    def down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        _check_none(cipher)
        return None


class HardenedServer:
    """Bounded: the ciphers of the last `LAYERS_MAX` readers."""

    def __init__(self, keys: ServerKeys, entropy: Entropy, multiply: Multiply) -> None:
        self._keys, self._entropy, self._multiply = keys, entropy, multiply
        self._layer = lru_cache(LAYERS_MAX)(_make_layer)
        self._tickets = derive(keys.box, b"vc/relay-tickets")

    def share(self, sealed: bytes) -> bytes:
        return joining.answer(self._keys, sealed).reveal()

    def tags(self, subjects: Subjects, bond: Scalar | None) -> Groups:
        if bond is not None:
            return _regrouped(tag_many(_flat(subjects), unveil(self._keys, bond), self._multiply), subjects)
        if subjects:
            raise MalformedError("subjects that are bound to nothing")
        return ()

    def part(self, tags: Groups) -> bytes:
        return b""

    def open_lease(self, lease: Lease) -> Opened:
        if lease.sealed is None:
            raise MalformedError("a lease without a key for its deliveries")
        inside = bodies.open_at_server(self._keys, lease.sealed, purpose=_LEASE)
        if len(inside) != SCALAR + KEY:
            raise MalformedError("the key of a lease has the wrong size")
        return Opened(inside[SCALAR:], Scalar(inside[:SCALAR]), proof_of(inside[SCALAR:]))

    def take(self, submit: Submit) -> Taking:
        _check_none(submit.cipher)
        inside = bodies.open_at_server(self._keys, submit.sealed, purpose=_SUBMIT)
        bond, identity, until, note = (inside[start:end] for start, end in pairwise((0, *_ENDS, None)))
        if not note:
            raise MalformedError("a publication without a body")
        return Taking(Taken(identity, None, note), int.from_bytes(until, "big"), Scalar(bond), proof_of(identity))

    def ticket(self, name: bytes, publication: bytes) -> bytes:
        return derive(self._tickets, b"vc/relay-ticket", name, publication, size=TICKET).reveal()

    def deliveries(self, taken: Taken, readers: Sequence[Reader]) -> Iterator[Delivery]:
        """One for each, and no two alike."""
        for name, ticket, key in readers:
            sealed = bodies.wrap_for_reader(self._layer(key), taken.sealed, self._entropy)
            yield Delivery((name,), ticket, None, sealed)


def _make_layer(key: bytes) -> Sealer:
    return Sealer(Secret(key))


def place_key(keyring: Keyring) -> Secret:
    """What a member makes the ids of its publications with."""
    return derive(keyring.membership.link, b"vc/relay-places")


def submission_id(key: Secret, letter: Letter) -> bytes:
    """What the server knows a publication by: the same however often it is sent.

    Keyed, because readers know the stream and can count: whoever could tell the next id would send something else under
    it, and the server would take the publication itself for a repeat.
    """
    content = letter.content
    place = (content.stream, content.number.to_bytes(8, "big"), letter.topic.encode())
    return derive(key, b"vc/relay-submit", *place, size=NOTE_ID).reveal()


def proof_of(secret: bytes) -> bytes:
    """What only its sender and the server can say of a box: that the server has opened it."""
    return digest(secret, purpose=b"vc/relay-done", size=TICKET)


def _subject_key(keys: TopicKeys) -> Secret:
    return subjects.subject_key(keys, b"relay")


def _filler(key: Secret, place: int, name: bytes = b"") -> bytes:
    """An element that is wanted, or published, by nobody.

    Those of a lease are its own: shared ones would tell the server which leases are of one topic. Those of publications
    are their topic's, as the label is: what comes once and never again would be known for a filler.
    """
    return derive(key, b"vc/relay-filler", name, place.to_bytes(2, "big")).reveal()


def _flat(subjects: Subjects) -> list[Ciphertext]:
    return [Ciphertext.decode(subject) for group in subjects for subject in group]


def _regrouped(flat: Sequence[bytes], groups: Groups) -> Groups:
    """A list in the shape of the groups that it came from."""
    each = iter(flat)
    return tuple(tuple(next(each) for _ in group) for group in groups)


def _check_none(cipher: bytes | None) -> None:
    if cipher is not None:
        raise MalformedError("a point of the paper's profile")


PAST_MAX: Final = 4
"""Epochs that are asked for what waits, where they are so short that the server holds things for many."""
AT_HAND_MAX: Final = 16
"""Epochs whose keys are kept at hand: to look them up checks the signature of every grant."""
OPENED_MAX: Final = 1024
LAYERS_MAX: Final = 4096
_LEASE: Final = b"vc/relay-lease"
_SUBMIT: Final = b"vc/relay-submit"
_UNTIL: Final = 8
"""Bytes of a moment."""
_ENDS: Final = (SCALAR, SCALAR + NOTE_ID, SCALAR + NOTE_ID + _UNTIL)
"""Where bond, id and moment end that stand before a publication in its box."""
