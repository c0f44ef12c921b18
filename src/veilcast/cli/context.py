"""What a command is given besides its arguments, and what it gives back.

Clock, entropy and terminal are fields, so that tests hand in their own; nothing below the command line reads them
otherwise.
"""

from __future__ import annotations

import getpass
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from veilcast.crypto.passphrase import Cost
from veilcast.machine import Entropy


@dataclass(frozen=True)
class Context:
    """The outside world of one command."""

    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    entropy: Entropy = os.urandom
    has_terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty()
    ask_secret: Callable[[str], str] = getpass.getpass
    warn: Callable[[str], object] = lambda line: sys.stderr.write(f"veilcast: {line}\n")
    say: Callable[[str], object] = lambda line: (sys.stdout.write(f"{line}\n"), sys.stdout.flush())
    read_input: Callable[[], bytes] = lambda: sys.stdin.buffer.read()
    read_lines: Callable[[], Iterable[str]] = lambda: sys.stdin
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Report:
    """What a command found: `data` for `--json`, `lines` for people, and the exit code. A command that has said all
    as it went on has no data."""

    data: dict[str, Any] | None
    lines: list[str] = field(default_factory=list)
    code: int = 0
