"""The inputs of a command other than its arguments, and its result.

Clock, entropy and terminal are fields, so that tests can replace them; nothing below the command line reads them in
another way. Every command imports this module, so it imports little itself.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from veilcast.crypto.passphrase import PassphraseCost
    from veilcast.machine import Entropy


class Context:
    """The outside world of one command."""

    def __init__(
        self,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        entropy: Entropy = os.urandom,
        has_terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty(),
        ask_secret: Callable[[str], str] | None = None,
        warn: Callable[[str], object] = lambda line: sys.stderr.write(f"veilcast: {line}\n"),
        say: Callable[[str], object] = lambda line: (sys.stdout.write(f"{line}\n"), sys.stdout.flush()),
        read_input: Callable[[], bytes] = lambda: sys.stdin.buffer.read(),
        read_lines: Callable[[], Iterable[str]] = lambda: sys.stdin,
        cost: PassphraseCost | None = None,
    ) -> None:
        self.now_us, self.entropy = now_us, entropy
        self.has_terminal, self.ask_secret = has_terminal, ask_secret or _ask_secret
        self.warn, self.say = warn, say
        self.read_input, self.read_lines = read_input, read_lines
        self._cost = cost

    @cached_property
    def cost(self) -> PassphraseCost:
        """The cost of guessing a new passphrase."""
        from veilcast.crypto.passphrase import PassphraseCost

        return self._cost or PassphraseCost()


class Report:
    """The result of a command: `data` for `--json`, `lines` for people, and the exit code. A command that has printed
    everything while it ran has no data."""

    def __init__(self, data: dict[str, Any] | None, lines: list[str] | None = None, code: int = 0) -> None:
        self.data, self.lines, self.code = data, lines or [], code


def _ask_secret(prompt: str) -> str:
    from getpass import getpass

    return getpass(prompt)
