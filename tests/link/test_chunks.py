"""Encoding and decoding of chunks, and malformed bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import MalformedError
from veilcast.link.chunks import CONTROL, LONG, NUMBERS, SHORT, Chunk, distance, read_chunks, write_chunk
from veilcast.wire.geometry import ACKNOWLEDGEMENTS, CELL, CELL_BODY_MIN, CHUNK_MAX, MESSAGE_MAX

ACKS = bytes(ACKNOWLEDGEMENTS)

CHUNKS = st.lists(
    st.tuples(
        st.sampled_from((CONTROL, SHORT, LONG)),
        st.integers(0, NUMBERS - 1),
        st.binary(min_size=1, max_size=200),
        st.none() | st.integers(0, MESSAGE_MAX),
    ),
    max_size=5,
)


@given(CHUNKS, st.integers(0, 300))
def test_chunks_are_read_as_they_were_written(chunks: list[Chunk], padding: int) -> None:
    body = ACKS + b"".join(write_chunk(*chunk) for chunk in chunks) + bytes(padding)
    assert read_chunks(body) == chunks


@given(st.binary(max_size=200))
def test_bytes_are_chunks_or_refused(data: bytes) -> None:
    try:
        chunks = read_chunks(ACKS + data)
    except MalformedError:
        return
    written = b"".join(write_chunk(*chunk) for chunk in chunks)
    assert data == written.ljust(len(data), b"\0"), "there is one way to write a body"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(write_chunk(SHORT, 0, b"", 0), id="without content"),
        pytest.param(write_chunk(SHORT, 0, bytes(CHUNK_MAX + 1), 0), id="too long"),
        pytest.param(write_chunk(SHORT, 0, b"abc", 0)[:-1], id="torn"),
        pytest.param(write_chunk(SHORT, 0, b"abc", 7)[:7], id="torn before its zeros"),
        pytest.param(bytes((0b00_10_0000, 1)) + bytes(4) + b"x", id="of no lane"),
        pytest.param(bytes((0b10_01_0000, 1)) + bytes(4) + b"\0\1x", id="zeros, but no end"),
        pytest.param(bytes((0b10_11_0000, 1)) + bytes(4) + b"\0\0x", id="no zeros, said at length"),
        pytest.param(write_chunk(SHORT, 0, b"abc", 0) + bytes(40) + b"x", id="something in the padding"),
        pytest.param(b"\0x", id="something in the end that has no room for a chunk"),
    ],
)
def test_malformed_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        read_chunks(ACKS + data)


@given(st.integers(0, 1 << 40), st.integers(-(1 << 31), (1 << 31) - 1))
def test_distances_survive_the_wrap(number: int, away: int) -> None:
    assert distance((number + away) % NUMBERS, number) == away


def test_the_largest_chunk_fits_a_cell_with_its_header_and_tag() -> None:
    assert ACKNOWLEDGEMENTS + len(write_chunk(LONG, 0, bytes(CHUNK_MAX), 1)) == CELL_BODY_MIN
    assert CELL_BODY_MIN <= CELL - 8 - 16
