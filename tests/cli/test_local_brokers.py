"""An overlay on one computer: its files can be read, its brokers know one another, and nothing is left after its
removal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from veilcast.authority.secret_file import lock_directory, replace_file
from veilcast.brokers.operations.key_repository import Repository
from veilcast.brokers.operations.redeployment_plan import evaluate_reports
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica
from veilcast.cli.broker_facts import facts_lines
from veilcast.cli.broker_plan import find_silent, silent_lines
from veilcast.cli.context import Context
from veilcast.cli.local import brokers as localbrokers
from veilcast.cli.local import network
from veilcast.cli.local.network import NetworkPlan
from veilcast.cli.local.overlay_operator import LocalOperator
from veilcast.cli.local.overlay_plan import SPARE, OverlayPlan, VirtualNodePlan
from veilcast.cli.main import main
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.errors import ConfigError
from veilcast.node import config as node_config
from veilcast.node.broker_overlay import load_broker, read_signed
from veilcast.node.brokers import BrokersSettings, read_overlays

CONTEXT = Context(cost=PassphraseCost(1, 1))
OVERLAY = OverlayPlan(
    (VirtualNodePlan("a", 3, ("drop",)), VirtualNodePlan("b", 5, ("mute", "replay"))),
    (("a", "b"),),
    ("a", "b", "b"),
    spare=2,
)
PLAN = NetworkPlan(
    nodes=3,
    mode="brokers",
    publishers=1,
    subscribers=2,
    overlay=OVERLAY,
    roles=("publisher", "subscriber", "subscriber"),
)


def test_all_files_fit_together_and_go_together(tmp_path: Path) -> None:
    home = tmp_path / "net"
    net = network.lay_out(home, PLAN, CONTEXT, Random(os.urandom(8)))
    assert network.read_network(home) == net
    listening = dict(zip(PLAN.hosts, net.hosts, strict=True))
    brokers = {host: load_broker(localbrokers.broker_file(home, host)) for host in PLAN.hosts}
    operator = brokers["a-1"].operator_key
    overlay = read_signed(Path(brokers["b-5"].overlay), operator).verify(operator)
    assert {node.name: len(node.replicas) for node in overlay.nodes} == {"a": 3, "b": 5}
    for host, config in brokers.items():
        assert config.listen == listening[host]
        name, _, index = host.partition("-")
        if name != SPARE:
            assert overlay.node(name).replicas[int(index) - 1].address.endswith(f"@{config.listen}")
    for member, edge in enumerate(OVERLAY.edges):
        settings = node_config.load_config(network.node_file(home, member)).settings
        assert isinstance(settings, BrokersSettings)
        assert [way.edge for way in settings.ways] == [edge]
        read_overlays(settings)
    network.remove_network(home, net)
    assert not home.exists()


def test_the_overlay_is_locked_while_a_plan_is_made_and_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "net"
    network.lay_out(home, PLAN, CONTEXT, Random(os.urandom(8)))
    asked: list[Path] = []

    def told_by(directory: Path) -> dict[str, Any]:
        asked.append(directory)
        return {}

    monkeypatch.setattr("veilcast.cli.broker_plan.ask_brokers", told_by)
    with lock_directory(home):
        assert main(["brokers", "plan", "--dir", str(home), "--apply"], CONTEXT) == 4
        assert f"{home} is in use by another command" in capsys.readouterr().err
        assert not asked
        assert main(["brokers", "plan", "--dir", str(home)], CONTEXT) == 0
    assert asked == [home]


class ScriptedBrokers:
    """The answers of brokers, as a test sets them: no broker runs, and handing out an overlay changes nothing."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.facts = home, dict.fromkeys(PLAN.hosts)
        network.lay_out(home, PLAN, CONTEXT, Random(os.urandom(8)))
        for module in ("broker_plan", "local.overlay_operator"):
            monkeypatch.setattr(f"veilcast.cli.{module}.ask_brokers", lambda _: dict(self.facts))
        monkeypatch.setattr("veilcast.cli.local.workers.add_worker", lambda *_: None)
        monkeypatch.setattr(LocalOperator, "hand_out_overlay", lambda _: None)
        monkeypatch.setattr("veilcast.cli.broker_plan._STEP_S", 0.0)
        monkeypatch.setattr("veilcast.cli.broker_plan._LOOK_S", 0.0)

    def up(self, version: int, *hosts: str) -> None:
        for host in hosts:
            node, _, index = host.partition("-")
            place = {"node": node, "index": int(index), "marks": [], "observed": 100, "at_us": 0}
            self.facts[host] = {**place, "version": version, "complete": True, "left": False}

    def version(self) -> int:
        operator = load_broker(localbrokers.broker_file(self.home, "a-1")).operator_key
        signed = localbrokers.operator_directory(self.home) / localbrokers.SIGNED
        return read_signed(signed, operator).verify(operator).version

    def plan(self, *more: str) -> int:
        return main(["brokers", "plan", "--dir", str(self.home), *more], CONTEXT)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    return ScriptedBrokers(tmp_path / "net", monkeypatch)


def test_a_plan_lists_silent_replicas_and_nodes_without_a_majority(
    told: ScriptedBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    told.up(1, "a-1", "b-1", "b-2", "b-3", "b-4")
    assert told.plan() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  silent: 2 of 3 replicas of a" in lines
    assert "  silent: 1 of 5 replicas of b" in lines
    assert [line for line in lines if "warning" in line] == [
        "  warning: no majority of a answers: nothing gets through it until more of it run"
    ]
    assert told.plan("--json") == 0
    assert json.loads(capsys.readouterr().out)["silent"] == [
        {"node": "a", "silent": 2, "of": 3, "majority": False},
        {"node": "b", "silent": 1, "of": 5, "majority": True},
    ]


def test_a_repository_without_a_majority_is_named_as_it_is() -> None:
    replicas = [Replica(bytes([number]) * 32, f"at {number}", f"broker:{number}") for number in range(6)]
    shelf = NodeEntry("repository", 1, tuple(replicas[3:]))
    overlay = BrokerOverlay(1, (NodeEntry("a", 1, tuple(replicas[:3])),), (), shelf)
    found = find_silent(overlay, {replica.key for replica in replicas[:4]})
    assert silent_lines(found)[0] == "  silent: 2 of 3 replicas of the repository"
    assert "no majority of the repository answers" in silent_lines(found)[1]
    assert find_silent(overlay, {replica.key for replica in replicas}) == []


def test_nothing_is_signed_that_too_few_could_carry_out(
    told: ScriptedBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    told.up(1, "a-1", "b-1", "b-2", "b-3")
    assert told.plan("--apply") == 14
    (line,) = capsys.readouterr().err.splitlines()
    assert "nothing is signed, for too few answer to carry it out: 1 of 3 replicas of a; " in line
    assert f"`veilcast brokers status --dir {told.home}`" in line
    assert told.version() == 1


def test_a_step_that_brokers_do_not_take_ends_in_time_and_the_next_call_carries_it_out(
    told: ScriptedBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    running = [host for host in PLAN.hosts if host not in PLAN.spare_hosts]
    told.up(1, *running)
    assert told.plan("--apply") == 15
    waits, end = capsys.readouterr().err.splitlines()
    assert waits == "veilcast: waiting for version 2: 0 of 6 replicas that must go by it do"
    assert "gave up after 0 s of waiting for version 2" in end
    assert "it is signed, and --apply carries it out first" in end
    assert told.version() == 2
    told.up(2, *running)
    told.up(2, *PLAN.spare_hosts)
    assert told.plan() == 0
    assert (
        "  version 2 has been carried out: all brokers that answer have adopted it"
        in capsys.readouterr().out.splitlines()
    )


def test_a_replica_proven_to_lie_is_never_spare_and_never_cleared(told: ScriptedBrokers) -> None:
    running = [host for host in PLAN.hosts if host not in PLAN.spare_hosts]
    told.up(1, *running)
    for host in ("b-1", "b-2", "b-3"):
        told.facts[host]["marks"] = [{"node": "a", "index": 1, "scheme": 1, "count": 1, "proof": True}]  # type: ignore[index]
    assert told.plan("--apply") == 15
    assert told.version() == 2
    here = LocalOperator(told.home, network.read_network(told.home))
    (liar,) = here.liars()
    assert {here.host(replica) for replica in here.spares(here.overlay())} == {"spare-2"}
    assert evaluate_reports(here.overlay(), [], here.liars()).faulty == ()
    signed = localbrokers.operator_directory(told.home) / localbrokers.SIGNED
    signed.write_bytes((told.home / "b-1" / localbrokers.SIGNED).read_bytes())
    assert evaluate_reports(here.overlay(), [], here.liars()).faulty == (liar,), "it stands there again"


def test_a_repository_is_laid_out_beside_the_nodes_and_members_use_it(tmp_path: Path) -> None:
    home = tmp_path / "net"
    plan = msgspec.structs.replace(PLAN, overlay=msgspec.structs.replace(OVERLAY, repository=3))
    net = network.lay_out(home, plan, CONTEXT, Random(os.urandom(8)))
    listening = dict(zip(plan.hosts, net.hosts, strict=True))
    config = load_broker(localbrokers.broker_file(home, "repository-2"))
    overlay = read_signed(Path(config.overlay), config.operator_key).verify(config.operator_key)
    assert overlay.repository is not None
    assert len(overlay.repository.replicas) == 3
    assert overlay.repository.replicas[1].address.endswith(f"@{listening['repository-2']}")
    settings = node_config.load_config(network.node_file(home, 0)).settings
    assert isinstance(settings, BrokersSettings)
    assert settings.client.delivery == "repository"
    with localbrokers.compose_host(home, plan.brokers, "repository-2") as station:
        assert isinstance(station.machine, Repository)
    with pytest.raises(ConfigError, match="the repository has 2 of at least 3 replicas"):
        msgspec.structs.replace(OVERLAY, repository=2).check("hardened", 3)
    with pytest.raises(ConfigError, match="belong to none"):
        VirtualNodePlan("repository")


def test_liars_are_the_last_replicas_of_a_node_and_spare_ones_are_honest() -> None:
    assert {host: kind for host in OVERLAY.hosts if (kind := OVERLAY.byzantine_kind(host)) is not None} == {
        "a-3": "drop",
        "b-4": "mute",
        "b-5": "replay",
    }
    assert (OVERLAY.spare_hosts, PLAN.spare_hosts) == (("spare-1", "spare-2"), ("spare-1", "spare-2"))


def test_without_a_description_three_nodes_stand_in_a_line_and_members_are_spread_over_them() -> None:
    plan = NetworkPlan(nodes=4, mode="brokers", subscribers=2)
    assert (len(plan.hosts), [plan.brokers.edge(member) for member in range(4)]) == (
        9,
        ["north", "centre", "south", "north"],
    )


@pytest.mark.parametrize(
    ("overlay", "reason"),
    [
        (OverlayPlan((VirtualNodePlan("a", 2),)), "'a' has 2 of at least 3 replicas"),
        (OverlayPlan((VirtualNodePlan("a"), VirtualNodePlan("b"))), "a gap in the overlay"),
        (OverlayPlan((VirtualNodePlan("a"),), edges=("a",)), "every member has one edge node"),
        (OverlayPlan((VirtualNodePlan("a"), VirtualNodePlan("a"))), "two virtual nodes have one name"),
    ],
)
def test_an_overlay_that_could_not_be_is_refused(overlay: OverlayPlan, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        NetworkPlan(nodes=3, mode="brokers", subscribers=2, overlay=overlay)


def test_an_overlay_is_of_brokers_alone() -> None:
    with pytest.raises(ConfigError, match="an overlay is of the mode 'brokers'"):
        NetworkPlan(nodes=3, mode="relay", subscribers=2, overlay=OVERLAY)


def test_a_broker_that_was_detached_is_shown_as_such_and_not_at_a_place() -> None:
    facts: dict[str, Any] = {
        "node": None,
        "index": None,
        "version": 2,
        "complete": True,
        "left": False,
        "peers": {"broker:1": True, "broker:2": False},
        "sizes": {"claims": 4},
        "marks": [],
    }
    assert facts_lines({"a-1": facts})[1] == (
        "  a-1: detached, overlay 2, 1 of 2 peers up, 4 claims, and ends when its work is done"
    )


@pytest.mark.parametrize("written", [0, 1, 9])
def test_a_layout_that_is_interrupted_leaves_nothing(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([True] * written)

    def write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
        if not next(left, False):
            raise KeyboardInterrupt
        replace_file(path, data, mode=mode)

    monkeypatch.setattr("veilcast.cli.local.network.replace_file", write)
    with pytest.raises(KeyboardInterrupt):
        network.lay_out(tmp_path / "net", PLAN, CONTEXT, Random(7))
    assert not (tmp_path / "net").exists()
