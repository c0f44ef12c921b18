"""The interface between the relay's machines and its two profiles: one protocol for each of the three machines.

The machines handle streams, requests, leases and disks, and know nothing about keys. Their profile handles keys,
subjects, bodies and pseudonyms. `paper` is P2 to the letter; `hardened` repairs its leaks. `relay/paper.py` and
`relay/hardened.py` implement these protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from veilcast.authority.keyring import TopicKeys
from veilcast.core.match_elements import ElementGroups
from veilcast.core.outbox import PendingPublication
from veilcast.crypto.group import Scalar
from veilcast.relay.transformation_key import EnrolmentStart
from veilcast.topics import Conjunction
from veilcast.wire.relay import EnrolClient, Lease, LeaseAhead, RelayDelivery, Release, Subjects, Submit


class LeasePeriod(NamedTuple):
    """The epoch of a lease, and the times when it begins and when the lease ends; in `paper` one period covers all of
    time."""

    epoch: int
    begin_us: int
    until_us: int


class ClientProfile(Protocol):
    """Fulfilled for one keyring and one server."""

    def build_enrol(self, number: int, start: EnrolmentStart) -> EnrolClient: ...

    def lease_periods(self, now: int, ahead: int) -> list[LeasePeriod]:
        """The periods for which a subscription should be leased now, the current one first."""

    def past_periods(self, now: int, retention_us: int) -> list[LeasePeriod]:
        """Past periods that may have deliveries waiting."""

    def next_period_us(self, now: int) -> int | None:
        """When the current periods change; None if never."""

    def topic_keys(self, topic: str, period: LeasePeriod, now: int) -> TopicKeys:
        """The topic's keys in this period; `LocalError` if the keyring has none that this profile can use."""

    def interest_elements(self, keys: TopicKeys, interest: Conjunction) -> ElementGroups:
        """The elements of a lease; `LocalError` if the topic does not declare them, or if there are too many."""

    def lease_name(self, interest: bytes, period: LeasePeriod) -> bytes:
        """The name of a lease between client and proxy: the same in all runs of the client."""

    def build_lease(
        self, number: int, name: bytes, period: LeasePeriod, groups: ElementGroups, key: Scalar, now: int
    ) -> Lease | LeaseAhead:
        """The lease; before its period begins, one for the proxy to hold."""

    def lease_proof(self, name: bytes) -> bytes | None:
        """The proof by which the server confirms the lease; None where the client has to trust the proxy."""

    def build_release(self, number: int, name: bytes, groups: ElementGroups, key: Scalar) -> Release: ...

    def check_publication(self, keys: TopicKeys, pending: PendingPublication) -> None:
        """Raise `LocalError` unless these keys can publish it and all its elements can be subscribed to."""

    def build_submit(
        self, number: int, period: LeasePeriod, keys: TopicKeys, pending: PendingPublication, key: Scalar
    ) -> Submit: ...

    def submit_proof(self, pending: PendingPublication) -> bytes | None:
        """The proof by which the server confirms the publication."""

    def open_delivery(
        self, delivery: RelayDelivery, topic: str, period: LeasePeriod, key: Scalar, now: int
    ) -> PendingPublication:
        """The publication; raises `RemoteError`. `topic` is the lease's topic, where a lease has only one."""


class ProxyProfile(Protocol):
    """Fulfilled for one server."""

    one_pseudonym_per_client: bool
    """True if a client has one pseudonym for all its leases; False if each lease has its own."""

    def check_enrolment(self, transformation: Scalar, enrol: EnrolClient) -> None:
        """Raise `RemoteError` if the server gave this client a key other than the one it uses for all."""

    def move_subjects(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        """From the client's key to the server's; raises `RemoteError` for invalid subjects."""

    def move_body_up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None: ...

    def move_body_down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None: ...


class SealedPublication(NamedTuple):
    """A publication as the server stores it: its id, the point of its key (`paper` only), and the bytes to deliver."""

    id: bytes
    cipher: bytes | None
    sealed: bytes


class OpenedSubmission(NamedTuple):
    """A submitted publication, and the time until which its tags identify its subscribers. Later tags differ.

    In `hardened`, `bond` binds the subjects to the submission, and `proof` confirms it to its publisher.
    """

    publication_id: SealedPublication
    until_us: int
    bond: Scalar | None
    proof: bytes | None


class OpenedLease(NamedTuple):
    """A lease as the server reads it: the key that seals its deliveries, and bond and proof as for publications."""

    key: bytes
    bond: Scalar | None
    proof: bytes | None


class DeliveryTarget(NamedTuple):
    """A recipient of a publication: the lease's name, the ticket, and the key that seals deliveries to it."""

    name: bytes
    ticket: bytes
    key: bytes


class MailProfile(Protocol):
    """How deliveries are named and built."""

    def ticket(self, name: bytes, publication_id: bytes) -> bytes:
        """Identifies the delivery of a publication to a name; the same in all runs."""

    def build_deliveries(
        self, publication: SealedPublication, targets: Sequence[DeliveryTarget]
    ) -> Iterator[RelayDelivery]: ...


class ServerProfile(MailProfile, Protocol):
    """Fulfilled for the keys of one server. All methods that read remote input raise `RemoteError`."""

    def answer_enrolment(self, sealed: bytes) -> bytes:
        """The server's share of an enrolment: k_r / b."""

    def compute_tags(self, subjects: Subjects, bond: Scalar | None) -> ElementGroups: ...

    def lease_part(self, tags: ElementGroups) -> bytes:
        """Distinguishes several leases under one pseudonym; empty where a pseudonym has only one."""

    def open_lease(self, lease: Lease) -> OpenedLease: ...

    def lease_proof(self, key: bytes) -> bytes | None:
        """The proof that confirms the lease with this key, as `ClientProfile.lease_proof` expects it."""

    def open_submission(self, submit: Submit) -> OpenedSubmission: ...
