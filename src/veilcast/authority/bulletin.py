"""Bulletins: signed notices that revoke members and bring new topic keys to the members that stay.

A bulletin is signed, numbered and public; members carry it to one another. It lists the keys that are void from epoch
`effective` on, and has entries for the members that stay. A member finds its entry by a tag that only this member and
the authority can compute, and all entries have one size. So nobody else learns which member an entry is for, or whether
it brings a bridge to new topic keys or a publisher's new signature.

Claim: a bulletin does not link a member's link key to the keys that the member publishes with, or to its role.
Assumption: the adversary has every bulletin, every link key with its address, and every publisher certificate.
Reason:

1. The void names are those of link keys and of sub-authorities. No publisher key is listed: its certificate is for a
   token that nobody uses after the bridge, so the subscribers that stay reject it without a list.
2. A revoked member leaves decoys (`BulletinWriter.add_decoys`), as many as it would have entries if it had stayed,
   until its grants would have ended. If it holds no grant, there are as many as for the members of some topic. So the
   number of entries does not depend on the role of the revoked member.
3. Random decoys then fill the entries up to a power of two, and the entries are in the order of their random tags.

An authority speaks only for what it granted itself: its bulletins change no grant and void no key of another authority.
The root can void the key of a sub-authority, and with it everything that the sub-authority certified.

Entry: tag (16) | seal of kind (1) and data (64).
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from veilcast.authority.keyring import Grant, Keyring
from veilcast.authority.struct_codec import decode_struct
from veilcast.authority.topic_keys import bridge_key
from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto.certificate import EPOCH_MAX, Certificate, signer_of
from veilcast.crypto.derive import FINGERPRINT, derive, fingerprint
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.errors import AuthorityError, ForgedError, MalformedError
from veilcast.machine import Entropy


class EntryKind(enum.IntEnum):
    """The content of an entry. Append only."""

    BRIDGE = 1
    SIGNATURE = 2
    ENDED = 3


class VoidKey(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A key that is void, by its fingerprint, and the last epoch of its certificate."""

    name: bytes
    last: int

    def __post_init__(self) -> None:
        if len(self.name) != FINGERPRINT or not 0 <= self.last <= EPOCH_MAX:
            raise MalformedError("not the name of a key")


class Bulletin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`signature` covers everything except the delegation, which has its own."""

    number: int
    effective: int
    void: tuple[VoidKey, ...]
    entries: bytes
    signature: bytes
    delegation: Certificate | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.number <= NUMBER_MAX or not 0 <= self.effective <= EPOCH_MAX:
            raise MalformedError("a bulletin's number or epoch is out of bounds")
        if len(self.void) > VOID_MAX or len(self.entries) % ENTRY or len(self.entries) > ENTRY * ENTRIES_MAX:
            raise MalformedError("a bulletin's lists are out of bounds")

    def verify(self, root: bytes, epoch: int) -> bytes:
        """Raise unless the root, or a delegate of it, signed this. Returns the public key of the signer."""
        signer = signer_of(root, self.delegation, epoch)
        body = _body(self.number, self.effective, self.void, self.entries)
        verify(signer, body, self.signature, purpose=_PURPOSE)
        return signer

    def read(self, wrap: Secret, topic: str, epoch: int) -> tuple[EntryKind, bytes] | None:
        """The entry for this member, topic and epoch (0 for the topic as a whole); None if there is none."""
        tag, key = _address(wrap, self.number, topic, epoch)
        start = _find(self.entries, tag)
        if start is None:
            return None
        plain = unseal(key, self.entries[start + TAG : start + ENTRY], context=tag)
        try:
            return EntryKind(plain[0]), plain[1:]
        except ValueError as error:
            raise ForgedError("a bulletin's entry is of no known kind") from error

    def voids(self, public: bytes) -> bool:
        name = fingerprint(public)
        return any(void.name == name for void in self.void)


def decode_bulletin(data: bytes) -> Bulletin:
    """Parse bytes of another node. The signature is still to be checked."""
    return decode_struct(data, Bulletin, MalformedError)


def apply_bulletin(keyring: Keyring, bulletin: Bulletin, epoch: int) -> Keyring:
    """The keyring after this bulletin. Each grant takes bulletins in order, and each of them once."""
    signer = bulletin.verify(keyring.root, epoch)
    if keyring.void.get(signer, epoch + 1) <= epoch:
        raise ForgedError("the root has ended the sub-authority that signed this")
    void = dict(keyring.void)
    grants = []
    for grant, record in keyring.records():
        issuer = grant.issuer(keyring.root)
        if issuer == signer:
            grants.append(_apply_to_grant(grant, record, bulletin, keyring.membership.certificate.leaf.subject))
        elif signer == keyring.root and bulletin.voids(issuer):
            void[issuer] = bulletin.effective
            grants.append(_end_grant(grant, record, bulletin.effective))
        else:
            grants.append(grant)
    return msgspec.structs.replace(keyring, grants=tuple(grants), void=void)


class BulletinWriter:
    """Collects the entries of one bulletin, then signs it."""

    def __init__(self, number: int, effective: int, entropy: Entropy) -> None:
        self.number, self.effective = number, effective
        self._entropy = entropy
        self._entries: dict[bytes, bytes] = {}

    def add(self, wrap: Secret, topic: str, epoch: int, kind: EntryKind, data: bytes) -> None:
        tag, key = _address(wrap, self.number, topic, epoch)
        plain = bytes((kind,)) + data.ljust(SIGNATURE, b"\0")
        self._entries[tag] = seal(key, plain, context=tag, entropy=self._entropy)

    def add_decoys(self, count: int) -> None:
        """Add entries that no member can find, and that look like all others."""
        for _ in range(count):
            self._entries[self._entropy(TAG)] = self._entropy(ENTRY - TAG)

    def sign(self, key: SigningKey, void: list[VoidKey], delegation: Certificate | None) -> Bulletin:
        if len(void) > VOID_MAX or len(self._entries) > ENTRIES_MAX:
            raise AuthorityError("too much for one bulletin; rotate topic by topic, or grant publishers fewer days")
        if self._entries:
            self.add_decoys(min(1 << (len(self._entries) - 1).bit_length(), ENTRIES_MAX) - len(self._entries))
        # Sorted by tag, which is as good as shuffled to everybody else, and lets a member search by halving.
        entries = b"".join(tag + self._entries[tag] for tag in sorted(self._entries))
        names = tuple(sorted(void, key=lambda entry: entry.name))
        signature = key.sign(_body(self.number, self.effective, names, entries), purpose=_PURPOSE)
        return Bulletin(self.number, self.effective, names, entries, signature, delegation)


def _apply_to_grant(grant: Grant, record: TopicRecord, bulletin: Bulletin, link: bytes) -> Grant:
    """A grant of the bulletin's own authority, after the bulletin."""
    if bulletin.number <= grant.bulletin:
        return grant
    if bulletin.number != grant.bulletin + 1:
        raise AuthorityError(f"bulletin {grant.bulletin + 1} is missing; apply it before number {bulletin.number}")
    entry = bulletin.read(grant.wrap, record.topic, 0)
    if bulletin.voids(link) or (entry is not None and entry[0] is EntryKind.ENDED):
        grant = _end_grant(grant, record, bulletin.effective)
    elif entry is not None:
        grant = _bridge_grant(grant, record, bulletin, Secret(entry[1][:32]))
    return msgspec.structs.replace(grant, bulletin=bulletin.number)


def _bridge_grant(grant: Grant, record: TopicRecord, bulletin: Bulletin, bridge: Secret) -> Grant:
    kept = max(0, bulletin.effective - grant.first)
    keys = grant.keys[:kept] + tuple(bridge_key(key, bridge) for key in grant.keys[kept:])
    signatures = list(grant.signatures[:kept])
    for epoch in range(grant.first + kept, grant.first + len(grant.signatures)):
        entry = bulletin.read(grant.wrap, record.topic, epoch)
        if entry is None or entry[0] is not EntryKind.SIGNATURE:
            raise ForgedError("the bulletin lacks a signature for a publisher that stays")
        signatures.append(entry[1])
    return msgspec.structs.replace(grant, keys=keys, signatures=tuple(signatures))


def _end_grant(grant: Grant, record: TopicRecord, effective: int) -> Grant:
    """The grant without anything from `effective` on. A `paper` key serves every epoch: only forgetting it ends it."""
    kept = 0 if record.profile == "paper" else max(0, effective - grant.first)
    return msgspec.structs.replace(grant, keys=grant.keys[:kept], signatures=grant.signatures[:kept])


def _address(wrap: Secret, number: int, topic: str, epoch: int) -> tuple[bytes, Secret]:
    parts = (number.to_bytes(8, "big"), topic.encode(), epoch.to_bytes(8, "big"))
    return derive(wrap, b"vc/entry-tag", *parts).reveal()[:TAG], derive(wrap, b"vc/entry-key", *parts)


def _find(entries: bytes, tag: bytes) -> int | None:
    low, high = 0, len(entries) // ENTRY
    while low < high:
        middle = (low + high) // 2
        found = entries[middle * ENTRY : middle * ENTRY + TAG]
        if found == tag:
            return middle * ENTRY
        low, high = (middle + 1, high) if found < tag else (low, middle)
    return None


def _body(number: int, effective: int, void: tuple[VoidKey, ...], entries: bytes) -> bytes:
    head = number.to_bytes(8, "big") + effective.to_bytes(8, "big") + len(void).to_bytes(8, "big")
    return head + b"".join(entry.name + entry.last.to_bytes(8, "big") for entry in void) + entries


TAG: Final = 16
ENTRY: Final = TAG + OVERHEAD + 1 + SIGNATURE
NUMBER_MAX: Final = 0xFFFF_FFFF
VOID_MAX: Final = 20_000
ENTRIES_MAX: Final = 140_000
"""Chosen so that a whole bulletin fits the parts that `wire` can carry; a test compares the two."""
_PURPOSE: Final = b"veilcast/bulletin"
