"""What an operator hands to `veilcast brokers plan`: signed reports of brokers, earlier ones, and the paths that
matter."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.brokers.operations.redeployment_plan import FaultCount, ReplicaReport
from veilcast.brokers.operations.signed_facts import check_facts
from veilcast.brokers.overlay import BrokerOverlay
from veilcast.cli.input_checks import read_file
from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, ForgedError, TamperedError


def read_reports(paths: Sequence[Path], overlay: BrokerOverlay, signed: Path) -> list[ReplicaReport]:
    """The reports in these files. `ConfigError` unless each is signed by the replica that it names, under the overlay's
    version, and none is there twice."""
    # Most brokers' files have the same name, so their facts are kept apart by file.
    facts = [(path, _read_facts(path)) for path in paths]
    for path, answers in facts:
        _check_version(path, answers, overlay, signed)
        _check_signatures(path, answers, overlay)
    reports = [each for _, answers in facts for each in parse_facts(answers)]
    for (node, index), times in Counter((each.node, each.index) for each in reports).items():
        if times > 1:
            raise ConfigError(f"FACTS: {times} reports are of replica {index} of {node}; give one")
    return reports


def reports_since(reports: Sequence[ReplicaReport], earlier: Sequence[ReplicaReport]) -> list[ReplicaReport]:
    """What was counted between both reports of each replica. A replica without an earlier report, or whose counts have
    become smaller because its broker was started anew, counts from its start. A proof does not become old."""
    before = {(each.node, each.index): each for each in earlier}
    return [_report_since(report, before.get((report.node, report.index))) for report in reports]


def parse_facts(answers: Mapping[str, Any]) -> list[ReplicaReport]:
    """Convert the brokers' answers to the planner's type; a broker that did not answer is left out."""
    return [
        ReplicaReport(
            facts["node"],
            facts["index"],
            tuple(
                FaultCount(mark["node"], mark["index"], mark["scheme"], mark["count"], mark["proof"])
                for mark in facts["marks"]
            ),
            facts["observed"],
            facts["at_us"],
        )
        for facts in answers.values()
        if facts is not None and facts["node"] is not None
    ]


def read_paths(path: Path, overlay: BrokerOverlay) -> dict[tuple[str, str], Fraction]:
    """The paths in a CSV file with the columns `from`, `to` and, if paths differ in weight, `weight`: the virtual nodes
    of a publisher and of a subscriber."""
    try:
        table = csv.DictReader(io.StringIO(read_file(path).decode()), strict=True)
        rows, columns = list(table), table.fieldnames or []
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is not a CSV file: {error}") from error
    if not {"from", "to"} <= set(columns) <= {"from", "to", "weight"}:
        raise ConfigError(f"{path}: the first line is from,to or from,to,weight")
    names, pairs = [node.name for node in overlay.nodes], dict[tuple[str, str], Fraction]()
    for line, row in enumerate(rows, 2):
        one, other, text = row["from"], row["to"], row.get("weight", "1")
        if None in row or None in (one, other, text):
            raise ConfigError(f"{path}, line {line}: a line has as many fields as the first")
        for name in (one, other):
            if name not in names:
                raise ConfigError(f"{path}, line {line}: the overlay has no node {name!r}, only {', '.join(names)}")
        if (one, other) in pairs or (other, one) in pairs:
            raise ConfigError(f"{path}, line {line}: the path between {one} and {other} is there already")
        pairs[one, other] = _parse_weight(text, f"{path}, line {line}")
    if not any(pairs.values()):
        raise ConfigError(f"{path} has no path with a weight above 0")
    return pairs


def _parse_weight(text: str, where: str) -> Fraction:
    if _WEIGHT.fullmatch(text) is None:
        raise ConfigError(f"{where}: {text!r} is no weight; write a number of up to nine digits, as 3, 0.5 or 1/3")
    return Fraction(text)


def _report_since(report: ReplicaReport, earlier: ReplicaReport | None) -> ReplicaReport:
    if earlier is None:
        return report
    if earlier.at_us > report.at_us:
        whose = f"replica {report.index} of {report.node}"
        raise ConfigError(f"--since: the report of {whose} there is later than its report in FACTS; exchange them")
    if earlier.observed > report.observed:
        return report
    before = Counter[tuple[str, int, int]]()
    for mark in earlier.marks:
        before[mark.node, mark.index, mark.scheme] += 0 if mark.proof else mark.count
    marks = []
    for mark in report.marks:
        place = (mark.node, mark.index, mark.scheme)
        old = 0 if mark.proof else min(before[place], mark.count)
        before[place] -= old
        marks.append(msgspec.structs.replace(mark, count=mark.count - old))
    return msgspec.structs.replace(report, marks=tuple(marks), observed=report.observed - earlier.observed)


def _check_version(path: Path, answers: Mapping[str, Any], overlay: BrokerOverlay, signed: Path) -> None:
    """Raise `ConfigError` unless all facts are of the overlay's version: under another version another broker may have
    the place."""
    for facts in answers.values():
        if facts is not None and facts["version"] != overlay.version:
            theirs = f"{path} was told under version {facts['version']} of the overlay"
            raise ConfigError(f"{theirs}, and {signed} is version {overlay.version}; take both of one time")


def _check_signatures(path: Path, answers: Mapping[str, Any], overlay: BrokerOverlay) -> None:
    """Raise `ConfigError` unless the replicas that these facts name have signed them."""
    keys = {
        (node.name, index): replica.key for node in overlay.all_nodes for index, replica in enumerate(node.replicas, 1)
    }
    for facts in answers.values():
        if facts is None or facts["node"] is None:
            continue
        place = (facts["node"], facts["index"])
        try:
            check_facts(facts, keys[place])
        except (ForgedError, KeyError) as error:
            whose = f"replica {place[1]} of {place[0]}"
            raise ConfigError(
                f"{path}: the broker that is {whose} has not signed these facts; get them from its owner again"
            ) from error


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        answers = _DECODER.decode(read_file(path))["brokers"]
        msgspec.convert([each for each in answers.values() if each is not None], list[_Facts])
    except (TamperedError, KeyError, AttributeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path} is not what `veilcast brokers status --json` printed") from error
    assert isinstance(answers, dict)
    return answers


class _Mark(msgspec.Struct):
    node: str
    index: int
    scheme: int
    count: int
    proof: bool


class _Facts(msgspec.Struct):
    node: str | None
    index: int | None
    marks: list[_Mark]
    observed: int
    version: int
    at_us: int


_DECODER: Final = JsonDecoder(dict[str, Any], TamperedError, "not what was printed")
_WEIGHT: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}|/[1-9][0-9]{0,8})?")
