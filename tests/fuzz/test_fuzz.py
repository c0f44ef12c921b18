"""The fuzzers themselves: every target answers its seeds, and the frame reports planted bugs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

from support.fuzz.fuzz import Row, as_text, read_log, run_target, run_together
from support.fuzz.fuzz_mutator import mutate_msgpack, mutator, parse_msgpack
from support.fuzz.fuzz_script import read_script, script
from support.fuzz.fuzz_seeds import seeds
from support.fuzz.fuzz_table import GROUPS, table
from support.fuzz.fuzz_target import Format, Prepared, Target
from support.fuzz.fuzz_worker import committed_corpus

HERE = Path(__file__).parent
TESTS = HERE.parent
RUNS = 2000
TARGETS = table()
PLANTED = "targets_planted"
INTERPRETED = "interpreted"


def named(target: Target) -> object:
    return pytest.param(target, id=target.name)


def group_of(target: Target) -> str:
    """The targets of one process: those of a module, with the interpreted ones apart."""
    return INTERPRETED if target.interpreted else target.prepare.__module__


@pytest.mark.parametrize("target", [named(target) for target in TARGETS.values() if not target.interpreted])
def test_every_seed_is_answered_or_refused_as_the_contract_says(target: Target) -> None:
    prepared = target.prepare()
    path = committed_corpus(target.name)
    kept = [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []
    for data in (*kept, *seeds(prepared)):
        prepared.run(data)


@pytest.mark.parametrize("target", [target for target in TARGETS.values() if target.interpreted], ids=lambda t: t.name)
def test_every_seed_of_a_compiled_parser_is_tried_interpreted(target: Target, tmp_path: Path) -> None:
    row = run_target(target, tmp_path, tmp_path, options=["--seeds-only", "--plain"])
    assert row.finding is None
    assert row.runs > 0


@pytest.mark.all_only
@pytest.mark.parametrize("group", sorted({group_of(target) for target in TARGETS.values()}))
def test_a_bounded_number_of_mutations_finds_nothing(group: str, tmp_path: Path) -> None:
    targets = [target for target in TARGETS.values() if group_of(target) == group]
    rows = run_together(targets, tmp_path, tmp_path / "corpus", RUNS)
    assert not [row for row in rows if row.finding], as_text(rows)
    assert all(row.runs >= RUNS for row in rows), as_text(rows)


def test_processes_that_share_their_imports_report_the_same_planted_bugs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEILCAST_FUZZ_GROUPS", PLANTED)
    names = ("planted-nest", "planted-late", "planted-none")
    rows = run_together([table()[name] for name in names], tmp_path, tmp_path / "corpus", RUNS)
    assert [(row.finding or "none").partition(":")[0] for row in rows] == [
        "RecursionError",
        "ZeroDivisionError",
        "none",
    ]
    assert [row.input is None for row in rows] == [False, False, True]


@pytest.mark.parametrize("target", [named(target) for target in TARGETS.values() if not target.interpreted])
def test_every_valid_example_is_taken(target: Target) -> None:
    """A target whose examples are refused at the first byte would fuzz nothing but that byte."""
    prepared = target.prepare()
    taken = 0
    for example in prepared.examples:
        try:
            prepared.check(example)
        except prepared.may_raise:
            continue
        taken += 1
    assert taken > 0


def test_the_committed_corpus_is_small() -> None:
    files = list((HERE / "corpus").glob("*"))
    assert {file.stem for file in files} <= set(TARGETS)
    assert sum(file.stat().st_size for file in files) <= 300_000


def test_there_is_a_module_for_each_group_and_every_target_module_is_in_the_table() -> None:
    found = {path.stem for path in (TESTS / "support" / "fuzz").glob("targets_*.py")}
    assert found - {PLANTED} == set(GROUPS)


SOURCE = HERE.parents[1] / "src" / "veilcast"
DECODES = re.compile(r"\b(?:MsgpackDecoder|JsonDecoder)\(|\bread_toml\(")
WITHOUT_TARGET = {
    "decoding": "builds decoders for others",
    "cli.broker_reports": "what `brokers status --json` printed, in files of the operator",
    "lab.audit.live_audit": "checkpoints that the lab wrote itself",
    "lab.capture.data_source": "plans and offsets that the lab wrote itself",
    "lab.capture.tasks": "answers of the lab's own workers",
    "lab.challenge.files": "records of a challenge that the lab wrote itself",
    "lab.challenge.plan": "settings that come with the package; the TOML reader has targets",
    "lab.data": "a public dataset whose digest is pinned",
    "lab.experiment.definition": "experiments of the researcher's own; the TOML reader has targets",
    "lab.experiment.kept_tables": "the origin of tables in the lab's own store",
    "lab.experiment.manifest": "manifests of the lab's own store",
    "lab.experiment.sweep": "answers of the lab's own tasks",
    "lab.record.recorded_runs": "records of the lab's own results, kept in a repository",
    "lab.runs.stored_attack": "answers of the lab's own tasks, and manifests of its own store",
    "lab.experiment.task": "parameters that the lab wrote itself",
    "sim.brokers.share_pool": "bytes of the simulator's own adversaries",
    "sim.foil.mqtt_broker": "the simulator's own broker of MQTT",
}
"""Modules that decode and have no target, and why."""


def decoding_modules() -> set[str]:
    """The modules that build a decoder of foreign or stored bytes."""
    found = [path for path in SOURCE.rglob("*.py") if DECODES.search(path.read_text())]
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in found}


def test_every_module_that_decodes_foreign_or_stored_bytes_has_a_target() -> None:
    covered = {parser.partition(":")[0] for target in TARGETS.values() for parser in target.parsers}
    assert decoding_modules() - covered == set(WITHOUT_TARGET)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_every_parser_that_a_target_names_exists(target: Target) -> None:
    assert target.parsers
    for parser in target.parsers:
        module, _, name = parser.partition(":")
        text = (SOURCE / (module.replace(".", "/") + ".py")).read_text()
        assert re.search(rf"(?:def|class) {name.split('.')[-1]}\b|^{name}\b", text, re.MULTILINE), parser


# --- planted bugs


@pytest.mark.parametrize("options", [[], ["--plain"]], ids=["with coverage", "without coverage"])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("planted-nest", "RecursionError"),
        ("planted-boundary", "IndexError"),
        ("planted-late", "ZeroDivisionError"),
        ("planted-roundtrip", "AssertionError"),
    ],
)
def test_a_planted_bug_is_reported_within_the_bounded_runs(
    name: str, error: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VEILCAST_FUZZ_GROUPS", PLANTED)
    row = run_target(table()[name], tmp_path, tmp_path / "corpus", runs=RUNS, options=options)
    assert row.finding is not None
    assert row.finding.startswith(error)
    assert row.input is not None
    again = fuzz([name, f"--replay={row.input}"], tmp_path)
    assert again.returncode == 1
    assert error in again.stderr


# --- the command


def fuzz(arguments: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "support.fuzz.fuzz", *arguments, f"--work={work}"]
    paths = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "VEILCAST_FUZZ_GROUPS": PLANTED, "PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_all_targets_run_in_turn_and_a_finding_sets_the_exit_code(tmp_path: Path) -> None:
    result = fuzz(["--runs=200", "--json"], tmp_path)
    assert result.returncode == 1
    rows = {row["target"]: row for row in json.loads(result.stdout)}
    assert rows["planted-none"]["finding"] is None
    assert rows["planted-none"]["runs"] >= 200
    assert rows["planted-broken"]["finding"].startswith("could not be run")
    assert Path(rows["planted-nest"]["input"]).exists()


def test_a_target_without_findings_exits_with_zero_and_a_table(tmp_path: Path) -> None:
    result = fuzz(["planted-none", "--runs=200"], tmp_path)
    assert result.returncode == 0
    assert "planted-none" in result.stdout
    assert "none" in result.stdout


def test_an_unknown_target_is_told_the_names_that_there_are(tmp_path: Path) -> None:
    result = fuzz(["plant"], tmp_path)
    assert result.returncode == 2
    assert "planted-none" in result.stderr


def test_the_list_names_every_target(tmp_path: Path) -> None:
    listed = fuzz(["--list", "--json"], tmp_path)
    assert {row["target"] for row in json.loads(listed.stdout)} >= {"planted-none", "planted-nest"}


@pytest.mark.parametrize(
    "wrong", [["planted-none", "0"], ["planted-none", "--replay=/nowhere"], ["--replay=/dev/null"]]
)
def test_arguments_that_make_no_sense_are_refused(wrong: list[str], tmp_path: Path) -> None:
    assert fuzz(wrong, tmp_path).returncode == 2


def test_the_figures_of_a_log_that_was_cut_off_are_read() -> None:
    row = read_log("a", "seeds: 3\n#1024\tpulse  cov: 7 ft: 9 corp: 1/1b\n#2048\tpulse  cov: 8 ft: 11 corp: 1/1b\n")
    assert (row.runs, row.edges, row.features, row.finding) == (2051, 8, 11, None)


def test_the_table_says_how_to_replay_a_finding() -> None:
    text = as_text([Row("a", 5, 1, 2, "IndexError: x", "/f"), Row("b", 10)])
    assert "./run fuzz a --replay /f" in text
    assert "15" in text


# --- mutators


def test_the_values_of_a_message_are_found_by_their_spans() -> None:
    data = msgspec.msgpack.encode([1, b"ab", {"k": [2, 3]}, "text", None, 1.5, 1 << 40])
    nodes = parse_msgpack(data)
    assert [node.family for node in nodes] == [
        "array", "int", "bin", "map", "str", "array", "int", "int", "str", "nil", "float", "int",
    ]  # fmt: skip
    assert (nodes[0].start, nodes[0].end) == (0, len(data))
    assert msgspec.msgpack.decode(data[nodes[3].start : nodes[3].end]) == {"k": [2, 3]}


def test_most_structured_mutations_of_a_message_still_parse() -> None:
    """A mutator that broke the structure each time would be no better than random bytes."""
    data = msgspec.msgpack.encode([1, b"ab" * 40, {"k": [2, 3]}, "text", [None, True, 1.5]])
    rng, whole, kinds = Random(1), 0, set()
    for _ in range(500):
        mutated = mutate_msgpack(data, 4096, rng)
        kinds.add(mutated)
        try:
            msgspec.msgpack.decode(mutated)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, TypeError):
            continue
        whole += 1
    assert whole > 200
    assert len(kinds) > 300


@pytest.mark.parametrize("form", list(Format))
def test_every_mutator_takes_any_bytes(form: Format) -> None:
    rng = Random(2)
    mutate = mutator(Prepared(len, (), [], form, skip=1))
    for size in range(300):
        assert len(mutate(rng.randbytes(size % 64), 128, rng)) <= 128


def test_a_script_is_read_as_it_was_written() -> None:
    records = [(0, b""), (255, b"abc"), (7, bytes(300))]
    assert read_script(script(records)) == records
