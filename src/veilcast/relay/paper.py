"""The paper's relay (P2, section 4.1), to the letter: how client, proxy and server use keys.

A client has one pseudonym and one filter for all its subscriptions, for as long as it is enrolled. The body of a
publication is sealed under a random point that travels re-routable. The paper says nothing about repeats and about what
a body contains. Here an id of 16 bytes precedes the body, by which the server recognises a repeat. The body contains
the publication with its topic and its number in the publisher's stream. Subjects are elements with the topic's name in
front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeyCache, Keyring, TopicKeys
from veilcast.core import match_elements
from veilcast.core.match_elements import ElementGroups
from veilcast.core.outbox import PendingPublication
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import Ciphertext, Point, Scalar
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy, Publication
from veilcast.relay import body_encryption, transformation_key
from veilcast.relay.hardened import derive_submission_key, submission_id
from veilcast.relay.profile import DeliveryTarget, LeasePeriod, OpenedLease, OpenedSubmission, SealedPublication
from veilcast.relay.subject_tags import blind_element, move_element, tag_of
from veilcast.relay.transformation_key import EnrolmentStart, ServerKeys
from veilcast.topics import Conjunction
from veilcast.wire.geometry import ADDRESSEES_MAX, BODY_MAX, LEASE_NAME, MOMENT_MAX, NOTE_ID, TICKET
from veilcast.wire.relay import EnrolClient, Lease, RelayDelivery, Release, Subjects, Submit


class PaperClientProfile:
    def __init__(self, keyring: Keyring, entropy: Entropy) -> None:
        self._keyring, self._entropy, self._submission_key = keyring, entropy, derive_submission_key(keyring)
        self._cache = EpochKeyCache(keyring, 1)

    def build_enrol(self, number: int, start: EnrolmentStart) -> EnrolClient:
        return EnrolClient(number, start.ratio.reveal(), None, start.sealed)

    def lease_periods(self, now: int, ahead: int) -> list[LeasePeriod]:
        return [_ALWAYS]

    def past_periods(self, now: int, retention_us: int) -> list[LeasePeriod]:
        return []

    def next_period_us(self, now: int) -> int | None:
        return None

    def topic_keys(self, topic: str, period: LeasePeriod, now: int) -> TopicKeys:
        return self._cache.at(epoch_of(now, self._keyring.epoch_us)).topic(topic)

    def interest_elements(self, keys: TopicKeys, interest: Conjunction) -> ElementGroups:
        return match_elements.qualify_groups(
            keys.record.topic, match_elements.paper_subscription_elements(interest, keys.record)
        )

    def lease_name(self, interest: bytes, period: LeasePeriod) -> bytes:
        return FILTER_NAME

    def build_lease(
        self, number: int, name: bytes, period: LeasePeriod, groups: ElementGroups, key: Scalar, now: int
    ) -> Lease:
        return Lease(number, name, period.until_us, _blind_groups(groups, key), None)

    def lease_proof(self, name: bytes) -> bytes | None:
        return None

    def build_release(self, number: int, name: bytes, groups: ElementGroups, key: Scalar) -> Release:
        return Release(number, name, _blind_groups(groups, key))

    def check_publication(self, keys: TopicKeys, pending: PendingPublication) -> None:
        if len(_ENCODER.encode(pending)) > BODY_MAX:
            raise LocalError(f"a publication has at most {BODY_MAX} bytes")
        _publication_groups(keys, pending.content.publication)

    def build_submit(
        self, number: int, period: LeasePeriod, keys: TopicKeys, pending: PendingPublication, key: Scalar
    ) -> Submit:
        cipher, sealed = body_encryption.seal_body(_ENCODER.encode(pending), key, self._entropy)
        blinded = _blind_groups(_publication_groups(keys, pending.content.publication), key)
        return Submit(number, blinded, cipher.encode(), submission_id(self._submission_key, pending) + sealed)

    def submit_proof(self, pending: PendingPublication) -> bytes | None:
        return None

    def open_delivery(
        self, delivery: RelayDelivery, topic: str, period: LeasePeriod, key: Scalar, now: int
    ) -> PendingPublication:
        if delivery.cipher is None:
            raise MalformedError("a delivery without the point of its key")
        body = body_encryption.open_body(Ciphertext.decode(delivery.cipher), delivery.sealed[NOTE_ID:], key)
        return _DECODER.decode(body)


class PaperProxyProfile:
    one_pseudonym_per_client = True

    def check_enrolment(self, transformation: Scalar, enrol: EnrolClient) -> None:
        """The paper has no value to compare with: it trusts the server to use one key for all."""

    def move_subjects(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        return tuple(tuple(move_element(Point(each), transformation).encode() for each in group) for group in subjects)

    def move_body_up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        return body_encryption.move_key_up(_point_of(cipher), transformation).encode()

    def move_body_down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        return body_encryption.move_key_down(_point_of(cipher), transformation).encode()


class PaperServerProfile:
    def __init__(self, keys: ServerKeys, entropy: Entropy) -> None:
        self._keys, self._entropy = keys, entropy
        self._tickets = derive(keys.box, b"vc/relay-tickets")

    def answer_enrolment(self, sealed: bytes) -> bytes:
        return transformation_key.answer_enrolment(self._keys, sealed).reveal()

    def compute_tags(self, subjects: Subjects, bond: Scalar | None) -> ElementGroups:
        return tuple(tuple(tag_of(Point(each)) for each in group) for group in subjects)

    def lease_part(self, tags: ElementGroups) -> bytes:
        together = sorted(each for group in tags for each in group)
        return digest(b"".join(together), purpose=b"vc/relay-part", size=LEASE_NAME)

    def open_lease(self, lease: Lease) -> OpenedLease:
        return OpenedLease(b"", None, None)

    def lease_proof(self, key: bytes) -> bytes | None:
        return None

    def open_submission(self, submit: Submit) -> OpenedSubmission:
        if submit.cipher is None or len(submit.sealed) <= NOTE_ID:
            raise MalformedError("a publication without the point of its key, or without a body")
        return OpenedSubmission(
            SealedPublication(submit.sealed[:NOTE_ID], submit.cipher, submit.sealed), MOMENT_MAX, None, None
        )

    def ticket(self, name: bytes, publication: bytes) -> bytes:
        """One ticket for all subscribers: the paper's proxy receives all identities at once."""
        return derive(self._tickets, b"vc/relay-ticket", publication, size=TICKET).reveal()

    def build_deliveries(
        self, publication_record: SealedPublication, targets: Sequence[DeliveryTarget]
    ) -> Iterator[RelayDelivery]:
        """One re-randomised message with the identities of all targets, or of as many as fit."""
        for start in range(0, len(targets), ADDRESSEES_MAX):
            some = targets[start : start + ADDRESSEES_MAX]
            cipher = body_encryption.rerandomise_key(
                _point_of(publication_record.cipher), self._keys, self._entropy
            ).encode()
            yield RelayDelivery(
                tuple(reader.name for reader in some), some[0].ticket, cipher, publication_record.sealed
            )


def _publication_groups(keys: TopicKeys, publication: Publication) -> ElementGroups:
    """The elements that match a publication."""
    return match_elements.qualify_groups(
        keys.record.topic, match_elements.paper_publication_elements(publication, keys.record)
    )


def _blind_groups(groups: ElementGroups, key: Scalar) -> Subjects:
    return tuple(tuple(blind_element(element, key).encode() for element in group) for group in groups)


def _point_of(cipher: bytes | None) -> Ciphertext:
    if cipher is None:
        raise MalformedError("the point of the key is missing")
    return Ciphertext.decode(cipher)


FILTER_NAME: Final = bytes(LEASE_NAME)
"""The lease name of a client's only filter."""
_ALWAYS: Final = LeasePeriod(0, 0, MOMENT_MAX)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(PendingPublication, MalformedError, "what was sealed is not a publication")
