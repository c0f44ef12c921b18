"""X.509 certificates with Ed25519, as far as TLS needs them.

A certificate names a key by its fingerprint, and nobody by a name. A client that connects to a host sees the host's
certificate, so nothing in it says that the host is ours. The extended key usage says what its holder may do: call
(client), answer (server), or both; so OpenSSL itself lets nobody answer who may only call. A third usage (OCSP signing
in X.509) allows its holder to sign lists of members. `authority.tls_identity` decides what these choices mean for a
role.

An issuer is named by its fingerprint, too. The authority key identifier of a certificate is the issuer's public key,
which OpenSSL compares with that of the certificate it checks the signature by. Serial numbers are digests of the rest,
so the same certificate is the same bytes, and no randomness is needed. Verifiers rely on that: a certificate counts
only if the issuer writes the same bytes for the same content (`check_chain`). That is stricter than RFC 5280, section
6, and leaves nothing of X.509 to interpret.

The signed bytes are DER, which begins with the byte 0x30. Everything else that `sign` signs begins with a word. So one
key may sign both.

Only this file and `_primitives` call a cryptographic library: this one needs its format.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from veilcast.crypto.sign import PUBLIC, SEED, SIGNATURE, SigningKey
from veilcast.errors import ForgedError, MalformedError


class Leaf(msgspec.Struct, frozen=True):
    """The content of a member's or host's certificate: `name` has this key, by signature of the key `issuer`.

    It is valid from the second `first_s` to the end of the second `last_s` (Unix time).
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
    """The certificate (DER) with the content of `leaf`, whose issuer is this issuer's key."""
    return _sign_certificate(_leaf_builder(msgspec.structs.replace(leaf, issuer=issuer.public)), issuer)


def certify_root(root: SigningKey) -> bytes:
    """The root's certificate of itself. It is valid for as long as X.509 can say."""
    return _sign_certificate(_root_builder(root.public), root)


def certify_delegate(root: SigningKey, public: bytes, first_s: int, last_s: int) -> bytes:
    """The certificate of an issuer below the root, which can make no further issuers."""
    return _sign_certificate(_delegate_builder(Delegate(public, first_s, last_s), root.public), root)


def read_leaf(data: bytes) -> Leaf:
    """Parse the certificate of a member or host. The caller still has to check its signature (`check_chain`, or TLS).

    Raises `MalformedError` unless `certify_leaf` writes exactly these bytes, apart from the signature.
    """
    certificate = _load(data)
    with _map_errors():
        (common,) = certificate.subject
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        calls, answers = ExtendedKeyUsageOID.CLIENT_AUTH in uses, ExtendedKeyUsageOID.SERVER_AUTH in uses
        lists = ExtendedKeyUsageOID.OCSP_SIGNING in uses
        name, first_s, last_s = bytes.fromhex(str(common.value)), *_dates(certificate)
        leaf = Leaf(name, _public_of(certificate), issuer or b"", calls, answers, first_s, last_s, lists)
        if len(leaf.name) != FINGERPRINT or len(leaf.issuer) != PUBLIC:
            raise MalformedError("a certificate's name or issuer has the wrong size")
        expected = _leaf_builder(leaf)
    _check_form(data, expected)
    return leaf


class Delegate(msgspec.Struct, frozen=True):
    """An issuer below the root: its key, and the seconds in which its certificate is valid."""

    public: bytes
    first_s: int
    last_s: int


class CertificatePath(msgspec.Struct, frozen=True):
    """A chain whose form and signatures hold. Dates and revocations depend on the time: check them at each use."""

    leaf: Leaf
    delegate: Delegate | None

    def is_valid_at(self, second: int) -> bool:
        """True if this second (Unix time) lies in the validity period of every certificate of the path."""
        delegate = self.delegate
        return self.leaf.first_s <= second <= self.leaf.last_s and (
            delegate is None or delegate.first_s <= second <= delegate.last_s
        )


def check_chain(chain: tuple[bytes, ...], root: bytes) -> CertificatePath:
    """Raise `ForgedError` unless the chain is leaf and root, or leaf, delegate and root, and every signature holds.

    1. The position of a certificate decides its form: a leaf comes first, a delegate may follow, the root comes last.
    2. A certificate has that form only if the issuer writes exactly the same bytes for it (`_check_form`). A leaf is
       never a delegate: `basicConstraints`, key usage, path length and every other extension are part of these bytes.
    3. Each signature is checked with the key of the next certificate, and that of the last two with `root` itself.
    """
    try:
        if len(chain) not in (2, 3):
            raise ForgedError("a chain has a leaf, at most one delegate, and the root")
        leaf = read_leaf(chain[0])
        delegate = _read_delegate(chain[1], root) if len(chain) == 3 else None
        _check_form(chain[-1], _root_builder(root))
        _check_signature(chain[-1], root)
        if delegate is not None:
            _check_signature(chain[1], root)
        issuer = root if delegate is None else delegate.public
        if leaf.issuer != issuer:
            raise ForgedError("the certificate names another issuer")
        _check_signature(chain[0], issuer)
    except MalformedError as error:
        raise ForgedError("the certificates do not hold together") from error
    return CertificatePath(leaf, delegate)


def as_pem(*certificates: bytes) -> bytes:
    return b"".join(_load(data).public_bytes(Encoding.PEM) for data in certificates)


def key_as_pem(key: SigningKey) -> Secret:
    return Secret(_private(key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _leaf_builder(leaf: Leaf) -> x509.CertificateBuilder:
    uses = (
        [ExtendedKeyUsageOID.CLIENT_AUTH] * leaf.calls
        + [ExtendedKeyUsageOID.SERVER_AUTH] * leaf.answers
        + [ExtendedKeyUsageOID.OCSP_SIGNING] * leaf.lists
    )
    kind = bytes((leaf.calls, leaf.answers)) + b"\1" * leaf.lists
    return (
        _builder(leaf.name, leaf.public, leaf.issuer, leaf.first_s, leaf.last_s, kind)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier(leaf.issuer, None, None), critical=False)
    )


def _root_builder(public: bytes) -> x509.CertificateBuilder:
    return _issuing(public, public, 0, FOREVER_S, path_length=1)


def _delegate_builder(delegate: Delegate, root: bytes) -> x509.CertificateBuilder:
    return _issuing(delegate.public, root, delegate.first_s, delegate.last_s, path_length=0)


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
        issuer_name=_make_name(fingerprint(issuer)),
        subject_name=_make_name(name),
        public_key=Ed25519PublicKey.from_public_bytes(public),
        serial_number=serial,
        not_valid_before=datetime.fromtimestamp(first_s, UTC),
        not_valid_after=datetime.fromtimestamp(last_s, UTC),
    )


def _make_name(name: bytes) -> x509.Name:
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


def _sign_certificate(builder: x509.CertificateBuilder, issuer: SigningKey) -> bytes:
    return builder.sign(_private(issuer), None).public_bytes(Encoding.DER)


def _private(key: SigningKey) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key.seed.reveal())


def _read_delegate(data: bytes, root: bytes) -> Delegate:
    """Parse the certificate of an issuer below this root. The caller still has to check its signature."""
    certificate = _load(data)
    with _map_errors():
        delegate = Delegate(_public_of(certificate), *_dates(certificate))
        expected = _delegate_builder(delegate, root)
    _check_form(data, expected)
    return delegate


def _check_form(data: bytes, expected: x509.CertificateBuilder) -> None:
    """Raise `MalformedError` unless `data` is the certificate that this builder writes, apart from the signature.

    A certificate of ours has one encoding, and the Ed25519 signature is its last 64 bytes. So there is no list of
    checks that could lack one: another version, algorithm, extension or order of extensions is another byte.
    """
    with _map_errors():
        written = expected.sign(Ed25519PrivateKey.from_private_bytes(bytes(SEED)), None).public_bytes(Encoding.DER)
    if data[:-SIGNATURE] != written[:-SIGNATURE]:
        raise MalformedError("not a certificate of ours")


def _check_signature(data: bytes, issuer: bytes) -> None:
    """Raise `ForgedError` unless this key signed the certificate, whose form has been checked."""
    with _map_errors():
        signed = _load(data).tbs_certificate_bytes
        key = Ed25519PublicKey.from_public_bytes(issuer)
    try:
        key.verify(data[-SIGNATURE:], signed)
    except InvalidSignature as error:
        raise ForgedError("the signature of a certificate does not hold") from error


def _load(data: bytes) -> x509.Certificate:
    with _map_errors():
        return x509.load_der_x509_certificate(data)


def _dates(certificate: x509.Certificate) -> tuple[int, int]:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return int(first.timestamp()), int(last.timestamp())


@contextmanager
def _map_errors() -> Iterator[None]:
    """Turn every exception that foreign bytes raise in the library into `MalformedError`.

    The library's exceptions have no common base, and some (`InvalidVersion`, `UnsupportedAlgorithm`) are no
    `ValueError`. A panic in its Rust code is not even an `Exception`.
    """
    try:
        yield
    except MalformedError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise MalformedError("not a certificate of ours") from error


def _public_of(certificate: x509.Certificate) -> bytes:
    public = certificate.public_key()
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("another kind of key")
    return public.public_bytes_raw()


FOREVER_S: Final = 253_402_300_799
"""The end of the year 9999, which in X.509 means no end."""
