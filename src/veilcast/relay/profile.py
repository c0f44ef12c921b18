"""What the two profiles of the relay do differently: one small part for each of the three machines.

The machines know streams, requests, leases and disks, and nothing of keys. Whatever has to do with keys, and with what
is a subject, a body or a pseudonym, they ask their part for: `paper` is P2 to the letter, `hardened` what it takes to
repair that. These are the seams; `relay/paper.py` and `relay/hardened.py` fill them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from veilcast.authority.keyring import TopicKeys
from veilcast.core.match_elements import ElementGroups
from veilcast.core.outbox import PendingPublication
from veilcast.crypto.group import Scalar
from veilcast.relay.enrolment import EnrolmentStart
from veilcast.topics import Conjunction
from veilcast.wire.relay import EnrolClient, Lease, RelayDelivery, Release, Subjects, Submit


class LeasePeriod(NamedTuple):
    """For which epoch a lease is, and when it ends; in `paper` one span is all of time."""

    epoch: int
    until_us: int


class ClientProfile(Protocol):
    """For one keyring and one server."""

    def build_enrol(self, number: int, begun: EnrolmentStart) -> EnrolClient: ...

    def lease_periods(self, now: int, ahead: int) -> list[LeasePeriod]:
        """The spans that a subscription is to be leased for now, this one first."""

    def past_periods(self, now: int, retention_us: int) -> list[LeasePeriod]:
        """Those that are over but may have something waiting."""

    def next_period_us(self, now: int) -> int | None:
        """When other spans are current."""

    def topic_keys(self, topic: str, span: LeasePeriod, now: int) -> TopicKeys:
        """The topic's keys of this span; `LocalError` if there are none that this profile can use."""

    def interest_elements(self, keys: TopicKeys, interest: Conjunction) -> ElementGroups:
        """What a lease asks for; `LocalError` for what the topic does not declare, or if it is too much."""

    def lease_name(self, interest: bytes, span: LeasePeriod) -> bytes:
        """By which proxy and client know a lease: the same in all lives of the client."""

    def build_lease(self, number: int, name: bytes, span: LeasePeriod, groups: ElementGroups, key: Scalar) -> Lease: ...

    def lease_proof(self, name: bytes) -> bytes | None:
        """By which the server says that the lease stands; None where a proxy's word is all there is."""

    def build_release(self, number: int, name: bytes, groups: ElementGroups, key: Scalar) -> Release: ...

    def check_publication(self, keys: TopicKeys, letter: PendingPublication) -> None:
        """Raise `LocalError` unless these keys can publish it, and all that it says can be asked for."""

    def build_submit(
        self, number: int, span: LeasePeriod, keys: TopicKeys, letter: PendingPublication, key: Scalar
    ) -> Submit: ...

    def submit_proof(self, letter: PendingPublication) -> bytes | None:
        """By which the server says that it has it."""

    def open_delivery(
        self, delivery: RelayDelivery, topic: str, span: LeasePeriod, key: Scalar, now: int
    ) -> PendingPublication:
        """What was published; raises `RemoteError`. The topic is that of the lease, where there is only one."""


class ProxyProfile(Protocol):
    """For one server."""

    one_pseudonym_per_client: bool
    """Whether a client has one for all its leases, and not each lease its own."""

    def check_enrolment(self, transformation: Scalar, enrol: EnrolClient) -> None:
        """Raise `RemoteError` if the server gave this client a key that is not the one it has for all."""

    def move_subjects(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        """From under a client's key to under the server's; raises `RemoteError` for what are no subjects."""

    def move_body_up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None: ...

    def move_body_down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None: ...


class SealedPublication(NamedTuple):
    """A publication as the server has it: its name, what is sent on, and the point of its key, in `paper`."""

    id: bytes
    cipher: bytes | None
    sealed: bytes


class OpenedSubmission(NamedTuple):
    """One that has come, and until when those who want it are known by its tags: later they are known by others.

    In `hardened`, `bond` is what its subjects are bound to it by, and `proof` tells its publisher that it is done.
    """

    publication: SealedPublication
    until_us: int
    bond: Scalar | None
    proof: bytes | None


class OpenedLease(NamedTuple):
    """A lease as the server has it: what its deliveries are wrapped with, and bond and proof as for publications."""

    key: bytes
    bond: Scalar | None
    proof: bytes | None


class DeliveryTarget(NamedTuple):
    """Who is to get a publication: under which name, with which ticket, wrapped with the key of its lease."""

    name: bytes
    ticket: bytes
    key: bytes


class ServerProfile(Protocol):
    """For one server's keys. All that take what others sent raise `RemoteError`."""

    def answer_enrolment(self, sealed: bytes) -> bytes:
        """For an enrolment: k_r / b."""

    def compute_tags(self, subjects: Subjects, bond: Scalar | None) -> ElementGroups: ...

    def lease_part(self, tags: ElementGroups) -> bytes:
        """By what several leases under one pseudonym are told apart; nothing, where there are none."""

    def open_lease(self, lease: Lease) -> OpenedLease: ...

    def open_submission(self, submit: Submit) -> OpenedSubmission: ...

    def ticket(self, name: bytes, publication: bytes) -> bytes:
        """Of a delivery of a publication to a name; the same in all lives of the server."""

    def build_deliveries(
        self, taken: SealedPublication, readers: Sequence[DeliveryTarget]
    ) -> Iterator[RelayDelivery]: ...
