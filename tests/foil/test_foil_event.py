"""Events on the wire, as the broker sees them: candidates differ only by their topics."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.foil.event import (
    NUMBER_MAX,
    PAYLOAD_SIZES,
    STREAM_BYTES,
    CandidateHead,
    open_body,
    seal_body,
    seal_fake_body,
    split_candidate,
)
from veilcast.foil.generators.base import FAKES_MAX
from veilcast.machine import Entropy
from veilcast.wire.geometry import BODY_CLASSES

SECRET, CHAFF = Secret(bytes(range(32))), Secret(bytes(range(1, 33)))


def head(slot: int = 1, number: int = 5) -> CandidateHead:
    return CandidateHead(bytes(range(STREAM_BYTES)), number, 4, slot)


def test_the_true_body_opens_with_the_secret_of_its_event_and_a_fake_does_not(entropy: Entropy) -> None:
    sealed = seal_body(head(), SECRET, b"a note", entropy)
    assert open_body(head(), SECRET, sealed) == b"a note"
    with pytest.raises(ForgedError):
        open_body(head(2), SECRET, seal_fake_body(head(2), CHAFF, len(sealed)))


@pytest.mark.parametrize(
    "moved",
    [head(2), head(number=6), CandidateHead(bytes(STREAM_BYTES), 5, 4, 1), CandidateHead(bytes(STREAM_BYTES), 5, 3, 1)],
)
def test_a_body_that_is_moved_to_another_head_does_not_open(moved: CandidateHead, entropy: Entropy) -> None:
    sealed = seal_body(head(), SECRET, b"a note", entropy)
    with pytest.raises(ForgedError):
        open_body(moved, SECRET, sealed)


@pytest.mark.parametrize("length", [0, 1000, 1020, 1021, 4000, 36_000])
def test_candidates_of_an_event_share_one_of_a_few_sizes(length: int, entropy: Entropy) -> None:
    true = head().encode() + seal_body(head(), SECRET, bytes(length), entropy)
    fake = head(2).encode() + seal_fake_body(head(2), CHAFF, len(true) - len(head().encode()))
    assert len(true) == len(fake)
    assert len(true) in PAYLOAD_SIZES


def test_the_largest_notification_fits_and_one_more_byte_does_not(entropy: Entropy) -> None:
    seal_body(head(), SECRET, bytes(BODY_CLASSES[-1] - 4), entropy)
    with pytest.raises(LocalError, match="largest"):
        seal_body(head(), SECRET, bytes(BODY_CLASSES[-1] - 3), entropy)


def told_apart_by_bytes(trues: list[bytes], fakes: list[bytes]) -> bool:
    """A broker that learns, from labelled examples, the frequency of each byte at each of the first places."""
    for place in range(64):
        one = Counter(body[place] for body in trues)
        other = Counter(body[place] for body in fakes)
        if max(abs(one[value] - other[value]) for value in range(256)) > 40:
            return True
    return False


def test_a_broker_that_counts_bytes_cannot_tell_true_bodies_from_fakes(entropy: Entropy) -> None:
    trues = [seal_body(head(), SECRET, b"always the same", entropy) for _ in range(600)]
    fakes = [seal_fake_body(head(), Secret(entropy(32)), len(trues[0])) for _ in range(600)]
    assert not told_apart_by_bytes(trues, fakes)
    noise = [entropy(len(trues[0])) for _ in range(600)]
    assert told_apart_by_bytes(trues, noise), "plain random bytes lack what all seals have"


def test_a_fake_body_is_stable_and_differs_by_slot_and_event(entropy: Entropy) -> None:
    size = len(seal_body(head(), SECRET, b"", entropy))
    assert seal_fake_body(head(), CHAFF, size) == seal_fake_body(head(), CHAFF, size)
    assert seal_fake_body(head(1), CHAFF, size)[20:] != seal_fake_body(head(2), CHAFF, size)[20:]
    assert seal_fake_body(head(), CHAFF, size)[20:] != seal_fake_body(head(), SECRET, size)[20:]


@given(st.binary(min_size=STREAM_BYTES, max_size=STREAM_BYTES), st.integers(0, NUMBER_MAX - 1), st.data())
def test_heads_round_trip(stream: bytes, number: int, data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, FAKES_MAX + 1))
    made = CandidateHead(stream, number, candidates, data.draw(st.integers(0, candidates - 1)))
    body = bytes(PAYLOAD_SIZES[0] - len(made.encode()))
    assert split_candidate(made.encode() + body) == (made, body)


@given(st.binary(max_size=64), st.sampled_from([0, *PAYLOAD_SIZES]))
def test_whatever_a_broker_sends_is_a_candidate_or_malformed(data: bytes, size: int) -> None:
    try:
        made, _ = split_candidate(data.ljust(size, b"\xff"))
    except MalformedError:
        return
    assert made.slot < made.candidates <= FAKES_MAX + 1
