"""A progress bar is drawn on a terminal, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from veilcast.cli.progress_bar import progress_bar


class Screen(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_drawn_only_where_there_is_a_terminal(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("nodes that have found others", 4) as told:
        told(1)
        told(2, 8)
    assert ("nodes that have found others" in screen.getvalue()) == terminal
