from __future__ import annotations

import random

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.crypto.uniform_seal import NONCE, OVERHEAD, SAMPLE, HeaderMask, UniformSealer
from veilcast.errors import ForgedError, LocalError

KEY = Secret(bytes(range(32)))
ENTROPY = random.Random(1).randbytes


@given(st.binary(max_size=300))
def test_sealed_bytes_open_and_are_longer_by_nonce_and_tag(plaintext: bytes) -> None:
    sealed = UniformSealer(KEY).seal(plaintext, entropy=ENTROPY)
    assert len(sealed) == len(plaintext) + OVERHEAD
    assert UniformSealer(KEY).open(sealed) == plaintext


def test_it_is_gcm_siv_with_the_nonce_in_front() -> None:
    sealed = UniformSealer(KEY).seal(b"hello", entropy=ENTROPY)
    assert AESGCMSIV(KEY.reveal()).decrypt(sealed[:NONCE], sealed[NONCE:], None) == b"hello"


def test_bytes_that_were_not_sealed_are_refused_with_one_error() -> None:
    sealed = UniformSealer(KEY).seal(b"hello", entropy=ENTROPY)
    for forged in (b"", sealed[:NONCE], sealed[: OVERHEAD - 1], sealed[:-1], sealed + b"\0", bytes(len(sealed))):
        with pytest.raises(ForgedError, match="does not open"):
            UniformSealer(KEY).open(forged)
    with pytest.raises(ForgedError):
        UniformSealer(Secret(bytes(32))).open(sealed)


@given(st.lists(st.binary(min_size=SAMPLE, max_size=SAMPLE), min_size=1, max_size=8))
def test_a_mask_is_of_its_sample_alone_whatever_was_masked_before(samples: list[bytes]) -> None:
    """Against AES of one block, done another way: CBC of a block is AES of it XOR the vector."""
    mask = HeaderMask(KEY)
    for sample in samples:
        block = Cipher(AES(KEY.reveal()), CBC(bytes(16))).encryptor().update(sample)
        assert mask.mask_for(sample) == int.from_bytes(block[:8], "big")


def test_keys_have_one_size() -> None:
    for kind in (UniformSealer, HeaderMask):
        with pytest.raises(LocalError, match="32 bytes"):
            kind(Secret(b"short"))
