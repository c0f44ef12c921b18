"""HPKE (RFC 9180), base mode, one message: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.

`cryptography` has HPKE too, but draws the ephemeral key itself and takes no associated data. The simulator must be a
function of its seed, so here the caller gives the ephemeral key (`DeriveKeyPair`, section 7.1.3). The tests compare
this file with the vectors of the RFC, and with `cryptography` in both directions.

Sealed bytes: `enc`, the ephemeral public key (32) | ciphertext | tag (16).
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.noise import Keypair
from veilcast.crypto.noise_patterns import KEY_SIZE
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError


def derive_keypair(material: Secret) -> Keypair:
    """The RFC's `DeriveKeyPair`. `material` has at least 32 bytes of entropy."""
    root = _extract(_KEM, b"", b"dkp_prk", material.reveal())
    return Keypair(Secret(_expand(_KEM, root, b"sk", b"", KEY_SIZE)))


def seal_base(ephemeral: Keypair, public: bytes, plaintext: bytes, *, info: bytes, aad: bytes) -> bytes:
    """`SealBase`. An ephemeral key must never seal twice. Raises `MalformedError` if `public` is not a usable public
    key.
    """
    shared = _derive_shared_secret(ephemeral.agree(public), ephemeral.public, public)
    key, nonce = _schedule(shared, info)
    return ephemeral.public + hazmat.chacha20_poly1305(key).encrypt(nonce, plaintext, aad)


def open_base(reader: Keypair, sealed: bytes, *, info: bytes, aad: bytes) -> bytes:
    """`OpenBase`. Every failure is the same `ForgedError`."""
    enc = sealed[:KEY_SIZE]
    try:
        shared = _derive_shared_secret(reader.agree(enc), enc, reader.public)
    except MalformedError as error:
        raise ForgedError("the ciphertext does not open") from error
    key, nonce = _schedule(shared, info)
    return hazmat.decrypt(hazmat.chacha20_poly1305(key), nonce, sealed[KEY_SIZE:], aad)


def _derive_shared_secret(agreed: bytes, enc: bytes, public: bytes) -> bytes:
    """`ExtractAndExpand` of the KEM (section 4.1)."""
    root = _extract(_KEM, b"", b"eae_prk", agreed)
    return _expand(_KEM, root, b"shared_secret", enc + public, _HASH)


def _schedule(shared: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of the first message (section 5.1), in mode 0, which has no pre-shared key."""
    about = b"\0" + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", info)
    secret = _extract(_SUITE, shared, b"secret", b"")
    return _expand(_SUITE, secret, b"key", about, _KEY), _expand(_SUITE, secret, b"base_nonce", about, _NONCE)


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    return hazmat.hmac_digest("sha256", salt or bytes(_HASH), _VERSION + suite + label + material)


def _expand(suite: bytes, root: bytes, label: bytes, about: bytes, size: int) -> bytes:
    """HKDF-Expand of at most one block, which is all that this suite needs."""
    labelled = size.to_bytes(2, "big") + _VERSION + suite + label + about
    return hazmat.hmac_digest("sha256", root, labelled + b"\x01")[:size]


_VERSION: Final = b"HPKE-v1"
_KEM: Final = b"KEM\x00\x20"
_SUITE: Final = b"HPKE\x00\x20\x00\x01\x00\x03"
_HASH: Final = 32
_KEY: Final = 32
_NONCE: Final = 12
OVERHEAD: Final = KEY_SIZE + 16
