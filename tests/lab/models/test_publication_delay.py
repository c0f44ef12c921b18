"""When notes leave and when they are read: departures, waiting, and hold-back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.small_population import make_population
from veilcast.errors import ConfigError
from veilcast.lab.models.coalition_view import watch_epochs
from veilcast.lab.models.epochs import MESH_POLICIES, MeshPolicy, settle_population
from veilcast.lab.models.keyed_draws import derive_key
from veilcast.lab.models.publication_delay import PublicationSchedule, schedule_publications

EPOCHS = 60


def mask(*away: int) -> NDArray[np.bool_]:
    there = np.ones(EPOCHS, np.bool_)
    there[list(away)] = False
    return there


def notes(
    departures: int, hold: int, there: NDArray[np.bool_], opened: NDArray[np.bool_], seed: int = 1
) -> PublicationSchedule:
    return schedule_publications(there, there, opened, departures, hold, derive_key(seed, "notes"))


def test_without_departures_and_hold_back_every_note_is_read_in_its_epoch_or_when_the_way_opens() -> None:
    found = notes(0, 0, mask(), mask(3, 4))
    assert found.departed.tolist() == found.delivered.tolist() == [1, 1, 1, 0, 0, 3, *[1] * (EPOCHS - 6)]
    assert found.delay == pytest.approx(3 / EPOCHS)


def test_who_is_away_writes_nothing() -> None:
    assert notes(0, 0, mask(2, 7), mask()).departed.sum() == EPOCHS - 2


@given(st.integers(0, 12), st.integers(0, 12), st.sets(st.integers(0, EPOCHS - 1)), st.integers(0, 1_000))
def test_nothing_is_lost_or_early_and_nothing_leaves_while_somebody_is_away(
    departures: int, hold: int, away: set[int], seed: int
) -> None:
    there, opened = mask(*(node for node in away if node % 2)), mask(*(node for node in away if not node % 2))
    found = notes(departures, hold, there, opened, seed)
    assert not found.departed[~(there & opened)].any()
    written, left, read = (np.cumsum(count, dtype=np.int64) for count in (there, found.departed, found.delivered))
    assert (left <= written).all()
    assert (read <= left).all()
    assert (read[hold:] >= left[: EPOCHS - hold]).all()
    assert found.delay >= 0


def test_there_is_a_departure_in_each_stretch_and_its_epoch_is_drawn() -> None:
    left = np.array([np.flatnonzero(notes(10, 0, mask(), mask(), seed).departed) for seed in range(40)])
    assert (left // 10 == np.arange(6)).all()
    assert len(np.unique(left % 10)) == 10


def test_hold_back_is_uniform_and_takes_half_of_it_on_the_average() -> None:
    delays = [notes(0, 4, mask(), mask(), seed).delay for seed in range(40)]
    assert np.mean(delays) == pytest.approx(2, abs=0.1)


def test_a_publisher_may_come_and_go_where_the_flood_does_not_begin_with_it() -> None:
    steady = make_population(300, 8, 0.1, 0.1, 1)
    people = settle_population(steady.graph, steady.publisher, steady.subscribers, 0.1, 0.1, 1, steady=False)
    assert watch_epochs(steady, MESH_POLICIES["H"], 30).present[:, steady.publisher].all()
    there = watch_epochs(people, MESH_POLICIES["H"], 30).present[:, people.publisher]
    assert 20 < there.sum() < 30
    assert watch_epochs(people, MESH_POLICIES["BL"], 30).present[:, people.publisher].all()


def test_insiders_on_a_stem_see_departures_and_readers_see_what_the_root_lets_go() -> None:
    people = make_population(300, 8, 0.2, 0.1, 2)
    often, seldom = (watch_epochs(people, replace(MESH_POLICIES["H"], departures=many, hold=3), 40) for many in (0, 10))
    assert len(np.unique(seldom.stem_passages[:, 0])) <= 4 < len(np.unique(often.stem_passages[:, 0]))
    assert set(seldom.stem_passages[:, 0]) <= set(often.stem_passages[:, 0])
    assert abs(int(seldom.delivered.sum()) - int(often.delivered.sum())) < 14
    assert (watch_epochs(people, MESH_POLICIES["BL"], 5).delivered == 1).all()


@pytest.mark.parametrize("wrong", [{"departures": -1}, {"hold": -1}])
def test_a_conduct_that_waits_less_than_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must not be negative"):
        MeshPolicy(**wrong)  # type: ignore[arg-type]


def test_with_parcels_a_release_depends_on_when_a_notification_was_written_and_keeps_the_order() -> None:
    """Where the way is closed for a time shorter than the draws, the releases are those of an open way."""
    there = np.ones(200, np.bool_)
    writes = np.arange(200) % 8 == 0
    opened = np.arange(200) % 8 != 0
    key = derive_key(3, "notes")
    free = schedule_publications(there, writes, there, 0, 5, key, in_order=True)
    late = schedule_publications(there, writes, opened, 0, 5, key, in_order=True)
    moved = np.flatnonzero(free.delivered != late.delivered)
    drawn_at_once = np.flatnonzero(free.delivered & writes)
    assert set(moved) <= {*drawn_at_once.tolist(), *(drawn_at_once + 1).tolist()}
    assert free.delivered.sum() >= 24
    assert set((np.flatnonzero(free.delivered) % 8).tolist()) == set(range(6))
