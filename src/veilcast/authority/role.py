"""In which role somebody stands, and the key it shows itself with: on TLS streams, and under what it states.

`tls` has the certificates, `statement` what is signed.

Apart from these, because X.509 takes a tenth of a second to load, and most who hold keyrings never use any.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from veilcast.crypto.derive import derive
from veilcast.crypto.onion_keys import OnionKey
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey

TlsRole: TypeAlias = Literal["member", "proxy", "server", "directory", "broker"]

Certificates: TypeAlias = tuple[bytes, ...]
"""DER: somebody's own, then the one of its issuer, and so on; the root's comes last."""


def derive_tls_key(link: Secret) -> SigningKey:
    """The key that the holder of a link key shows itself with on TLS."""
    return SigningKey(derive(link, b"vc/tls-key"))


def derive_broker_key(link: Secret) -> SigningKey:
    """The key that the holder of a link key signs with as a broker, and by which the overlay knows it."""
    return SigningKey(derive(link, b"vc/broker-key"))


def derive_onion_key(link: Secret) -> OnionKey:
    """The key of the onion service at which the holder of a link key is reached."""
    return OnionKey(derive(link, b"vc/onion-key"))
