"""Reads Spark's event log: the settings of an application, its executors, its tasks, and the rows of its plans.

Spark writes a line of JSON for each event. The log must be written with `spark.eventLog.compress=false`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec


class SparkHistory(msgspec.Struct):
    """What an application did."""

    settings: dict[str, str] = {}
    """Spark's properties at its start."""
    executors: int = 0
    """Executors that came."""
    lost: int = 0
    """Executors that were lost before the end."""
    executor_mb: int = 0
    """Memory that Spark asked for each executor."""
    tasks: int = 0
    failed: int = 0
    """Tasks that failed, or were lost with their executor."""
    stages: dict[str, list[float]] = {}
    """Seconds of the tasks of each stage that did any."""
    shuffles: list[int] = []
    """Numbers of partitions that plans gave to shuffles by keys, before Spark joined small ones."""
    rows: dict[str, int] = {}
    """Rows that the nodes of all plans gave, by the node's name."""

    @property
    def worst_stage(self) -> list[float]:
        """The tasks' seconds of the stage with the longest task."""
        return max(self.stages.values(), key=max, default=[0.0])

    def describe_skew(self) -> str:
        worst = self.worst_stage
        return f"{len(worst)} tasks, median {median(worst):.1f} s, slowest {max(worst):.1f} s"


def read_history(directory: Path) -> SparkHistory:
    """The history of the one application whose log is in the directory."""
    found = SparkHistory()
    rows_of: dict[int, str] = {}
    totals: dict[int, int] = {}
    removed = Counter[str]()
    for event in _events(directory):
        match event["Event"].rpartition(".")[2]:
            case "SparkListenerEnvironmentUpdate":
                found.settings = dict(event["Spark Properties"])
            case "SparkListenerExecutorAdded":
                found.executors += 1
            case "SparkListenerExecutorRemoved":
                removed[event["Executor ID"]] += 1
            case "SparkListenerResourceProfileAdded":
                asked = event["Executor Resource Requests"]
                found.executor_mb = asked["memory"]["Amount"] if "memory" in asked else 0
            case "SparkListenerTaskEnd":
                _add_task(found, event)
            case "SparkListenerStageCompleted":
                for each in event["Stage Info"]["Accumulables"]:
                    if str(each.get("Value", "")).isdigit():
                        totals[each["ID"]] = max(totals.get(each["ID"], 0), int(each["Value"]))
            case "SparkListenerSQLExecutionStart" | "SparkListenerSQLAdaptiveExecutionUpdate":
                for node in _nodes(event["sparkPlanInfo"]):
                    found.shuffles += [int(number) for number in _PARTITIONED.findall(node["simpleString"])]
                    for metric in node["metrics"]:
                        if metric["name"] == "number of output rows":
                            rows_of[metric["accumulatorId"]] = node["nodeName"]
    found.lost = sum(removed.values())
    for number, name in rows_of.items():
        found.rows[name] = found.rows.get(name, 0) + totals.get(number, 0)
    return found


def _add_task(found: SparkHistory, event: dict[str, Any]) -> None:
    if event["Task End Reason"]["Reason"] != "Success":
        found.failed += 1
        return
    told = event["Task Info"]
    found.tasks += 1
    seconds = (told["Finish Time"] - told["Launch Time"]) / 1000
    found.stages.setdefault(f"{event['Stage ID']}", []).append(seconds)


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    files = [path for path in directory.rglob("*") if path.is_file() and _EVENTS.match(path.name)]
    for path in sorted(files, key=lambda each: [int(part) for part in re.findall(r"\d+", each.name)]):
        with path.open() as lines:
            yield from map(json.loads, lines)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan["children"]:
        yield from _nodes(child)


_EVENTS: Final = re.compile(r"(events_\d+_)?(app|local)-[\d-]+(\.inprogress)?$")
_PARTITIONED: Final = re.compile(r"^Exchange hashpartitioning\(.*, (\d+)\)")
