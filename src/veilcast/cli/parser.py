"""The parser of every command: argparse, with errors that name the next step.

Two things differ from argparse. A mistyped command, option or choice is answered with the nearest one that exists. An
argument that a command does not take is an error of that command, with its usage, and not one of `veilcast`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn


class CommandParser(argparse.ArgumentParser):
    advice = ""
    """The next step after a positional argument too many; a command that knows one sets it on its parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self._refuse(rest)
        return found, rest

    def _refuse(self, rest: Sequence[str]) -> NoReturn:
        told = f"unrecognized arguments: {' '.join(rest)}"
        options = [text for text in rest if text.startswith("-")]
        if options:
            self.error(told + _nearest(options[0].partition("=")[0], self._option_string_actions))
        self.error(told + (f"; {self.advice}" if self.advice else ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        nearest = _nearest(str(value), map(str, choices))
        listed = f" (choose from {', '.join(map(repr, choices))})" if not nearest else ""
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{nearest or listed}")


def _nearest(typed: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?", or nothing where no name is close."""
    from difflib import get_close_matches  # Only a mistake pays for it.

    names = {name.lstrip("-"): name for name in known}  # Dashes alone are no likeness.
    close = get_close_matches(typed.lstrip("-"), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""
