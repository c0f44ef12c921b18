"""Foiled streams as rows: what attackers say of a table is what they say of the arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.lab import tables
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream.model import KNOWS_NOTHING
from veilcast.lab.runs.foil import stream_tables
from veilcast.lab.tables import StreamGuessRow, StreamRow


def candidates() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(1)
    return foil_series(NoiseFakes(3, 1.0), 100 + np.cumsum(rng.standard_normal((4, 12)), axis=1), rng)[0]


def test_rows_of_streams_are_candidates_in_their_order() -> None:
    seen = candidates()
    table = stream_tables.stream_rows("r", seen)
    assert table.schema == tables.arrow_schema(StreamRow)
    assert np.array_equal(table["value"].to_numpy().reshape(seen.shape), seen)
    last = table.to_pylist()[-1]
    assert (last["stream"], last["step"], last["slot"]) == (3, 11, 3)


def test_a_group_of_rows_is_guessed_like_its_array_in_whatever_order_it_comes() -> None:
    seen = candidates()
    group = stream_tables.stream_rows("r", seen[2:3])
    shuffled = group.take(pa.array(np.random.default_rng(2).permutation(len(group))))
    found = stream_tables._guess(("medoid", "uniform"), KNOWS_NOTHING)(shuffled)
    assert found.schema == tables.arrow_schema(StreamGuessRow)
    scores = found["score"].to_numpy().reshape(2, *seen.shape[1:])
    for score, attack in zip(scores, ("medoid", "uniform"), strict=True):
        assert np.array_equal(score, score_candidates(attack, seen[2:3], KNOWS_NOTHING)[0])
    with pytest.raises(ConfigError, match="as many candidates"):
        stream_tables._guess(("medoid",), KNOWS_NOTHING)(group.slice(1))
