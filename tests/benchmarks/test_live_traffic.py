"""The traffic of the benchmark of live audits gives the guesses of an audit, from counts alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

import live_audit as benchmark
from veilcast.lab import capture
from veilcast.lab.attack.observer.record_state import of_kind, reduce_cells
from veilcast.lab.audit import reader
from veilcast.lab.audit.live_audit import LiveAudit, LiveSettings, choose_attackers


def test_the_traffic_of_the_benchmark_gives_the_guesses_of_an_audit_from_counts_alone(tmp_path: Path) -> None:
    file = tmp_path / "wire.pcap"
    benchmark.write_at_once(file, 4_200, 12)
    table, _ = capture.read([file], run="r", epoch_us=3_600_000_000)
    assert len(table) == 50_400
    audit = LiveAudit(msgspec.structs.replace(LiveSettings(), window_us=0))
    for number in range(4):
        parts = [reduce_cells(table.slice(number * 12_600 + half, 6_300), audit.plan) for half in (0, 6_300)]
        (report,) = audit.merge(number, pa.concat_tables(parts))
    assert (report.cells, report.links, report.remarks) == (50_400, 420, ())
    assert not len(of_kind(audit.state.rows, "copies"))
    (network,) = reader.observe([file], 3_600_000_000).networks
    able = {(each.name, each.role) for each in choose_attackers(None)}
    for each in network.guesses:
        if (each.attack, each.role) not in able:
            continue
        (found,) = [one for one in report.attackers if (one.attack, one.role) == (each.attack, each.role)]
        scores = dict(zip(network.nodes, each.whole.tolist(), strict=True))
        assert found.says == (each.whole.min() < each.whole.max())
        assert all(scores[suspect.node] == suspect.score for suspect in found.suspects)
