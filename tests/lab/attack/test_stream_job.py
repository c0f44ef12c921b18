"""Foiled streams as tables: what attackers guess of a table is what they guess of the arrays, on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from veilcast.errors import ConfigError
from veilcast.foil.generators.base import foil_series
from veilcast.foil.generators.noise import NoiseFakes
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun
from veilcast.lab.attack.registry import score_candidates
from veilcast.lab.attack.stream import stream_job
from veilcast.lab.attack.stream.model import MoveLaw, SignLaw, StreamModel
from veilcast.lab.attack.stream.stream_job import guess_streams
from veilcast.lab.attack.stream.trained import FittedLogit
from veilcast.lab.measure.foil_privacy import indistinguishability, likeliest_candidates, truth_deviation
from veilcast.lab.measure.stream_guesses import compare_streams
from veilcast.lab.runs.foil.stream_tables import observe_streams, tabulate_truth
from veilcast.lab.tables import StreamGuessRow, StreamRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS, STEPS, SLOTS = 5, 12, 4
RNG = np.random.default_rng(1)
SEEN, POSITION = foil_series(
    NoiseFakes(SLOTS - 1, 1.0), 100 + np.cumsum(RNG.standard_normal((STREAMS, STEPS)), axis=1), RNG
)
MODEL = StreamModel(
    truth=MoveLaw(1.0, 0.1),
    fakes=MoveLaw(1.5, 0.0, 4.0),
    noise=1.0,
    signs=SignLaw(-0.2, 0.1),
    fake_signs=SignLaw(0.05),
    branching=0.1,
    delay=4,
    told=SEEN[:, :, 0],
    proxy=np.abs(SEEN[:, :, 1]),
    asked=SEEN > 100,
    fitted=FittedLogit(np.arange(3.0)),
)
ATTACKS = ("uniform", "medoid", "filter", "smoother", "turns", "confirmation", "restless", "hindsight")


def observe(ancestral: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None = None) -> dict[str, pa.Table]:
    return observe_streams("r", SEEN, MODEL, 1.0, ancestral, ())


def guess(observed: dict[str, pa.Table], *names: str) -> pa.Table:
    found = guess_streams(observed, names)
    assert isinstance(found, pa.Table)
    return found


def chosen_in(guesses: pa.Table, attack: str) -> set[tuple[int, int, int]]:
    return {(row["stream"], row["step"], row["slot"]) for row in guesses.to_pylist() if row["attack"] == attack}


def test_rows_of_streams_are_candidates_in_their_order() -> None:
    table = observe()["streams"]
    assert table.schema == tables.arrow_schema(StreamRow)
    assert np.array_equal(table["value"].to_numpy().reshape(SEEN.shape), SEEN)
    last = table.to_pylist()[-1]
    assert (last["stream"], last["step"], last["slot"]) == (STREAMS - 1, STEPS - 1, SLOTS - 1)


def test_guesses_of_shuffled_rows_are_the_likeliest_candidates_of_the_array() -> None:
    shuffled = {
        name: table.take(pa.array(np.random.default_rng(2).permutation(len(table))))
        for name, table in observe().items()
    }
    guesses = guess(shuffled, *ATTACKS)
    assert guesses.schema == tables.arrow_schema(StreamGuessRow)
    for attack in ATTACKS:
        posterior = score_candidates(attack, SEEN, MODEL)
        expected = {tuple(each) for each in np.argwhere(likeliest_candidates(posterior)).tolist()}
        assert chosen_in(guesses, attack) == expected, attack
        scores = {row["score"] for row in guesses.to_pylist() if row["attack"] == attack}
        assert scores <= set(posterior.ravel().tolist())


def test_a_model_is_read_back_from_its_tables() -> None:
    block = GroupedRun(_block_rows())
    read, ancestral = stream_job._BlockStreams(block).read_model()
    assert ancestral is None
    for name in ("truth", "fakes", "noise", "signs", "fake_signs", "branching", "delay", "relative", "pmf", "endings"):
        assert getattr(read, name) == getattr(MODEL, name), name
    for name in ("told", "proxy", "asked"):
        assert np.array_equal(getattr(read, name), getattr(MODEL, name)), name
    assert np.array_equal(read.fitted.weights, MODEL.fitted.weights)


def _block_rows() -> pa.Table:
    found: list[pa.Table] = []

    def keep(rows: pa.Table, names: object, *, all_of_them: bool) -> pa.Table:
        found.append(rows)
        return tables.arrow_schema(StreamGuessRow).empty_table()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_job, "GroupedRun", lambda rows: rows)
        patch.setattr(stream_job, "_guess_block", keep)
        guess(observe(), "uniform")
    return found[0]


def test_both_engines_guess_the_same_of_several_blocks(spark: SparkSession) -> None:
    observed = observe()
    streams = observed["streams"]
    far = streams.set_column(1, "stream", pa.array(streams["stream"].to_numpy() * 1_500))
    observed |= {"streams": far, "stream_knowledge": observed["stream_knowledge"].slice(0, 0)}
    here = guess(observed, "smoother", "medoid", "turns")
    frames = {name: spark.createDataFrame(table) for name, table in observed.items()}
    there = guess_streams(frames, ["smoother", "medoid", "turns"])
    assert not isinstance(there, pa.Table)
    keys = [(name, "ascending") for name in here.column_names]
    assert there.toArrow().cast(here.schema).sort_by(keys).equals(here.sort_by(keys))
    expected = {(1_500 * stream, step, slot) for stream, step, slot in chosen_in(guess(observe(), "turns"), "turns")}
    assert chosen_in(here, "turns") == expected


def test_measures_from_tables_are_those_of_the_arrays() -> None:
    observed, truth = observe(), tabulate_truth("r", POSITION, np.arange(STREAMS))
    compared = compare_streams(observed["streams"], guess(observed, *ATTACKS), truth, 0.5)
    for attack in ATTACKS:
        chosen = likeliest_candidates(score_candidates(attack, SEEN, MODEL))
        found = compared.results[attack]
        assert np.array_equal(found.identified, indistinguishability(chosen, POSITION)[:, 1:])
        assert np.array_equal(found.deviation, truth_deviation(chosen, SEEN, POSITION)[:, 1:] * 0.5)


def test_an_attacker_of_branching_lineages_judges_their_paths_at_the_last_step() -> None:
    paths = SEEN[:, :, ::-1].copy()
    guesses = guess(observe(paths), "turns", "medoid")
    posterior = score_candidates("turns", paths, MODEL)
    expected = {tuple(each) for each in np.argwhere(likeliest_candidates(posterior)).tolist() if each[1] == STEPS - 1}
    assert chosen_in(guesses, "turns") == expected
    assert {step for _, step, _ in chosen_in(guesses, "medoid")} == set(range(STEPS))


def test_without_names_the_attackers_that_apply_guess() -> None:
    observed = observe()
    found = guess_streams({"streams": observed["streams"]})
    assert isinstance(found, pa.Table)
    said = set(found["attack"].to_pylist())
    assert {"uniform", "medoid"} <= said
    assert not said & {"smoother", "turns", "confirmation"}


def test_incomplete_streams_and_unknown_attackers_are_refused() -> None:
    streams = observe()["streams"]
    with pytest.raises(ConfigError, match="as many candidates"):
        guess({"streams": streams.slice(1)}, "medoid")
    with pytest.raises(ConfigError, match="no attackers on streams are called magic"):
        guess({"streams": streams}, "magic")
    with pytest.raises(ConfigError, match="needs to know truth"):
        guess({"streams": streams}, "smoother")
    with pytest.raises(ConfigError, match="need the table streams"):
        guess_streams({})
