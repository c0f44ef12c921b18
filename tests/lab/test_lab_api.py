"""The public functions of the lab do what the commands do, on a session or in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.experiment_reference import OWN_ATTACKER
from veilcast import lab
from veilcast.errors import ConfigError, StorageError


def test_an_experiment_runs_in_this_process_and_stored_runs_are_not_made_again(tmp_path: Path) -> None:
    first = lab.run(None, "mesh-fig07", tmp_path, quick=True, seeds=2)
    again = lab.run(None, "mesh-fig07", tmp_path, quick=True, seeds=2)
    assert first.runs > 0
    assert again.runs == 0
    assert again.scores.equals(first.scores)
    assert {row["metric"] for row in first.scores.to_pylist()} >= {"accuracy_mesh"}


def test_an_attacker_and_a_definition_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_ATTACKER)
    (tmp_path / "e.toml").write_text(
        'title = "t"\nclaim = "c"\nreading = "r"\nminutes = 1\nkind = "mesh.epochs"\n[base]\nnodes = 60\nsteps = [2]\n'
    )
    result = lab.run(None, tmp_path / "e.toml", tmp_path / "out", seeds=2, attackers=[tmp_path / "mine.py"])
    assert {row["attack"] for row in result.scores.to_pylist()} == {"", "members"}
    definition = lab.load_experiment(tmp_path / "e.toml")[1]
    assert lab.run(None, definition, tmp_path / "out", name="other", seeds=1).runs == 1
    with pytest.raises(ConfigError, match="a definition needs a name"):
        lab.run(None, definition, tmp_path / "out")


def test_captures_are_checked_and_errors_are_those_of_the_package(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no capture was given"):
        lab.captures(None)
    with pytest.raises(StorageError, match="cannot read"):
        lab.captures(None, tmp_path / "none.pcap")


def test_the_names_are_imported_at_their_first_use() -> None:
    code = "import sys, veilcast.lab as lab; print('numpy' in sys.modules, sorted(set(lab.__all__) - set(dir(lab))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False []\n"
