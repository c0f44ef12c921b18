"""Runs the real link handshake and records each byte string as a term of the model.

Every primitive that `crypto/noise.py` calls is wrapped: its arguments are looked up among the byte strings seen so far,
and its result is remembered as the same function of their terms. A message of the code can then be read as a term.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from support.symbolic.symbolic_terms import EMPTY, Term, aead, atom, digest, kdf, number, point, power
from veilcast.crypto import _primitives as primitives
from veilcast.crypto import noise_session
from veilcast.crypto.noise_patterns import KEY_SIZE
from veilcast.machine import Entropy


class Tracer:
    def __init__(self) -> None:
        self._terms: dict[bytes, Term] = {b"": EMPTY}
        self._extracted: dict[bytes, tuple[Term, Term]] = {}

    def name(self, data: bytes, term: Term) -> None:
        self._terms[data] = term

    def term(self, data: bytes) -> Term:
        """The term of a byte string. Raises `KeyError` for a byte string of unknown origin."""
        return self._terms[data]

    def entropy(self, seed: int, name: str) -> Entropy:
        """Draws the private half of a fresh key, under this name."""
        rng = random.Random(seed)

        def draw(size: int) -> bytes:
            drawn = rng.randbytes(size)
            self.name(drawn, number(name))
            return drawn

        return draw

    @contextmanager
    def watching(self) -> Iterator[None]:
        real_digest, real_hmac = primitives.digest, primitives.hmac_digest
        real_agree, real_public = primitives.x25519, primitives.x25519_public
        wrapped: dict[str, Any] = {
            "digest": lambda name, data: self._digest(data, real_digest(name, data)),
            "hmac_digest": lambda name, key, data: self._hmac(key, data, real_hmac(name, key, data)),
            "x25519": lambda private, public: self._agree(private, public, real_agree(private, public)),
            "x25519_public": lambda private: self._public(private, real_public(private)),
        }
        seal = noise_session.Cipher.seal

        def sealed(cipher: noise_session.Cipher, nonce: int, plaintext: bytes, context: bytes) -> bytes:
            result = seal(cipher, nonce, plaintext, context)
            key = self.term(cipher._key.reveal())
            made = aead(key, atom(str(nonce), "count"), self.term(context), self.term(plaintext))
            self.name(result, made)
            return result

        with patch.multiple(primitives, **wrapped), patch.object(noise_session.Cipher, "seal", sealed):
            yield

    def _digest(self, data: bytes, result: bytes) -> bytes:
        """Hash the name of the protocol, or a transcript hash and the bytes that are mixed in."""
        if data in self._terms:
            self.name(result, digest(self.term(data)))
        else:
            self.name(result, digest(self.term(data[:KEY_SIZE]), self.term(data[KEY_SIZE:])))
        return result

    def _hmac(self, key: bytes, data: bytes, result: bytes) -> bytes:
        """Noise's HKDF: first the secret of chain and material, then output after output."""
        if key in self._extracted:
            chain, material = self._extracted[key]
            self.name(result, kdf(chain, material, data[-1]))
        else:
            self._extracted[result] = self.term(key), self.term(data)
        return result

    def _agree(self, private: bytes, public: bytes, result: bytes) -> bytes:
        self.name(result, power(self.term(public), self.term(private)))
        return result

    def _public(self, private: bytes, result: bytes) -> bytes:
        self.name(result, point(self.term(private)))
        return result
