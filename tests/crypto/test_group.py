"""The group rejects invalid values, agrees with RFC 9496, and the relay's operations are correct."""

from __future__ import annotations

import json
import operator
import pickle
import random
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import _primitives
from veilcast.crypto.group import (
    ORDER,
    Ciphertext,
    Point,
    Scalar,
    decrypt,
    encrypt,
    rerandomise,
    transform,
)
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/ristretto255/rfc9496.json").read_text())
INVALID = [(reason, data) for reason, encodings in VECTORS["invalid"].items() for data in encodings]
IDENTITY = bytes(32)
ONE = Scalar.of(1)
G = ONE.public()

scalars = st.integers(1, ORDER - 1).map(Scalar.of)
points = st.binary(max_size=40).map(lambda message: Point.hash(message, b"test"))


# --- the vectors of RFC 9496


@pytest.mark.parametrize(("i", "encoding"), list(enumerate(VECTORS["multiples"]))[1:])
def test_multiples_of_the_generator_equal_the_vectors_of_the_rfc(i: int, encoding: str) -> None:
    assert Scalar.of(i).public().encode().hex() == encoding
    assert (Point.decode(bytes.fromhex(encoding)) * Scalar.of(3)).encode() == Scalar.of(3 * i).public().encode()


def test_adding_the_generator_gives_the_next_multiple() -> None:
    multiples = [Point.decode(bytes.fromhex(encoding)) for encoding in VECTORS["multiples"][1:]]
    for point, following in pairwise(multiples):
        assert point + G == following
        assert following - G == point


@pytest.mark.parametrize(("reason", "encoding"), INVALID)
def test_invalid_encodings_of_the_rfc_are_refused(reason: str, encoding: str) -> None:
    with pytest.raises(MalformedError):
        Point.decode(bytes.fromhex(encoding))


@pytest.mark.parametrize("vector", VECTORS["one_way_map"])
def test_the_one_way_map_is_that_of_the_rfc(vector: dict[str, str]) -> None:
    assert Point.draw(lambda size: bytes.fromhex(vector["input"])).encode().hex() == vector["output"]


# --- what cannot be built


@pytest.mark.parametrize("data", [IDENTITY, b"", IDENTITY + b"\0", G.encode()[:31], G.encode() + b"\0"])
def test_the_identity_and_wrong_lengths_are_no_points(data: bytes) -> None:
    with pytest.raises(MalformedError):
        Point.decode(data)


def test_the_library_alone_would_let_the_identity_pass() -> None:
    assert _primitives.ristretto_is_point(IDENTITY)
    assert _primitives.ristretto_add(b"\xff" * 32, G.encode()) == IDENTITY


@given(st.binary(min_size=32, max_size=32))
def test_decoded_bytes_encode_to_the_same_bytes(data: bytes) -> None:
    try:
        point = Point.decode(data)
    except MalformedError:
        return
    assert point.encode() == data


@pytest.mark.parametrize("number", [0, ORDER, ORDER + 1, 2**256 - 1])
def test_zero_and_unreduced_numbers_are_no_scalars(number: int) -> None:
    with pytest.raises(MalformedError):
        Scalar(number.to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_scalar_has_32_bytes(size: int) -> None:
    with pytest.raises(MalformedError):
        Scalar(b"\1" * size)


def test_entropy_that_reduces_to_zero_gives_no_scalar() -> None:
    with pytest.raises(MalformedError):
        Scalar.draw(bytes)
    with pytest.raises(MalformedError):
        Scalar.draw(lambda size: (5 * ORDER).to_bytes(size, "little"))


def test_arithmetic_that_ends_in_the_identity_or_zero_is_refused() -> None:
    minus_one = Scalar.of(-1)
    with pytest.raises(MalformedError):
        G - G
    with pytest.raises(MalformedError):
        G + G * minus_one
    with pytest.raises(MalformedError):
        ONE + minus_one


@pytest.mark.parametrize("domain", [b"", b"seventeen bytes..", b"d\0", b"\0"])
def test_a_hash_to_the_group_needs_a_domain_that_fits(domain: bytes) -> None:
    with pytest.raises(LocalError):
        Point.hash(b"news", domain)


def test_sums_may_pass_the_identity_or_zero_but_not_end_there() -> None:
    minus_one = Scalar.of(-1)
    assert Scalar.sum([ONE, minus_one, Scalar.of(5)]) == Scalar.of(5)
    assert Point.sum([G, G * minus_one, G]) == G
    with pytest.raises(MalformedError):
        Scalar.sum([ONE, minus_one])
    with pytest.raises(MalformedError):
        Point.sum([G, G * minus_one])


@pytest.mark.parametrize("operate", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_arithmetic_of_things_that_do_not_go_together_is_refused(operate: Callable[[Any, Any], object]) -> None:
    """All of them are 32 bytes inside, or two times 32, and the library would take them."""
    kinds = [ONE, G, Secret(b"\xff" * 32), Ciphertext(G, G), 2]
    meant = {
        (operator.add, Scalar, Scalar),
        (operator.mul, Scalar, Scalar),
        (operator.truediv, Scalar, Scalar),
        (operator.add, Point, Point),
        (operator.sub, Point, Point),
        (operator.mul, Point, Scalar),
        (operator.truediv, Point, Scalar),
        (operator.mul, Ciphertext, Scalar),
    }
    for left, right in product(kinds, repeat=2):
        if left is not right and (operate, type(left), type(right)) not in meant:
            with pytest.raises(TypeError):
                operate(left, right)
    with pytest.raises(TypeError):
        G * G  # type: ignore[operator]


def test_points_and_scalars_do_not_print_and_do_not_change() -> None:
    scalar = Scalar.of(0x1234567890ABCDEF)
    message = Point.draw(random.Random(1).randbytes)
    ciphertext = encrypt(message, G, random.Random(2).randbytes)
    for value in (scalar, message, ciphertext):
        shown = f"{value!r} {value} {value:}"
        assert message.encode().hex() not in shown
        assert scalar.reveal().hex() not in shown
        assert str(scalar.reveal()) not in shown
    with pytest.raises(AttributeError):
        message._data = G.encode()
    with pytest.raises(LocalError):
        pickle.dumps(scalar)
    with pytest.raises(TypeError):
        hash(scalar)


# --- algebra


@given(points, scalars, scalars)
def test_scalars_act_on_points_as_on_numbers(p: Point, a: Scalar, b: Scalar) -> None:
    assert (p * a) * b == p * (a * b)
    assert p * a / a == p
    assert (a / b) * b == a
    if a != Scalar.of(-int.from_bytes(b.reveal(), "little")):
        assert p * a + p * b == p * (a + b)


@given(st.integers(1, ORDER - 1), st.integers(1, ORDER - 1))
def test_scalar_arithmetic_is_arithmetic_modulo_the_order(a: int, b: int) -> None:
    assert Scalar.of(a) * Scalar.of(b) == Scalar.of(a * b)
    assert Scalar.of(a) / Scalar.of(b) == Scalar.of(a * pow(b, -1, ORDER))
    if (a + b) % ORDER:
        assert Scalar.of(a) + Scalar.of(b) == Scalar.of(a + b)


@given(st.binary(min_size=64, max_size=64))
def test_entropy_is_reduced_in_full_width(wide: bytes) -> None:
    number = int.from_bytes(wide, "little") % ORDER
    if number:
        assert Scalar.draw(lambda size: wide) == Scalar.of(number)


@given(points, points)
def test_points_that_are_equal_hash_alike_and_are_not_mere_bytes(p: Point, q: Point) -> None:
    assert p + q == q + p
    assert hash(p + q) == hash(q + p)
    assert p != p.encode()


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_hashes_to_the_group_are_separated_by_message_and_domain(a: bytes, b: bytes) -> None:
    assert (Point.hash(a, b"subject") == Point.hash(b, b"subject")) == (a == b)
    assert Point.hash(a, b"subject") != Point.hash(a, b"other")


# --- what the relay does (P2, section 4.1)


@given(st.text(max_size=20), scalars, scalars)
def test_a_tag_moves_from_the_users_key_to_the_common_key(subject: str, user: Scalar, common: Scalar) -> None:
    tag = Point.hash(subject.encode(), b"subject")
    assert (tag * user) * (common / user) == tag * common


@given(scalars, scalars, scalars)
def test_a_join_gives_the_proxy_the_ratio_and_the_server_only_the_blind(
    user: Scalar, common: Scalar, blind: Scalar
) -> None:
    from_user, from_server = blind / user, common / blind
    assert from_user * from_server == common / user


@given(points, scalars)
def test_a_message_goes_from_sender_to_receiver_through_two_keys(message: Point, sender: Scalar) -> None:
    draw = random.Random(7).randbytes
    common, receiver = Scalar.draw(draw), Scalar.draw(draw)
    sent = encrypt(message, sender.public(), draw)
    at_server = transform(sent, common / sender)
    fresh = rerandomise(at_server, common.public(), draw)
    delivered = transform(fresh, receiver / common)
    assert decrypt(sent, sender) == message
    assert decrypt(at_server, common) == message
    assert decrypt(delivered, receiver) == message
    assert decrypt(delivered, receiver).key() == message.key()
    assert decrypt(delivered, sender) != message


@given(points, scalars)
def test_a_rerandomised_ciphertext_shares_nothing_with_its_input(message: Point, key: Scalar) -> None:
    draw = random.Random(8).randbytes
    before = encrypt(message, key.public(), draw)
    after = rerandomise(before, key.public(), draw)
    assert before.body != after.body
    assert before.key_part != after.key_part
    assert decrypt(after, key) == message


@given(points, scalars, st.integers(0, 2**32))
def test_a_ciphertext_is_randomised_by_the_drawn_scalar(message: Point, key: Scalar, seed: int) -> None:
    draw = random.Random(seed).randbytes
    first, second = encrypt(message, key.public(), draw), encrypt(message, key.public(), draw)
    third, fourth = rerandomise(first, key.public(), draw), rerandomise(first, key.public(), draw)
    again = random.Random(seed).randbytes
    r = [Scalar.draw(again) for _ in range(4)]
    assert [first, second] == [Ciphertext(message + x.public(), key.public() * x) for x in r[:2]]
    assert [third, fourth] == [Ciphertext(message + x.public(), key.public() * x) for x in (r[0] + r[2], r[0] + r[3])]
    assert len({c.body for c in (first, second, third, fourth)}) == 4


@given(points, scalars, scalars)
def test_rerandomising_under_the_wrong_key_spoils_the_message(message: Point, key: Scalar, other: Scalar) -> None:
    draw = random.Random(9).randbytes
    if key == other:
        return
    assert decrypt(rerandomise(encrypt(message, key.public(), draw), other.public(), draw), key) != message


@given(points, scalars, scalars)
def test_multiplying_a_ciphertext_multiplies_its_message(p: Point, key: Scalar, factor: Scalar) -> None:
    ciphertext = encrypt(p, key.public(), random.Random(3).randbytes)
    assert decrypt(ciphertext * factor, key) == p * factor


@given(points, scalars)
def test_a_ciphertext_survives_its_encoding(message: Point, key: Scalar) -> None:
    ciphertext = encrypt(message, key.public(), random.Random(4).randbytes)
    assert Ciphertext.decode(ciphertext.encode()) == ciphertext


@pytest.mark.parametrize(
    "data", [b"", bytes(64), G.encode() + IDENTITY, IDENTITY + G.encode(), G.encode() * 3, G.encode()]
)
def test_a_ciphertext_with_an_identity_or_a_wrong_length_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        Ciphertext.decode(data)


def test_a_ciphertext_crafted_to_decrypt_to_the_identity_is_refused() -> None:
    key = Scalar.of(5)
    with pytest.raises(MalformedError):
        decrypt(Ciphertext(G, G * key), key)


def test_the_content_key_is_a_secret_of_its_own() -> None:
    key = G.key()
    assert isinstance(key, Secret)
    assert len(key) == 32
    assert key.reveal() != G.encode()


# --- sums with public factors -----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-70, 70) | st.integers(-ORDER, ORDER), points), min_size=1, max_size=4))
def test_a_weighted_sum_is_the_sum_of_products(terms: list[tuple[int, Point]]) -> None:
    expected = [point * Scalar.of(factor % ORDER) for factor, point in terms if factor % ORDER]
    try:
        assert Point.weighted(terms) == Point.sum(expected)
    except (MalformedError, TypeError):
        with pytest.raises((MalformedError, TypeError)):
            Point.sum(expected)


def test_every_small_factor_of_either_sign() -> None:
    for factor in range(1, 130):
        times = G * Scalar.of(factor)
        assert Point.weighted([(factor, G)]) == times
        assert Point.weighted([(-factor, G), (2 * factor, G)]) == times
        assert Point.weighted([(factor - ORDER, G)]) == times


def test_a_weighted_sum_may_pass_the_identity_but_not_end_there() -> None:
    other = Point.hash(b"other", b"test")
    assert Point.weighted([(3, G), (-3, G), (1, other)]) == other
    with pytest.raises(MalformedError):
        Point.weighted([(3, G), (-3, G)])
    with pytest.raises(MalformedError):
        Point.weighted([(0, G)])
