"""Wrappers of cryptographic libraries. Only this file and `x509` call them, and nothing outside `veilcast.crypto`
imports it.

The wrappers are thin and typed. They translate the libraries' exceptions into `ForgedError` and `MalformedError`, and
take all randomness as an argument. `cryptography` provides the ciphers; PyNaCl provides Ed25519, X25519 (in half the
time of OpenSSL) and Argon2id; `hashlib` provides the hashes; rbcl (libsodium) provides ristretto255.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Callable
from ctypes import CDLL
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
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
    """BLAKE2s, which is faster than BLAKE2b for chains. `person` has at most 8 bytes."""
    return hashlib.blake2s(data, digest_size=size, key=key, person=person).digest()


def digest(algorithm: str, data: bytes) -> bytes:
    """A plain hash by its `hashlib` name, for published protocols that fix the algorithm."""
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
    """AES, block by block. It is a permutation for masks, not an encryption of messages."""
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
    """rbcl, on a libsodium whose digest is pinned; loaded when the group is first used.

    rbcl has its libsodium as text in a module. Left alone, rbcl imports any `_sodium` on the path. Else it writes
    the library to the temporary directory, loads it from there by name, and leaves the file behind. So this function
    compares the library with the pinned digests, and loads it from a directory that only this user can open.
    """
    if "rbcl" in sys.modules and not hasattr(sys.modules.get("rbcl._sodium"), _PINNED):
        raise LocalError("rbcl was imported before, with a library that nobody compared; import it after this group")
    library = _pinned_library()
    try:
        with TemporaryDirectory(prefix="veilcast-") as private:
            path = Path(private) / "libsodium.so"
            path.write_bytes(library)
            loaded = CDLL(str(path))
    except OSError as error:
        raise LocalError(
            f"libsodium cannot be loaded from the temporary directory ({error}); "
            "set TMPDIR to one with 3 MB to spare that may hold programs"
        ) from error
    holder: Any = ModuleType("rbcl._sodium")
    holder._sodium = loaded
    setattr(holder, _PINNED, True)
    sys.modules["rbcl._sodium"] = sys.modules["_sodium"] = holder
    try:
        import rbcl
    finally:
        sys.modules.pop("_sodium", None)
    return rbcl


def _pinned_library() -> bytes:
    """The libsodium in rbcl; `LocalError` unless it is one of those that were looked at."""
    package = find_spec("rbcl")
    if package is None or not package.submodule_search_locations:
        raise LocalError("rbcl is not installed; install the locked versions (locks/)")
    text = (Path(package.submodule_search_locations[0]) / "_sodium.py").read_text()
    library = bytes.fromhex(text.partition("bytes.fromhex('")[2].partition("')")[0])
    if hashlib.sha256(library).hexdigest() not in LIBSODIUM:
        raise LocalError("the libsodium in rbcl is not one that was looked at; install the locked versions (locks/)")
    return library


LIBSODIUM: Final = {
    "e6d9b7f1cf7688f86702e2d370cfaa2a4a979d79492ae2e35196ca661c44f726": "Linux x86-64, Python 3.11",
    "b756e6628f69a0d916b0b7c6e0c2d1d3b079ec19d262f305a0be01de96dd5242": "Linux x86-64, Python 3.12 and 3.13",
    "d62c1611a973526a66c84f77f0ecadc6a8cdc52eefaaae3e63518ddd03193317": "Linux arm64, Python 3.11",
    "216e323326d9489f4ea001fa22f4b751d6f8e081d8055a3127545a43cf15d189": "Linux arm64, Python 3.12 and 3.13",
    "b826626154513e386bf0e975e40a3af316b2b398a5a05862f276296d81a50eb5": "Linux x86-64 with musl",
    "dfd1d75ba8b49847fb3e389fbdf986a43b83ca9209608a4c60040d988e49d8c2": "macOS arm64, Python 3.11",
    "ea221f43fa9048cc4745d9adb26c21dd29038315368467882a4fc392850ad0da": "macOS arm64, Python 3.12",
    "87e460d62a4b1291058f3b97c72fd9d4ead1492023a4237cd5fe68ae8ef7a21b": "macOS arm64, Python 3.13",
    "8b65b469c3fc803e913ef3ffdb659adec72c12710e305e65b15e1f84763894a9": "macOS x86-64",
}
"""SHA-256 of the libraries in the wheels of rbcl 1.1.2, all of them libsodium 1.0.18 (docs/decisions/0039)."""
_PINNED: Final = "pinned_by_veilcast"
ED25519_SIGNATURE: Final = 64
