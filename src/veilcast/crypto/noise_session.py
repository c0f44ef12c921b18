"""The two directions of a finished Noise channel: messages under one key, each with a nonce of its own.

No I/O. `veilcast.crypto.noise` makes these from a handshake. The nonce is the number of the message, and the sender
counts it itself: no caller can repeat a nonce, and no session can be copied. On a stream the receiver counts along.
Where messages are lost or reordered, their number travels with them, and `decrypt_at` takes it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NoReturn

from veilcast.crypto import _primitives as primitives
from veilcast.crypto.noise_patterns import KEY_SIZE, MAX_MESSAGE, TAG_SIZE
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError


class Cipher:
    """A key in use. The two ciphers of Noise differ only in the byte order of the nonce."""

    __slots__ = ("_aead", "_key", "_name", "_spell")

    def __init__(self, name: str, key: bytes) -> None:
        self._name = name
        self._key = Secret(key[:KEY_SIZE])
        self._aead: primitives.Aead
        if name == "AESGCM":
            self._aead, self._spell = primitives.aes_gcm(self._key.reveal()), _BIG.pack
        else:
            self._aead, self._spell = primitives.chacha20_poly1305(self._key.reveal()), _LITTLE.pack

    def seal(self, nonce: int, plaintext: bytes, context: bytes) -> bytes:
        return self._aead.encrypt(self._spell(nonce), plaintext, context)

    def open(self, nonce: int, ciphertext: bytes, context: bytes) -> bytes:
        return primitives.decrypt(self._aead, self._spell(nonce), ciphertext, context)

    def successor(self) -> Cipher:
        """Noise's REKEY: the encryption of zeros under the old key, with the nonce that no message gets."""
        return Cipher(self._name, self.seal(RESERVED_NONCE, bytes(KEY_SIZE), b""))


class _Direction:
    __slots__ = ("_cipher", "_nonce")

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher
        self._nonce = 0

    def rekey(self) -> None:
        """Replace the key by one that does not reveal it. Both ends do so between the same two messages."""
        self._cipher = self._cipher.successor()

    def _unspent_nonce(self) -> int:
        if self._nonce >= RESERVED_NONCE:
            raise LocalError("the session has no nonce left; start a new handshake")
        return self._nonce

    def __repr__(self) -> str:
        return f"<{type(self).__name__} before message {self._nonce}>"

    def __reduce__(self) -> NoReturn:
        raise LocalError("a session cannot be copied or pickled")


class Sender(_Direction):
    """The sending end of one direction."""

    __slots__ = ()

    @property
    def next_nonce(self) -> int:
        """The number of the next message, for headers that carry it."""
        return self._nonce

    def encrypt(self, plaintext: bytes, context: bytes = b"") -> bytes:
        """Encrypt the next message. `context` is authenticated and not sent."""
        if len(plaintext) + TAG_SIZE > MAX_MESSAGE:
            raise LocalError(f"a Noise message has at most {MAX_MESSAGE} bytes")
        nonce = self._unspent_nonce()
        self._nonce = nonce + 1  # Spent, whatever happens below.
        return self._cipher.seal(nonce, plaintext, context)


class Receiver(_Direction):
    """The receiving end of one direction."""

    __slots__ = ()

    def decrypt(self, ciphertext: bytes, context: bytes = b"") -> bytes:
        """Open the next message in order. A rejected message changes nothing: the true one may still come."""
        plaintext = self.decrypt_at(self._unspent_nonce(), ciphertext, context)
        self._nonce += 1
        return plaintext

    def decrypt_at(self, nonce: int, ciphertext: bytes, context: bytes = b"") -> bytes:
        """Open the message of this number, in any order and any number of times: the caller rejects replays."""
        if not 0 <= nonce < RESERVED_NONCE:
            raise MalformedError("not the number of a message")
        if not TAG_SIZE <= len(ciphertext) <= MAX_MESSAGE:
            raise MalformedError(f"a message of {len(ciphertext)} bytes")
        return self._cipher.open(nonce, ciphertext, context)


RESERVED_NONCE: Final = 2**64 - 1
_BIG: Final = Struct(">4xQ")
_LITTLE: Final = Struct("<4xQ")
