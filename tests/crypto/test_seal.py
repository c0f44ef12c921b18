from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.seal import NONCE, OVERHEAD, Sealer, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy

KEY = Secret(bytes(range(32)))

# RFC 8452, appendix C.2 (AEAD_AES_256_GCM_SIV): key, nonce, plaintext, additional data, result.
RFC_8452 = [
    (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "030000000000000000000000",
        "",
        "",
        "07f5f4169bbf55a8400cd47ea6fd400f",
    ),
    (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "030000000000000000000000",
        "0100000000000000",
        "",
        "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28",
    ),
    (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "030000000000000000000000",
        "0200000000000000",
        "01",
        "1de22967237a813291213f267e3b452f02d01ae33e4ec854",
    ),
]


@pytest.mark.parametrize(("key", "nonce", "plaintext", "context", "result"), RFC_8452)
def test_the_cipher_agrees_with_rfc_8452(key: str, nonce: str, plaintext: str, context: str, result: str) -> None:
    k, n, p, c, r = (bytes.fromhex(x) for x in (key, nonce, plaintext, context, result))
    if p or c:  # OpenSSL refuses to encrypt nothing at all; ours always has the version in its context.
        assert hazmat.gcm_siv_encrypt(k, n, p, c) == r
    assert hazmat.gcm_siv_decrypt(k, n, r, c) == p


@given(plaintext=st.binary(max_size=300), context=st.binary(max_size=40), seed=st.randoms(use_true_random=False))
def test_a_seal_opens_again_and_has_a_fixed_overhead(plaintext: bytes, context: bytes, seed: object) -> None:
    sealed = seal(KEY, plaintext, context=context, entropy=seed.randbytes)  # type: ignore[attr-defined]
    assert len(sealed) == len(plaintext) + OVERHEAD
    assert unseal(KEY, sealed, context=context) == plaintext


@given(plaintext=st.binary(max_size=300), context=st.binary(max_size=40))
def test_a_key_that_is_loaded_once_seals_the_same(plaintext: bytes, context: bytes) -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal(plaintext, context=context, entropy=bytes)
    assert sealed == seal(KEY, plaintext, context=context, entropy=bytes)
    assert sealer.unseal(sealed, context=context) == plaintext
    for wrong in (sealed[:-1], b"\2" + sealed[1:], sealed[: OVERHEAD - 1]):
        with pytest.raises(ForgedError):
            sealer.unseal(wrong, context=context)
    with pytest.raises(ForgedError):
        sealer.unseal(sealed, context=context + b".")


def test_every_flipped_bit_and_every_cut_is_refused(entropy: Entropy) -> None:
    sealed = seal(KEY, b"a note", context=b"c", entropy=entropy)
    for position in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(ForgedError):
            unseal(KEY, bytes(changed), context=b"c")
    for length in range(len(sealed)):
        with pytest.raises(ForgedError):
            unseal(KEY, sealed[:length], context=b"c")


def test_another_key_or_another_context_does_not_open(entropy: Entropy) -> None:
    sealed = seal(KEY, b"a note", context=b"c", entropy=entropy)
    with pytest.raises(ForgedError):
        unseal(KEY, sealed, context=b"d")
    with pytest.raises(ForgedError):
        unseal(Secret(bytes(32)), sealed, context=b"c")


def test_a_repeated_nonce_shows_equality_and_nothing_else() -> None:
    def stuck(size: int) -> bytes:
        return bytes(size)

    first, again, other = (seal(KEY, text, context=b"", entropy=stuck) for text in (b"attack", b"attack", b"defend"))
    assert first == again
    # With a stream cipher under one nonce the ciphertexts' difference would be that of the plaintexts.
    difference = bytes(a ^ b for a, b in zip(first[1 + NONCE :], other[1 + NONCE :], strict=True))
    assert difference[:6] != bytes(a ^ b for a, b in zip(b"attack", b"defend", strict=True))


def test_a_key_of_the_wrong_size_is_our_own_mistake(entropy: Entropy) -> None:
    with pytest.raises(LocalError):
        seal(Secret(b"short"), b"", context=b"", entropy=entropy)
