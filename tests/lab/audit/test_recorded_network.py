"""The whole way: a live network, recorded by `tcpdump` on loopback, audited by one command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.waits import HANG_S
from veilcast.net.sync_client import connect_sync

DUMP = shutil.which("tcpdump", path="/usr/bin:/usr/sbin:/sbin:/bin")
NODES = 10
NOTES = 16


def veilcast(*words: object, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    command = [sys.executable, "-m", "veilcast.cli.main", *map(str, words), "--json"]
    # What it starts keeps its outputs open, so its answer goes to a file, whose end nobody waits for.
    answer = Path(str(words[-1])).with_suffix(".answer")
    with answer.open("w") as out:
        child = subprocess.run(command, check=False, stdout=out, stderr=subprocess.DEVNULL, timeout=HANG_S)
    assert child.returncode in codes
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


@contextmanager
def recorded(file: Path, hosts: list[str]) -> Iterator[None]:
    """Packets between these hosts alone: other networks may be on the same interface."""
    assert DUMP is not None
    wanted = "udp and port 4000 and (" + " or ".join(f"src host {host}" for host in hosts) + ")"
    command = [DUMP, "-i", "lo", "-U", "-s", "128", "-B", "65536", "-w", str(file), wanted]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dump:
        assert dump.stderr is not None
        try:
            if not any("listening on" in line for line in dump.stderr):
                pytest.skip("tcpdump may not listen here")
            yield
        finally:
            dump.terminate()


@pytest.mark.all_only
@pytest.mark.skipif(DUMP is None, reason="tcpdump is not installed")
@pytest.mark.parametrize("profile", ["paper", "hardened"])
def test_an_audit_of_a_recorded_network_names_in_paper_and_finds_nothing_in_hardened(
    profile: str, tmp_path: Path
) -> None:
    file, net, known = tmp_path / "lo.pcap", tmp_path / "net", tmp_path / "members.json"
    veilcast("net", "up", NODES, "--profile", profile, "--topology", "ws:4:0.2", "--epoch", 30, "--dir", net)
    try:
        status = veilcast("net", "status", "--dir", net)
        known.write_text(json.dumps(status))
        [publisher] = [node["node"] for node in status["nodes"] if node["role"] == "publisher"]
        pause = threading.Event()
        with recorded(file, [node["address"].split(":")[0] for node in status["nodes"]]):
            with connect_sync(net / publisher / "node.toml") as me:
                for number in range(NOTES):
                    pause.wait(0.5)
                    me.publish("news/eu", b"note %02d" % number)
            pause.wait(1.0)
    finally:
        veilcast("net", "down", "--dir", net)
    found = veilcast("audit", "--members", known, "--fail-if", "named>0", "--epoch", 30, file, codes=(0, 13))
    if profile == "paper":
        assert found["publications"] >= NOTES // 2
        assert found["crossed"] == ["named>0"]
        first = next(each for each in found["attackers"] if each["attack"] == "flow-source")["suspects"][0]
        assert first["right"] is True
        assert found["found"]["auc"] > 0.7
    else:
        assert found["crossed"] == []
        assert [each["size"] for each in found["wire"]["sizes"]] == [1200]
        assert (found["publications"], found["found"]["auc"], found["found"]["set"]) == (0, 0.5, NODES)
