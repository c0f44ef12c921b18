"""Certificates: who may do what, in which epochs, by word of the authority (P0 4.2, P1 2.1).

A certificate binds a public key to a kind and a scope: a publisher's to a token, a member's to the public key of its
lots (`lottery`), a delegate's to a group of topics (a sub-authority, P0 section 3). Forwarders see publisher
certificates, so these name no topic and no person; in `hardened` each is for one epoch and one fresh key, so that none
becomes a publisher's pseudonym. In `paper` one covers every epoch.

In `hardened` a publisher's certificate also says what forwarders must know to keep a topic's covers and root from epoch
to epoch: its lineage, a random name that outlives tokens, and the share of others that are to act as subscribers. So a
topic's epochs can be linked by those who carry its adverts (never its publishers, nor its name); in exchange the tree
need not form anew in every epoch, which would show insiders far more.

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

LINEAGE: Final = 16
NO_LINEAGE: Final = bytes(LINEAGE)
COVER_MAX: Final = 1000


class CertificateKind(enum.IntEnum):
    """What the certified key may do. Append only: the numbers are on the wire."""

    MEMBER = 1
    PUBLISHER = 2
    DELEGATE = 3


Key = Annotated[bytes, msgspec.Meta(min_length=PUBLIC, max_length=PUBLIC)]
Scope = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Lineage = Annotated[bytes, msgspec.Meta(min_length=LINEAGE, max_length=LINEAGE)]
Cover = Annotated[int, msgspec.Meta(ge=0, le=COVER_MAX)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE, max_length=SIGNATURE)]


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`signature` is the issuer's, over everything else. `cover` is a share in thousandths.

    `lineage` and `cover` are a topic's: zeros in all but publishers' certificates, and in `paper` in these too.
    """

    kind: CertificateKind
    subject: Key
    scope: Scope
    first: Epoch
    last: Epoch
    lineage: Lineage
    cover: Cover
    signature: Signature

    def __post_init__(self) -> None:
        if len(self.subject) != PUBLIC or len(self.scope) != 32 or len(self.signature) != SIGNATURE:
            raise MalformedError("a certificate's field has the wrong size")
        if len(self.lineage) != LINEAGE or not 0 <= self.cover <= COVER_MAX:
            raise MalformedError("a certificate's lineage or cover is out of bounds")
        if self.kind is not CertificateKind.PUBLISHER and (self.lineage, self.cover) != (NO_LINEAGE, 0):
            raise MalformedError("only a publisher's certificate has a lineage and a cover")
        if not 0 <= self.first <= self.last <= EPOCH_MAX:
            raise MalformedError("a certificate's epochs are out of order")

    def verify(self, issuer: bytes, kind: CertificateKind, epoch: int) -> None:
        """Raise unless `issuer` gave this certificate, for this kind, and `epoch` lies in it."""
        if self.kind is not kind:
            raise ForgedError("the certificate is of another kind")
        verify(
            issuer,
            _body(self.kind, self.subject, self.scope, self.first, self.last, self.lineage, self.cover),
            self.signature,
            purpose=_PURPOSE,
        )
        if not self.first <= epoch <= self.last:
            raise StaleError("the certificate is not for this epoch")


class CertificateChain(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A certificate, and the delegation behind its issuer where that is not the root itself."""

    leaf: Certificate
    delegation: Certificate | None = None

    def verify(self, root: bytes, kind: CertificateKind, epoch: int) -> None:
        """Raise unless the root, or a delegate of it, gave the leaf for this kind, and all stands in `epoch`.

        The root alone makes delegates.
        """
        if kind is CertificateKind.DELEGATE and self.delegation is not None:
            raise ForgedError("a sub-authority cannot delegate further")
        self.leaf.verify(signer_of(root, self.delegation, epoch), kind, epoch)

    @property
    def group(self) -> bytes:
        """The digest of the group of topics its issuer may speak for; the root's is `EVERY_TOPIC`."""
        return self.delegation.scope if self.delegation is not None else EVERY_TOPIC


def signer_of(root: bytes, delegation: Certificate | None, epoch: int) -> bytes:
    """Whose signature counts: the root's, or that of the delegate it named, if the delegation stands in `epoch`."""
    if delegation is None:
        return root
    delegation.verify(root, CertificateKind.DELEGATE, epoch)
    return delegation.subject


def certify(
    issuer: SigningKey,
    kind: CertificateKind,
    subject: bytes,
    scope: bytes,
    first: int,
    last: int,
    lineage: bytes = NO_LINEAGE,
    cover: int = 0,
) -> Certificate:
    signature = issuer.sign(_body(kind, subject, scope, first, last, lineage, cover), purpose=_PURPOSE)
    return Certificate(kind, subject, scope, first, last, lineage, cover, signature)


def _body(
    kind: CertificateKind, subject: bytes, scope: bytes, first: int, last: int, lineage: bytes, cover: int
) -> bytes:
    """Fixed sizes throughout, so no two certificates share a body."""
    epochs = first.to_bytes(4, "big") + last.to_bytes(4, "big")
    return b"".join((bytes((_VERSION, kind)), subject, scope, epochs, lineage, cover.to_bytes(2, "big")))


EPOCH_MAX: Final = (1 << 32) - 1
EVERY_TOPIC: Final = bytes(32)
_VERSION: Final = 2
_PURPOSE: Final = b"veilcast/certificate"
