"""The only file that calls cryptographic libraries, but for `x509`. Nothing outside `veilcast.crypto` imports it.

Thin, typed wrappers with one job each: translate the libraries' exceptions into `ForgedError` / `MalformedError`, and
take all randomness as an argument. `cryptography` gives ciphers, PyNaCl Ed25519 and X25519 (half as long as OpenSSL's)
and Argon2id, `hashlib` the hashes, rbcl (libsodium) ristretto255.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV, AESSIV, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from nacl import bindings as sodium
from nacl import exceptions as sodium_errors

from veilcast.errors import ForgedError, LocalError, MalformedError

# --- hashes -----------------------------------------------------------------------------------------------------------


def blake2b(data: bytes, *, size: int = 32, key: bytes = b"", person: bytes = b"") -> bytes:
    """BLAKE2b; with a key it is a MAC and a PRF. `person` (at most 16 bytes) separates one use from another."""
    return hashlib.blake2b(data, digest_size=size, key=key, person=person).digest()


def blake2s(data: bytes, *, size: int = 32, key: bytes = b"", person: bytes = b"") -> bytes:
    """BLAKE2s: the faster one for chains; `person` at most 8 bytes."""
    return hashlib.blake2s(data, digest_size=size, key=key, person=person).digest()


def digest(algorithm: str, data: bytes) -> bytes:
    """A plain hash, by its `hashlib` name, where a published protocol fixes which."""
    return hashlib.new(algorithm, data).digest()


def hmac_digest(algorithm: str, key: bytes, data: bytes) -> bytes:
    # The constructor, not the name: a name would pick OpenSSL's HMAC, which takes BLAKE2 twice as long.
    return hmac.digest(key, data, getattr(hashlib, algorithm))


def equal(a: bytes, b: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(a, b)


def argon2id(passphrase: bytes, salt: bytes, *, size: int, passes: int, memory_bytes: int) -> bytes:
    return bytes(
        sodium.crypto_pwhash_alg(size, passphrase, salt, passes, memory_bytes, sodium.crypto_pwhash_ALG_ARGON2ID13)
    )


# --- ciphers ----------------------------------------------------------------------------------------------------------


def gcm_siv_encrypt(key: bytes, nonce: bytes, plaintext: bytes, context: bytes) -> bytes:
    return AESGCMSIV(key).encrypt(nonce, plaintext, context)


def gcm_siv_decrypt(key: bytes, nonce: bytes, ciphertext: bytes, context: bytes) -> bytes:
    try:
        return AESGCMSIV(key).decrypt(nonce, ciphertext, context)
    except (InvalidTag, ValueError) as error:
        raise ForgedError("the ciphertext does not open") from error


def siv_encrypt(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    """AES-SIV (RFC 5297): deterministic; 16 bytes longer than the plaintext."""
    return AESSIV(key).encrypt(plaintext, [context])


def aes_gcm(key: bytes) -> AESGCM:
    """A keyed cipher for many messages; the caller owns the nonces."""
    return AESGCM(key)


def chacha20_poly1305(key: bytes) -> ChaCha20Poly1305:
    """A keyed cipher for many messages; the caller owns the nonces."""
    return ChaCha20Poly1305(key)


def gcm_siv(key: bytes) -> AESGCMSIV:
    """A keyed cipher for many messages; the caller draws the nonces."""
    return AESGCMSIV(key)


Aead: TypeAlias = AESGCM | AESGCMSIV | ChaCha20Poly1305


def decrypt(cipher: Aead, nonce: bytes, ciphertext: bytes, context: bytes) -> bytes:
    try:
        return cipher.decrypt(nonce, ciphertext, context)
    except (InvalidTag, ValueError) as error:
        raise ForgedError("the ciphertext does not open") from error


def aes_blocks(key: bytes) -> Callable[[bytes], bytes]:
    """AES, block by block: a permutation to make masks with, and no way to encrypt a message."""
    return Cipher(AES(key), ECB()).encryptor().update  # noqa: S305


# --- signatures -------------------------------------------------------------------------------------------------------


def ed25519_public(seed: bytes) -> bytes:
    return bytes(sodium.crypto_sign_seed_keypair(seed)[0])


def ed25519_sign(seed: bytes, public: bytes, message: bytes) -> bytes:
    return bytes(sodium.crypto_sign(message, seed + public)[:ED25519_SIGNATURE])


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> None:
    try:
        sodium.crypto_sign_open(signature + message, public)
    except (sodium_errors.BadSignatureError, sodium_errors.ValueError, sodium_errors.TypeError) as error:
        raise ForgedError("the signature does not hold") from error


# --- key agreement ----------------------------------------------------------------------------------------------------


def x25519_public(private: bytes) -> bytes:
    return bytes(sodium.crypto_scalarmult_base(private))


def x25519(private: bytes, public: bytes) -> bytes:
    """The shared secret; a public key of small order is refused."""
    try:
        return bytes(sodium.crypto_scalarmult(private, public))
    except (sodium_errors.RuntimeError, sodium_errors.ValueError, sodium_errors.TypeError) as error:
        raise MalformedError("not a usable X25519 public key") from error


# --- ristretto255 -----------------------------------------------------------------------------------------------------

# Points and scalars are 32 canonical bytes, made so by `group`. rbcl checks lengths only, and its `add` and `sub`
# return zeros, the identity, for bytes that are no point. libsodium works in constant time.


def ristretto_is_point(data: bytes) -> bool:
    """Whether these 32 bytes are the canonical encoding of an element; the identity (32 zeros) is one."""
    return bool(_ristretto().crypto_core_ristretto255_is_valid_point(data))


def ristretto_map(uniform: bytes) -> bytes:
    """The one-way map of RFC 9496, section 4.3.4, from 64 uniform bytes."""
    return bytes(_ristretto().crypto_core_ristretto255_from_hash(uniform))


def ristretto_add(p: bytes, q: bytes) -> bytes:
    return bytes(_ristretto().crypto_core_ristretto255_add(p, q))


def ristretto_subtract(p: bytes, q: bytes) -> bytes:
    return bytes(_ristretto().crypto_core_ristretto255_sub(p, q))


def ristretto_multiply(scalar: bytes, point: bytes) -> bytes:
    try:
        return bytes(_ristretto().crypto_scalarmult_ristretto255(scalar, point))
    except RuntimeError as error:
        raise MalformedError("the product is the identity, or the point is none") from error


def ristretto_multiply_base(scalar: bytes) -> bytes:
    try:
        return bytes(_ristretto().crypto_scalarmult_ristretto255_base(scalar))
    except RuntimeError as error:
        raise MalformedError("the product is the identity") from error


def scalar_reduce(wide: bytes) -> bytes:
    """64 little-endian bytes modulo the order of the group."""
    return bytes(_ristretto().crypto_core_ristretto255_scalar_reduce(wide))


def scalar_add(a: bytes, b: bytes) -> bytes:
    return bytes(_ristretto().crypto_core_ristretto255_scalar_add(a, b))


def scalar_multiply(a: bytes, b: bytes) -> bytes:
    return bytes(_ristretto().crypto_core_ristretto255_scalar_mul(a, b))


def scalar_invert(a: bytes) -> bytes:
    return bytes(_ristretto().crypto_core_ristretto255_scalar_invert(a))


@cache
def _ristretto() -> Any:
    """rbcl, when the group is first used: it writes its libsodium to a file of 2.8 MB in order to load it.

    The file is not needed once it is loaded, and rbcl would leave one behind in every process.
    """
    try:
        import rbcl
    except OSError as error:
        raise LocalError(
            f"libsodium cannot be loaded from the temporary directory ({error}); "
            "set TMPDIR to one with 3 MB to spare that may hold programs"
        ) from error
    written = getattr(sys.modules.get("rbcl._sodium"), "lib_path", None)
    if written is not None:
        Path(written).unlink(missing_ok=True)
    return rbcl


ED25519_SIGNATURE: Final = 64
