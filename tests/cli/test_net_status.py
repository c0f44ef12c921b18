"""`net status` and `brokers status`: the hosts of a local network, and what their state means."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from veilcast.cli.broker_facts import majority_lines
from veilcast.cli.local.mode import LocalHost
from veilcast.cli.local.network import LocalNetwork, NetworkPlan, net_file
from veilcast.cli.main import main
from veilcast.net.control_protocol import Status

HINDERED = "the relay has not answered for 20 s although its proxy is up: its server may be down"


def status_of(mode: str, neighbours: int, *hindrances: str) -> Status:
    return Status(
        mode=mode,
        profile="hardened",
        members=1,
        cover_share=0.0,
        neighbours=neighbours,
        member_until_us=0,
        subscriptions=0,
        outbox=0,
        overdue=0,
        inbox=2,
        refused=0,
        lapsed=0,
        waiting={},
        uptime_s=1.0,
        hindrances=hindrances,
    )


def written(directory: Path, plan: NetworkPlan, hosts: tuple[str, ...]) -> Path:
    roles: Any = ("publisher", "subscriber", "forwarder")
    net = LocalNetwork(plan, "news/eu", ("",) * 3, roles, (), hosts)
    net_file(directory).write_bytes(msgspec.json.encode(net))
    return directory


@pytest.fixture
def listening() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def answering(monkeypatch: pytest.MonkeyPatch, *statuses: Status | None) -> None:
    async def found(directory: Path, net: LocalNetwork) -> list[Status | None]:
        return list(statuses)

    monkeypatch.setattr("veilcast.cli.net.ask_statuses", found)


def test_a_relay_shows_its_server_its_proxy_and_the_hindrances_of_members(
    tmp_path: Path,
    listening: str,
    closed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = written(tmp_path, NetworkPlan(3, mode="relay", subscribers=1), (closed, listening))
    answering(monkeypatch, status_of("relay", 1, HINDERED), status_of("relay", 0), None)
    assert main(["net", "status", "--dir", str(directory)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 of 3 nodes are up (hardened), in 0 processes",
        "  01                           publisher  1 stream, 2 notes unread",
        f"          hindered: {HINDERED}",
        "  02                           subscriber 0 streams, 2 notes unread",
        "  03                           forwarder  down",
        f"  server  {closed:20} server     down",
        f"  proxy   {listening:20} proxy      up",
    ]
    assert main(["net", "status", "--dir", str(directory), "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert [(host["name"], host["up"]) for host in told["hosts"]] == [("server", False), ("proxy", True)]
    assert told["nodes"][0]["hindrances"] == [HINDERED]


@pytest.mark.parametrize(
    ("mode", "neighbours"), [("mesh", "1 neighbour"), ("foil", "1 stream"), ("tree", "1 stream"), ("brokers", "1 rep")]
)
def test_the_status_names_the_connections_of_each_mode(
    mode: Any, neighbours: str, tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    plan = NetworkPlan(3, mode=mode, subscribers=1, tor=mode != "tree")
    hosts = {"mesh": 0, "brokers": len(plan.hosts)}.get(mode, 1)
    written(tmp_path, plan, (closed,) * hosts)
    answering(monkeypatch, status_of(mode, 1), None, None)
    assert main(["net", "status", "--dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert neighbours in lines[1]
    assert len(lines) == 4 + hosts


def test_a_tree_with_tor_shows_its_directory_and_its_tors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LocalHost("testnet", "", "tor", False, "6 of 7 processes up")]
    monkeypatch.setattr("veilcast.cli.local.tree._tor_host", lambda directory: found[0])
    net = LocalNetwork(NetworkPlan(3, mode="tree", subscribers=1), "news/eu", ("",) * 3, (), (), ("",))

    told = asyncio.run(net.plan.local.ask_hosts(tmp_path, net))
    assert told == [LocalHost("directory", "", "directory", False), found[0]]


def facts(node: str | None) -> dict[str, Any]:
    return {"node": node}


def test_the_report_explains_what_missing_brokers_mean_for_each_node() -> None:
    up = {f"{node}-{index}": facts(node) for node in ("west", "east") for index in (1, 2, 3)}
    assert majority_lines(up) == ["  every node has the majority of its replicas: what is published passes"]
    assert majority_lines(up | {"east-1": None}) == majority_lines(up)
    assert majority_lines(up | {"east-1": None, "east-3": None, "spare-1": None, "north-1": facts(None)}) == [
        "  node east has 1 of its 3 replicas, and 2 are needed: nothing passes it, and its members are cut off"
    ]
