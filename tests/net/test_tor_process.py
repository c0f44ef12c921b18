from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from veilcast.errors import LocalError, StorageError, UnreachableError
from veilcast.net import tor_process
from veilcast.net.tor import Tor
from veilcast.net.tor_process import TorProcess, find_program

OFFLINE = ("DisableNetwork 1", f"__OwningControllerProcess {os.getpid()}")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[TorProcess]:
    """A Tor in a directory whose name torrc would misread without quotes."""
    try:
        find_program()
    except LocalError as error:
        pytest.skip(str(error))
    made = TorProcess(tmp_path / 'a "tor" # of ours')
    yield made
    made.end()


def test_where_tor_is_missing_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(LocalError) as missing:
        TorProcess(tmp_path).start([])
    assert str(missing.value) == "there is no `tor` here; install it: apt install tor, or brew install tor"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.all_only
def test_only_the_owner_of_the_directory_can_command_the_process(process: TorProcess) -> None:
    process.start(OFFLINE)
    with process.control(30.0) as control:
        assert control.value("version").startswith("0.")
        assert process.directory.stat().st_mode & 0o777 == 0o700
    stranger = TorProcess(process.directory)
    assert stranger.halt()
    assert not stranger.halt()
    with pytest.raises(UnreachableError, match="no tor runs in"):
        stranger.control()


@pytest.mark.all_only
def test_a_real_tor_accepts_our_options_of_an_onion_service(process: TorProcess) -> None:
    """From 0.4.9 on it takes proof of work without a second question."""
    process.start(OFFLINE)
    with process.control(30.0) as control:
        version = tuple(int(part) for part in re.findall(r"\d+", control.value("version"))[:3])
        asked: list[str] = []
        ask = control.ask
        control.ask = lambda command: asked.append(command) or ask(command)  # type: ignore[method-assign, func-returns-value]
        anonymity = object.__new__(Tor)  # Offline it has no SocksPort, and so nothing to call through.
        anonymity._control = control
        service = anonymity.serve(("127.0.0.1", 4000))
        assert service.address.endswith(".onion:80")
        assert sum(command.startswith("ADD_ONION") for command in asked) == (1 if version >= (0, 4, 9) else 2)


@pytest.mark.all_only
def test_one_that_will_not_end_is_killed(process: TorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tor_process, "END_S", 0.0)
    process.start(OFFLINE)
    with process.control(30.0) as control:
        pid = int(control.value("process/pid"))
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda *told: killed.append(told))
    assert process.halt()
    assert killed == [(pid, signal.SIGKILL)]


@pytest.mark.all_only
def test_tor_s_own_reason_for_not_starting_is_reported(process: TorProcess) -> None:
    process.start([*OFFLINE, "NoSuchOption 1"])
    with pytest.raises(LocalError, match=r"tor ended at once: .*Failed to parse"):
        process.control(30.0)


@pytest.mark.all_only
def test_two_in_one_directory_do_not_run(process: TorProcess) -> None:
    process.start(OFFLINE)
    process.control(30.0).close()
    with pytest.raises(StorageError, match="another tor runs in"):
        TorProcess(process.directory).start(OFFLINE)
    process.control().close()
