"""A progress bar on the terminal: the current part of a sweep, and the finished tasks of its stages.

The bar goes to stderr, and only on a terminal. Elsewhere a line announces each part. A thread asks Spark's status
tracker and never waits for it, so a lost session ends the bar and not the program.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress:
    """A context manager; `begin` names the next part."""

    def __init__(
        self, spark: SparkSession | None, console: Console | None = None, say: Callable[[str], object] = lambda _: None
    ) -> None:
        """`say` gets the lines for a reader without a terminal."""
        self._tracker: Any = None
        self._console, self._say = console or Console(file=sys.stderr), say
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[stages]}"))
        self._bars = Bars(*columns, TimeElapsedColumn(), console=self._console, transient=True)
        self._bar = self._bars.add_task("", total=None, stages="")
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if spark is not None:
            self.watch(spark)

    def begin(self, label: str, done: int, total: int) -> None:
        """`done` of `total` parts are finished."""
        self._bars.update(self._bar, description=label, completed=done, total=total, stages="")
        if not self._console.is_terminal:
            self._say(f"{label}: {done} of {total} parts done")

    def show(self, text: str) -> None:
        """Show how far the current part is."""
        self._bars.update(self._bar, stages=text)

    def watch(self, spark: SparkSession) -> None:
        """Show the stages of this session from now on."""
        from veilcast.lab.spark.platform import follow_stages, is_remote  # Only a session pays for Spark's import.

        if is_remote(spark):
            follow_stages(spark, self.show)
        else:
            self._tracker = spark.sparkContext.statusTracker()

    def say(self, say: Callable[[str], object], lines: Iterable[str]) -> None:
        """Print lines that stay, above the bar."""
        self._bars.update(self._bar, visible=False, refresh=True)
        for line in lines:
            say(line)
        self._bars.update(self._bar, visible=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if self._bars.live.is_started:
            # The thread may have ended before; the terminal gets its cursor back anyway.
            self._thread.join()
            self._bars.stop()

    def _watch(self) -> None:
        try:
            while not self._left.wait(_POLL_S):
                if self._tracker is None:
                    continue
                self._bars.update(self._bar, stages=self.stages())
        except Exception:  # noqa: S110
            pass  # The session is gone, and the main thread gets the error.

    def stages(self) -> str:
        """The running stages, each with its tasks."""
        shown = []
        for number in sorted(self._tracker.getActiveStageIds()):
            if (stage := self._tracker.getStageInfo(number)) is not None:
                shown.append(f"stage {number}: {stage.numCompletedTasks}/{stage.numTasks} tasks")
        return ", ".join(shown)


_POLL_S: Final = 0.3
