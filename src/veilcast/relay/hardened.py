"""The hardened relay: how client, proxy and server use keys so that each learns less than in P2.

Each lease is for one epoch and has its own name, pseudonym and delivery key. Nothing but time links the leases of two
epochs for the server. A client derives names and keys from the secret of its membership, so it finds its leases again
without a disk. The recipes are in `subject_tags` and `body_encryption`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeyCache, Keyring, TopicKeys
from veilcast.core import match_elements
from veilcast.core.match_elements import ElementGroups
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import check_publishable
from veilcast.core.sealed_notification import NotificationOpener
from veilcast.core.size_classes import pad_groups
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import Ciphertext, Multiply, Point, Scalar
from veilcast.crypto.seal import KEY, Sealer
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy
from veilcast.relay import body_encryption, transformation_key
from veilcast.relay.profile import DeliveryTarget, LeasePeriod, OpenedLease, OpenedSubmission, SealedPublication
from veilcast.relay.subject_tags import BlindingCache, move_many, tag_many, unveiling_key, veil_many
from veilcast.relay.transformation_key import EnrolmentStart, ServerKeys, ServerPublicKey
from veilcast.topics import Conjunction
from veilcast.wire.geometry import LEASE_NAME, NOTE_ID, SCALAR, TICKET
from veilcast.wire.relay import EnrolClient, Lease, LeaseAhead, RelayDelivery, Release, Subjects, Submit


class HardenedClientProfile:
    """Bounded: cached keys of `CACHED_EPOCHS_MAX` epochs, and cached openers of `CACHED_OPENERS_MAX` leases and
    topics."""

    def __init__(
        self,
        keyring: Keyring,
        server: ServerPublicKey,
        entropy: Entropy,
        multiply: Multiply,
        lead_epochs: int = 1,
    ) -> None:
        self._keyring, self._server, self._entropy, self._multiply = keyring, server, entropy, multiply
        self._lead_epochs = lead_epochs
        self._client_key = derive(keyring.membership.link, b"vc/relay-client", server.encode())
        self._submission_key = derive_submission_key(keyring)
        self._cache = EpochKeyCache(keyring, CACHED_EPOCHS_MAX)
        self._blinding = BlindingCache(multiply)
        self._sealer_of = lru_cache(CACHED_OPENERS_MAX)(self._make_sealer)
        self._opener_of = lru_cache(CACHED_OPENERS_MAX)(self._make_note_opener)

    def build_enrol(self, number: int, start: EnrolmentStart) -> EnrolClient:
        return EnrolClient(number, start.ratio.reveal(), start.claim.encode(), start.sealed)

    def lease_periods(self, now: int, ahead: int) -> list[LeasePeriod]:
        epoch = epoch_of(now, self._keyring.epoch_us)
        return [self._period(each) for each in range(epoch, epoch + ahead + 1)]

    def past_periods(self, now: int, retention_us: int) -> list[LeasePeriod]:
        epoch = epoch_of(now, self._keyring.epoch_us)
        periods = [self._period(each) for each in range(max(0, epoch - PAST_EPOCHS_MAX), epoch)]
        return [period for period in periods if period.until_us + retention_us > now]

    def next_period_us(self, now: int) -> int | None:
        return (epoch_of(now, self._keyring.epoch_us) + 1) * self._keyring.epoch_us

    def topic_keys(self, topic: str, period: LeasePeriod, now: int) -> TopicKeys:
        return self._keys(topic, period)

    def interest_elements(self, keys: TopicKeys, interest: Conjunction) -> ElementGroups:
        return match_elements.key_groups(
            _element_key(keys), match_elements.subscription_elements(interest, keys.record)
        )

    def lease_name(self, interest: bytes, period: LeasePeriod) -> bytes:
        return derive(
            self._client_key, b"vc/relay-lease", interest, period.epoch.to_bytes(8, "big"), size=LEASE_NAME
        ).reveal()

    def build_lease(
        self, number: int, name: bytes, period: LeasePeriod, groups: ElementGroups, key: Scalar, now: int
    ) -> Lease | LeaseAhead:
        bond = Scalar.draw(self._entropy)
        content = bond.reveal() + self._delivery_key(name).reveal()
        boxed = body_encryption.wrap_for_server(self._server.box, content, purpose=_LEASE, entropy=self._entropy)
        padded = pad_groups(groups, lambda place: _filler(self._client_key, place, name))
        subjects = self._upload(padded, key, bond)
        if now >= period.begin_us:
            return Lease(number, name, period.until_us, subjects, boxed)
        from_us, to_us = submission_window(period, self._lead_epochs, self._keyring.epoch_us)
        return LeaseAhead(number, name, from_us, to_us, period.until_us, subjects, boxed)

    def lease_proof(self, name: bytes) -> bytes | None:
        return opening_proof(self._delivery_key(name).reveal())

    def build_release(self, number: int, name: bytes, groups: ElementGroups, key: Scalar) -> Release:
        return Release(number, name, ())

    def check_publication(self, keys: TopicKeys, pending: PendingPublication) -> None:
        check_publishable(keys, pending.content)
        match_elements.publication_elements(pending.content.publication, keys.record)

    def build_submit(
        self, number: int, period: LeasePeriod, keys: TopicKeys, pending: PendingPublication, key: Scalar
    ) -> Submit:
        bond = Scalar.draw(self._entropy)
        head = bond.reveal() + submission_id(self._submission_key, pending) + period.until_us.to_bytes(_UNTIL, "big")
        note = head + body_encryption.seal_note(keys, pending.content, self._entropy)
        boxed = body_encryption.wrap_for_server(self._server.box, note, purpose=_SUBMIT, entropy=self._entropy)
        topic = _element_key(keys)
        elements = match_elements.key_groups(
            topic, match_elements.publication_elements(pending.content.publication, keys.record)
        )
        padded = pad_groups(elements, lambda place: _filler(topic, place))
        return Submit(number, self._upload(padded, key, bond), None, boxed)

    def submit_proof(self, pending: PendingPublication) -> bytes | None:
        return opening_proof(submission_id(self._submission_key, pending))

    def open_delivery(
        self, delivery: RelayDelivery, topic: str, period: LeasePeriod, key: Scalar, now: int
    ) -> PendingPublication:
        inner = body_encryption.open_at_subscriber(self._sealer_of(delivery.names[0]), delivery.sealed)
        return PendingPublication(topic, self._opener_of(topic, period).open(inner))

    def _period(self, epoch: int) -> LeasePeriod:
        """A period lasts to the end of the epoch after its own: a publication from just before the boundary may
        still be in flight."""
        return LeasePeriod(epoch, epoch * self._keyring.epoch_us, (epoch + 2) * self._keyring.epoch_us)

    def _keys(self, topic: str, period: LeasePeriod) -> TopicKeys:
        keys = self._cache.at(period.epoch).topic(topic)
        if keys.record.profile != "hardened":
            raise LocalError(f"{topic!r} is a topic of the paper profile; this client is hardened")
        return keys

    def _delivery_key(self, name: bytes) -> Secret:
        return derive(self._client_key, b"vc/relay-reader", name)

    def _make_sealer(self, name: bytes) -> Sealer:
        return Sealer(self._delivery_key(name))

    def _make_note_opener(self, topic: str, period: LeasePeriod) -> NotificationOpener:
        return body_encryption.note_opener(self._keys(topic, period), self._keyring.root, period.epoch)

    def _upload(self, groups: ElementGroups, key: Scalar, bond: Scalar) -> Subjects:
        flat = [element for group in groups for element in group]
        blinded = self._blinding.blind(key, flat)
        veiled = veil_many(blinded, self._server.subject, bond, self._entropy, self._multiply)
        return _regroup([each.encode() for each in veiled], groups)


class HardenedProxyProfile:
    one_pseudonym_per_client = False

    def __init__(self, public: ServerPublicKey, mask: Scalar, multiply: Multiply) -> None:
        self._public, self._mask, self._multiply = public, mask, multiply

    def check_enrolment(self, transformation: Scalar, enrol: EnrolClient) -> None:
        if enrol.claim is None:
            raise MalformedError("an enrolment without a claim")
        transformation_key.check_transformation(transformation, Point(enrol.claim), self._public)

    def move_subjects(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        moved = move_many(_flat(subjects), transformation, self._mask, self._multiply)
        return _regroup([each.encode() for each in moved], subjects)

    def move_body_up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        _check_none(cipher)
        return None

    def move_body_down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None:
        _check_none(cipher)
        return None


class HardenedServerProfile:
    """Bounded: cached ciphers of the last `CACHED_LAYERS_MAX` subscribers."""

    def __init__(self, keys: ServerKeys, entropy: Entropy, multiply: Multiply) -> None:
        self._keys, self._entropy, self._multiply = keys, entropy, multiply
        self._sealer_of = lru_cache(CACHED_LAYERS_MAX)(_make_sealer)
        self._tickets = derive(keys.box, b"vc/relay-tickets")

    def answer_enrolment(self, sealed: bytes) -> bytes:
        return transformation_key.answer_enrolment(self._keys, sealed).reveal()

    def compute_tags(self, subjects: Subjects, bond: Scalar | None) -> ElementGroups:
        if bond is not None:
            return _regroup(tag_many(_flat(subjects), unveiling_key(self._keys, bond), self._multiply), subjects)
        if subjects:
            raise MalformedError("subjects without a bond")
        return ()

    def lease_part(self, tags: ElementGroups) -> bytes:
        return b""

    def open_lease(self, lease: Lease) -> OpenedLease:
        if lease.sealed is None:
            raise MalformedError("a lease without a key for its deliveries")
        content = body_encryption.open_at_server(self._keys, lease.sealed, purpose=_LEASE)
        if len(content) != SCALAR + KEY:
            raise MalformedError("the key of a lease has the wrong size")
        return OpenedLease(content[SCALAR:], Scalar(content[:SCALAR]), self.lease_proof(content[SCALAR:]))

    def lease_proof(self, key: bytes) -> bytes | None:
        return opening_proof(key)

    def open_submission(self, submit: Submit) -> OpenedSubmission:
        _check_none(submit.cipher)
        content = body_encryption.open_at_server(self._keys, submit.sealed, purpose=_SUBMIT)
        bond, identity, until_bytes, note = (content[start:end] for start, end in pairwise((0, *_ENDS, None)))
        if not note:
            raise MalformedError("a publication without a body")
        return OpenedSubmission(
            SealedPublication(identity, None, note),
            int.from_bytes(until_bytes, "big"),
            Scalar(bond),
            opening_proof(identity),
        )

    def ticket(self, name: bytes, publication: bytes) -> bytes:
        return derive(self._tickets, b"vc/relay-ticket", name, publication, size=TICKET).reveal()

    def build_deliveries(
        self, publication: SealedPublication, targets: Sequence[DeliveryTarget]
    ) -> Iterator[RelayDelivery]:
        """One delivery for each target; no two are alike."""
        for name, ticket, key in targets:
            sealed = body_encryption.wrap_for_subscriber(self._sealer_of(key), publication.sealed, self._entropy)
            yield RelayDelivery((name,), ticket, None, sealed)


def _make_sealer(key: bytes) -> Sealer:
    return Sealer(Secret(key))


def submission_window(period: LeasePeriod, lead_epochs: int, epoch_us: int) -> tuple[int, int]:
    """When the proxy sends the lease of a coming period to the server: in the first quarter of an epoch, `lead_epochs`
    before its own.

    The same for all clients, so that the time says nothing. A client hands the lease over in the first half of an epoch
    before, if it was there then: one that is away for less than three quarters of an epoch is in time again. A proxy or
    server that is down for three quarters of an epoch loses no lease.
    """
    from_us = period.begin_us - lead_epochs * epoch_us
    return max(0, from_us), max(0, from_us + epoch_us // 4)


def derive_submission_key(keyring: Keyring) -> Secret:
    """The key from which a member derives the ids of its publications."""
    return derive(keyring.membership.link, b"vc/relay-places")


def submission_id(key: Secret, pending: PendingPublication) -> bytes:
    """The id of a publication at the server: the same however often the publication is sent.

    The id is keyed because subscribers know the stream and can count. An adversary that could predict the next id would
    send something else under it, and the server would treat the publication itself as a repeat.
    """
    content = pending.content
    place = (content.stream, content.number.to_bytes(8, "big"), pending.topic.encode())
    return derive(key, b"vc/relay-submit", *place, size=NOTE_ID).reveal()


def opening_proof(secret: bytes) -> bytes:
    """Proof that the server has opened a box; only the sender and the server can compute it."""
    return digest(secret, purpose=b"vc/relay-done", size=TICKET)


def _element_key(keys: TopicKeys) -> Secret:
    return match_elements.derive_element_key(keys, b"relay")


def _filler(key: Secret, place: int, name: bytes = b"") -> bytes:
    """An element that no member subscribes to or publishes.

    The fillers of a lease are its own: shared fillers would tell the server which leases belong to one topic. The
    fillers of publications belong to their topic, as the label does: an element that appears once and never again would
    be recognised as a filler.
    """
    return derive(key, b"vc/relay-filler", name, place.to_bytes(2, "big")).reveal()


def _flat(subjects: Subjects) -> list[Ciphertext]:
    return [Ciphertext.decode(subject) for group in subjects for subject in group]


def _regroup(flat: Sequence[bytes], groups: ElementGroups) -> ElementGroups:
    """A flat list in the shape of the groups it came from."""
    each = iter(flat)
    return tuple(tuple(next(each) for _ in group) for group in groups)


def _check_none(cipher: bytes | None) -> None:
    if cipher is not None:
        raise MalformedError("a point of the paper's profile")


PAST_EPOCHS_MAX: Final = 4
"""Past epochs that the client asks for waiting deliveries, where epochs are so short that the server holds
publications for many of them.
"""
CACHED_EPOCHS_MAX: Final = 16
"""Epochs whose keys are cached: a look-up checks the signature of every grant."""
CACHED_OPENERS_MAX: Final = 1024
CACHED_LAYERS_MAX: Final = 4096
_LEASE: Final = b"vc/relay-lease"
_SUBMIT: Final = b"vc/relay-submit"
_UNTIL: Final = 8
"""Bytes of a time stamp."""
_ENDS: Final = (SCALAR, SCALAR + NOTE_ID, SCALAR + NOTE_ID + _UNTIL)
"""Offsets at which the bond, the id and the time end in front of a publication in its box."""
