from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.attack.server.tag_inference import TagNames, find_words_in_filters
from veilcast.topics.bloom import PUBLIC_KEY, Geometry

WORDS = [b"word %d" % number for number in range(40)]
SHAPE = Geometry.sized(elements=10, queries=1, bound=0.01)


def filled(words: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    bits = np.zeros((1, SHAPE.rows), np.bool_)
    bits[0, SHAPE.positions(words, PUBLIC_KEY).reshape(-1)] = True
    return bits


@given(st.sets(st.sampled_from(WORDS), min_size=1, max_size=10))
def test_no_word_of_a_filter_is_missed(words: set[bytes]) -> None:
    """The positive control."""
    said = find_words_in_filters(filled(sorted(words)), SHAPE.positions(WORDS, PUBLIC_KEY))[0]
    assert {word for word, held in zip(WORDS, said, strict=True) if held} >= words


def test_a_filter_is_wrong_no_oftener_than_its_geometry_allows() -> None:
    rng = np.random.default_rng(1)
    others = [rng.bytes(8) for _ in range(20_000)]
    assert find_words_in_filters(filled(WORDS[:10]), SHAPE.positions(others, PUBLIC_KEY)).mean() < 0.012


def test_words_under_another_key_are_found_no_oftener_than_by_chance() -> None:
    """The null control: who lacks the key computes something else."""
    others = SHAPE.positions([b"x" + word for word in WORDS], PUBLIC_KEY)
    assert find_words_in_filters(filled(WORDS[:10]), others).mean() < 0.05
    words = TagNames(np.arange(5, 9), np.arange(4))
    assert words.topics_of(np.arange(5)).tolist() == [-1] * 5
    assert words.topics_of(np.arange(5, 9)).tolist() == [0, 1, 2, 3]
