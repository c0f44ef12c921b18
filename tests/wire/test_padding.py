from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import LocalError, MalformedError
from veilcast.wire import pad, unpad
from veilcast.wire.geometry import CELL_PAYLOAD, LENGTH_PREFIX


@given(content=st.binary(max_size=CELL_PAYLOAD - LENGTH_PREFIX))
def test_every_content_is_padded_to_one_size_and_comes_back(content: bytes) -> None:
    block = pad(content, CELL_PAYLOAD)
    assert len(block) == CELL_PAYLOAD
    assert unpad(block) == content


def test_content_that_does_not_fit_is_a_local_error() -> None:
    with pytest.raises(LocalError):
        pad(bytes(CELL_PAYLOAD - LENGTH_PREFIX + 1), CELL_PAYLOAD)


@given(block=st.binary(max_size=64))
def test_any_block_is_refused_or_is_the_one_padding_of_its_content(block: bytes) -> None:
    try:
        content = unpad(block)
    except MalformedError:
        return
    assert pad(content, len(block)) == block


def test_nothing_can_be_hidden_in_the_padding() -> None:
    block = bytearray(pad(b"content", 64))
    block[-1] = 1
    with pytest.raises(MalformedError):
        unpad(bytes(block))
