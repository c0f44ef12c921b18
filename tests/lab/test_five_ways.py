"""One attack, five ways: the sweep, `lab attack`, `audit`, `veilcast.lab` and a stream give the same guesses.

A wire experiment keeps its tables. Three ways are given all of them. An audit knows the cells, the links and the
heartbeat that it estimates: on these observations the functions give its guesses, all of them; and those of the sweep,
where an attacker goes by nothing else that the sweep knows. A stream of the same cells, cut into batches, gives the
guesses of the audit by all attackers that can work on a stream; so the pairs in `UNAIDED` are equal all five ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from veilcast import lab
from veilcast.cli.main import main
from veilcast.lab import tables
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.observer.record_state import reduce_cells
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.audit import reader
from veilcast.lab.audit.live_audit import LiveAudit, LiveReport, LiveSettings, choose_attackers, follow
from veilcast.lab.audit.observed import ObservedNetwork
from veilcast.lab.audit.operator_files import OverlayLink
from veilcast.lab.runs.stored_attack import read_guesses
from veilcast.lab.storage.location import LocalDirectory
from veilcast.observe import CellRow, FactRow, TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPERIMENT = """
title = "Five ways"
claim = "none"
reading = "none"
minutes = 1
seeds = 1
kind = "mesh.wires"
engines = ["machines"]

[base]
nodes = 12
publications = 4
ratio = 0.3
wire = "prompt"
"""
EPOCH_US = 6_000_000
UNAIDED = {("cadence", "publisher"), ("cadence", "subscriber"), ("leaf", "subscriber"), ("flow-source", "publisher")}
"""Attackers that need nothing but cells."""


class Swept(NamedTuple):
    out: Path
    observations: dict[str, pa.Table]
    guesses: pa.Table


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("ways")
    (folder / "ways.toml").write_text(EXPERIMENT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("veilcast.lab.runs.mesh.wires_machines._TRAINED_ON", 1)
        lab.run(None, folder / "ways.toml", folder / "out", seeds=1, keep=["all"])
        # The training is remembered by its parameters.
        runs = lab.stored_runs(None, folder / "out", "ways")
        lab.attack(runs)
    kept: Any = runs.observations
    assert isinstance(runs.guesses, pa.Table)
    return Swept(folder / "out", kept, runs.guesses)


def rows(guesses: Any) -> dict[tuple[str, str, str, str], float]:
    """The scores by attack, role, topic and node."""
    return {(row["attack"], row["role"], row["topic"], row["node"]): row["score"] for row in guesses.to_pylist()}


def test_the_stored_attack_and_the_function_give_the_guesses_of_the_sweep(
    swept: Swept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(rows(swept.guesses)) == 12 * len(attackers_on(CaptureObservations))
    assert main(["lab", "attack", str(swept.out), "--out", str(tmp_path), "--json"]) == 0
    text = capsys.readouterr().out
    (told,) = msgspec.json.decode(text)["experiments"]
    assert (told["compared"], told["different"]) == (len(swept.guesses), 0)
    assert rows(read_guesses(LocalDirectory(tmp_path), "ways")) == rows(swept.guesses)
    assert rows(lab.attack(lab.stored_runs(None, swept.out, "ways"))) == rows(swept.guesses)
    plain = rows(lab.attack(swept.observations))
    assert plain == {key: score for key, score in rows(swept.guesses).items() if key in plain}
    assert {key[0] for key in rows(swept.guesses)} - {key[0] for key in plain} == {"cadence-linear", "cadence-binned"}


@pytest.fixture(scope="module")
def tap(swept: Swept, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of the run as a tap writes them."""
    place = tmp_path_factory.mktemp("taps")
    with TableWriter(place / "tap") as written:
        written.extend(CellRow(**row) for row in swept.observations["cells"].to_pylist())
    return place / "tap"


def listed_links(swept: Swept) -> tuple[OverlayLink, ...]:
    return tuple(OverlayLink(row["u"], row["v"]) for row in swept.observations["topology"].to_pylist())


def audited(swept: Swept, tap: Path) -> tuple[ObservedNetwork, dict[tuple[str, str, str, str], float]]:
    """The network as an audit observes it, and its guesses."""
    (network,) = reader.observe([tap], EPOCH_US, listed_links(swept)).networks
    return network, {
        (guess.attack, guess.role, "", node): score
        for guess in network.guesses
        for node, score in zip(network.nodes, guess.whole.tolist(), strict=True)
    }


def known_to_the_sweep(swept: Swept) -> dict[tuple[str, str, str, str], float]:
    return {(attack, role, "", node): score for (attack, role, _, node), score in rows(swept.guesses).items()}


def test_an_audit_of_the_same_cells_gives_the_guesses_of_the_function_and_of_the_sweep(swept: Swept, tap: Path) -> None:
    network, found = audited(swept, tap)
    cells, _ = lab.captures(None, tap, epoch_s=EPOCH_US // 1_000_000)
    (run,) = set(swept.observations["cells"]["run"].to_pylist())
    facts = tables.from_rows(FactRow, [FactRow(run, "heartbeat_us", network.heartbeat_us)])
    given = {"cells": cells, "facts": facts, "topology": swept.observations["topology"]}
    assert rows(lab.attack(given)) == found
    known = known_to_the_sweep(swept)
    assert {key: known[key] for key in found if key[:2] in UNAIDED} == {
        key: score for key, score in found.items() if key[:2] in UNAIDED
    }
    assert {key[:2] for key in found} >= UNAIDED


def check_stream(reports: list[LiveReport], swept: Swept, tap: Path) -> None:
    """The last report has the guesses of an audit, and those of the sweep."""
    network, found = audited(swept, tap)
    streamed = {
        (each.attack, each.role, "", suspect.node): suspect.score
        for each in reports[-1].attackers
        for suspect in each.suspects
    }
    able = {(each.name, each.role) for each in choose_attackers(None)}
    telling = {(each.attack, each.role) for each in network.guesses if each.whole.min() < each.whole.max()}
    assert streamed == {key: score for key, score in found.items() if key[:2] in able & telling}
    known = known_to_the_sweep(swept)
    of_sweep = {key: score for key, score in streamed.items() if key[:2] in UNAIDED}
    assert of_sweep == {key: known[key] for key in of_sweep}
    assert {key[:2] for key in of_sweep} == UNAIDED & telling
    assert len(UNAIDED & telling) > 2


@pytest.fixture
def every_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports name all nodes, not only the first."""
    monkeypatch.setattr("veilcast.lab.audit.attacker_reports._SUSPECTS", 1_000)


@pytest.mark.usefixtures("every_suspect")
def test_a_stream_of_the_same_cells_gives_the_guesses_of_the_audit_and_of_the_sweep(swept: Swept, tap: Path) -> None:
    cells, _ = lab.captures(None, tap, epoch_s=EPOCH_US // 1_000_000)
    assert isinstance(cells, pa.Table)
    stream = LiveAudit(LiveSettings(EPOCH_US, window_us=0, links=listed_links(swept)))
    step = len(cells) // 7
    found = [
        stream.merge(number, reduce_cells(cells.slice(first, step), stream.plan))
        for number, first in enumerate(range(0, len(cells), step))
    ]
    assert len(found) > 6
    check_stream(found[-1], swept, tap)


@pytest.mark.all_only
@pytest.mark.usefixtures("every_suspect")
def test_the_stream_of_spark_gives_them_too(swept: Swept, tap: Path, spark: SparkSession) -> None:
    settings = LiveSettings(EPOCH_US, window_us=0, links=listed_links(swept), batch_bytes=200_000)
    reports: list[LiveReport] = []
    follow(spark, [tap], settings, reports.append, once=True)
    assert len(reports) > 1
    check_stream(reports, swept, tap)
