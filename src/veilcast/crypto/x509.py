"""Certificates that TLS understands: X.509 with Ed25519, the least of it that does the work.

A certificate here names a key by its fingerprint and nobody by a name; whoever connects to a host sees that host's, so
nothing in it says what we are. What its holder may do stands in the extended key usage: to call (client), to answer
(server), or both. So OpenSSL itself lets nobody answer who may only call. Or it is to say who stands and who does not
(what X.509 knows as signing for OCSP). What the choices mean for a role is decided elsewhere (`authority.tls`).

An issuer is named by its fingerprint, too, and the authority key identifier of what it issued is its public key, which
OpenSSL compares with that of the certificate it checks the signature by. Serial numbers are digests of the rest: the
same certificate is the same bytes, and no chance is needed.

What is signed is DER, which begins with the byte 0x30; everything else that `sign` signs begins with a word. So one key
may sign both.

With `_primitives`, the only file that calls a cryptographic library: what this needs of it is a format.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilcast.crypto.derive import FINGERPRINT, digest, fingerprint
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC, SigningKey
from veilcast.errors import ForgedError, MalformedError


class Leaf(msgspec.Struct, frozen=True):
    """What a certificate of a member or a host says: `name` has this key, by word of the key `issuer`.

    It stands from the second `first_s` to the end of the second `last_s` (Unix time).
    """

    name: bytes
    public: bytes
    issuer: bytes
    calls: bool
    answers: bool
    first_s: int
    last_s: int
    lists: bool = False


def certify_leaf(issuer: SigningKey, leaf: Leaf) -> bytes:
    """The certificate (DER) that says what `leaf` does."""
    uses = (
        [ExtendedKeyUsageOID.CLIENT_AUTH] * leaf.calls
        + [ExtendedKeyUsageOID.SERVER_AUTH] * leaf.answers
        + [ExtendedKeyUsageOID.OCSP_SIGNING] * leaf.lists
    )
    kind = bytes((leaf.calls, leaf.answers)) + b"\1" * leaf.lists
    builder = _builder(leaf.name, leaf.public, issuer.public, leaf.first_s, leaf.last_s, kind)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier(issuer.public, None, None), critical=False)
    )
    return _signed(builder, issuer)


def certify_root(root: SigningKey) -> bytes:
    """The root's certificate of itself. It stands for as long as X.509 can say."""
    return _signed(_issuing(root.public, root.public, 0, FOREVER_S, path_length=1), root)


def certify_delegate(root: SigningKey, public: bytes, first_s: int, last_s: int) -> bytes:
    """The certificate of an issuer below the root, who can make no further ones."""
    return _signed(_issuing(public, root.public, first_s, last_s, path_length=0), root)


def read_leaf(data: bytes) -> Leaf:
    """Parse a certificate as we make them; the signature is still to be checked."""
    try:
        certificate = x509.load_der_x509_certificate(data)
        (common,) = certificate.subject
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        name, public = bytes.fromhex(str(common.value)), _public_of(certificate)
        first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (ValueError, TypeError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise MalformedError("not a certificate of ours") from error
    if len(name) != FINGERPRINT or issuer is None or len(issuer) != PUBLIC:
        raise MalformedError("not a certificate of ours")
    calls, answers = ExtendedKeyUsageOID.CLIENT_AUTH in uses, ExtendedKeyUsageOID.SERVER_AUTH in uses
    lists = ExtendedKeyUsageOID.OCSP_SIGNING in uses
    return Leaf(name, public, issuer, calls, answers, int(first.timestamp()), int(last.timestamp()), lists)


def check_chain(chain: tuple[bytes, ...], root: bytes) -> None:
    """Raise `ForgedError` unless each certificate was issued by the holder of the next, and the last by `root`."""
    try:
        certificates = [x509.load_der_x509_certificate(data) for data in chain]
        for certificate, issuer in zip(certificates, [*certificates[1:], certificates[-1]], strict=True):
            certificate.verify_directly_issued_by(issuer)
        anchor = _public_of(certificates[-1])
    except (ValueError, TypeError, IndexError, InvalidSignature) as error:
        raise ForgedError("the certificates do not hold together") from error
    if anchor != root:
        raise ForgedError("the certificates are another authority's")


def as_pem(*certificates: bytes) -> bytes:
    return b"".join(x509.load_der_x509_certificate(data).public_bytes(Encoding.PEM) for data in certificates)


def key_as_pem(key: SigningKey) -> Secret:
    return Secret(_private(key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _issuing(public: bytes, issuer: bytes, first_s: int, last_s: int, *, path_length: int) -> x509.CertificateBuilder:
    builder = _builder(fingerprint(public), public, issuer, first_s, last_s, bytes((2, path_length)))
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier(issuer, None, None), critical=False)
    )


def _builder(
    name: bytes, public: bytes, issuer: bytes, first_s: int, last_s: int, kind: bytes
) -> x509.CertificateBuilder:
    first_s, last_s = min(first_s, FOREVER_S), min(last_s, FOREVER_S)
    told = kind + name + public + issuer + first_s.to_bytes(8, "big") + last_s.to_bytes(8, "big")
    serial = int.from_bytes(digest(told, purpose=b"vc/serial", size=16), "big") | 1
    return x509.CertificateBuilder(
        issuer_name=_named(fingerprint(issuer)),
        subject_name=_named(name),
        public_key=Ed25519PublicKey.from_public_bytes(public),
        serial_number=serial,
        not_valid_before=datetime.fromtimestamp(first_s, UTC),
        not_valid_after=datetime.fromtimestamp(last_s, UTC),
    )


def _named(name: bytes) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name.hex())])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, issuer: SigningKey) -> bytes:
    return builder.sign(_private(issuer), None).public_bytes(Encoding.DER)


def _private(key: SigningKey) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key.seed.reveal())


def _public_of(certificate: x509.Certificate) -> bytes:
    public = certificate.public_key()
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("another kind of key")
    return public.public_bytes_raw()


FOREVER_S: Final = 253_402_300_799
"""The end of the year 9999, which in X.509 means no end."""
