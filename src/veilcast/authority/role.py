"""The TLS roles, and the keys that are derived from a link key: for TLS streams and statements, as a broker, as an
onion service.

`tls_identity` has the certificates, `member_statement` the signed statements. This file is apart from them because
X.509 takes a tenth of a second to load, and most holders of keyrings never use it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from veilcast.crypto.derive import derive
from veilcast.crypto.onion_keys import OnionKey
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey

TlsRole: TypeAlias = Literal["member", "proxy", "server", "directory", "broker"]

Certificates: TypeAlias = tuple[bytes, ...]
"""DER: the holder's own certificate, then that of its issuer, and so on; the root's comes last."""


def derive_tls_key(link: Secret) -> SigningKey:
    """The holder's key on TLS streams."""
    return SigningKey(derive(link, b"vc/tls-key"))


def derive_broker_key(link: Secret) -> SigningKey:
    """The holder's signing key as a broker, by which the overlay knows it."""
    return SigningKey(derive(link, b"vc/broker-key"))


def derive_onion_key(link: Secret) -> OnionKey:
    """The key of the onion service at which the holder is reached."""
    return OnionKey(derive(link, b"vc/onion-key"))
