from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest

from support.recorded_network import PUBLISHER, READERS, members, write_cells, write_loud_network, write_silent_network
from support.ring_traffic import BEAT_US, NODES, NOTE, TREE, cell, heartbeats, record_ring
from veilcast.errors import ConfigError
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.audit import audit, operator_files, reader
from veilcast.lab.audit.audit import Audit
from veilcast.lab.audit.operator_files import ListedMember, OverlayLink

EPOCH_US = 10**9


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    place = tmp_path_factory.mktemp("loud")
    seen = reader.observe([write_loud_network(place / "net")], EPOCH_US)
    return audit.audit_capture(seen, members=operator_files.read_members(members(place / "members.json"))).worst


def test_where_notes_stand_out_publisher_and_leaves_are_named(told: Audit) -> None:
    publisher, reader = told.best("publisher"), told.best("subscriber")
    assert publisher is not None
    assert reader is not None
    assert publisher.attack == "flow-source"
    assert [(each.node, each.right) for each in publisher.suspects[: publisher.named]] == [(PUBLISHER, True)]
    leaf = next(each for each in told.attackers if each.attack == "leaf")
    assert {each.node for each in leaf.suspects[: leaf.named]} == {NODES[2], NODES[9]}
    assert reader.measures["auc"] > 0.9
    assert reader.measures["base_rate"] == pytest.approx(len(READERS) / (len(NODES) - 1))
    assert told.publications == 38
    assert {(flow.src, flow.dst) for flow in told.flows} == {(NODES[u], NODES[v]) for u, to in TREE.items() for v in to}
    assert [each.size for each in told.wire.telling] == [NOTE]
    assert told.wire.heartbeat_us == pytest.approx(BEAT_US, rel=0.001)
    assert told.found()["set"] == 1
    assert any("hardened" in each.change for each in told.advice)


def test_what_comes_out_of_the_engine_does_not_grow_with_the_length_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Spark these are the rows that come to the driver."""
    monkeypatch.setattr(reader, "_SAMPLE_US", 5_000_000)
    collect, rows, notes = reader._collect, list[dict[tuple[str, ...], int]](), list[int]()

    def count(table: AnyTable) -> pa.Table:
        found = collect(table)
        rows[-1][tuple(found.column_names)] = len(found)
        return found

    monkeypatch.setattr(reader, "_collect", count)
    for seconds in (40, 160):
        rows.append({})
        (seen,) = reader.observe([write_cells(tmp_path / f"{seconds}", record_ring(1, seconds)[0])], EPOCH_US).networks
        notes.append(sum(seen.flows["notes"].to_pylist()))
        assert seen.publications == 2 * seconds - 2
    assert notes[1] > 3.9 * notes[0] > 500
    assert len(rows[0]) > 4
    for columns, before in rows[0].items():
        assert rows[1][columns] < 1.3 * before, columns


def test_silent_links_reveal_nothing_and_need_no_advice(tmp_path: Path) -> None:
    seen = reader.observe([write_silent_network(tmp_path / "net")], EPOCH_US)
    found = audit.audit_capture(seen, members=operator_files.read_members(members(tmp_path / "members.json"))).worst
    assert (found.publications, found.flows, found.wire.telling, found.wire.odd) == (0, (), (), ())
    assert found.best("publisher") is None
    assert found.best("subscriber") is None
    assert found.advice == ()
    assert found.found() == {
        "named": 0, "publications": 0, "sizes": 0, "odd_links": 0, "auc": 0.5, "auc_low": 0.5, "tpr": 0.01, "set": 12,
    }  # fmt: skip


def test_without_members_there_are_scores_only(tmp_path: Path) -> None:
    found = audit.audit_capture(reader.observe([write_loud_network(tmp_path / "net")], EPOCH_US)).worst
    assert all(not each.measures for each in found.attackers)
    assert all(suspect.right is None for each in found.attackers for suspect in each.suspects)
    assert "auc" not in found.found()
    publisher = found.best("publisher")
    assert publisher is not None
    assert publisher.suspects[0].node == PUBLISHER
    assert "--members" in found.advice[-1].change


def test_a_planted_link_of_another_rhythm_is_found(tmp_path: Path) -> None:
    cells = heartbeats(Random(3), 20, 1200)
    odd = [each for number, each in enumerate(cells) if (each.src, each.dst) != (NODES[4], NODES[5]) or number % 2]
    found = audit.audit_capture(reader.observe([write_cells(tmp_path / "net", odd)], EPOCH_US)).worst
    assert [(each.src, each.dst) for each in found.wire.odd] == [(NODES[4], NODES[5])]
    assert found.wire.odd[0].apart > 0.9


def test_links_that_are_known_replace_those_that_were_seen(tmp_path: Path) -> None:
    cells = [each for each in record_ring(1, 8)[0] if NODES[5] not in (each.src, each.dst)]
    far = "127.99.0.1:4000"
    links = [OverlayLink(NODES[u], NODES[(u + 1) % len(NODES)]) for u in range(len(NODES))] + [
        OverlayLink(NODES[0], far)
    ]
    seen = reader.observe([write_cells(tmp_path / "net", cells)], EPOCH_US, links)
    assert far in seen.networks[0].nodes
    found = audit.audit_capture(seen, links, [ListedMember(far, "subscriber"), ListedMember(NODES[2], "subscriber")])
    assert found.remarks == (
        "2 nodes of the topology were not seen in the captures",
        "1 member not seen in the captures, and not counted",
    )


def test_roles_that_nobody_has_are_not_judged(tmp_path: Path) -> None:
    seen = reader.observe([write_loud_network(tmp_path / "net", 8)], EPOCH_US)
    found = audit.audit_capture(
        seen, members=[ListedMember(PUBLISHER, "publisher"), ListedMember(NODES[2], "reader")]
    ).worst
    assert {each.role for each in found.attackers if each.measures} == {"publisher"}
    readers = [each for each in found.attackers if each.role == "subscriber"]
    assert all(suspect.right is None for each in readers for suspect in each.suspects)
    assert found.found()["set"] == 1
    assert not {"auc", "auc_low", "tpr"} & set(found.found())


def test_members_and_links_of_another_network_are_refused(tmp_path: Path) -> None:
    """Else every check of theirs would pass."""
    net = write_loud_network(tmp_path / "net", 8)
    with pytest.raises(ConfigError, match=r"none of the members .*: 127.1.0.1 is not, and 127.1.0.1:4000 is"):
        reader.observe([net], EPOCH_US, listed={"127.1.0.1", "127.2.0.1"})
    with pytest.raises(ConfigError, match="none of the nodes of the topology"):
        reader.observe([net], EPOCH_US, [OverlayLink("a", "b")])


def test_a_brief_record_gets_a_remark(tmp_path: Path) -> None:
    found = audit.audit_capture(
        reader.observe([write_cells(tmp_path / "net", record_ring(1)[0][:120])], EPOCH_US)
    ).worst
    assert any("8 heartbeats at least" in remark for remark in found.remarks)


def test_several_runs_are_no_network(tmp_path: Path) -> None:
    cells = [cell(number, number, number + 1, 80) for number in range(9)]
    with pytest.raises(ConfigError, match="several runs"):
        reader.observe(
            [write_cells(tmp_path / "net", [*cells, msgspec.structs.replace(cells[0], run="other")])], EPOCH_US
        )
