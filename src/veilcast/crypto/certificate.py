"""Certificates: which key may do what, in which epochs, by signature of the authority (P0 4.2, P1 2.1).

A certificate binds a public key to a kind and a scope. The scope of a publisher is a token, that of a member is the
public key of its lots (`vrf`), and that of a delegate is a group of topics (a sub-authority, P0 section 3). Forwarders
see publisher certificates, so these name no topic and no person. In `hardened` each of them is for one epoch and one
fresh key, so that none becomes a publisher's pseudonym. A `paper` certificate covers every epoch.

In `hardened` a publisher's certificate also tells forwarders what keeps a topic's covers and root from epoch to epoch:
its lineage, a random name that outlives tokens, and the share of other members that act as subscribers. Forwarders of a
topic's adverts can therefore link the topic's epochs (never its publishers, nor its name). In exchange the tree is not
formed again in every epoch, which would show insiders far more.

A sub-authority's certificates come with its own delegation from the root. A chain has at most two links. A delegation
names its group of topics by a digest: forwarders check the chain, and members that know the topic also check that it
belongs to the group (`group`).
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
    """The powers of a certified key. Append only: the numbers are on the wire."""

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

    `lineage` and `cover` describe a topic. They are zero in all but publishers' certificates, and in `paper` in these
    too.
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
        """Raise unless `issuer` signed this certificate, for this kind, and it covers `epoch`."""
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
    """A certificate, and the delegation of its issuer if the issuer is not the root."""

    leaf: Certificate
    delegation: Certificate | None = None

    def verify(self, root: bytes, kind: CertificateKind, epoch: int) -> None:
        """Raise unless the root or a delegate of the root certified the leaf for this kind, and both certificates cover
        `epoch`.

        Only the root makes delegates.
        """
        if kind is CertificateKind.DELEGATE and self.delegation is not None:
            raise ForgedError("a sub-authority cannot delegate further")
        self.leaf.verify(signer_of(root, self.delegation, epoch), kind, epoch)

    @property
    def group(self) -> bytes:
        """The digest of the group of topics that the issuer may certify for; the root's is `EVERY_TOPIC`."""
        return self.delegation.scope if self.delegation is not None else EVERY_TOPIC


def signer_of(root: bytes, delegation: Certificate | None, epoch: int) -> bytes:
    """The key whose signature counts: the root, or its delegate. Raises unless the delegation covers `epoch`."""
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
    """The signed bytes. All fields have fixed sizes, so no two certificates share a body."""
    epochs = first.to_bytes(4, "big") + last.to_bytes(4, "big")
    return b"".join((bytes((_VERSION, kind)), subject, scope, epochs, lineage, cover.to_bytes(2, "big")))


EPOCH_MAX: Final = (1 << 32) - 1
EVERY_TOPIC: Final = bytes(32)
_VERSION: Final = 2
_PURPOSE: Final = b"veilcast/certificate"
