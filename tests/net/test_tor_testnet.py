from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.net import tor_testnet
from veilcast.net.tor_process import TorProcess, find_program, read_network

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LINE = f"a1 orport=5000 no-v2 v3ident={'A' * 40} 127.0.0.1:7000 {'B' * 40}"


def write(path: Path, *lines: str, **more: object) -> Path:
    path.write_text(json.dumps({"authorities": lines, **more}))
    return path


def test_a_network_s_file_gives_the_options_of_everybody_in_it(tmp_path: Path) -> None:
    options = read_network(write(tmp_path / "network.json", LINE)).options()
    assert options[:2] == ["TestingTorNetwork 1", f"DirAuthority {LINE}"]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [LINE.replace("127.0.0.1", "192.0.2.1")],
        [LINE, LINE.replace("127.0.0.1", "8.8.8.8")],
        [LINE.replace("127.0.0.1", "999.0.0.1")],
        [LINE + "\nExitRelay 1"],
        [LINE + " # more"],
        ["default"],
    ],
)
def test_a_network_that_is_not_private_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ConfigError, match="no file of a private Tor network"):
        read_network(write(tmp_path / "network.json", *lines))


def test_a_file_that_says_more_or_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file of a private Tor network"):
        read_network(write(tmp_path / "network.json", LINE, bridges=[]))
    with pytest.raises(StorageError, match="cannot read"):
        read_network(tmp_path / "none.json")


@pytest.mark.parametrize("relays", [0, 3, 33])
def test_a_network_has_so_many_relays_and_no_more(tmp_path: Path, relays: int) -> None:
    with pytest.raises(ConfigError, match="4 to 32 relays"):
        tor_testnet.start_network(tmp_path, relays=relays)


@pytest.mark.parametrize("name", ["network.json", "a1", "r4"])
def test_nothing_that_is_there_already_is_taken_for_a_network_s_own(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(StorageError, match="there already"):
        tor_testnet.start_network(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_of_a_network_that_does_not_come_up_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tor_testnet, "find_program", lambda program="tor": "/bin/false")
    with pytest.raises(LocalError, match="false failed"):
        tor_testnet.start_network(tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.all_only
def test_when_one_does_not_start_all_others_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_program("tor-gencert")
    except LocalError as error:
        pytest.skip(str(error))
    started: list[TorProcess] = []
    start = TorProcess.start

    def noted(self: TorProcess, options: Sequence[str]) -> None:
        started.append(self)
        start(self, options)

    # Authorities without keys, which Tor refuses.
    monkeypatch.setattr(tor_testnet, "_make_authority", lambda seat, _: LINE.replace("a1", seat.name))
    monkeypatch.setattr(tor_testnet, "SETTLE_S", 0.0)
    monkeypatch.setattr(TorProcess, "start", noted)
    with pytest.raises(LocalError, match="tor ended at once"):
        tor_testnet.start_network(tmp_path / "net", owner=os.getpid())
    assert len(started) == 7
    assert all(process._child is None for process in started)
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_none_that_is_said(tmp_path: Path) -> None:
    for ask in (tor_testnet.list_processes, tor_testnet.stop_network):
        with pytest.raises(StorageError, match="holds no private Tor network"):
            ask(tmp_path)


@pytest.mark.all_only
def test_living_processes_are_listed_and_ended_and_their_files_removed(tmp_path: Path) -> None:
    try:
        find_program()
    except LocalError as error:
        pytest.skip(str(error))
    home, alive, dead = tmp_path / "net", TorProcess(tmp_path / "net" / "a1"), TorProcess(tmp_path / "net" / "r1")
    try:
        for process in (alive, dead):
            process.start(["DisableNetwork 1", f"__OwningControllerProcess {os.getpid()}"])
        with alive.control(30.0) as control:
            pid = int(control.value("process/pid"))
        dead.control(30.0).close()
        dead.end()
        (home / "keep").touch()
        assert tor_testnet.list_processes(home) == [
            tor_testnet.TestnetProcess("a1", pid, 0),
            tor_testnet.TestnetProcess("r1", None, 0),
        ]
        assert tor_testnet.stop_network(home) == 1
        assert [path.name for path in home.iterdir()] == ["keep"]
    finally:
        alive.end()
        dead.end()


@pytest.mark.skipif(not _RANGE.exists(), reason="only Linux says which ports callers get")
def test_ports_of_a_network_are_none_that_a_caller_may_come_to_have() -> None:
    first, last = map(int, _RANGE.read_text().split())
    ports = tor_testnet._free_ports(20)
    assert len(set(ports)) == 20
    assert not set(ports) & set(range(first, last + 1))
