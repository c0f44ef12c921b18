"""The bar is for terminals, names stages and tasks, and outlives nothing."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import SparkSession
from rich.console import Console

from support.waits import HANG_S
from veilcast.lab.spark import Progress


def session(tracker: Any) -> SparkSession:
    return cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker)))


class Tracker:
    """Two stages under way, and one that has just gone."""

    def getActiveStageIds(self) -> list[int]:
        return [7, 3, 9]

    def getStageInfo(self, number: int) -> Any:
        return None if number == 9 else SimpleNamespace(numCompletedTasks=number, numTasks=24)


HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Gone:
    def getActiveStageIds(self) -> list[int]:
        raise ConnectionRefusedError


def test_stages_are_shown_with_their_tasks() -> None:
    assert Progress(session(Tracker())).stages() == "stage 3: 3/24 tasks, stage 7: 7/24 tasks"


def test_where_there_is_no_terminal_nothing_is_drawn_and_each_part_is_told_by_a_line() -> None:
    drawn, said = io.StringIO(), list[str]()
    with Progress(session(Tracker()), Console(file=drawn), said.append) as progress:
        progress.begin("fig, seeds 0 to 19", 0, 5)
    assert drawn.getvalue() == ""
    assert said == ["fig, seeds 0 to 19: 0 of 5 parts done"]


def test_on_a_terminal_the_part_is_named_and_lines_that_stay_are_said() -> None:
    drawn, said = io.StringIO(), list[str]()
    with Progress(session(Tracker()), Console(file=drawn, force_terminal=True, width=120)) as progress:
        progress.begin("fig, seeds 0 to 19", 0, 5)
        progress.say(said.append, ["fig: done"])
    assert "fig, seeds 0 to 19" in drawn.getvalue()
    assert said == ["fig: done"]


def test_a_session_that_is_gone_ends_the_bar_and_not_the_program() -> None:
    drawn = io.StringIO()
    with Progress(session(Gone()), Console(file=drawn, force_terminal=True)) as progress:
        progress.begin("fig", 0, 1)
        progress._thread.join(timeout=HANG_S)
        assert not progress._thread.is_alive()
    assert drawn.getvalue().rfind(SHOW_CURSOR) > drawn.getvalue().rfind(HIDE_CURSOR) >= 0
