"""`veilcast tree testnet ...`: living processes are listed, ended processes are gone, and errors take one line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from veilcast.cli.main import main
from veilcast.errors import LocalError
from veilcast.net import tor_testnet
from veilcast.net.tor_process import TorProcess, find_program

OFFLINE = ("DisableNetwork 1", f"__OwningControllerProcess {os.getpid()}")


def run(capsys: pytest.CaptureFixture[str], verb: str, *arguments: object) -> tuple[int, str, str]:
    code = main(["tree", "testnet", verb, *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[list[TorProcess]]:
    """Two Tor processes without a network, in the directories of a network."""
    try:
        find_program()
    except LocalError as error:
        pytest.skip(str(error))
    made = [TorProcess(tmp_path / "net" / name) for name in ("a1", "r1")]
    for process in made:
        process.start(OFFLINE)
    for process in made:
        process.control(30.0).close()
    yield made
    for process in made:
        process.end()


def test_up_prints_the_lines_that_node_files_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr(tor_testnet, "start_network", lambda home, *, relays, on_progress: asked.append((home, relays)))
    monkeypatch.setattr("veilcast.cli.tor_testnet.find_program", lambda: "tor")
    monkeypatch.setattr(tor_testnet, "list_processes", lambda home: [tor_testnet.TestnetProcess("a1", 17, 8)])
    home = tmp_path / "net"
    code, out, _ = run(capsys, "up", "--dir", home, "--relays", 5, "--json")
    assert (code, json.loads(out)) == (0, {"dir": str(home), "network": str(home / "network.json"), "pids": [17]})
    code, out, _ = run(capsys, "up", "--dir", home)
    assert f'  [tor]\n  network = "{home / "network.json"}"\n' in out
    assert asked == [(home, 5), (home, 4)]


@pytest.mark.all_only
def test_status_lists_the_processes_and_down_ends_them(
    tmp_path: Path, parts: list[TorProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "net"
    parts[1].end()
    code, out, _ = run(capsys, "status", "--dir", home, "--json")
    told = json.loads(out)
    assert (code, told["up"]) == (0, 1)
    assert [(part["name"], part["pid"] is None) for part in told["parts"]] == [("a1", False), ("r1", True)]
    _, out, _ = run(capsys, "status", "--dir", home)
    assert out.splitlines()[0] == "1 of 2 are up"
    assert out.splitlines()[2] == "  r1   down"
    assert run(capsys, "down", "--dir", home) == (0, "1 process ended; the files are gone\n", "")
    assert not home.exists()


@pytest.mark.parametrize("verb", ["status", "down"])
def test_where_there_is_none_one_line_says_how_to_make_one(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, verb, "--dir", tmp_path)
    assert (code, out) == (4, "")
    assert err == f"veilcast: {tmp_path} holds no private Tor network; `veilcast tree testnet up` makes one\n"


def test_where_tor_is_missing_one_line_says_how_to_get_it_and_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    code, _, err = run(capsys, "up", "--dir", tmp_path / "net")
    assert (code, err) == (15, "veilcast: there is no `tor` here; install it: apt install tor, or brew install tor\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.all_only
def test_a_real_network_knows_all_of_its_own(tor_network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "status", "--dir", tor_network.parent, "--json")
    told = json.loads(out)
    assert (code, len(told["parts"])) == (0, 11)
    assert told["up"] >= 6  # Another test may have killed one.
    assert max(part["knows"] for part in told["parts"]) >= 6
    consensus = (tor_network.parent / "a1" / "data" / "cached-consensus").read_text()
    weights = re.findall(r"^r r\d .*?^w Bandwidth=(\d+)", consensus, re.MULTILINE | re.DOTALL)
    assert len(weights) >= 6
    assert set(weights) == {str(tor_testnet.BANDWIDTH)}, "some relay of the network is chosen more often than others"
