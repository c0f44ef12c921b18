"""A box opens for its recipient and its purpose, and for no other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.noise import Keypair
from veilcast.crypto.sealed_box import OVERHEAD, box, unbox
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy

READER = Keypair(Secret(bytes(range(32))))


@given(plaintext=st.binary(max_size=300), seed=st.integers(0, 2**32))
def test_a_box_opens_again_and_has_a_fixed_overhead(plaintext: bytes, seed: int) -> None:
    boxed = box(READER.public, plaintext, purpose=b"test", entropy=random.Random(seed).randbytes)
    assert len(boxed) == len(plaintext) + OVERHEAD
    assert unbox(READER, boxed, purpose=b"test") == plaintext


def test_two_boxes_of_one_content_have_nothing_in_common(entropy: Entropy) -> None:
    first, second = (box(READER.public, bytes(64), purpose=b"test", entropy=entropy) for _ in range(2))
    alike = sum(a == b for a, b in zip(first, second, strict=True))
    assert alike < 10  # one of them is the version; the others are by chance


def test_another_reader_and_another_purpose_open_nothing(entropy: Entropy) -> None:
    boxed = box(READER.public, b"a note", purpose=b"test", entropy=entropy)
    with pytest.raises(ForgedError):
        unbox(Keypair.draw(entropy), boxed, purpose=b"test")
    with pytest.raises(ForgedError):
        unbox(READER, boxed, purpose=b"other")


def test_every_flipped_bit_and_every_cut_is_refused(entropy: Entropy) -> None:
    boxed = box(READER.public, b"a note", purpose=b"test", entropy=entropy)
    for position in range(len(boxed)):
        changed = bytearray(boxed)
        changed[position] ^= 1
        with pytest.raises(ForgedError):
            unbox(READER, bytes(changed), purpose=b"test")
        with pytest.raises(ForgedError):
            unbox(READER, boxed[:position], purpose=b"test")


def test_a_box_made_with_a_key_of_small_order_is_refused(entropy: Entropy) -> None:
    boxed = box(READER.public, b"a note", purpose=b"test", entropy=entropy)
    with pytest.raises(ForgedError):
        unbox(READER, boxed[:1] + bytes(32) + boxed[33:], purpose=b"test")
    with pytest.raises(MalformedError):
        box(bytes(32), b"a note", purpose=b"test", entropy=entropy)


def test_a_box_opens_in_its_context_only(entropy: Entropy) -> None:
    boxed = box(READER.public, b"a note", purpose=b"test", context=b"beside it", entropy=entropy)
    assert unbox(READER, boxed, purpose=b"test", context=b"beside it") == b"a note"
    for purpose, context in ((b"test", b""), (b"test", b"beside"), (b"testbeside", b" it")):
        with pytest.raises(ForgedError):
            unbox(READER, boxed, purpose=purpose, context=context)


def test_entropy_that_repeats_shares_no_key_between_two_contents() -> None:
    first, second = (box(READER.public, text, purpose=b"test", entropy=bytes) for text in (b"one note", b"another!"))
    assert first[1:33] != second[1:33]
    assert first == box(READER.public, b"one note", purpose=b"test", entropy=bytes)


def test_a_box_of_version_1_is_refused(entropy: Entropy) -> None:
    with pytest.raises(ForgedError):
        unbox(READER, b"\x07" + entropy(200), purpose=b"test")
