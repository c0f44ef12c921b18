"""Bulletins: how a revocation reaches those who stay, without the authority being met again.

A bulletin is signed, numbered and public; members carry it to one another. It lists fingerprints of the keys that are
void from epoch `effective` on, and entries for those who stay. An entry is found by a tag that only its member and the
authority can compute, and all entries have one size, so nobody else learns whom it is for, or whether it brings a
bridge to new topic keys or a publisher's new signature. What does show is how many entries there are.

Entry: tag (16) | seal of kind (1) and data (64).
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from veilcast.authority.keyring import Grant, Keyring
from veilcast.authority.plain import to_bytes
from veilcast.authority.record import TopicRecord
from veilcast.authority.topickeys import bridged
from veilcast.crypto.certificate import Certificate, Chain, signer_of
from veilcast.crypto.derive import derive, fingerprint
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.errors import AuthorityError, ForgedError, LocalError, MalformedError
from veilcast.machine import Entropy


class Entry(enum.IntEnum):
    """What an entry brings. Append only."""

    BRIDGE = 1
    SIGNATURE = 2
    ENDED = 3


class Bulletin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`signature` is over everything else but the delegation, which has its own."""

    number: int
    effective: int
    revoked: tuple[bytes, ...]
    entries: bytes
    signature: bytes
    delegation: Certificate | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.number < 1 << 32 or not 0 <= self.effective < 1 << 32:
            raise MalformedError("a bulletin's number or epoch is out of bounds")
        if len(self.revoked) > REVOKED_MAX or any(len(name) != FINGERPRINT for name in self.revoked):
            raise MalformedError("a bulletin's list of revoked keys is out of bounds")
        if len(self.entries) % ENTRY or len(self.entries) > ENTRY * ENTRIES_MAX:
            raise MalformedError("a bulletin's entries are out of bounds")

    def verify(self, root: bytes, epoch: int) -> bytes:
        """Raise unless the root, or a delegate of it, signed this; say which of them by its public key."""
        signer = signer_of(root, self.delegation, epoch)
        verify(
            signer, _signed(self.number, self.effective, self.revoked, self.entries), self.signature, purpose=_PURPOSE
        )
        return signer

    def read(self, wrap: Secret, topic: str, epoch: int) -> tuple[Entry, bytes] | None:
        """The entry for this member, topic and epoch (0 for the topic as a whole), if there is one."""
        tag, key = _address(wrap, self.number, topic, epoch)
        start = _find(self.entries, tag)
        if start is None:
            return None
        plain = unseal(key, self.entries[start + TAG : start + ENTRY], context=tag)
        return Entry(plain[0]), plain[1:]


def apply(keyring: Keyring, bulletin: Bulletin, epoch: int) -> Keyring:
    """The keyring as it is after the bulletin. Bulletins are applied in order; one applied before changes nothing.

    Only grants of the authority that signed it can change: a sub-authority has no say over the topics of others.
    """
    signer = bulletin.verify(keyring.root, epoch)
    applied = keyring.bulletins.get(signer, 0)
    if bulletin.number <= applied:
        return keyring
    if bulletin.number != applied + 1:
        raise AuthorityError(f"bulletin {applied + 1} is missing; apply it before number {bulletin.number}")
    out = fingerprint(keyring.membership.certificate.leaf.subject) in bulletin.revoked
    grants = tuple(
        grant
        if grant.issuer(keyring.root) != signer
        else _ended(grant, record, bulletin.effective)
        if out
        else _renewed(grant, record, bulletin)
        for grant, record in keyring.records()
    )
    return msgspec.structs.replace(keyring, grants=grants, bulletins={**keyring.bulletins, signer: bulletin.number})


class Revoked:
    """The void keys a node knows of: what a forwarder checks certificates against. Bounded; the oldest go first."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise LocalError("a list of revoked keys has room for at least one")
        self._since: dict[bytes, int] = {}
        self._limit = limit

    def add(self, bulletin: Bulletin) -> None:
        for name in bulletin.revoked:
            self._since.setdefault(name, bulletin.effective)
        while len(self._since) > self._limit:
            del self._since[next(iter(self._since))]

    def check(self, chain: Chain, epoch: int) -> None:
        """Raise `ForgedError` if the certified key, or the delegate's that certified it, is void in this epoch."""
        for certificate in (chain.leaf, chain.delegation):
            if certificate is not None and epoch >= self._since.get(fingerprint(certificate.subject), epoch + 1):
                raise ForgedError("the key has been revoked")


class BulletinWriter:
    """Collects the entries of one bulletin, then signs it."""

    def __init__(self, number: int, effective: int, entropy: Entropy) -> None:
        self.number, self.effective = number, effective
        self._entropy = entropy
        self._entries: dict[bytes, bytes] = {}

    def add(self, wrap: Secret, topic: str, epoch: int, kind: Entry, data: bytes) -> None:
        tag, key = _address(wrap, self.number, topic, epoch)
        plain = bytes((kind,)) + data.ljust(SIGNATURE, b"\0")
        self._entries[tag] = seal(key, plain, context=tag, entropy=self._entropy)

    def sign(self, key: SigningKey, revoked: list[bytes], delegation: Certificate | None) -> Bulletin:
        # Sorted by tag, which is as good as shuffled to everybody else, and lets a member search by halving.
        entries = b"".join(tag + self._entries[tag] for tag in sorted(self._entries))
        names = tuple(sorted(revoked))
        signature = key.sign(_signed(self.number, self.effective, names, entries), purpose=_PURPOSE)
        return Bulletin(self.number, self.effective, names, entries, signature, delegation)


def encode(bulletin: Bulletin) -> bytes:
    return to_bytes(bulletin)


def decode(data: bytes) -> Bulletin:
    """Parse what somebody brought; `MalformedError` for anything else. The signature is still to be checked."""
    try:
        return msgspec.msgpack.decode(data, type=Bulletin)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError("not a bulletin") from error


def _renewed(grant: Grant, record: TopicRecord, bulletin: Bulletin) -> Grant:
    entry = bulletin.read(grant.wrap, record.topic, 0)
    if entry is None:
        return grant
    kind, data = entry
    if kind is not Entry.BRIDGE:
        return _ended(grant, record, bulletin.effective)
    bridge = Secret(data[:32])
    kept = max(0, bulletin.effective - grant.first)
    keys = grant.keys[:kept] + tuple(bridged(key, bridge) for key in grant.keys[kept:])
    signatures = grant.signatures[:kept]
    for epoch in range(grant.first + kept, grant.first + len(grant.signatures)):
        signature = bulletin.read(grant.wrap, record.topic, epoch)
        if signature is None:
            raise ForgedError("the bulletin lacks a signature for a publisher that stays")
        signatures += (signature[1],)
    return msgspec.structs.replace(grant, keys=keys, signatures=signatures)


def _ended(grant: Grant, record: TopicRecord, effective: int) -> Grant:
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


def _signed(number: int, effective: int, revoked: tuple[bytes, ...], entries: bytes) -> bytes:
    head = number.to_bytes(8, "big") + effective.to_bytes(8, "big") + len(revoked).to_bytes(8, "big")
    return head + b"".join(revoked) + entries


TAG: Final = 16
FINGERPRINT: Final = 16
ENTRY: Final = TAG + OVERHEAD + 1 + SIGNATURE
REVOKED_MAX: Final = 100_000
ENTRIES_MAX: Final = 500_000
_PURPOSE: Final = b"veilcast/bulletin"
