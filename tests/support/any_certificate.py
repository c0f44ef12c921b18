"""X.509 certificates of any content, as an adversary writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilcast.crypto.sign import SigningKey
from veilcast.crypto.x509 import FOREVER_S

LONG_AGO, NEVER = datetime(1970, 1, 1, tzinfo=UTC), datetime.fromtimestamp(FOREVER_S, UTC)
MEMBER, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
DIRECTORY = ExtendedKeyUsageOID.OCSP_SIGNING


def certificate(
    signer: SigningKey, issuer: x509.Name, name: bytes, public: bytes, use: x509.ObjectIdentifier, **changed: Any
) -> bytes:
    """A certificate of the form that the authority writes, valid for all time, under any issuer's name.

    `changed` has what differs: `ca`, `path_length`, `signs` (key usage), `extra` (further extensions), `key_id`,
    `uses` (further ones).
    """
    flags = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    signs = changed.get("signs", False)
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
        **flags,
    )
    key_id = changed.get("key_id", signer.public)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(common_name(name))
        .public_key(Ed25519PublicKey.from_public_bytes(public))
        .serial_number(changed.get("serial", 7))
        .not_valid_before(changed.get("first", LONG_AGO))
        .not_valid_after(changed.get("last", NEVER))
        .add_extension(x509.BasicConstraints(changed.get("ca", False), changed.get("path_length")), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([use, *changed.get("uses", ())]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier(key_id, None, None), critical=False)
    )
    for extension, critical in changed.get("extra", ()):
        builder = builder.add_extension(extension, critical=critical)
    private = Ed25519PrivateKey.from_private_bytes(signer.seed.reveal())
    return builder.sign(private, None).public_bytes(Encoding.DER)


def common_name(name: bytes) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name.hex())])
