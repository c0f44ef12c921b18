"""Any k shares give the secret, k - 1 reveal nothing, and one secret or many are split in the same way."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import shamir
from veilcast.crypto.secret import Secret
from veilcast.crypto.shamir import (
    MAX_SHARES,
    MAX_SIZE,
    ShamirShare,
    interpolate_many,
    reconstruct,
    reconstruct_many,
    split,
    split_many,
)
from veilcast.errors import LocalError, MalformedError


@st.composite
def schemes(draw: st.DrawFn, limit: int = 12) -> tuple[int, int]:
    n = draw(st.integers(1, limit))
    return draw(st.integers(1, n)), n


secrets = st.binary(min_size=1, max_size=40).map(Secret)
entropies = st.integers(0, 2**32).map(lambda seed: random.Random(seed).randbytes)
Entropy = Callable[[int], bytes]


# --- an independent oracle: schoolbook arithmetic of polynomials over GF(2), and Lagrange by the textbook


def multiply(a: int, b: int) -> int:
    wide = 0
    for bit in range(8):
        if b >> bit & 1:
            wide ^= a << bit
    for bit in range(14, 7, -1):
        if wide >> bit & 1:
            wide ^= 0x11B << (bit - 8)
    return wide


INVERSE = {a: b for a in range(1, 256) for b in range(1, 256) if multiply(a, b) == 1}


def value_at(target: int, points: Sequence[tuple[int, int]]) -> int:
    total = 0
    for x, y in points:
        for other, _ in points:
            if other != x:
                y = multiply(y, multiply(target ^ other, INVERSE[x ^ other]))
        total ^= y
    return total


def test_the_oracle_knows_the_field() -> None:
    assert multiply(0x57, 0x83) == 0xC1  # the example of FIPS 197, section 4.2
    assert len(INVERSE) == 255


# --- reconstruction


@given(schemes(), secrets, entropies, st.randoms(use_true_random=False))
def test_any_k_shares_in_any_order_give_the_secret(
    scheme: tuple[int, int], secret: Secret, entropy: Entropy, rng: random.Random
) -> None:
    k, n = scheme
    dealt = split(secret, k, n, entropy)
    assert [share.index for share in dealt] == list(range(1, n + 1))
    assert reconstruct(rng.sample(dealt, k), k) == secret


@given(schemes(limit=6), st.integers(0, 255), entropies)
def test_shares_lie_on_one_polynomial_by_the_oracle(scheme: tuple[int, int], byte: int, entropy: Entropy) -> None:
    k, n = scheme
    values = [(s.index, s.data.reveal()[0]) for s in split(Secret(bytes([byte])), k, n, entropy)]
    for chosen in combinations(values, k):
        assert value_at(0, chosen) == byte
        assert all(value_at(x, chosen) == y for x, y in values if (x, y) not in chosen)


def test_the_oracle_catches_a_wrong_byte() -> None:
    values = [(s.index, s.data.reveal()[0]) for s in split(Secret(b"v"), 3, 5, random.Random(1).randbytes)]
    spoilt = [(values[0][0], values[0][1] ^ 1), *values[1:3]]
    assert value_at(0, spoilt) != ord("v")


def test_every_subset_of_the_largest_indices_works() -> None:
    secret = Secret(bytes(range(32)))
    dealt = split(secret, 2, MAX_SHARES, random.Random(2).randbytes)
    for share in dealt[:-1]:
        assert reconstruct([dealt[-1], share], 2) == secret


def test_all_255_of_255_are_needed_and_enough() -> None:
    secret = Secret(b"k" * MAX_SIZE)
    dealt = split(secret, 255, 255, random.Random(3).randbytes)
    assert reconstruct(dealt, 255) == secret
    with pytest.raises(LocalError):
        reconstruct(dealt[:-1], 255)


def test_a_threshold_of_one_is_a_copy() -> None:
    def nothing(size: int) -> bytes:
        assert size == 0
        return b""

    assert all(share.data == Secret(b"copy") for share in split(Secret(b"copy"), 1, 4, nothing))


# --- secrecy, exhaustively for secrets of one byte


@pytest.mark.parametrize("holder", [1, 2, 3])
def test_one_share_of_two_is_uniform_whatever_the_secret(holder: int) -> None:
    for secret in (0, 1, 0x53, 255):
        seen = Counter(
            split(Secret(bytes([secret])), 2, 3, bytes([c]).__mul__)[holder - 1].data.reveal() for c in range(256)
        )
        assert set(seen.values()) == {1}
        assert len(seen) == 256


@pytest.mark.parametrize("view", [(1, 2), (1, 3), (2, 4), (3, 4)])
def test_two_shares_of_three_fit_every_secret_equally(view: tuple[int, int]) -> None:
    """Over all 2^16 choices of entropy, in one batch, each pair of values turns up once for each secret."""
    choices = np.array(list(product(range(256), repeat=2)), dtype=np.uint8)
    for secret in (0, 77):
        rows = np.full((len(choices), 1), secret, dtype=np.uint8)
        dealt = split_many(rows, 3, 4, lambda size: choices.T.tobytes())
        pairs = dealt[view[0] - 1, :, 0].astype(int) * 256 + dealt[view[1] - 1, :, 0]
        assert (np.bincount(pairs, minlength=1 << 16) == 1).all()


def test_k_minus_one_shares_are_consistent_with_every_secret() -> None:
    first, second, _ = split(Secret(b"!"), 3, 3, random.Random(4).randbytes)
    fitting = {reconstruct([first, second, ShamirShare(3, Secret(bytes([c])))], 3).reveal() for c in range(256)}
    assert len(fitting) == 256


def test_a_splitter_that_reuses_its_noise_is_caught_by_the_count() -> None:
    """The planted bug: one drawn byte for two coefficients leaves most pairs of shares impossible."""
    choices = np.repeat(np.arange(256, dtype=np.uint8)[None, :], 2, axis=0)
    rows = np.full((256, 1), 77, dtype=np.uint8)
    dealt = split_many(rows, 3, 4, lambda size: choices.tobytes())
    pairs = dealt[1, :, 0].astype(int) * 256 + dealt[3, :, 0]
    assert not (np.bincount(pairs, minlength=1 << 16) == 1).all()


# --- batches


@given(schemes(), st.integers(1, 5), st.integers(1, 33), entropies, st.randoms(use_true_random=False))
def test_a_batch_is_split_as_its_secrets_are_alone(
    scheme: tuple[int, int], count: int, size: int, entropy: Entropy, rng: random.Random
) -> None:
    k, n = scheme
    rows = np.frombuffer(rng.randbytes(count * size), dtype=np.uint8).reshape(count, size)
    noise = entropy((k - 1) * count * size)
    dealt = split_many(rows, k, n, io.BytesIO(noise).read)
    by_secret = np.frombuffer(noise, dtype=np.uint8).reshape(k - 1, count, size)
    for i in range(count):
        alone = split(Secret(rows[i].tobytes()), k, n, io.BytesIO(by_secret[:, i].tobytes()).read)
        assert [share.data.reveal() for share in alone] == [dealt[x, i].tobytes() for x in range(n)]
    chosen = rng.sample(range(n), k)
    assert (reconstruct_many([x + 1 for x in chosen], dealt[chosen]) == rows).all()


def test_a_batch_over_several_blocks_comes_back() -> None:
    rows = np.frombuffer(random.Random(5).randbytes(33 * (shamir._BLOCK // 10)), dtype=np.uint8).reshape(-1, 33)
    dealt = split_many(rows, 6, 10, random.Random(6).randbytes)
    assert (reconstruct_many([10, 1, 7, 3, 4, 9], dealt[[9, 0, 6, 2, 3, 8]]) == rows).all()
    assert (reconstruct_many([10, 1, 7, 3, 4], dealt[[9, 0, 6, 2, 3]]) != rows).any(axis=1).all()


def test_a_batch_need_not_lie_in_one_piece() -> None:
    wide = np.frombuffer(random.Random(7).randbytes(640), dtype=np.uint8).reshape(10, 64)
    rows = wide[::2, 16:48]
    dealt = split_many(rows, 2, 3, random.Random(8).randbytes)
    assert (reconstruct_many([3, 1], dealt[[2, 0]]) == rows).all()


def test_an_empty_batch_gives_empty_shares() -> None:
    dealt = split_many(np.zeros((0, 32), dtype=np.uint8), 2, 3, random.Random(9).randbytes)
    assert dealt.shape == (3, 0, 32)
    assert reconstruct_many([1, 2], dealt[:2]).shape == (0, 32)


# --- what is refused


@pytest.mark.parametrize(("k", "n"), [(0, 3), (-1, 3), (4, 3), (1, 0), (2, 256), (256, 256)])
def test_an_impossible_threshold_scheme_is_refused(k: int, n: int) -> None:
    with pytest.raises(LocalError):
        split(Secret(b"key"), k, n, random.Random(0).randbytes)
    with pytest.raises(LocalError):
        split_many(np.zeros((1, 3), dtype=np.uint8), k, n, random.Random(0).randbytes)


@pytest.mark.parametrize("wrong", [-1, 1])
def test_entropy_of_another_length_than_asked_is_refused(wrong: int) -> None:
    """One byte for all, as numpy would have it, leaves shares that say everything."""
    with pytest.raises(LocalError, match="entropy"):
        split(Secret(b"abcd"), 3, 4, lambda size: bytes(size + wrong))
    rows = np.zeros((4, 4), dtype=np.uint8)
    with pytest.raises(LocalError, match="entropy"):
        split_many(rows, 3, 5, lambda size: bytes(size + wrong))
    with pytest.raises(LocalError, match="entropy"):
        split_many(rows, 3, 5, lambda size: b"\7")


def test_shares_that_do_not_belong_together_are_refused() -> None:
    one, two, three = split(Secret(b"key"), 2, 3, random.Random(0).randbytes)
    with pytest.raises(LocalError):
        reconstruct([one], 2)
    with pytest.raises(LocalError):
        reconstruct([one, two, three], 0)
    with pytest.raises(MalformedError):
        reconstruct([one, one], 2)
    with pytest.raises(MalformedError):
        reconstruct([one, ShamirShare(1, two.data)], 2)
    with pytest.raises(MalformedError):
        reconstruct([one, ShamirShare(2, Secret(b"longer"))], 2)


def test_batches_of_the_wrong_form_are_refused() -> None:
    entropy = random.Random(0).randbytes
    good = np.zeros((2, 4, 8), dtype=np.uint8)
    with pytest.raises(LocalError):
        split_many(good, 2, 3, entropy)
    with pytest.raises(LocalError):
        split_many(np.zeros((4, 8)), 2, 3, entropy)  # type: ignore[arg-type]
    with pytest.raises(LocalError):
        reconstruct_many([1], good)
    with pytest.raises(LocalError):
        reconstruct_many([], good[:0])
    with pytest.raises(LocalError):
        reconstruct_many([1, 2], good[0])
    with pytest.raises(MalformedError):
        reconstruct_many([2, 2], good)
    with pytest.raises(MalformedError):
        reconstruct_many([0, 2], good)
    with pytest.raises(MalformedError):
        reconstruct_many([1, 256], good)


def test_a_secret_alone_is_a_key_not_a_file() -> None:
    with pytest.raises(LocalError):
        split(Secret(bytes(MAX_SIZE + 1)), 2, 3, random.Random(0).randbytes)


# --- encoding


@given(st.integers(1, 255), st.binary(min_size=1, max_size=MAX_SIZE))
def test_a_share_survives_its_encoding(index: int, data: bytes) -> None:
    share = ShamirShare(index, Secret(data))
    assert ShamirShare.decode(share.encode().reveal()) == share


@pytest.mark.parametrize("data", [b"", b"\1", b"\1\1", b"\2\1x", b"\0\1x", b"\1\0x", b"\1\1" + bytes(MAX_SIZE + 1)])
def test_bytes_that_are_no_share_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        ShamirShare.decode(data)


@given(st.binary(max_size=MAX_SIZE + 4))
def test_any_bytes_decode_to_a_share_or_are_refused(data: bytes) -> None:
    try:
        share = ShamirShare.decode(data)
    except MalformedError:
        return
    assert share.encode().reveal() == data


def test_a_share_does_not_print() -> None:
    share = ShamirShare(3, Secret(b"do not show this"))
    assert "show" not in repr(share)
    assert "show" not in repr(share.encode())


def test_the_cache_of_schemes_is_bounded() -> None:
    limit = shamir._masks.cache_info().maxsize
    assert limit is not None
    for n in range(2, limit + 10):
        split(Secret(b"m"), 2, n, random.Random(n).randbytes)
    assert shamir._masks.cache_info().currsize == limit


def test_no_choice_of_holders_is_remembered() -> None:
    """There are 210 choices of 6 from 10, and strangers may name any indices: none costs memory."""
    secret = Secret(random.Random(10).randbytes(32))
    dealt = split(secret, 6, 10, random.Random(11).randbytes)
    before = shamir._masks.cache_info()
    assert all(reconstruct(chosen, 6) == secret for chosen in combinations(dealt, 6))
    assert shamir._masks.cache_info() == before


# --- interpolation without a secret -----------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32))
def test_values_at_other_points_are_the_oracles(count: int, wanted: int, seed: int) -> None:
    rng = random.Random(seed)
    points = rng.sample(range(MAX_SHARES + 1), count + wanted)
    columns = [np.frombuffer(rng.randbytes(3), dtype=np.uint8) for _ in range(count)]
    found = interpolate_many(columns, points[:count], points[count:])
    for row, point in zip(found, points[count:], strict=True):
        for byte in range(3):
            known = [(x, int(column[byte])) for x, column in zip(points[:count], columns, strict=True)]
            assert row[byte] == value_at(point, known)


@pytest.mark.parametrize(
    ("rows", "known", "wanted"),
    [([b"ab"], [1, 2], [3]), ([], [], [3]), ([b"ab"], [1], []), ([b"ab"], [256], [3]), ([b"ab", b"a"], [1, 2], [3])],
)
def test_interpolation_refuses_rows_and_points_that_do_not_fit(
    rows: list[bytes], known: list[int], wanted: list[int]
) -> None:
    with pytest.raises(LocalError):
        interpolate_many([np.frombuffer(row, dtype=np.uint8) for row in rows], known, wanted)


@pytest.mark.parametrize(("known", "wanted"), [([1, 1], [3]), ([1, 2], [2])])
def test_interpolation_refuses_a_point_twice(known: list[int], wanted: list[int]) -> None:
    with pytest.raises(MalformedError):
        interpolate_many([np.zeros(2, dtype=np.uint8)] * 2, known, wanted)
