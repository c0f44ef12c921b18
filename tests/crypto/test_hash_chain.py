from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import hash_chain
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.machine import Entropy

TOKEN = bytes(32)
D_MAX = 8


@given(first=st.binary(min_size=32, max_size=32), near=st.integers(0, 20), far=st.integers(0, 20))
def test_hops_between_measures_the_distance_up_to_d_max_and_no_further(first: bytes, near: int, far: int) -> None:
    a, b = hash_chain.advance_chain(first, near), hash_chain.advance_chain(first, far)
    expected = far - near if abs(far - near) <= D_MAX else None
    assert hash_chain.hops_between(a, b, D_MAX) == expected


def test_values_of_two_chains_are_never_taken_for_one(entropy: Entropy) -> None:
    values = [hash_chain.start_chain(entropy) for _ in range(50)]
    assert all(hash_chain.hops_between(a, b, D_MAX) is None for a in values for b in values if a is not b)


def test_an_anchored_value_tells_its_hops_and_a_foreign_one_is_refused(entropy: Entropy) -> None:
    key, first = SigningKey.generate(entropy), hash_chain.start_chain(entropy)
    anchor = hash_chain.sign_anchor(first, D_MAX, TOKEN, 1000, key)
    anchor.verify(key.public, TOKEN, now=999)
    assert [anchor.hops_from_origin(hash_chain.advance_chain(first, hops)) for hops in range(D_MAX + 1)] == list(
        range(D_MAX + 1)
    )
    with pytest.raises(ForgedError):
        anchor.hops_from_origin(hash_chain.advance_chain(first, D_MAX + 1))
    with pytest.raises(ForgedError):
        anchor.hops_from_origin(hash_chain.start_chain(entropy))


def test_an_adversary_cannot_claim_to_be_nearer_than_the_value_it_received(entropy: Entropy) -> None:
    key, first = SigningKey.generate(entropy), hash_chain.start_chain(entropy)
    anchor = hash_chain.sign_anchor(first, D_MAX, TOKEN, 1000, key)
    received = hash_chain.advance_chain(first, 5)
    guesses = [random.Random(i).randbytes(32) for i in range(2000)] + [received[::-1], bytes(32), anchor.end[::-1]]
    for guess in guesses:
        with pytest.raises(ForgedError):
            anchor.hops_from_origin(guess)


def test_an_anchor_holds_for_its_token_signer_and_time_only(entropy: Entropy) -> None:
    key = SigningKey.generate(entropy)
    anchor = hash_chain.sign_anchor(hash_chain.start_chain(entropy), D_MAX, TOKEN, 1000, key)
    with pytest.raises(StaleError):
        anchor.verify(key.public, TOKEN, now=1000)
    with pytest.raises(ForgedError):
        anchor.verify(key.public, b"t" * 32, now=0)
    with pytest.raises(ForgedError):
        anchor.verify(SigningKey.generate(entropy).public, TOKEN, now=0)
    for change in ({"length": D_MAX + 1}, {"expires_us": 2000}, {"end": hash_chain.start_chain(entropy)}):
        with pytest.raises(ForgedError):
            msgspec.structs.replace(anchor, **change).verify(key.public, TOKEN, now=0)


def test_a_chain_has_a_bounded_length(entropy: Entropy) -> None:
    key, first = SigningKey.generate(entropy), hash_chain.start_chain(entropy)
    assert hash_chain.sign_anchor(first, hash_chain.LENGTH_MAX, TOKEN, 1, key).hops_from_origin(first) == 0
    for length in (0, hash_chain.LENGTH_MAX + 1):
        with pytest.raises(LocalError):
            hash_chain.sign_anchor(first, length, TOKEN, 1, key)
        with pytest.raises(MalformedError):
            hash_chain.Anchor(first, length, 1, bytes(64))
