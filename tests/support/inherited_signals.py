"""Signals that a test process inherits as ignored or blocked, restored before a test starts a child.

A shell that is not interactive starts a background job (`nohup ./run test &` in a script, `( ./run test & )`) with
SIGINT and SIGQUIT ignored. An ignored or blocked signal survives `exec`, so every child of that job ignores Ctrl-C. A
caught signal does not survive it: a child of a process that catches SIGINT starts with the default action.

SIGHUP stays as it is. `nohup` ignores it so that the run survives the end of the terminal, and a child must survive
that too. No test sends SIGHUP to a child.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Final


def restore_signals() -> None:
    """Give each signal of `RESTORED` its usual action, and unblock all signals. Call it in the main thread."""
    for number, action in RESTORED.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def ignored_signals() -> list[str]:
    """The names of the signals that a child would ignore, or could not receive, though a test may send them."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return [number.name for number in RESTORED if number in blocked or signal.getsignal(number) is signal.SIG_IGN]


RESTORED: Final[dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}
"""The signals that tests send, each with the action that Python or the system gives it. Ctrl-C still ends pytest."""
