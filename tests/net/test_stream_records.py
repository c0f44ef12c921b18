from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ExcessError
from veilcast.net.records import PREFIX, RecordReader, encode_record

records = st.lists(st.binary(max_size=40), max_size=20)


@given(records, st.lists(st.integers(1, 50), min_size=1))
def test_however_a_stream_is_cut_the_same_records_come_out(sent: list[bytes], cuts: list[int]) -> None:
    stream, reader, got, start, turn = b"".join(map(encode_record, sent)), RecordReader(40), list[bytes](), 0, 0
    while start < len(stream):
        step = cuts[turn % len(cuts)]
        got += reader.feed(stream[start : start + step])
        start, turn = start + step, turn + 1
    assert got == sent


@given(records)
def test_returned_frames_are_not_kept(sent: list[bytes]) -> None:
    reader = RecordReader(40)
    assert list(reader.feed(b"".join(map(encode_record, sent)) + encode_record(b"half")[:-1])) == sent
    assert bytes(reader._buffer) == encode_record(b"half")[:-1]


def test_a_record_that_is_too_long_is_refused_by_its_length_and_earlier_ones_are_read() -> None:
    reader, got = RecordReader(40), list[bytes]()
    with pytest.raises(ExcessError):
        got.extend(reader.feed(encode_record(bytes(40)) + encode_record(bytes(41))[:PREFIX]))
    assert got == [bytes(40)]
