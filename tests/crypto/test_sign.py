from __future__ import annotations

import pytest

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.sign import SigningKey, verify
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy

# RFC 8032, section 7.1, tests 1 to 3: seed, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_the_signature_agrees_with_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    s, p, m, g = (bytes.fromhex(x) for x in (seed, public, message, signature))
    assert hazmat.ed25519_public(s) == p
    assert hazmat.ed25519_sign(s, p, m) == g
    hazmat.ed25519_verify(p, m, g)


def test_a_signature_holds_for_its_message_and_purpose_only(entropy: Entropy) -> None:
    key = SigningKey.generate(entropy)
    signature = key.sign(b"message", purpose=b"advert")
    verify(key.public, b"message", signature, purpose=b"advert")
    for public, message, purpose in (
        (key.public, b"massage", b"advert"),
        (key.public, b"message", b"certificate"),
        (SigningKey.generate(entropy).public, b"message", b"advert"),
        (key.public[:-1], b"message", b"advert"),
    ):
        with pytest.raises(ForgedError):
            verify(public, message, signature, purpose=purpose)


def test_moving_bytes_between_purpose_and_message_does_not_carry_a_signature_over(entropy: Entropy) -> None:
    key = SigningKey.generate(entropy)
    signature = key.sign(b"b", purpose=b"a")
    with pytest.raises(ForgedError):
        verify(key.public, b"", signature, purpose=b"ab")
    with pytest.raises(LocalError):
        key.sign(b"b", purpose=b"a\0")


def test_every_flipped_bit_of_a_signature_is_refused(entropy: Entropy) -> None:
    key = SigningKey.generate(entropy)
    signature = key.sign(b"m", purpose=b"p")
    for position in range(len(signature) * 8):
        changed = bytearray(signature)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(ForgedError):
            verify(key.public, b"m", bytes(changed), purpose=b"p")


def test_a_signing_key_does_not_print_its_seed(entropy: Entropy) -> None:
    key = SigningKey.generate(entropy)
    assert key.seed.reveal().hex() not in repr(key)
    assert repr(key) == "<SigningKey>"
