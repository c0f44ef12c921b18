"""CPace agrees with the vectors of its draft, and gives one run one try."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import cpace
from veilcast.crypto.cpace import CpaceRun, derive_generator
from veilcast.crypto.group import Point, Scalar
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError

FILE = Path(__file__).parents[1] / "vectors" / "cpace" / "draft21.json"
VECTOR = {name: bytes.fromhex(value) for name, value in json.loads(FILE.read_text()).items()}
PASSWORD = Secret(VECTOR["PRS"])


def run_of_vector(scalar: str) -> CpaceRun:
    """A run whose scalar is the vector's. Scalars are drawn by reduction, and a small one reduces to itself."""
    wide = VECTOR[scalar] + bytes(32)
    return CpaceRun(PASSWORD, channel=VECTOR["CI"], session=VECTOR["sid"], entropy=lambda size: wide[:size])


def make_run(password: bytes, seed: int, channel: bytes = b"c", session: bytes = b"s") -> CpaceRun:
    return CpaceRun(Secret(password), channel=channel, session=session, entropy=Random(seed).randbytes)


def test_the_generator_is_that_of_the_draft() -> None:
    assert derive_generator(PASSWORD, VECTOR["CI"], VECTOR["sid"]).encode() == VECTOR["generator"]


def test_both_parties_compute_the_key_of_the_draft() -> None:
    a, b = run_of_vector("ya"), run_of_vector("yb")
    assert (a.share, b.share) == (VECTOR["Ya"], VECTOR["Yb"])
    assert (Point(VECTOR["Yb"]) * Scalar(VECTOR["ya"])).encode() == VECTOR["K"]
    of_a = a.finish_as_initiator(b.share, about=VECTOR["ADa"], about_them=VECTOR["ADb"])
    of_b = b.finish_as_responder(a.share, about=VECTOR["ADb"], about_them=VECTOR["ADa"])
    assert of_a.reveal() == of_b.reveal() == VECTOR["ISK"]


def test_the_product_of_the_draft_comes_out() -> None:
    assert (Point(VECTOR["X"]) * Scalar(VECTOR["s"])).encode() == VECTOR["sX"]


@pytest.mark.parametrize("share", [VECTOR["Y_i1"], VECTOR["Y_i2"], b"", bytes(31), VECTOR["X"] + b"\0"])
def test_a_share_that_is_no_point_ends_the_run(share: bytes) -> None:
    run = make_run(b"word", 1)
    with pytest.raises(MalformedError):
        run.finish_as_responder(share, about=b"", about_them=b"")
    with pytest.raises(LocalError):
        run.finish_as_responder(VECTOR["X"], about=b"", about_them=b"")


def test_a_run_gives_one_key_only() -> None:
    one, other = make_run(b"word", 1), make_run(b"word", 2)
    one.finish_as_initiator(other.share, about=b"", about_them=b"")
    with pytest.raises(LocalError):
        one.finish_as_initiator(other.share, about=b"", about_them=b"")


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**32))
def test_equal_passwords_agree_and_every_difference_shows_in_the_key(password: bytes, seed: int) -> None:
    def key(
        ours: bytes = password, channel: bytes = b"c", session: bytes = b"s", about: bytes = b"join"
    ) -> tuple[bytes, bytes]:
        a, b = make_run(password, seed), make_run(ours, seed + 1, channel, session)
        of_a = a.finish_as_initiator(b.share, about=b"join", about_them=b"invite")
        of_b = b.finish_as_responder(a.share, about=b"invite", about_them=about)
        return of_a.reveal(), of_b.reveal()

    same = key()
    assert same[0] == same[1]
    for other in (key(ours=password + b"x"), key(channel=b"d"), key(session=b"t"), key(about=b"joi")):
        assert other[0] != other[1]


@given(st.lists(st.binary(max_size=200), max_size=4), st.lists(st.binary(max_size=200), max_size=4))
def test_no_two_lists_of_parts_have_one_encoding(parts: list[bytes], others: list[bytes]) -> None:
    assert (cpace._join(*parts) == cpace._join(*others)) == (parts == others)


def test_a_length_takes_two_bytes_from_128_on() -> None:
    assert cpace._join(bytes(127))[:2] == b"\x7f\0"
    assert cpace._join(bytes(128))[:3] == b"\x80\x01\0"
