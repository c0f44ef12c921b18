"""HPKE agrees with the vector of the RFC, and with `cryptography`'s implementation in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import hpke
from veilcast.crypto.noise import Keypair
from veilcast.crypto.secret import Secret

FILE = Path(__file__).parents[1] / "vectors" / "hpke" / "rfc9180.json"
VECTOR = {name: bytes.fromhex(value) for name, value in json.loads(FILE.read_text()).items() if isinstance(value, str)}
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def test_the_vector_of_the_rfc_comes_out() -> None:
    ephemeral = hpke.derive_keypair(Secret(VECTOR["ikmE"]))
    assert ephemeral.public == VECTOR["pkEm"] == Keypair(Secret(VECTOR["skEm"])).public
    reader = hpke.derive_keypair(Secret(VECTOR["ikmR"]))
    assert reader.public == VECTOR["pkRm"]
    shared = hpke._derive_shared_secret(ephemeral.agree(reader.public), ephemeral.public, reader.public)
    assert shared == VECTOR["shared_secret"]
    assert hpke._schedule(shared, VECTOR["info"]) == (VECTOR["key"], VECTOR["base_nonce"])
    sealed = hpke.seal_base(ephemeral, reader.public, VECTOR["pt"], info=VECTOR["info"], aad=VECTOR["aad"])
    assert sealed == VECTOR["enc"] + VECTOR["ct"]
    assert hpke.open_base(reader, sealed, info=VECTOR["info"], aad=VECTOR["aad"]) == VECTOR["pt"]


@given(plaintext=st.binary(max_size=300), info=st.binary(max_size=20), seed=st.integers(0, 2**32))
def test_cryptography_opens_what_we_seal_and_we_open_what_it_seals(plaintext: bytes, info: bytes, seed: int) -> None:
    entropy = Random(seed).randbytes
    private = entropy(32)
    ours, theirs = Keypair(Secret(private)), X25519PrivateKey.from_private_bytes(private)
    sealed = hpke.seal_base(Keypair.draw(entropy), ours.public, plaintext, info=info, aad=b"")
    assert SUITE.decrypt(sealed, theirs, info) == plaintext
    assert hpke.open_base(ours, SUITE.encrypt(plaintext, theirs.public_key(), info), info=info, aad=b"") == plaintext


@pytest.mark.parametrize("aead", [AEAD.AES_256_GCM, AEAD.AES_128_GCM])
def test_another_suite_opens_nothing(aead: AEAD) -> None:
    private = bytes(range(32))
    sealed = hpke.seal_base(
        Keypair(Secret(bytes(range(1, 33)))), Keypair(Secret(private)).public, b"x", info=b"", aad=b""
    )
    with pytest.raises(InvalidTag):
        Suite(KEM.X25519, KDF.HKDF_SHA256, aead).decrypt(sealed, X25519PrivateKey.from_private_bytes(private), b"")
