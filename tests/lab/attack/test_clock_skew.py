"""Clock skew: the attacker succeeds on a grid, and not on the links as they are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from support.link_network import LinkWorld
from veilcast.lab import tables
from veilcast.lab.attack.observer import clock_skew
from veilcast.lab.attack.observer.clock_skew import (
    CELLS_MIN,
    ESTIMATORS,
    PERIODS_US,
    estimate_link,
    estimate_links,
    estimate_nodes,
)
from veilcast.link import pacing
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address
from veilcast.observe import CellRow

ERRORS_PPM = (-31, 33, 13, 3, 38, -13)
NAMES = [f"n{place}" for place in range(len(ERRORS_PPM))]


def watch_machines(
    turns: int, errors: tuple[int, ...] = ERRORS_PPM
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
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
    place = {Address(name): number for number, name in enumerate(NAMES)}
    senders, receivers = (np.array([place[end] for end in ends], np.int32) for ends in (src, dst))
    return np.array(t_us, np.int64), senders, receivers


def test_on_a_grid_every_clock_is_estimated_to_a_part_in_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positive control: links as they were."""
    monkeypatch.setattr(pacing, "STRETCH_PPB", 0)
    monkeypatch.setattr(pacing, "STEP_SHARE", 1 << 40)
    t_us, src, dst = watch_machines(15)
    for estimator, within in (("envelope", 1.0), ("least-squares", 4.0)):
        found = -estimate_nodes(t_us, src, dst, len(NAMES), estimator)
        assert np.abs(found - ERRORS_PPM).max() < within


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_on_real_links_no_clock_is_recognised(estimator: str) -> None:
    """Errors of estimates are tens of times as large as the errors of clocks."""
    t_us, src, dst = watch_machines(3)
    found = -estimate_nodes(t_us, src, dst, len(NAMES), estimator)
    assert np.median(np.abs(found - ERRORS_PPM)) > 500


def test_equal_clocks_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The null control."""
    monkeypatch.setattr(pacing, "STRETCH_PPB", 0)
    monkeypatch.setattr(pacing, "STEP_SHARE", 1 << 40)
    found = estimate_nodes(*watch_machines(6, (0,) * len(NAMES)), len(NAMES), "envelope")
    assert np.abs(found).max() < 2


def test_gaps_of_several_slots_change_nothing() -> None:
    rng = np.random.default_rng(1)
    slots = np.sort(rng.choice(20_000, 15_000, replace=False))
    t_us = np.asarray(slots * 250_000 * (1 + 25e-6) + rng.uniform(0, 60_000, len(slots)), np.int64)
    assert abs(estimate_link(t_us, "envelope") - 25) < 0.5
    assert abs(estimate_link(t_us, "least-squares") - 25) < 0.5
    assert abs(estimate_link(t_us, "ends") - 25) < 10


def test_short_links_are_left_out_and_order_does_not_matter() -> None:
    t_us = np.arange(3 * CELLS_MIN, dtype=np.int64) * 250_000
    src, dst = np.repeat([0, 1, 1], CELLS_MIN).astype(np.int32), np.repeat([1, 0, 2], CELLS_MIN).astype(np.int32)
    mixed = np.random.default_rng(1).permutation(len(t_us))
    found = estimate_links(t_us[mixed], src[mixed], dst[mixed], "least-squares")
    assert (found.src.tolist(), found.dst.tolist()) == ([0, 1, 1], [1, 0, 2])
    assert np.abs(found.ppm).max() < 1e-6
    few = estimate_nodes(t_us[: CELLS_MIN - 1], src[: CELLS_MIN - 1], dst[: CELLS_MIN - 1], 2, "ends")
    assert np.isnan(few).all()
    assert len(estimate_links(t_us[:0], src[:0], dst[:0], "ends").ppm) == 0


def test_the_attacker_knows_the_classes_of_links() -> None:
    assert tuple(pacing.period_us(rate) for rate in pacing.RATES) == PERIODS_US


def test_the_nearest_is_named() -> None:
    assert clock_skew.identify(np.array([1.0, 20.0, -7.0]), np.array([18.0, 0.0])).tolist() == [1, 0]


def test_frames_give_the_same_results_as_arrays(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    rows, arrays = [], []
    for sender, error in enumerate((20, -15)):
        for receiver in (2, 3):
            times = np.arange(600) * 250_000 * (1 - error / 1e6) + rng.uniform(0, 60_000, 600)
            for at in times.astype(np.int64).tolist():
                rows.append(CellRow("one", 0, at, f"n{sender}", f"n{receiver}", 1200))
                arrays.append((at, sender, receiver))
    t_us, src, dst = np.array(arrays).T
    wanted = estimate_nodes(t_us, src.astype(np.int32), dst.astype(np.int32), 2, "envelope")
    cells = spark.createDataFrame(tables.from_rows(CellRow, rows).to_pandas())
    found = {row["node"]: (row["ppm"], row["links"]) for row in clock_skew.estimate_skews(cells, "envelope").collect()}
    assert found.keys() == {"n0", "n1"}
    for sender in (0, 1):
        assert found[f"n{sender}"] == (pytest.approx(wanted[sender]), 2)
