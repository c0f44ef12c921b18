"""A member's keyring: its membership and its grants. `Keyring.keys_at` is the one way to the keys of an epoch.

A membership is a link key (X25519), from which the key of the member's lots is derived, a certificate of both, and the
network key that all members share. Forwarders, covers, proxies, servers and brokers have no more. A grant is a batch of
epoch keys of one topic. A publisher's grant also has a seed, and the signatures that turn its epoch keys into one-show
certificates. Nothing here prints a secret or touches a file (`secret_file` does).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from veilcast.authority.role import Certificates
from veilcast.authority.topic_keys import (
    TopicRole,
    build_publisher_certificate,
    derive_content_key,
    derive_publisher_key,
    token_of,
)
from veilcast.authority.topic_record import SignedRecord, TopicRecord, in_group
from veilcast.crypto.certificate import EPOCH_MAX, CertificateChain, CertificateKind
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.topic_token import cell_lineage, cell_name, cell_token, scope_covers
from veilcast.crypto.vrf import derive_lot_key
from veilcast.errors import AuthorityError, ExpiredError, ForgedError, LocalError, UnknownTopicError
from veilcast.machine import Publication
from veilcast.topics import Cell, Conjunction, all_cells, cell_of, cells_of


class Membership(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The link key and its certificate, and the network key, which separates members from strangers.

    `tls` has the certificates for TLS streams; it is empty if none were requested.
    """

    link: Secret
    certificate: CertificateChain
    network: Secret
    tls: Certificates = ()

    def __post_init__(self) -> None:
        if len(self.network) != NETWORK_KEY:
            raise LocalError(f"a network key has {NETWORK_KEY} bytes, not {len(self.network)}")


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of one topic for the epochs from `first` on, one each; in `paper` one key and one signature for all.

    `wrap` is shared with the authority that granted this, whose bulletins address the holder by it. `bulletin` is the
    number of the last bulletin that was applied to this grant.
    """

    record: SignedRecord
    role: TopicRole
    first: int
    keys: tuple[Secret, ...]
    wrap: Secret
    bulletin: int
    seed: Secret | None = None
    signatures: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        secrets = (*self.keys, self.wrap, *(() if self.seed is None else (self.seed,)))
        if any(len(secret) != GRANT_KEY for secret in secrets):
            raise LocalError(f"each key of a grant has {GRANT_KEY} bytes")

    def issuer(self, root: bytes) -> bytes:
        """The public key of the authority that granted this."""
        return self.record.delegation.subject if self.record.delegation is not None else root

    def last(self, record: TopicRecord) -> int:
        """The last epoch it holds a key for; before `first` if the grant has ended altogether."""
        return EPOCH_MAX if record.profile == "paper" and self.keys else self.first + len(self.keys) - 1


class TopicKeys(msgspec.Struct, frozen=True):
    """The keys of one topic in one epoch. A subscriber has no signing key.

    If the topic is cut into cells, `cell` is the name of the cell that these keys are for, and `token` is the cell's.
    """

    record: TopicRecord
    role: TopicRole
    token: bytes
    content: Secret
    signing: SigningKey | None
    certificate: CertificateChain | None
    cell: bytes | None = None

    @property
    def lineage(self) -> bytes:
        """The name by which forwarders know the topic or cell from epoch to epoch."""
        return cell_lineage(self.record.lineage, self.cell)

    def for_cell(self, cell: bytes | None) -> TopicKeys:
        """The topic's keys for the cell of this name; None stands for the whole topic."""
        if cell is None:
            return self
        return msgspec.structs.replace(self, token=cell_token(self.token, cell), cell=cell)

    def for_publication(self, publication: Publication) -> TopicKeys:
        """The keys for publishing it. Raises `LocalError` if it has no cell."""
        return self.for_cell(self._name(cell_of(publication, self.record.schema)))

    def for_interests(self, interests: Iterable[Conjunction]) -> list[TopicKeys]:
        """The keys for receiving all that these interests match."""
        places = (place for interest in interests for place in cells_of(interest, self.record.schema))
        return [self.for_cell(self._name(place)) for place in dict.fromkeys(places)]

    def for_all(self) -> list[TopicKeys]:
        """The keys of every cell."""
        return [self.for_cell(self._name(place)) for place in all_cells(self.record.schema)]

    def _name(self, place: Cell) -> bytes | None:
        routed = self.record.schema.routed
        if not routed:
            return None
        return cell_name(self.record.blind, zip((domain.routing for domain in routed), place, strict=True))

    def check_publisher(self, chain: CertificateChain, root: bytes, epoch: int) -> None:
        """Raise unless `chain` certifies a publisher of this topic.

        Only a node that knows the topic can check its group.
        """
        check_publisher_chain(chain, root, epoch)
        if not scope_covers(chain.leaf.scope, self.token, self.cell):
            raise ForgedError("the certificate is for another topic")
        if chain.delegation is not None and not in_group(self.record.topic, chain.group):
            raise ForgedError("a sub-authority certified a publisher outside its group")


class EpochKeys(msgspec.Struct, frozen=True):
    """All keys of a member for one epoch."""

    epoch: int
    link: Secret
    membership: CertificateChain
    topics: dict[str, TopicKeys]

    @property
    def lot(self) -> Scalar:
        """The private key of this member's lots.

        It is made at each use, since the group takes a tenth of a second to load.
        """
        return derive_lot_key(self.link)

    def topic(self, name: str) -> TopicKeys:
        keys = self.topics.get(name)
        if keys is None:
            raise UnknownTopicError(_NoGrant(name, tuple(self.topics)))
        return keys


class _NoGrant(NamedTuple):
    """The text of an error, made only if it is read: a node asks for topics whose grants are over at each heartbeat."""

    topic: str
    others: tuple[str, ...]
    """The topics that there are grants for."""

    def __str__(self) -> str:
        text = f"this keyring has no grant for {self.topic!r} now"
        if not self.others:
            return f"{text}, and none for any other topic"
        from difflib import get_close_matches  # Only a mistake pays for it.

        close = get_close_matches(self.topic, self.others, n=1)
        question = f"; did you mean {close[0]!r}?" if close else ""
        more = ", ..." if len(self.others) > SHOWN_TOPICS_MAX else ""
        return f"{text}{question} (it has {', '.join(map(repr, self.others[:SHOWN_TOPICS_MAX]))}{more})"


class Keyring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a member holds. `void` has the sub-authorities that the root ended, and the first epoch of each end."""

    root: bytes
    epoch_us: int
    membership: Membership
    grants: tuple[Grant, ...] = ()
    void: dict[bytes, int] = {}

    def keys_at(self, epoch: int) -> EpochKeys:
        """The keys of one epoch. Raises `ExpiredError` if the membership does not cover it."""
        leaf = self.membership.certificate.leaf
        if not leaf.first <= epoch <= leaf.last:
            raise ExpiredError(f"the membership is for epochs {leaf.first} to {leaf.last}, and this is {epoch}")
        self.membership.certificate.verify(self.root, CertificateKind.MEMBER, epoch)
        topics: dict[str, TopicKeys] = {}
        for grant in self.grants:
            delegation = grant.record.delegation
            if delegation is not None and not delegation.first <= epoch <= delegation.last:
                continue  # What this sub-authority granted is over; the rest of the keyring is not.
            record = grant.record.verify(self.root, epoch)
            publishes = record.topic in topics and topics[record.topic].role == "publisher"
            if grant.first <= epoch <= grant.last(record) and not publishes:
                topics[record.topic] = _topic_keys(grant, record, epoch)
        return EpochKeys(epoch, self.membership.link, self.membership.certificate, topics)

    def erase_past(self, epoch: int) -> bool:
        """Erase the keys of all epochs before this one, in place. False if there were none.

        All parts of a process share the grants, so afterwards none of them has these keys, except in the caches of
        machines. A `paper` key serves every epoch, and stays.
        """
        erased = False
        for grant, record in self.records():
            over = 0 if record.profile == "paper" else min(epoch - grant.first, len(grant.keys))
            if over > 0:
                msgspec.structs.force_setattr(grant, "keys", grant.keys[over:])
                msgspec.structs.force_setattr(grant, "signatures", grant.signatures[over:])
                msgspec.structs.force_setattr(grant, "first", grant.first + over)
                erased = True
        return erased

    def adopt(self, newer: Keyring) -> bool:
        """Take over the grants of a newer state of this keyring, in place. False if nothing is new.

        All parts of a process share the keyring, so they all use the new keys from then on (`EpochKeyCache`). Raises
        `AuthorityError` for the keyring of another member or network.
        """
        ours, theirs = self.membership, newer.membership
        same = (self.root, self.epoch_us, ours.link, ours.network)
        if same != (newer.root, newer.epoch_us, theirs.link, theirs.network):
            raise AuthorityError("the keyring's file is now of another member or network; restart the node to use it")
        if (ours, self.grants, self.void) == (theirs, newer.grants, newer.void):
            return False
        for name in ("membership", "grants", "void"):
            msgspec.structs.force_setattr(self, name, getattr(newer, name))
        return True

    def records(self) -> list[tuple[Grant, TopicRecord]]:
        """Every grant with the record of its topic, expired grants included."""
        return [(grant, grant.record.verify(self.root, _covered_epoch(grant))) for grant in self.grants]


class EpochKeyCache:
    """The keys of the epochs used last, since each look checks the signature of every grant. When the keyring adopts a
    newer state, the cache forgets all."""

    def __init__(self, keyring: Keyring, epochs_max: int) -> None:
        self._keyring, self._epochs_max = keyring, epochs_max
        self._cached: dict[int, EpochKeys] = {}
        self._seen: tuple[object, object] = (None, None)

    def at(self, epoch: int) -> EpochKeys:
        """Raises as `Keyring.keys_at` does."""
        if self._seen[0] is not self._keyring.grants or self._seen[1] is not self._keyring.membership:
            self._cached.clear()
            self._seen = (self._keyring.grants, self._keyring.membership)
        if epoch not in self._cached:
            keys = self._keyring.keys_at(epoch)
            if len(self._cached) >= self._epochs_max:
                del self._cached[min(self._cached)]
            self._cached[epoch] = keys
        return self._cached[epoch]

    def forget_before(self, epoch: int) -> None:
        self._cached = {each: keys for each, keys in self._cached.items() if each >= epoch}


@lru_cache(maxsize=1024)
def check_publisher_chain(chain: CertificateChain, root: bytes, epoch: int) -> None:
    """Raise unless it certifies a publisher.

    Cached, since a publisher shows the same chain with every note of an epoch.
    """
    chain.verify(root, CertificateKind.PUBLISHER, epoch)


def _covered_epoch(grant: Grant) -> int:
    """An epoch that the record's delegation covers. The grant itself may begin before the delegation or be over."""
    delegation = grant.record.delegation
    return grant.first if delegation is None else min(max(grant.first, delegation.first), delegation.last)


def _topic_keys(grant: Grant, record: TopicRecord, epoch: int) -> TopicKeys:
    index = 0 if record.profile == "paper" else epoch - grant.first
    key = grant.keys[index]
    token = token_of(key, record.profile, record.topic, epoch)
    signing, certificate = None, None
    if grant.seed is not None:
        paper = record.profile == "paper"
        signing = SigningKey(grant.seed) if paper else derive_publisher_key(grant.seed, record.topic, epoch)
        leaf = build_publisher_certificate(signing.public, token, record, epoch, grant.signatures[index])
        certificate = CertificateChain(leaf, grant.record.delegation)
    return TopicKeys(record, grant.role, token, derive_content_key(key), signing, certificate)


SHOWN_TOPICS_MAX: Final = 8
NETWORK_KEY: Final = 32
GRANT_KEY: Final = 32
