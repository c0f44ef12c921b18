"""A network on this machine: real nodes in real processes, on loopback."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from patience import HANG_S
from veilcast.cli import crew, localnet
from veilcast.cli.context import Context
from veilcast.cli.localnet import Plan, SmallWorld
from veilcast.cli.main import main
from veilcast.cli.net import topology_of
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.link.machine import BODY
from veilcast.node import config as node_config
from veilcast.observe import Cell, read_table

SMALL = Plan(nodes=6, profile="paper", topology=SmallWorld(2, 0.0), life_us=120_000_000)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@contextlib.contextmanager
def network(capsys: pytest.CaptureFixture[str], directory: Path, *options: str) -> Iterator[Any]:
    try:
        yield run(capsys, "net", "up", "4", "--dir", str(directory), *options)[1]
    finally:
        crew.end_all(directory, 1.0)


def lives(pid: int) -> bool:
    """Whether there is such a process, one that has ended and is only not asked for yet set aside."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_network_goes_up_delivers_and_leaves_nothing_when_it_goes_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "n"
    where = ("--dir", str(directory))
    with network(capsys, directory, "--profile", "paper", "--topology", "ws:2:0", "--tap") as up:
        assert len(up["pids"]) == crew.WORKERS
        code, found = run(capsys, "net", "status", *where)
        assert (code, found["up"], found["pids"]) == (0, 4, up["pids"])
        while [node["neighbours"] for node in found["nodes"]] != [2] * 4:
            _, found = run(capsys, "net", "status", *where)
        roles = {node["role"]: directory / node["node"] / "node.toml" for node in found["nodes"]}
        while not all(node["inbox"] for node in found["nodes"] if node["role"] == "subscriber"):
            assert main(["pub", localnet.TOPIC, "-m", "hello", "-c", str(roles["publisher"])]) == 0
            capsys.readouterr()
            _, found = run(capsys, "net", "status", *where)
        assert main(["net", "up", "4", *where]) == 4
        assert "net down" in capsys.readouterr().err
        code, ended = run(capsys, "net", "down", *where)
        assert (code, ended) == (0, {"ended": crew.WORKERS, "killed": 0, "kept": True})
        assert not any(lives(pid) for pid in up["pids"])
    rows = list(read_table(localnet.tap_directory(directory, 0), Cell))
    own = found["nodes"][0]["address"]
    assert {row.src == own for row in rows} == {True, False}
    assert all(own in (row.src, row.dst) for row in rows)
    assert not list(directory.rglob("*.sock"))
    assert not list(directory.glob("worker-*"))
    # What was kept for its taps is no network that runs; another `down` without a tap in the way would clear it.
    assert run(capsys, "net", "status", *where)[1]["up"] == 0


def test_a_worker_that_somebody_looks_at_while_it_signs_on_signs_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, looks = fcntl.flock, iter([True, True])

    def looked_at(descriptor: int, operation: int) -> None:
        if next(looks, False):
            raise BlockingIOError
        flock(descriptor, operation)

    monkeypatch.setattr(crew, "_LOOK_S", 0.0)
    monkeypatch.setattr(fcntl, "flock", looked_at)
    os.close(crew.sign_on(tmp_path, 1))


def test_a_network_without_taps_takes_its_files_with_it_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "n"
    localnet.lay_out(directory, SMALL, Context(), Random(1))
    (directory / "mine").write_text("x")
    assert run(capsys, "net", "down", "--dir", str(directory))[1] == {"ended": 0, "killed": 0, "kept": False}
    assert [path.name for path in directory.iterdir()] == ["mine"]
    assert main(["net", "down", "--dir", str(directory)]) == 4


def test_a_network_in_the_directory_where_we_are_goes_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    localnet.lay_out(Path(), SMALL, Context(), Random(1))
    assert run(capsys, "net", "down", "--dir", ".")[1] == {"ended": 0, "killed": 0, "kept": False}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["authority", "02"])
def test_a_network_is_not_laid_out_over_what_is_somebody_elses(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "authority.locked").write_text("x")
    with pytest.raises(StorageError, match=name):
        localnet.lay_out(tmp_path, SMALL, Context(), Random(1))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "authority.locked").read_text() == "x"


def test_ctrl_c_while_a_network_goes_up_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "n"
    command = [sys.executable, "-m", "veilcast.cli.main", "net", "up", "4", "--dir", str(directory)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (pids := list(crew.living(directory).values())):
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=HANG_S)
    assert (child.returncode, err) == (130, "veilcast: interrupted\n")
    assert pids
    assert not any(lives(pid) for pid in pids)
    assert not directory.exists()


def test_only_a_process_that_holds_its_pid_file_is_ever_ended(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "infinity"])
    try:
        (tmp_path / "worker-0.pid").write_text(str(bystander.pid))
        assert crew.living(tmp_path) == {}
        assert crew.end_all(tmp_path, 1.0) == 0
        assert bystander.poll() is None
        assert not list(tmp_path.iterdir())
    finally:
        bystander.kill()
        bystander.wait()
    held = crew.sign_on(tmp_path, 0)
    assert list(crew.living(tmp_path).values()) == [os.getpid()]
    with pytest.raises(StorageError, match="runs already"):
        crew.sign_on(tmp_path, 0)
    os.close(held)
    assert crew.living(tmp_path) == {}


@pytest.mark.parametrize(
    "plan",
    [
        SMALL,
        Plan(nodes=5, subscribers=1, life_us=60_000_000),
        Plan(nodes=8, profile="paper", cover=True, shellgame=True, topology=SmallWorld(4, 0.2), life_us=60_000_000),
        Plan(nodes=6, epoch_us=18_000_000, topology=SmallWorld(4, 0.2), life_us=60_000_000),
    ],
)
def test_what_is_laid_out_is_what_nodes_read(plan: Plan, tmp_path: Path) -> None:
    net = localnet.lay_out(tmp_path, plan, Context(), Random(3))
    assert localnet.read_net(tmp_path) == net
    configs = [node_config.load(localnet.node_file(tmp_path, number)) for number in range(plan.nodes)]
    assert [config.listen for config in configs] == list(net.addresses)
    assert len({address.split(".")[1] for address in net.addresses}) == plan.nodes
    if plan.topology is not None:
        known = {config.listen: set(config.peers) for config in configs}
        assert all(own in known[peer] for own, peers in known.items() for peer in peers)
        assert sum(map(len, known.values())) == 2 * len(net.links) == plan.nodes * plan.topology.neighbours
    assert len(net.having("publisher")) == plan.publishers
    assert len(net.having("subscriber")) == plan.subscribers
    if plan.profile == "paper":
        assert {-(-config.settings.heartbeat_bytes // BODY) for config in configs} == {2}
    localnet.clear(tmp_path, net)
    assert not tmp_path.exists()


def test_two_networks_do_not_share_an_address(tmp_path: Path) -> None:
    nets = [localnet.lay_out(tmp_path / str(seed), SMALL, Context(), Random(seed)) for seed in (1, 2)]
    assert not set(nets[0].addresses) & set(nets[1].addresses)


def test_a_file_that_is_no_network_is_told(tmp_path: Path) -> None:
    localnet.net_file(tmp_path).write_text("{}")
    with pytest.raises(TamperedError):
        localnet.read_net(tmp_path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nodes": 2}, "3 to 250"),
        ({"nodes": 251}, "3 to 250"),
        ({"nodes": 5}, "parts of the nodes"),
        ({"nodes": 9, "cover": True}, "--profile paper"),
        ({"nodes": 9, "epoch_us": 1_000_000}, "--epoch must be at least 18 s"),
        ({"nodes": 9, "topology": SmallWorld(3, 0.2)}, "even"),
        ({"nodes": 9, "mode": "relay", "topology": SmallWorld(4, 0.2)}, "of the mesh, not of mode 'relay'"),
        ({"nodes": 9, "mode": "relay", "tap": True}, "this mode has none"),
        ({"nodes": 9, "mode": "relay", "tor": False}, "of the tree"),
        ({"nodes": 9, "mode": "relay", "epoch_us": 1_000_000}, "--epoch must be at least 5 s"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Plan(**options)


def test_topologies_are_read_and_nothing_else_is() -> None:
    assert topology_of("certified") is None
    assert topology_of("ws:4:0.2") == SmallWorld(4, 0.2)
    for text in ("ws", "ws:4", "ws:4:x", "ws:-4:0", "ring"):
        with pytest.raises(ConfigError):
            topology_of(text)
