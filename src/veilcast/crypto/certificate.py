"""Certificates: who may do what, in which epochs, by word of the authority (P0 4.2, P1 2.1).

A certificate binds a public key to a kind and a scope: a publisher's to a token, a member's to nothing more, a
delegate's to a group of topics (a sub-authority, P0 section 3). Forwarders see publisher certificates, so these name no
topic and no person; in `hardened` each is for one epoch and one fresh key, so that none becomes a pseudonym. In `paper`
one covers every epoch.

A sub-authority's certificates come with its own delegation from the root; chains are two links long at most. A
delegation names its group of topics as a digest: forwarders check the chain, but only those who know the topic can
check that it belongs to the group, and they do (`group`).
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from veilcast.crypto.sign import PUBLIC, SIGNATURE, SigningKey, verify
from veilcast.errors import ForgedError, MalformedError, StaleError


class Kind(enum.IntEnum):
    """What the certified key may do. Append only: the numbers are on the wire."""

    MEMBER = 1
    PUBLISHER = 2
    DELEGATE = 3


Key = Annotated[bytes, msgspec.Meta(min_length=PUBLIC, max_length=PUBLIC)]
Scope = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`signature` is the issuer's, over everything else."""

    kind: Kind
    subject: Key
    scope: Scope
    first: Epoch
    last: Epoch
    signature: Signature

    def __post_init__(self) -> None:
        if len(self.subject) != PUBLIC or len(self.scope) != 32 or len(self.signature) != SIGNATURE:
            raise MalformedError("a certificate's field has the wrong size")
        if not 0 <= self.first <= self.last <= EPOCH_MAX:
            raise MalformedError("a certificate's epochs are out of order")

    def verify(self, issuer: bytes, kind: Kind, epoch: int) -> None:
        """Raise unless `issuer` gave this certificate, for this kind, and `epoch` lies in it."""
        if self.kind is not kind:
            raise ForgedError("the certificate is of another kind")
        verify(
            issuer,
            _body(self.kind, self.subject, self.scope, self.first, self.last),
            self.signature,
            purpose=_PURPOSE,
        )
        if not self.first <= epoch <= self.last:
            raise StaleError("the certificate is not for this epoch")


class Chain(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A certificate, and the delegation behind its issuer where that is not the root itself."""

    leaf: Certificate
    delegation: Certificate | None = None

    def verify(self, root: bytes, kind: Kind, epoch: int) -> None:
        """Raise unless the root, or a delegate of it, gave the leaf for this kind, and all stands in `epoch`."""
        self.leaf.verify(signer_of(root, self.delegation, epoch), kind, epoch)

    @property
    def group(self) -> bytes:
        """The digest of the group of topics its issuer may speak for; the root's is `EVERY_TOPIC`."""
        return self.delegation.scope if self.delegation is not None else EVERY_TOPIC


def signer_of(root: bytes, delegation: Certificate | None, epoch: int) -> bytes:
    """Whose signature counts: the root's, or that of the delegate it named, if the delegation stands in `epoch`."""
    if delegation is None:
        return root
    delegation.verify(root, Kind.DELEGATE, epoch)
    return delegation.subject


def certify(issuer: SigningKey, kind: Kind, subject: bytes, scope: bytes, first: int, last: int) -> Certificate:
    signature = issuer.sign(_body(kind, subject, scope, first, last), purpose=_PURPOSE)
    return Certificate(kind, subject, scope, first, last, signature)


def _body(kind: Kind, subject: bytes, scope: bytes, first: int, last: int) -> bytes:
    """Fixed sizes throughout, so no two certificates share a body."""
    return b"".join((bytes((_VERSION, kind)), subject, scope, first.to_bytes(4, "big"), last.to_bytes(4, "big")))


EPOCH_MAX: Final = (1 << 32) - 1
EVERY_TOPIC: Final = bytes(32)
NO_SCOPE: Final = bytes(32)
_VERSION: Final = 1
_PURPOSE: Final = b"veilcast/certificate"
