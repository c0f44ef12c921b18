"""The parser of every command: argparse, with errors that name the next step.

Two things differ from argparse. A mistyped command, option or choice is answered with the nearest one that exists. An
argument that a command does not take is an error of that command, with its usage, and not one of `veilcast`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from veilcast.nearest import did_you_mean


class CommandParser(argparse.ArgumentParser):
    advice = ""
    """The next step after a surplus positional argument; a command that knows one sets it on its parser."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self._refuse(rest)
        return found, rest

    def _refuse(self, rest: Sequence[str]) -> NoReturn:
        told = f"unrecognized arguments: {' '.join(rest)}"
        options = [text for text in rest if text.startswith("-")]
        if options:
            self.error(told + did_you_mean(options[0].partition("=")[0], self._option_string_actions))
        self.error(told + (f"; {self.advice}" if self.advice else ""))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        nearest = did_you_mean(str(value), map(str, choices))
        listed = f" (choose from {', '.join(map(repr, choices))})" if not nearest else ""
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{nearest or listed}")
