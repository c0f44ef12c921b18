"""One attack, four ways: the sweep, `lab attack`, `audit` and `veilcast.lab` give the same guesses.

A wire experiment keeps its tables. Three ways are given all of them. An audit knows the cells, the links and the
heartbeat that it estimates: on these observations the functions give its guesses, all of them; and those of the sweep,
where an attacker goes by nothing else that the sweep knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from veilcast import lab
from veilcast.cli.main import main
from veilcast.lab import tables
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.audit import reader
from veilcast.lab.audit.operator_files import OverlayLink
from veilcast.lab.runs.stored_attack import read_guesses
from veilcast.lab.storage.location import LocalDirectory
from veilcast.observe import CellRow, FactRow, TableWriter

EXPERIMENT = """
title = "Four ways"
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


def test_an_audit_of_the_same_cells_gives_the_guesses_of_the_function_and_of_the_sweep(
    swept: Swept, tmp_path: Path
) -> None:
    with TableWriter(tmp_path / "tap") as tap:
        tap.extend(CellRow(**row) for row in swept.observations["cells"].to_pylist())
    links = [OverlayLink(row["u"], row["v"]) for row in swept.observations["topology"].to_pylist()]
    (network,) = reader.observe([tmp_path / "tap"], EPOCH_US, links).networks
    audited = {
        (guess.attack, guess.role, "", node): score
        for guess in network.guesses
        for node, score in zip(network.nodes, guess.whole.tolist(), strict=True)
    }
    cells, _ = lab.captures(None, tmp_path / "tap", epoch_s=EPOCH_US // 1_000_000)
    (run,) = set(swept.observations["cells"]["run"].to_pylist())
    facts = tables.from_rows(FactRow, [FactRow(run, "heartbeat_us", network.heartbeat_us)])
    given = {"cells": cells, "facts": facts, "topology": swept.observations["topology"]}
    assert rows(lab.attack(given)) == audited
    known = {(attack, role, node): score for (attack, role, _, node), score in rows(swept.guesses).items()}
    same = {key[:2] for key in known if key[:2] in {each[:2] for each in audited}}
    for attack, role, _, node in audited:
        if known[attack, role, node] != audited[attack, role, "", node]:
            same.discard((attack, role))
    assert same >= UNAIDED
