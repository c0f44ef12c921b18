"""Clock skew: the attacker succeeds on a grid, and not on the links as they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from support.link_network import LinkWorld
from veilcast.lab import tables
from veilcast.lab.attack.observer import clock_skew
from veilcast.lab.attack.observer.clock_job import estimate_clocks, guess_from_clocks
from veilcast.lab.attack.observer.clock_skew import CELLS_MIN, ESTIMATORS, PERIODS_US, estimate_link
from veilcast.link import pacing
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERRORS_PPM = (-31, 33, 13, 3, 38, -13)
NAMES = [f"n{place}" for place in range(len(ERRORS_PPM))]


def watch_machines(turns: int, errors: tuple[int, ...] = ERRORS_PPM) -> pa.Table:
    """The real machines in the simulator, all linked with all, each with the error of its own clock: all cells.

    A turn is 40 seconds, after which all neighbours hear of one another.
    """
    street = LinkWorld(*NAMES, watched=True)
    for name, error in zip(NAMES, errors, strict=True):
        street.set_clock(Address(name), 0, error)
    for turn in range(turns):
        for name in NAMES:
            for peer in NAMES:
                if name < peer:
                    street.after(turn * 40 * SECOND_US, partial(street.tell, name, peer, b"still there"))
    street.run(5 * SECOND_US)
    street.wire.seen.clear()
    street.run(turns * 40 * SECOND_US)
    t_us, src, dst, _ = zip(*street.wire.seen, strict=True)
    ends = {"src": [str(name) for name in src], "dst": [str(name) for name in dst]}
    return tables.from_columns("cells", run="r", epoch=0, t_us=t_us, **ends, size=1200)


def clocks(cells: pa.Table, estimator: str) -> NDArray[np.float64]:
    """The error of the clock of each node, by the mean over its links; a fast clock is above 0."""
    links = estimate_clocks(cells, [estimator])
    assert isinstance(links, pa.Table)
    return np.array([-np.mean(links.filter(pc.equal(links["src"], name))["ppm"].to_numpy()) for name in NAMES])


def test_on_a_grid_every_clock_is_estimated_to_a_part_in_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control: links as they were."""
    monkeypatch.setattr(pacing, "STRETCH_PPB", 0)
    monkeypatch.setattr(pacing, "STEP_SHARE", 1 << 40)
    cells = watch_machines(15)
    for estimator, within in (("envelope", 1.0), ("least-squares", 4.0)):
        found = clocks(cells, estimator)
        assert np.abs(found - ERRORS_PPM).max() < within


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_on_real_links_no_clock_is_recognised(estimator: str) -> None:
    """Errors of estimates are tens of times as large as the errors of clocks."""
    found = clocks(watch_machines(3), estimator)
    assert np.median(np.abs(found - ERRORS_PPM)) > 500


def test_equal_clocks_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The null control."""
    monkeypatch.setattr(pacing, "STRETCH_PPB", 0)
    monkeypatch.setattr(pacing, "STEP_SHARE", 1 << 40)
    found = clocks(watch_machines(6, (0,) * len(NAMES)), "envelope")
    assert np.abs(found).max() < 2


def test_gaps_of_several_slots_change_nothing() -> None:
    rng = np.random.default_rng(1)
    slots = np.sort(rng.choice(20_000, 15_000, replace=False))
    t_us = np.asarray(slots * 250_000 * (1 + 25e-6) + rng.uniform(0, 60_000, len(slots)), np.int64)
    assert abs(estimate_link(t_us, "envelope") - 25) < 0.5
    assert abs(estimate_link(t_us, "least-squares") - 25) < 0.5
    assert abs(estimate_link(t_us, "ends") - 25) < 10


def test_short_links_are_left_out_and_order_does_not_matter() -> None:
    t_us = np.arange(3 * CELLS_MIN) * 250_000
    src, dst = np.repeat(["a", "b", "b"], CELLS_MIN), np.repeat(["b", "a", "c"], CELLS_MIN)
    mixed = np.random.default_rng(1).permutation(len(t_us))[1:]  # One link has a cell too few.
    ends = {"src": src[mixed].tolist(), "dst": dst[mixed].tolist()}
    found = estimate_clocks(tables.from_columns("cells", run="r", epoch=0, t_us=t_us[mixed], **ends, size=1200))
    assert isinstance(found, pa.Table)
    assert len(found) == 2 * len(ESTIMATORS)
    assert np.abs(found["ppm"].to_numpy()).max() < 1e-6


def test_the_attacker_knows_the_classes_of_links() -> None:
    assert tuple(pacing.period_us(rate) for rate in pacing.RATES) == PERIODS_US


def test_the_nearest_is_named() -> None:
    assert clock_skew.identify(np.array([1.0, 20.0, -7.0]), np.array([18.0, 0.0])).tolist() == [1, 0]


def two_watches() -> pa.Table:
    """Two machines in one epoch, and in the next one under other addresses, in the other order."""
    rng = np.random.default_rng(2)
    parts = []
    for epoch, errors in ((4, {"a": 20, "b": -15}), (5, {"x": -15, "y": 20})):
        for sender, error in errors.items():
            for receiver in ("p", "q"):
                times = np.arange(600) * 250_000 * (1 - error / 1e6) + rng.uniform(0, 60_000, 600)
                ends = {"src": sender, "dst": receiver}
                t_us = times.astype(np.int64)
                parts.append(tables.from_columns("cells", run="r", epoch=epoch, t_us=t_us, **ends, size=1200))
    return pa.concat_tables(parts)


def test_machines_are_named_by_their_clocks_of_the_epoch_before() -> None:
    found = guess_from_clocks({"cells": two_watches()}, ["envelope"])
    assert isinstance(found, pa.Table)
    score = {(row["topic"], row["node"]): row["score"] for row in found.to_pylist() if row["role"] == "machine"}
    assert score["a", "y"] > score["a", "x"]
    assert score["b", "x"] > score["b", "y"]
    clock = {row["node"]: row["score"] for row in found.to_pylist() if row["role"] == "clock"}
    assert (clock["a"], clock["b"]) == (pytest.approx(20, abs=1), pytest.approx(-15, abs=1))


@pytest.mark.all_only
def test_spark_gives_the_same_guesses(spark: SparkSession) -> None:
    cells = two_watches()
    here = guess_from_clocks({"cells": cells})
    there = guess_from_clocks({"cells": spark.createDataFrame(cells)})
    assert isinstance(here, pa.Table)
    assert not isinstance(there, pa.Table)
    order = [(name, "ascending") for name in here.column_names]
    assert there.toArrow().select(here.column_names).sort_by(order).equals(here.sort_by(order))
