"""A real server of Spark Connect on loopback: attacks and measures there give what they give in this process.

The server is a process of its own. Its Python workers import the code that the session has sent them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from support.connect_server import connect_server
from support.recorded_network import PUBLISHER, READERS, write_loud_network
from veilcast import lab
from veilcast.cli.main import main
from veilcast.errors import ConfigError, UnreachableError
from veilcast.lab import tables
from veilcast.lab.runs.stored_attack import attack_stored, read_guesses
from veilcast.lab.spark import session
from veilcast.lab.spark.settings import SparkOptions
from veilcast.lab.storage.location import LocalDirectory
from veilcast.observe import TruthRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.all_only

EXPERIMENT = """
title = "Kept for a server"
kind = "mesh.epochs"
claim = "none"
reading = "none"
minutes = 1
seeds = 2
engines = ["kernel"]

[base]
nodes = 60
ratio = 0.2
insiders = 0.15
steps = [1, 3]
attacks = ["leaf", "closure", "first-spy", "group-testing", "linear"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="module")
def remote(server: str) -> Iterator[SparkSession]:
    with session(server) as made:
        yield made


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "kept.toml").write_text(EXPERIMENT)
    lab.run(None, folder / "kept.toml", folder / "out", seeds=2, keep=["all"])
    return folder / "out"


def rows(table: Any) -> list[tuple[Any, ...]]:
    found = table if isinstance(table, pa.Table) else table.toArrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_captures_are_read_attacked_and_measured_on_the_server(remote: SparkSession, tmp_path: Path) -> None:
    capture = write_loud_network(tmp_path / "net")
    roles = [("publisher", PUBLISHER), *(("subscriber", node) for node in READERS)]
    truth = tables.from_rows(TruthRow, [TruthRow("r", "", node, role, 0, 1) for role, node in roles])
    cells, reading = lab.captures(remote, capture)
    here = lab.captures(None, capture)[0]
    assert reading.files[0].cells == len(rows(cells)) > 100
    names = ["leaf", "majority", "closure", "flow-source", "cadence"]
    guesses = lab.attack(cells, names)
    assert rows(guesses) == rows(lab.attack(here, names))
    measures = rows(lab.measure(guesses, truth))
    assert measures == rows(lab.measure(lab.attack(here, names), truth))
    assert {row[3] for row in measures} == set(names)


def test_stored_runs_are_attacked_and_measured_on_the_server(remote: SparkSession, kept: Path, tmp_path: Path) -> None:
    there, here = lab.stored_runs(remote, kept, "kept"), lab.stored_runs(None, kept, "kept")
    assert rows(lab.attack(there)) == rows(lab.attack(here))
    assert rows(lab.measure(lab.attack(there), there)) == rows(lab.measure(lab.attack(here), here))
    attacked = attack_stored(remote, LocalDirectory(kept), "kept", out=LocalDirectory(tmp_path))
    assert (attacked.compared, attacked.different) == (attacked.guesses, 0)
    assert rows(read_guesses(LocalDirectory(tmp_path), "kept")) == rows(here.guesses)


def test_an_experiment_runs_on_the_server(remote: SparkSession, tmp_path: Path) -> None:
    there = lab.run(remote, "mesh-fig07", tmp_path / "there", quick=True, seeds=2)
    here = lab.run(None, "mesh-fig07", tmp_path / "here", quick=True, seeds=2)
    assert there.scores.equals(here.scores)
    assert (there.manifest.means.master, there.manifest.means.cores) == ("Spark Connect", 2)


def test_an_error_of_a_task_is_one_of_ours(remote: SparkSession, kept: Path) -> None:
    runs = lab.stored_runs(None, kept, "kept")
    cells = pa.table({**{name: runs.observations["cells"][name] for name in ("run", "epoch", "t_us", "src", "dst")}})
    with pytest.raises(ConfigError, match="cells has no column size"):
        lab.attack(remote.createDataFrame(cells))


def test_the_commands_take_the_address_of_a_server(
    server: str, kept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["lab", "attack", str(kept), "--master", server, "--json"]) == 0
    (told,) = msgspec.json.decode(capsys.readouterr().out)["experiments"]
    assert told["different"] == 0
    assert told["guesses"] > 0
    capture = write_loud_network(tmp_path / "net")
    found = []
    for more in ([], ["--master", server]):
        assert main(["audit", str(capture), "--json", *more]) == 0
        found.append(msgspec.json.decode(capsys.readouterr().out))
    # Probabilities may differ in their last bits where sums are taken in another order.
    told = [[(each["attack"], each["role"], each["named"]) for each in one.pop("attackers")] for one in found]
    assert told[0] == told[1]
    assert found[0] == found[1]
    assert main(["lab", "doctor", "--master", server, "--json"]) == 0


def test_a_session_leaves_the_environment_as_it_was(server: str) -> None:
    before = dict(os.environ)
    with session(server) as made:
        assert made.range(3).count() == 3
    assert dict(os.environ) == before


def test_what_a_server_cannot_do_is_told_in_one_line(server: str) -> None:
    with pytest.raises(ConfigError, match="the server has the web page"), session(server, SparkOptions(ui=True)):
        pass
    with pytest.raises(UnreachableError, match="no Spark Connect server answers"), session("sc://127.0.0.1:1"):
        pass
