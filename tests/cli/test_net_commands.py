"""A network on this computer: real nodes in real processes, on loopback."""

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

from support.waits import HANG_S, wait_until
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.secret_file import is_directory_locked, lock_directory
from veilcast.cli.commands import parse
from veilcast.cli.context import Context
from veilcast.cli.local import network as localnet
from veilcast.cli.local import workers as crew
from veilcast.cli.local.mode import TOPIC
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, SmallWorld, role_file
from veilcast.cli.main import main
from veilcast.cli.net import _greeting, make_plan, parse_topology
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.link.machine import BODY
from veilcast.node import config as node_config
from veilcast.observe import CellRow, read_table

SMALL = NetworkPlan(nodes=6, profile="paper", topology=SmallWorld(2, 0.0), epoch_us=HOUR_US, life_us=HOUR_US)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@contextlib.contextmanager
def network(capsys: pytest.CaptureFixture[str], directory: Path, *options: str) -> Iterator[Any]:
    try:
        yield run(capsys, "net", "up", "4", "--dir", str(directory), *options)[1]
    finally:
        crew.end_workers(directory, 1.0)


def lives(pid: int) -> bool:
    """Return True if the process exists, not counting one that has ended and was not waited for yet."""
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
            assert main(["pub", TOPIC, "-m", "hello", "-c", str(roles["publisher"])]) == 0
            capsys.readouterr()
            _, found = run(capsys, "net", "status", *where)
        assert main(["net", "up", "4", *where]) == 4
        assert "net down" in capsys.readouterr().err
        code, ended = run(capsys, "net", "down", *where)
        assert (code, ended) == (0, {"ended": crew.WORKERS, "killed": 0, "kept": True})
        assert not any(lives(pid) for pid in up["pids"])
    rows = list(read_table(localnet.tap_directory(directory, 0), CellRow))
    own = found["nodes"][0]["address"]
    assert {row.src == own for row in rows} == {True, False}
    assert all(own in (row.src, row.dst) for row in rows)
    assert not list(directory.rglob("*.sock"))
    assert not list(directory.glob("worker-*"))
    # What was kept for its taps is no network that runs; another `down` without a tap in the way would clear it.
    assert run(capsys, "net", "status", *where)[1]["up"] == 0


def test_a_worker_registers_even_while_another_process_probes_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, looks = fcntl.flock, iter([True, True])

    def looked_at(descriptor: int, operation: int) -> None:
        if next(looks, False):
            raise BlockingIOError
        flock(descriptor, operation)

    monkeypatch.setattr(crew, "_LOOK_S", 0.0)
    monkeypatch.setattr(fcntl, "flock", looked_at)
    descriptor = crew.register_worker(tmp_path, 1)
    assert next(looks, None) is None
    assert list(crew.living_workers(tmp_path).values()) == [os.getpid()]
    os.close(descriptor)
    assert crew.living_workers(tmp_path) == {}


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
def test_a_network_is_not_laid_out_over_foreign_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "authority.locked").write_text("x")
    with pytest.raises(StorageError, match=name):
        localnet.lay_out(tmp_path, SMALL, Context(), Random(1))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "authority.locked").read_text() == "x"


def test_every_node_has_a_name_by_its_role_that_is_the_same_in_every_network(tmp_path: Path) -> None:
    for seed in (1, 2):
        directory = tmp_path / str(seed)
        net = localnet.lay_out(directory, SMALL, Context(), Random(seed))
        for role in ("publisher", "subscriber"):
            first = net.nodes_with_role(role)[0]
            assert role_file(directory, role).resolve() == localnet.node_file(directory, first).resolve()
            linked = node_config.load_config(role_file(directory, role))
            assert Path(linked.keyring).samefile(localnet.node_directory(directory, first) / localnet.KEYRING)
        names = {path.name for path in role_file(directory, "publisher").parents[1].iterdir()}
        assert names == {"publisher", "subscriber", *(f"subscriber-{number}" for number in range(2, 6))}
        assert len(list(directory.glob("*/node.toml"))) == SMALL.nodes, "which a glob finds once"
        localnet.remove_network(directory, net)
        assert not directory.exists()


@pytest.mark.parametrize("place", ["02", "server"])
def test_a_network_with_a_part_that_runs_by_hand_keeps_its_files(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process does not answer at a control socket; a node that does is stopped."""
    monkeypatch.setattr("veilcast.cli.net._DOWN_S", 0.0)
    directory = tmp_path / "n"
    plan = NetworkPlan(nodes=3, mode="relay", subscribers=1, epoch_us=HOUR_US, life_us=HOUR_US)
    localnet.lay_out(directory, plan, Context(), Random(1))
    state = directory / place / "state"
    state.mkdir()
    with lock_directory(state):
        assert main(["net", "down", "--dir", str(directory)]) == 4
        assert f"{state.parent}: started by hand, and still running; stop it" in capsys.readouterr().err
        assert (state.parent / localnet.KEYRING).exists()
        assert main(["net", "start", "--dir", str(directory)]) == 15
        assert f"{state.parent} was started by hand; stop it first" in capsys.readouterr().err
    assert run(capsys, "net", "down", "--dir", str(directory))[0] == 0
    assert not directory.exists()


def test_only_the_workers_that_have_died_are_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    localnet.lay_out(tmp_path, SMALL, Context(), Random(1))
    started: list[list[int]] = []

    class RecordedWorkers(crew.WorkerGroup):
        def __init__(self, directory: Path, workers: int, *, lifeline: bool, numbers: list[int]) -> None:
            started.append(numbers)
            super().__init__(directory, workers, lifeline=lifeline, numbers=[])

    async def linked(*_: Any) -> None:
        return None

    monkeypatch.setattr("veilcast.cli.net.WorkerGroup", RecordedWorkers)
    monkeypatch.setattr("veilcast.cli.net._begin", linked)
    held = crew.register_worker(tmp_path, 1)
    try:
        # The nodes of the worker that lives, 02, 04 and 06, do not answer: a client has stopped them.
        told = {"started": 1, "nodes": ["01", "03", "05"], "stopped": ["02", "04", "06"]}
        assert run(capsys, "net", "start", "--dir", str(tmp_path)) == (0, told)
        assert started == [[0]]
        other = crew.register_worker(tmp_path, 0)
        assert run(capsys, "net", "start", "--dir", str(tmp_path))[1]["started"] == 0
        os.close(other)
    finally:
        os.close(held)
    assert started == [[0]]
    assert run(capsys, "net", "start", "--dir", str(tmp_path))[1]["nodes"] == ["01", "02", "03", "04", "05", "06"]
    assert started == [[0], [0, 1]]


@pytest.mark.all_only  # Five processes start, one after the other.
def test_a_network_whose_worker_was_killed_goes_on_and_a_node_started_by_hand_ends_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "n"
    where = ("--dir", str(directory))
    with network(capsys, directory, "--profile", "paper", "--topology", "ws:2:0", "--subscribers", "1") as up:
        publisher = Path(up["publisher"])
        dead = int(publisher.resolve().parent.name) - 1
        worker = crew.living_workers(directory)[directory / f"worker-{dead % crew.WORKERS}.pid"]
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        assert run(capsys, "net", "status", *where)[1]["up"] < 4
        code, told = run(capsys, "net", "start", *where)
        assert (code, told["started"], publisher.resolve().parent.name in told["nodes"]) == (0, 1, True)
        assert run(capsys, "net", "status", *where)[1]["up"] == 4
        assert main(["pub", TOPIC, "-m", "hello", "-c", str(publisher)]) == 0
        assert main(["node", "stop", "-c", str(publisher)]) == 0
        capsys.readouterr()
        while is_directory_locked(publisher.parent / "state"):
            run(capsys, "net", "status", *where)
        command = [sys.executable, "-m", "veilcast.cli.main", "node", "run", "-c", str(publisher)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as by_hand:
            assert by_hand.stdout is not None
            assert "listening" in by_hand.stdout.readline()
            told = run(capsys, "net", "down", *where)[1]
            assert told == {"ended": crew.WORKERS + 1, "killed": 0, "kept": False}
        assert by_hand.returncode == 0
        assert not directory.exists()


def test_ctrl_c_while_a_network_goes_up_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "n"
    command = [sys.executable, "-m", "veilcast.cli.main", "net", "up", "4", "--dir", str(directory)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: child.poll() is not None or crew.living_workers(directory))
    assert child.poll() is None
    pids = list(crew.living_workers(directory).values())
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
        assert crew.living_workers(tmp_path) == {}
        assert crew.end_workers(tmp_path, 1.0) == 0
        assert bystander.poll() is None
        assert not list(tmp_path.iterdir())
    finally:
        bystander.kill()
        bystander.wait()
    held = crew.register_worker(tmp_path, 0)
    assert list(crew.living_workers(tmp_path).values()) == [os.getpid()]
    with pytest.raises(StorageError, match="runs already"):
        crew.register_worker(tmp_path, 0)
    os.close(held)
    assert crew.living_workers(tmp_path) == {}


@pytest.mark.parametrize(
    "plan",
    [
        SMALL,
        NetworkPlan(nodes=5, subscribers=1, epoch_us=HOUR_US, life_us=HOUR_US),
        NetworkPlan(
            nodes=8,
            profile="paper",
            cover=True,
            shellgame=True,
            topology=SmallWorld(4, 0.2),
            epoch_us=HOUR_US,
            life_us=HOUR_US,
        ),
        NetworkPlan(nodes=6, epoch_us=18_000_000, topology=SmallWorld(4, 0.2), life_us=600_000_000),
    ],
)
def test_nodes_can_read_the_written_files(plan: NetworkPlan, tmp_path: Path) -> None:
    net = localnet.lay_out(tmp_path, plan, Context(), Random(3))
    assert localnet.read_network(tmp_path) == net
    configs = [node_config.load_config(localnet.node_file(tmp_path, number)) for number in range(plan.nodes)]
    assert [config.listen for config in configs] == list(net.addresses)
    assert len({address.split(".")[1] for address in net.addresses}) == plan.nodes
    if plan.topology is not None:
        known = {config.listen: set(config.peers) for config in configs}
        assert all(own in known[peer] for own, peers in known.items() for peer in peers)
        assert sum(map(len, known.values())) == 2 * len(net.links) == plan.nodes * plan.topology.neighbours
    assert len(net.nodes_with_role("publisher")) == plan.publishers
    assert len(net.nodes_with_role("subscriber")) == plan.subscribers
    if plan.profile == "paper":
        assert {-(-config.settings.heartbeat_bytes // BODY) for config in configs} == {2}
    localnet.remove_network(tmp_path, net)
    assert not tmp_path.exists()


def test_two_networks_do_not_share_an_address(tmp_path: Path) -> None:
    nets = [localnet.lay_out(tmp_path / str(seed), SMALL, Context(), Random(seed)) for seed in (1, 2)]
    assert not set(nets[0].addresses) & set(nets[1].addresses)


def test_a_file_that_is_no_network_is_reported(tmp_path: Path) -> None:
    localnet.net_file(tmp_path).write_text("{}")
    with pytest.raises(TamperedError):
        localnet.read_network(tmp_path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nodes": 2}, "3 to 250"),
        ({"nodes": 251}, "3 to 250"),
        ({"nodes": 5}, "5 subscribers do not fit into 5 nodes"),
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
        NetworkPlan(**options)


@pytest.mark.parametrize(
    ("options", "subscribers"),
    [("3", 2), ("4", 3), ("9", 3), ("4 --publishers 3", 1), ("3 --publishers 3", 0), ("9 --subscribers 5", 5)],
)
def test_the_smallest_network_needs_no_options(options: str, subscribers: int) -> None:
    assert make_plan(parse(["net", "up", *options.split()])).subscribers == subscribers


def test_net_up_says_when_to_publish_in_a_mesh(tmp_path: Path) -> None:
    last = [
        _greeting(tmp_path, LocalNetwork(plan, "news/eu", (), (), ()))[-1] for plan in (SMALL, NetworkPlan(nodes=6))
    ]
    assert last[0].startswith("publish after some seconds")
    assert last[1].startswith("a first note takes a while")


def test_more_roles_than_nodes_are_refused() -> None:
    for options in ("3 --subscribers 3", "3 --publishers 4"):
        with pytest.raises(ConfigError, match="do not fit into 3 nodes"):
            make_plan(parse(["net", "up", *options.split()]))


def test_topologies_are_read_and_nothing_else_is() -> None:
    assert parse_topology("certified") is None
    assert parse_topology("ws:4:0.2") == SmallWorld(4, 0.2)
    for text in ("ws", "ws:4", "ws:4:x", "ws:-4:0", "ring"):
        with pytest.raises(ConfigError):
            parse_topology(text)
