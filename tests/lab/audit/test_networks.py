"""Captures that hold more than the operator's network: strangers never turn a failed check into a passed one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Literal

import pyarrow as pa
import pytest

from support.recorded_network import STRANGERS, make_probes, members, other_network, write_cells
from support.ring_traffic import NODES, heartbeats, record_ring, sort_by_time
from veilcast.errors import ConfigError
from veilcast.lab.audit import audit, limits, networks, operator_files, reader
from veilcast.lab.audit.networks import NetworkSplit
from veilcast.lab.audit.operator_files import ListedMember, OverlayLink
from veilcast.observe import CellRow

EPOCH_US = 10**9
SECONDS = 6
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.all_only) for seed in range(2, 6)))
CHECKS = ("auc>0.6", "set<2", "named>0", "publications>0", "sizes>0")
UNLISTED = ("named>0", "publications>0", "sizes>0")

Verdict = Literal["passed", "failed", "refused"]
Foreign = Callable[[Random], list[CellRow]]

APART: dict[str, Foreign] = {
    "another network": lambda rng: other_network(rng, SECONDS),
    "another network with smaller notes": lambda rng: other_network(rng, SECONDS, note=300),
    "two other networks": lambda rng: [
        *other_network(rng, SECONDS),
        *other_network(rng, SECONDS, [f"10.8.0.{number}:4000" for number in range(9)], 777),
    ],
    "a network that is seen an hour later": lambda rng: [_later(each, 3_600_000_000) for each in other_network(rng, 4)],
}
UNANSWERED: dict[str, Foreign] = {
    "one datagram to a member": lambda rng: make_probes(rng, SECONDS, NODES, cells=1),
    "many datagrams to members": lambda rng: make_probes(rng, SECONDS, NODES),
    "another network, joined by one datagram": lambda rng: [
        *other_network(rng, SECONDS),
        *make_probes(rng, SECONDS, NODES, cells=1),
    ],
    "datagrams of a member to strangers": lambda rng: [
        _turned(each) for each in make_probes(rng, SECONDS, NODES[:1], cells=40)
    ],
}
ANSWERED: dict[str, Foreign] = {
    "one answered datagram": lambda rng: make_probes(rng, SECONDS, NODES, answered=True, cells=1),
    "many answered datagrams": lambda rng: make_probes(rng, SECONDS, NODES, answered=True),
    "another network, joined by an answer": lambda rng: [
        *other_network(rng, SECONDS),
        *make_probes(rng, SECONDS, NODES, answered=True, cells=1),
    ],
}


def test_a_broken_network_beside_another_one_fails_as_it_does_alone(tmp_path: Path) -> None:
    known = operator_files.read_members(members(tmp_path / "m.json"))
    listed = {member.node for member in known}
    alone = _audit(tmp_path / "alone", record_ring(1, SECONDS)[0], known, listed)
    mixed = _audit(tmp_path / "mixed", [*record_ring(1, SECONDS)[0], *other_network(Random(1), SECONDS)], known, listed)
    assert mixed.found() == alone.found()
    assert mixed.found()["auc"] > 0.9
    assert mixed.worst.wire == alone.worst.wire
    assert mixed.worst.advice == alone.worst.advice
    assert mixed.left_out.nodes == tuple(STRANGERS)
    assert mixed.left_out.doubts == ()
    assert not set(mixed.worst.nodes) & set(STRANGERS)


@pytest.mark.parametrize("kind", [*APART, *UNANSWERED, *ANSWERED])
@pytest.mark.parametrize("seed", SEEDS)
def test_strangers_never_turn_a_failed_check_into_a_passed_one(seed: int, kind: str, tmp_path: Path) -> None:
    """The list of members is said to be complete: else a check with linked strangers is refused, and cannot pass."""
    assert _passed_by_strangers(tmp_path, seed, kind) == []


@pytest.mark.parametrize("kind", [*APART, *UNANSWERED])
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_list_unanswered_strangers_never_turn_a_failed_check_into_a_passed_one(
    seed: int, kind: str, tmp_path: Path
) -> None:
    assert _passed_by_strangers(tmp_path, seed, kind, listed=False) == []


@pytest.mark.parametrize("kind", [*UNANSWERED, *ANSWERED])
def test_a_stranger_linked_to_members_leaves_no_check_passed_unless_the_list_is_complete(
    kind: str, tmp_path: Path
) -> None:
    known = [ListedMember(node, "forwarder") for node in NODES]
    cells = [*heartbeats(Random(1), SECONDS, 1200), *_foreign(kind, 1)]
    assert _verdict(tmp_path / "net", cells, known, ["publications>0"]) == "refused"
    assert _verdict(tmp_path / "only", cells, known, ["publications>0"], only=True) == "passed"


def test_the_property_finds_an_audit_that_takes_all_nodes_for_one_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug is the audit as it was: strangers count as members without a role."""

    def as_one(
        carried: pa.Table, links: Sequence[OverlayLink] = (), _: Iterable[str] = (), *, only_listed: bool
    ) -> NetworkSplit:
        seen = {end for name in ("src", "dst") for end in carried[name].to_pylist()}
        return NetworkSplit([frozenset(seen)], networks.LeftOut())

    monkeypatch.setattr(networks, "split_networks", as_one)
    # The mixture has no heartbeat, so less than eight seconds of it would be too little for a verdict.
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 10)
    assert "auc>0.6" in _passed_by_strangers(tmp_path, 1, "another network")


def test_a_silent_network_passes_beside_a_broken_one_of_strangers_and_not_without_a_list(tmp_path: Path) -> None:
    """The strangers' network is not the operator's; without a list, any network of the capture may be."""
    cells = [*other_network(Random(1), SECONDS, note=1200), *record_ring(1, SECONDS)[0]]
    own = [ListedMember(STRANGERS[0], "publisher"), ListedMember(STRANGERS[1], "subscriber")]
    own += [ListedMember(node, "forwarder") for node in STRANGERS[2:]]
    assert _verdict(tmp_path / "listed", cells, own, ["publications>0", "named>0"]) == "passed"
    assert _verdict(tmp_path / "unlisted", cells, (), ["publications>0", "named>0"]) == "failed"


def test_two_networks_of_the_operator_are_audited_apart(tmp_path: Path) -> None:
    known = [
        *operator_files.read_members(members(tmp_path / "m.json")),
        *(ListedMember(node, "forwarder") for node in STRANGERS),
    ]
    cells = [*record_ring(1, SECONDS)[0], *other_network(Random(1), SECONDS)]
    found = _audit(tmp_path / "net", cells, known, {member.node for member in known})
    assert [each.wire.nodes for each in found.networks] == [len(NODES), len(STRANGERS)]
    assert found.worst.roles == {"publisher": 1, "subscriber": 3}
    assert found.crossed_limits([limits.parse_limit("auc>0.6")])


def test_a_member_that_the_list_lacks_leaves_a_check_undecided(tmp_path: Path) -> None:
    cells = other_network(Random(1), SECONDS, note=1200)
    known = [
        ListedMember(STRANGERS[0], "publisher"),
        ListedMember(STRANGERS[1], "subscriber"),
        ListedMember(STRANGERS[2], "forwarder"),
    ]
    found = _audit(tmp_path / "net", cells, known, {member.node for member in known})
    with pytest.raises(ConfigError, match=rf"1 node \({STRANGERS[3]}\) is not listed and exchanges .*--only-members"):
        found.crossed_limits([limits.parse_limit("publications>0")])
    assert found.crossed_limits([]) == []
    assert _verdict(tmp_path / "only", cells, known, ["publications>0"], only=True) == "passed"


def test_a_stopped_member_that_answers_nobody_raises_no_doubt() -> None:
    found = networks.split_networks(_carried([("a", "b"), ("b", "a"), ("a", "stopped"), ("b", "stopped")]))
    assert found.networks == [{"a", "b"}]
    assert found.left_out.nodes == ("stopped",)
    assert found.left_out.cells == 2
    assert found.left_out.doubts == ()


@pytest.mark.parametrize("listed", [(), ("a", "b", "deaf")])
def test_a_node_that_takes_as_much_as_a_member_and_never_answers_is_a_doubt(listed: tuple[str, ...]) -> None:
    """It may be a subscriber, and no figure counts what it gets."""
    pairs = [("a", "b"), ("b", "a"), ("a", "deaf")] * 100
    found = networks.split_networks(_carried(pairs), listed=listed).left_out
    assert found.nodes == ("deaf",)
    assert len(found.doubts) == 1
    assert "1 node (deaf) gets as much as members and answers nothing" in found.doubts[0]
    tries = [("a", "b"), ("b", "a")] * 100 + [("a", "deaf")] * 20
    assert networks.split_networks(_carried(tries), listed=listed).left_out.doubts == ()


def test_a_complete_list_with_nodes_that_are_not_in_the_captures_is_a_doubt() -> None:
    """A node that the list misspells is left out as a stranger."""
    carried = _carried([("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")])
    [doubt] = networks.split_networks(carried, listed=("a", "b", "C"), only_listed=True).left_out.doubts
    assert "1 listed node (C) is not in the captures" in doubt
    assert networks.split_networks(carried, listed=("a", "b", "c"), only_listed=True).left_out.doubts == ()


def test_no_check_of_a_moment_passes(tmp_path: Path) -> None:
    """In a few heartbeats nobody publishes, and attackers have nothing to go by."""
    found = _audit(tmp_path / "net", heartbeats(Random(1), SECONDS)[:8], (), ())
    assert found.crossed_limits([]) == []
    with pytest.raises(ConfigError, match="8 heartbeats at least"):
        found.crossed_limits([limits.parse_limit("publications>0")])


def test_a_capture_of_one_direction_is_audited_and_no_check_of_it_passes() -> None:
    one_way = [("a", "b"), ("b", "c")]
    found = networks.split_networks(_carried(one_way))
    assert found.networks == [{"a", "b", "c"}]
    assert "one way only" in found.left_out.doubts[0]
    beside = networks.split_networks(_carried([*one_way, ("x", "y"), ("y", "x")]))
    assert beside.networks == [{"a", "b", "c"}, {"x", "y"}]
    assert beside.left_out.doubts == found.left_out.doubts


def test_a_listed_link_joins_nodes_and_lists_them() -> None:
    links = [OverlayLink("a", "b"), OverlayLink("b", "c"), OverlayLink("c", "unseen")]
    found = networks.split_networks(_carried([("a", "b"), ("b", "a"), ("c", "b"), ("x", "a")]), links)
    assert found.networks == [{"a", "b", "c", "unseen"}]
    assert found.left_out.nodes == ("x",)
    assert "1 node (x) is not listed" in found.left_out.doubts[0]


def test_strangers_that_are_named_are_bounded_and_all_are_counted() -> None:
    scans = [(f"10.0.{number >> 8}.{number & 255}:9", "a") for number in range(2 * networks.LEFT_OUT_MAX)]
    found = networks.split_networks(_carried([("a", "b"), ("b", "a"), *scans]), listed={"a", "b"}).left_out
    assert (len(found.nodes), found.count) == (networks.LEFT_OUT_MAX, len(scans))
    assert found.lines() == ["left out: 2,000 nodes outside the audited networks, 2,000 cells"]
    assert len(found.doubts[0]) < 400


def test_more_networks_than_can_be_audited_are_a_doubt() -> None:
    pairs = [(f"{way}{number}", f"{other}{number}") for number in range(99) for way, other in ("ab", "ba")]
    found = networks.split_networks(_carried(pairs))
    assert len(found.networks) == networks.NETWORKS_MAX
    assert "99 separate networks" in found.left_out.doubts[0]


def _passed_by_strangers(place: Path, seed: int, kind: str, *, listed: bool = True) -> list[str]:
    """The checks that the network fails alone, and passes with strangers in its capture."""
    known = operator_files.read_members(members(place / "m.json")) if listed else ()
    nodes = {member.node for member in known}
    own = record_ring(seed, SECONDS)[0]
    before = _audit(place / "alone", own, known, nodes, listed)
    after = _audit(place / "mixed", [*own, *_foreign(kind, seed)], known, nodes, listed)
    checks = CHECKS if listed else UNLISTED
    failed = [check for check in checks if _decide(before, check) == "failed"]
    assert set(failed) >= {*checks[:1], "publications>0", "sizes>0"}
    return [check for check in failed if _decide(after, check) == "passed"]


def _foreign(kind: str, seed: int) -> list[CellRow]:
    return {**APART, **UNANSWERED, **ANSWERED}[kind](Random(f"{kind} {seed}"))


def _audit(
    place: Path, cells: list[CellRow], known: Sequence[ListedMember], listed: Iterable[str], only: bool = False
) -> audit.CaptureAudit:
    seen = reader.observe([write_cells(place, sort_by_time(cells))], EPOCH_US, (), set(listed), only_listed=only)
    return audit.audit_capture(seen, members=known)


def _verdict(
    place: Path, cells: list[CellRow], known: Sequence[ListedMember], checks: Sequence[str], *, only: bool = False
) -> Verdict:
    found = _audit(place, cells, known, {member.node for member in known}, only)
    verdicts = {_decide(found, check) for check in checks}
    return "failed" if "failed" in verdicts else "refused" if "refused" in verdicts else "passed"


def _decide(found: audit.CaptureAudit, check: str) -> Verdict:
    try:
        return "failed" if found.crossed_limits([limits.parse_limit(check)]) else "passed"
    except ConfigError:
        return "refused"


def _carried(flows: list[tuple[str, str]]) -> pa.Table:
    return pa.table({"src": [src for src, _ in flows], "dst": [dst for _, dst in flows], "cells": [1] * len(flows)})


def _later(each: CellRow, by_us: int) -> CellRow:
    return CellRow(each.run, each.epoch, each.t_us + by_us, each.src, each.dst, each.size)


def _turned(each: CellRow) -> CellRow:
    return CellRow(each.run, each.epoch, each.t_us, each.dst, each.src, each.size)
