"""A progress bar on the terminal, for work that takes more than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from veilcast.cli.context import Context


class Advance(Protocol):
    def __call__(self, done: int, of: int | None = None) -> object: ...


@contextmanager
def progress_bar(text: str, total: int | None = None) -> Iterator[Advance]:
    """Show a bar on stderr, moved by the yielded function. If stderr is no terminal, nothing is shown and nothing is
    imported."""
    if not sys.stderr.isatty():
        yield lambda done, of=None: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done, of=None: bar.update(task, completed=done, total=total if of is None else of)


def tell_progress(context: Context, line: str) -> None:
    """Print how far a command is, where no progress bar is shown."""
    if not sys.stderr.isatty():
        context.warn(line)
