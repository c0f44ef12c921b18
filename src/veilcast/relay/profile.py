"""What the two profiles of the relay do differently: one small part for each of the three machines.

The machines know streams, requests, leases and disks, and nothing of keys. Whatever has to do with keys, and with what
is a subject, a body or a pseudonym, they ask their part for: `paper` is P2 to the letter, `hardened` what it takes to
repair that. These are the seams; `relay/paper.py` and `relay/hardened.py` fill them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from veilcast.authority.keyring import TopicKeys
from veilcast.authority.letters import Letter
from veilcast.authority.subjects import Groups
from veilcast.crypto.group import Scalar
from veilcast.relay.joining import Begun
from veilcast.topics import Conjunction
from veilcast.wire.relay import Delivery, Enrol, Lease, Release, Subjects, Submit


class Span(NamedTuple):
    """For which epoch a lease is, and when it ends; in `paper` one span is all of time."""

    epoch: int
    until_us: int


class ClientPart(Protocol):
    """For one keyring and one server."""

    def enrol(self, number: int, begun: Begun) -> Enrol: ...

    def spans(self, now: int, ahead: int) -> list[Span]:
        """The spans that a subscription is to be leased for now, this one first."""

    def past(self, now: int, retention_us: int) -> list[Span]:
        """Those that are over but may have something waiting."""

    def turn_us(self, now: int) -> int | None:
        """When other spans are current."""

    def keys(self, topic: str, span: Span, now: int) -> TopicKeys:
        """The topic's keys of this span; `LocalError` if there are none that this profile can use."""

    def wanted(self, keys: TopicKeys, interest: Conjunction) -> Groups:
        """What a lease asks for; `LocalError` for what the topic does not declare, or if it is too much."""

    def name(self, interest: bytes, span: Span) -> bytes:
        """By which proxy and client know a lease: the same in all lives of the client."""

    def lease(self, number: int, name: bytes, span: Span, groups: Groups, key: Scalar) -> Lease: ...

    def lease_proof(self, name: bytes) -> bytes | None:
        """By which the server says that the lease stands; None where a proxy's word is all there is."""

    def release(self, number: int, name: bytes, groups: Groups, key: Scalar) -> Release: ...

    def check(self, keys: TopicKeys, letter: Letter) -> None:
        """Raise `LocalError` unless these keys can publish it, and all that it says can be asked for."""

    def submit(self, number: int, span: Span, keys: TopicKeys, letter: Letter, key: Scalar) -> Submit: ...

    def submit_proof(self, letter: Letter) -> bytes | None:
        """By which the server says that it has it."""

    def open(self, delivery: Delivery, topic: str, span: Span, key: Scalar, now: int) -> Letter:
        """What was published; raises `RemoteError`. The topic is that of the lease, where there is only one."""


class ProxyPart(Protocol):
    """For one server."""

    own_pseudonym: bool
    """Whether a client has one for all its leases, and not each lease its own."""

    def check(self, transformation: Scalar, enrol: Enrol) -> None:
        """Raise `RemoteError` if the server gave this client a key that is not the one it has for all."""

    def move(self, subjects: Subjects, transformation: Scalar) -> Subjects:
        """From under a client's key to under the server's; raises `RemoteError` for what are no subjects."""

    def up(self, cipher: bytes | None, transformation: Scalar) -> bytes | None: ...

    def down(self, cipher: bytes | None, transformation: Scalar) -> bytes | None: ...


class Taken(NamedTuple):
    """A publication as the server has it: its name, what is sent on, and the point of its key, in `paper`."""

    id: bytes
    cipher: bytes | None
    sealed: bytes


class Taking(NamedTuple):
    """One that has come, and until when those who want it are known by its tags: later they are known by others.

    In `hardened`, `bond` is what its subjects are bound to it by, and `proof` tells its publisher that it is done.
    """

    taken: Taken
    until_us: int
    bond: Scalar | None
    proof: bytes | None


class Opened(NamedTuple):
    """A lease as the server has it: what its deliveries are wrapped with, and bond and proof as for publications."""

    key: bytes
    bond: Scalar | None
    proof: bytes | None


class Reader(NamedTuple):
    """Who is to get a publication: under which name, with which ticket, wrapped with the key of its lease."""

    name: bytes
    ticket: bytes
    key: bytes


class ServerPart(Protocol):
    """For one server's keys. All that take what others sent raise `RemoteError`."""

    def share(self, sealed: bytes) -> bytes:
        """For an enrolment: k_r / b."""

    def tags(self, subjects: Subjects, bond: Scalar | None) -> Groups: ...

    def part(self, tags: Groups) -> bytes:
        """By what several leases under one pseudonym are told apart; nothing, where there are none."""

    def open_lease(self, lease: Lease) -> Opened: ...

    def take(self, submit: Submit) -> Taking: ...

    def ticket(self, name: bytes, publication: bytes) -> bytes:
        """Of a delivery of a publication to a name; the same in all lives of the server."""

    def deliveries(self, taken: Taken, readers: Sequence[Reader]) -> Iterator[Delivery]: ...
