"""Foiled streams as rows: what attackers say of a table is what they say of the arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.generator import foiled
from veilcast.foil.noise import Noise
from veilcast.lab import tables
from veilcast.lab.attack.foil_attackers import ATTACKERS
from veilcast.lab.attack.foil_model import KNOWS_NOTHING
from veilcast.lab.sweep import foil_streams
from veilcast.lab.tables import Stream, StreamGuess


def candidates() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(1)
    return foiled(Noise(3, 1.0), 100 + np.cumsum(rng.standard_normal((4, 12)), axis=1), rng)[0]


def test_rows_of_streams_are_candidates_in_their_order() -> None:
    seen = candidates()
    table = foil_streams.rows("r", seen)
    assert table.schema == tables.arrow_schema(Stream)
    assert np.array_equal(table["value"].to_numpy().reshape(seen.shape), seen)
    last = table.to_pylist()[-1]
    assert (last["stream"], last["step"], last["slot"]) == (3, 11, 3)


def test_a_group_of_rows_is_guessed_like_its_array_in_whatever_order_it_comes() -> None:
    seen = candidates()
    group = foil_streams.rows("r", seen[2:3])
    shuffled = group.take(pa.array(np.random.default_rng(2).permutation(len(group))))
    found = foil_streams._guess(("medoid", "uniform"), KNOWS_NOTHING)(shuffled)
    assert found.schema == tables.arrow_schema(StreamGuess)
    scores = found["score"].to_numpy().reshape(2, *seen.shape[1:])
    for score, attack in zip(scores, ("medoid", "uniform"), strict=True):
        assert np.array_equal(score, ATTACKERS[attack].score(seen[2:3], KNOWS_NOTHING)[0])
    with pytest.raises(ConfigError, match="as many candidates"):
        foil_streams._guess(("medoid",), KNOWS_NOTHING)(group.slice(1))
