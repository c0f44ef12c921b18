"""An enrolment gives the proxy the ratio of two keys, and every crafted value on the way is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.group import Scalar
from veilcast.crypto.sealed_box import box
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy
from veilcast.relay.transformation_key import (
    SEALED_BLIND,
    ServerKeys,
    ServerPublicKey,
    answer_enrolment,
    begin_enrolment,
    check_transformation,
    combine_shares,
)

seeds = st.integers(0, 2**32)


@given(seeds)
def test_the_proxy_obtains_the_ratio_of_the_servers_key_to_the_users(seed: int) -> None:
    entropy = random.Random(seed).randbytes
    keys = ServerKeys.draw(entropy)
    begun = begin_enrolment(keys.public(), entropy)
    transformation = combine_shares(begun.ratio, answer_enrolment(keys, begun.sealed))
    assert transformation == keys.k_r / begun.key
    check_transformation(transformation, begun.claim, keys.public())


@given(seeds)
def test_keys_survive_their_encoding(seed: int) -> None:
    keys = ServerKeys.draw(random.Random(seed).randbytes)
    assert ServerKeys.decode(keys.encode()) == keys
    assert ServerPublicKey.decode(keys.public().encode()) == keys.public()


def test_two_enrolments_of_one_user_share_nothing(entropy: Entropy) -> None:
    public = ServerKeys.draw(entropy).public()
    first, second = begin_enrolment(public, entropy), begin_enrolment(public, entropy)
    assert first.key != second.key
    assert first.ratio != second.ratio
    assert len(first.sealed) == len(second.sealed) == SEALED_BLIND


def test_a_server_that_answers_with_another_key_is_detected(entropy: Entropy) -> None:
    """Otherwise the server could tell this user's subjects from all others."""
    keys = ServerKeys.draw(entropy)
    special = ServerKeys(Scalar.draw(entropy), keys.y, keys.box)
    begun = begin_enrolment(keys.public(), entropy)
    transformation = combine_shares(begun.ratio, answer_enrolment(special, begun.sealed))
    with pytest.raises(ForgedError):
        check_transformation(transformation, begun.claim, keys.public())


@pytest.mark.parametrize("blind", [bytes(32), b"\xff" * 32, b"", b"\1" * 31])
def test_a_blind_that_is_not_a_scalar_is_refused(blind: bytes, entropy: Entropy) -> None:
    keys = ServerKeys.draw(entropy)
    sealed = box(keys.public().box, blind, purpose=b"vc/relay-join", entropy=entropy)
    with pytest.raises(MalformedError):
        answer_enrolment(keys, sealed)


def test_a_blind_for_another_server_or_purpose_is_refused(entropy: Entropy) -> None:
    keys, other = ServerKeys.draw(entropy), ServerKeys.draw(entropy)
    with pytest.raises(ForgedError):
        answer_enrolment(keys, begin_enrolment(other.public(), entropy).sealed)
    misused = box(keys.public().box, Scalar.of(5).reveal(), purpose=b"other", entropy=entropy)
    with pytest.raises(ForgedError):
        answer_enrolment(keys, misused)


def test_keys_with_zero_the_identity_or_a_wrong_length_are_refused(entropy: Entropy) -> None:
    keys = ServerKeys.draw(entropy)
    secret, public = keys.encode().reveal(), keys.public().encode()
    for start in (1, 33):
        with pytest.raises(MalformedError):
            ServerKeys.decode(Secret(secret[:start] + bytes(32) + secret[start + 32 :]))
        with pytest.raises(MalformedError):
            ServerPublicKey.decode(public[:start] + bytes(32) + public[start + 32 :])
    for data in (secret[:-1], secret + b"\0", b"\2" + secret[1:]):
        with pytest.raises(MalformedError):
            ServerKeys.decode(Secret(data))
    for data in (b"", public[:-1], public + b"\0", b"\2" + public[1:]):
        with pytest.raises(MalformedError):
            ServerPublicKey.decode(data)
    with pytest.raises(MalformedError):
        ServerPublicKey(keys.public().route, keys.public().subject, b"short")


def test_no_secret_prints(entropy: Entropy) -> None:
    keys = ServerKeys.draw(entropy)
    begun = begin_enrolment(keys.public(), entropy)
    shown = f"{keys!r} {begun!r}"
    for secret in (keys.k_r, keys.y, keys.box, keys.unveil, begun.key, begun.ratio):
        assert secret.reveal().hex() not in shown
        assert repr(secret.reveal()) not in shown
