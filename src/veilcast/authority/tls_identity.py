"""Members and hosts on TLS streams: what the authority certifies for them, and how they judge one another by it.

A membership on TLS is an X.509 certificate beside that of the link key. Its key is an Ed25519 key derived from the link
key; its name is the link key's fingerprint, by which bulletins void a member. So it ends when the membership ends, is
revoked when the membership is, and adds nothing to store or to distribute.

The certificate also states its holder's role. A member may only call, a server only answer, a proxy both. A directory
uses no TLS stream, and signs lists. A broker calls and answers brokers, and answers members. X.509 has three uses for
these, and each role has its own choice of them, by which it is known. A broker's certificate has all three, and lists
are accepted from directories alone.

Claim: no member can pose as a proxy, a server or a broker to a caller, nor as a proxy to the server, nor sign a list.
No broker can pose as a proxy, nor a proxy as a broker.
Reason: every peer reads the role from the certificate, and accepts only the roles that it expects.

Only the root appoints hosts. A host serves the whole network, and a sub-authority speaks for one group of topics: its
certificates are for members (`role_of_certificate`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import Certificates, TlsRole, derive_tls_key
from veilcast.crypto.certificate import Certificate
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.key_agreement import public_of
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.crypto.x509 import (
    CertificatePath,
    Leaf,
    as_pem,
    certify_delegate,
    certify_leaf,
    certify_root,
    check_chain,
    key_as_pem,
    read_leaf,
)
from veilcast.errors import AuthorityError, ForgedError, MalformedError, StaleError
from veilcast.machine import Address


def make_root_certificates(root: SigningKey) -> Certificates:
    return (certify_root(root),)


def make_delegate_certificates(root: SigningKey, public: bytes, first: int, last: int, epoch_us: int) -> Certificates:
    """The certificates of a sub-authority with this key, for these epochs."""
    return (certify_delegate(root, public, *_seconds(first, last, epoch_us)), *make_root_certificates(root))


def issue_tls_certificates(
    issuer: SigningKey,
    issuers: Certificates,
    membership: Certificate,
    public: bytes,
    role: TlsRole,
    epoch_us: int,
) -> Certificates:
    """The certificates of a member's TLS key, for as long as its membership."""
    calls, answers, lists = _USES[role]
    first_s, last_s = _seconds(membership.first, membership.last, epoch_us)
    leaf = Leaf(fingerprint(membership.subject), public, issuer.public, calls, answers, first_s, last_s, lists)
    return (certify_leaf(issuer, leaf), *issuers)


def check_issued(certificates: Certificates, link: Secret, root: bytes) -> None:
    """Raise `ForgedError` unless this authority gave them to the holder of this link key."""
    leaf = check_chain(certificates, root).leaf
    if (leaf.name, leaf.public) != (fingerprint(public_of(link)), derive_tls_key(link).public):
        raise ForgedError("the TLS certificate is another's")


def role_of_keyring(keyring: Keyring) -> TlsRole | None:
    """The role of the keyring's holder; None if it has no certificate for TLS."""
    certificates = keyring.membership.tls
    return role_of_certificate(read_leaf(certificates[0]), keyring.root) if certificates else None


def role_of_certificate(leaf: Leaf, root: bytes) -> TlsRole:
    """The role that a certificate is for. Raises `ForgedError` if a sub-authority of this root appointed a host."""
    for role, uses in _USES.items():
        if uses == (leaf.calls, leaf.answers, leaf.lists):
            if role != "member" and leaf.issuer != root:
                raise ForgedError(f"a sub-authority appointed this {role}; only the root may: ask it for a grant")
            return role
    raise MalformedError("a TLS certificate for no role of ours")


def check_path(path: CertificatePath, keyring: Keyring, revoked: RevokedKeys | None, now: int) -> None:
    """Raise a `RemoteError` if a certificate of the path is not valid now, or its leaf or delegate has been revoked."""
    if not path.is_valid_at(now // 1_000_000):
        raise StaleError("a certificate of its chain is not for this time")
    check_leaf(path.leaf, keyring, revoked, now)


def check_leaf(leaf: Leaf, keyring: Keyring, revoked: RevokedKeys | None, now: int) -> None:
    """Raise a `RemoteError` if the certificate is not valid now, or is revoked as far as this keyring's holder
    knows.
    """
    if not leaf.first_s <= now // 1_000_000 <= leaf.last_s:
        raise StaleError("its certificate is not for this time")
    epoch = epoch_of(now, keyring.epoch_us)
    if keyring.void.get(leaf.issuer, epoch + 1) <= epoch:
        raise ForgedError("the root has ended the sub-authority that certified it")
    if revoked is not None:
        revoked.check_key(leaf.issuer, leaf.name, epoch)


class TlsIdentity:
    """The identity of this member or host on TLS, and its judgement of others. One serves all streams."""

    def __init__(self, keyring: Keyring, revoked: RevokedKeys | None = None) -> None:
        certificates = keyring.membership.tls
        if not certificates:
            raise AuthorityError("this keyring has no TLS certificate; ask the authority for a new grant")
        own = read_leaf(certificates[0])
        self._keyring, self._revoked, self._name = keyring, revoked, _name_in(own, keyring.root)
        self.role: Final = role_of_certificate(own, keyring.root)
        self.chain: Final = as_pem(*certificates[:-1])
        self.anchor: Final = as_pem(certificates[-1])
        self.key: Final = key_as_pem(derive_tls_key(keyring.membership.link))
        callers, hosts = _MEETS[self.role]
        self.callers: Final = self.make_judge(*callers)
        """Judges the peers that call this role."""
        self.hosts: Final = self.make_judge(*hosts)
        """Judges the hosts that this role calls."""

    def make_judge(self, *admitted: TlsRole) -> Callable[[bytes], CertifiedPeer]:
        """A function that names the holder of a certificate of ours (DER), and rejects all but these roles."""

        def judged(certificate: bytes) -> CertifiedPeer:
            leaf = read_leaf(certificate)
            role = role_of_certificate(leaf, self._keyring.root)
            if role not in admitted:
                raise ForgedError("its certificate is for another role")
            name = _name_in(leaf, self._keyring.root)
            if name == self._name:
                raise ForgedError("it shows our own certificate")
            return CertifiedPeer(Address(f"{role}:{name.hex()}"), leaf, self._check)

        return judged

    def _check(self, leaf: Leaf, now: int) -> None:
        check_leaf(leaf, self._keyring, self._revoked, now)


class CertifiedPeer:
    """A peer that has shown a certificate. Its name is the same whenever it connects."""

    __slots__ = ("_check", "_leaf", "name")

    def __init__(self, name: Address, leaf: Leaf, check: Callable[[Leaf, int], None]) -> None:
        self.name: Final = name
        self._leaf, self._check = leaf, check

    def check(self, now: int) -> None:
        """Raise a `RemoteError` if the certificate has expired or is revoked."""
        self._check(self._leaf, now)


def _name_in(leaf: Leaf, root: bytes) -> bytes:
    """The name of a certificate's holder. A sub-authority cannot give a member the name of another issuer's member."""
    return leaf.name if leaf.issuer == root else fingerprint(leaf.issuer + leaf.name)


def _seconds(first: int, last: int, epoch_us: int) -> tuple[int, int]:
    """The seconds from the beginning of one epoch to the end of another."""
    return first * epoch_us // 1_000_000, ((last + 1) * epoch_us - 1) // 1_000_000


_USES: Final[dict[TlsRole, tuple[bool, bool, bool]]] = {
    "member": (True, False, False),
    "proxy": (True, True, False),
    "server": (False, True, False),
    "directory": (False, False, True),
    "broker": (True, True, True),
}
"""Whether a role calls, whether it answers, and whether it signs lists. No two roles are alike, so each is known by its
uses. Lists are accepted from directories alone.
"""
_MEETS: Final[dict[TlsRole, tuple[tuple[TlsRole, ...], tuple[TlsRole, ...]]]] = {
    "member": ((), ("proxy",)),
    "proxy": (("member",), ("server",)),
    "server": (("proxy",), ()),
    "directory": ((), ()),
    "broker": (("member", "broker"), ("broker",)),
}
"""The roles that may call this role, and the roles that it calls. A member's are those of a relay. Where a member uses
brokers, it makes its own judge (`make_judge`), so that neither can stand in for the other.
"""
