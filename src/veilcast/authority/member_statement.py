"""Statements: what a member or a host signs under its name, so that all who know the authority can tell its author.

An author signs with its TLS key, and attaches the certificates of that key, all but the root's. The chain is a leaf and
at most one delegate below the root (`crypto.x509.check_chain`); a member's certificate issues nothing. Dates and
revocations of all of them are checked at each use.

1. So a statement is bound to a membership and to a role, ends when these end, and is void when a bulletin voids them.
   There is no further key to make, to certify or to revoke.
2. TLS signs bytes that begin with spaces, and `sign` signs bytes that begin with a word. So neither signature can be
   shown as the other.

A reader of a statement learns its author's name among members. Statements are for lists of members, not for
publications.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import Certificates, TlsRole, derive_tls_key
from veilcast.authority.tls_identity import check_path, role_of_certificate
from veilcast.crypto.sign import verify
from veilcast.crypto.x509 import CertificatePath, Leaf, check_chain
from veilcast.errors import AuthorityError, ForgedError


class StatementSignature(NamedTuple):
    """The signature of a statement and the author's certificates, its own first."""

    certificates: Certificates
    signature: bytes


def sign_statement(keyring: Keyring, body: bytes, *, purpose: bytes) -> StatementSignature:
    """Sign this as the holder of the keyring."""
    *certificates, _ = _certificates_of(keyring)
    return StatementSignature(tuple(certificates), derive_tls_key(keyring.membership.link).sign(body, purpose=purpose))


class StatementReader:
    """Verifies statements as the holder of this keyring, who knows of these revocations."""

    def __init__(self, keyring: Keyring, revoked: RevokedKeys | None = None) -> None:
        *_, self._anchor = _certificates_of(keyring)
        self._keyring, self._revoked = keyring, revoked

    def verify_author(
        self, body: bytes, signed: StatementSignature, role: TlsRole, now: int, *, purpose: bytes
    ) -> Leaf:
        """The author's certificate. Raises `RemoteError` unless the author has this role and is valid now.

        A sub-authority decides which name it certifies: only together with the issuer does the name identify the
        author.
        """
        path = _verify_chain((*signed.certificates, self._anchor), self._keyring.root)
        if role_of_certificate(path.leaf, self._keyring.root) != role:
            raise ForgedError("its author stands in another role")
        check_path(path, self._keyring, self._revoked, now)
        verify(path.leaf.public, body, signed.signature, purpose=purpose)
        return path.leaf


@lru_cache(maxsize=4096)
def _verify_chain(chain: Certificates, root: bytes) -> CertificatePath:
    """The checked chain.

    Cached, since authors repeat their certificates. It checks form and signatures alone, which do not depend on the
    time.
    """
    return check_chain(chain, root)


def _certificates_of(keyring: Keyring) -> Certificates:
    if not keyring.membership.tls:
        raise AuthorityError("this keyring has no key to sign statements with; ask the authority for a new grant")
    return keyring.membership.tls
