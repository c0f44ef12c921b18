"""The benchmarks on a cluster: a difference is no result, what was to be killed was killed, and Spark's log is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from cluster_audit import check_settings, parse_settings, write_capture
from cluster_sweeps import WORK_BETWEEN_S, KillPlan, compare_files
from measurement.event_log import read_history
from measurement.process_usage import ProcessUsage, TreeUsage
from measurement.standalone_cluster import StandaloneCluster
from veilcast import lab
from veilcast.errors import LocalError


def write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_files_of_two_attempts_with_the_same_bytes_are_counted(tmp_path: Path) -> None:
    for out, attempt in (("here", "0123abcd"), ("there", "fedc9876")):
        write(tmp_path / out / f"measures/seeds-0.{attempt}.parquet", "measured")
        write(tmp_path / out / f"scores/all.{attempt}.parquet", "scored")
    assert compare_files(tmp_path / "here", tmp_path / "there") == 2


@pytest.mark.parametrize(("name", "text"), [("a.01234567.parquet", "other"), ("b.01234567.parquet", "same"), ("", "")])
def test_another_byte_another_file_and_no_file_at_all_are_no_result(name: str, text: str, tmp_path: Path) -> None:
    if name:
        write(tmp_path / "here/a.76543210.parquet", "same")
        write(tmp_path / "there" / name, text)
    with pytest.raises(LocalError, match=r"differ|no file"):
        compare_files(tmp_path / "here", tmp_path / "there")


class CountingCluster:
    """Stands for a cluster, and counts what is killed."""

    workers = (0, 1, 2)

    def __init__(self) -> None:
        self.killed: list[str] = []

    def kill_executors(self, number: int) -> int:
        self.killed.append(f"executor of {number}")
        return 1

    def kill_worker(self, number: int) -> None:
        self.killed.append(f"worker {number}")


def test_an_executor_is_killed_after_the_first_portion_and_a_worker_when_work_goes_on(tmp_path: Path) -> None:
    cluster = CountingCluster()
    worked = [0.0]

    class Usage:
        def usage_of(self, name: str) -> TreeUsage:
            return TreeUsage(worked[0], 0)

    plan, usage = KillPlan(cast(StandaloneCluster, cluster), tmp_path, "e"), cast(ProcessUsage, Usage())
    write(tmp_path / "manifests/e/000000.json", "what is swept")
    worked[0] = 100.0
    assert not plan(usage)
    assert cluster.killed == []
    write(tmp_path / "manifests/e/000001.json", "a portion")
    assert not plan(usage)
    assert not plan(usage)
    assert cluster.killed == ["executor of 0"]
    worked[0] += WORK_BETWEEN_S
    assert plan(usage)
    assert cluster.killed == ["executor of 0", "worker 2"]


def plan_node(name: str, text: str, number: int, *children: dict[str, Any]) -> dict[str, Any]:
    metrics = [{"name": "number of output rows", "accumulatorId": number, "metricType": "sum"}]
    return {"nodeName": name, "simpleString": text, "children": list(children), "metrics": metrics, "metadata": {}}


def task(stage: int, took_ms: int, reason: str = "Success") -> dict[str, Any]:
    info = {"Launch Time": 1_000, "Finish Time": 1_000 + took_ms}
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task Info": info,
        "Task End Reason": {"Reason": reason},
    }


def test_a_log_tells_settings_losses_tasks_partitions_and_rows_once_each(tmp_path: Path) -> None:
    scan = plan_node("InMemoryTableScan", "InMemoryTableScan [a]", 7)
    plan = plan_node("Exchange", "Exchange hashpartitioning(run#1, 17), ENSURE_REQUIREMENTS", 8, scan)
    started = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    events = [
        {"Event": "SparkListenerResourceProfileAdded", "Executor Resource Requests": {"memory": {"Amount": 700}}},
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.a": "1", "spark.b": "2"}},
        *({"Event": "SparkListenerExecutorAdded", "Executor ID": f"{number}"} for number in range(3)),
        {"Event": started, "sparkPlanInfo": plan},
        # The plan comes again when it changes.
        {"Event": started.replace("ExecutionStart", "AdaptiveExecutionUpdate"), "sparkPlanInfo": plan},
        task(1, 1_000),
        task(1, 9_000),
        task(2, 2_000),
        task(2, 500, "ExecutorLostFailure"),
        {"Event": "SparkListenerExecutorRemoved", "Executor ID": "2"},
        {
            "Event": "SparkListenerStageCompleted",
            "Stage Info": {"Accumulables": [{"ID": 7, "Value": "40"}, {"ID": 9, "Value": "5"}, {"ID": 10}]},
        },
    ]
    write(tmp_path / "eventlog_v2_app-1/events_1_app-1", "\n".join(map(json.dumps, events[:4])) + "\n")
    write(tmp_path / "eventlog_v2_app-1/events_2_app-1", "\n".join(map(json.dumps, events[4:])) + "\n")
    found = read_history(tmp_path)
    assert (found.executors, found.lost, found.tasks, found.failed, found.executor_mb) == (3, 1, 3, 1, 700)
    assert found.worst_stage == [1.0, 9.0]
    assert (set(found.shuffles), found.rows) == ({17}, {"InMemoryTableScan": 40, "Exchange": 0})
    check_settings(found, parse_settings("spark.a=1,spark.b=2"))
    with pytest.raises(LocalError, match=r"spark\.b was 2, not 3"):
        check_settings(found, {"spark.b": "3"})


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.001, 0.01), (0.5, 0.49, 0.51)])
def test_a_capture_has_the_cells_and_the_share_of_one_link_that_were_asked_for(
    share: float, low: float, high: float, tmp_path: Path
) -> None:
    write_capture(tmp_path / "wire.pcap", 60_000, share)
    cells, _ = lab.captures(None, tmp_path / "wire.pcap")
    assert isinstance(cells, pa.Table)
    links = cells.group_by(["src", "dst"]).aggregate([([], "count_all")])["count_all"].to_pylist()
    assert sum(links) == 60_000
    assert low < max(links) / 60_000 < high
