"""A run of the tests that a script starts in the background: its children receive Ctrl-C all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.inherited_signals import RESTORED, ignored_signals, restore_signals
from support.waits import HANG_S

IGNORED_BY_A_CHILD = "import signal; print(*[n.name for n in signal.Signals if signal.getsignal(n) is signal.SIG_IGN])"


@pytest.fixture
def as_in_the_background() -> Iterator[None]:
    """This process as a shell starts a background job."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in RESTORED}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, RESTORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, action in before.items():
            signal.signal(number, action)


def ignored_by_a_child() -> list[str]:
    command = [sys.executable, "-S", "-E", "-c", IGNORED_BY_A_CHILD]
    child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    return child.stdout.split()


def test_children_of_this_run_ignore_no_signal_that_a_test_sends() -> None:
    assert ignored_signals() == []
    assert not {number.name for number in RESTORED} & {*ignored_by_a_child()}


def test_a_child_inherits_ignored_signals_until_they_are_restored(as_in_the_background: None) -> None:
    names = [number.name for number in RESTORED]
    assert ignored_signals() == names
    assert {*names} <= {*ignored_by_a_child()}
    restore_signals()
    assert ignored_signals() == []
    assert not {*names} & {*ignored_by_a_child()}


def test_ctrl_c_still_ends_pytest(as_in_the_background: None) -> None:
    restore_signals()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_an_installed_handler_is_kept() -> None:
    def handler(*_: object) -> None: ...

    before = signal.signal(signal.SIGINT, handler)
    try:
        restore_signals()
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
