from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.net.close_reasons import UNASKED, UNREACHABLE
from veilcast.net.socks import SocksWrapper
from veilcast.net.stream_setup import BrokenStream

HELLO, LOGGED_IN = b"\x05\x02", b"\x01\x00"
CONNECTED = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"


def wrap() -> SocksWrapper:
    return SocksWrapper("example.onion", 80, b"hop", b"secret")


def test_the_words_are_those_of_the_standard() -> None:
    made = wrap()
    assert not made.handshake(b"")
    assert made.outgoing() == b"\x05\x01\x02"
    assert not made.handshake(HELLO)
    assert made.outgoing() == b"\x01\x03hop\x06secret"
    assert not made.handshake(LOGGED_IN)
    assert made.outgoing() == b"\x05\x01\x00\x03\x0dexample.onion\x00\x50"
    assert made.handshake(CONNECTED)
    assert made.outgoing() == b""


@given(cuts=st.lists(st.integers(0, 30), max_size=6), kind=st.sampled_from([1, 3, 4]), rest=st.binary(max_size=8))
def test_however_the_answers_are_split_the_following_bytes_are_read(cuts: list[int], kind: int, rest: bytes) -> None:
    place = {1: bytes(4), 3: b"\x02ab", 4: bytes(16)}[kind]
    answers = HELLO + LOGGED_IN + bytes([5, 0, 0, kind]) + place + bytes(2)
    said, made, read, over = answers + rest, wrap(), b"", False
    edges = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    for start, end in pairwise(edges):
        if over:
            read += b"".join(made.read(said[start:end]))
        elif made.handshake(said[start:end]):
            over = True
            read += b"".join(made.read(b""))
    assert over
    assert read == rest


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (b"\x05\xff", UNASKED),
        (b"\x04\x02", UNASKED),
        (b"HT", UNASKED),
        (HELLO + b"\x01\x01", UNASKED),
        (HELLO + LOGGED_IN + b"\x05\x04\x00\x01", UNREACHABLE),
        (HELLO + LOGGED_IN + b"\x05\xf0\x00\x01", UNREACHABLE),
        (HELLO + LOGGED_IN + b"\x04\x00\x00\x01", UNASKED),
        (HELLO + LOGGED_IN + b"\x05\x00\x00\x09", UNASKED),
    ],
)
def test_every_other_answer_ends_the_call_with_a_reason(answers: bytes, reason: str) -> None:
    with pytest.raises(BrokenStream) as broken:
        wrap().handshake(answers)
    assert broken.value.reason == reason


@given(st.binary(max_size=40))
def test_no_bytes_upset_it(data: bytes) -> None:
    with suppress(BrokenStream):
        wrap().handshake(data)


@pytest.mark.parametrize(
    ("host", "port", "user"),
    [("", 80, b"x"), ("x" * 256, 80, b"x"), ("x", 1 << 16, b"x"), ("x", 80, b""), ("ü", 1, b"x")],
)
def test_an_invalid_request_is_refused_before_anything_is_sent(host: str, port: int, user: bytes) -> None:
    with pytest.raises(ConfigError):
        SocksWrapper(host, port, user, b"y")
