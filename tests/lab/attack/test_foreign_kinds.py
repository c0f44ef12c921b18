"""Attackers of the user's own on relays, trees and captures, by files alone: sweeps, stored runs, audits, controls."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.recorded_network import members, write_loud_network
from veilcast.cli.main import main
from veilcast.errors import ConfigError, LocalError
from veilcast.lab.attack import registry
from veilcast.lab.attack.foreign import SERVES, install_attackers, load_attackers, read_attacker_file, serves
from veilcast.lab.experiment.kinds import KINDS
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.runs.attacker_controls import run_controls
from veilcast.lab.runs.table import ENGINES

RELAY = """
import numpy as np

from veilcast.lab.attack.registry import Attacker
from veilcast.lab.attack.server.observations import ServerObservations


def score(seen):
    '''The tag with the most users is the most popular topic, and so on.'''
    asked = np.zeros((len(seen.popularity), seen.users))
    tags, users = np.unique(np.stack([seen.proxy.what, seen.proxy.who]), axis=1)
    often = np.bincount(tags)
    rank = {tag: place for place, tag in enumerate(np.argsort(-often, kind="stable").tolist())}
    topics = np.argsort(-seen.popularity, kind="stable")
    for tag, user in zip(tags.tolist(), users.tolist()):
        if rank[tag] < len(topics):
            asked[topics[rank[tag]], user] = 1.0
    return asked


ATTACKER = Attacker("mine", "subscriber", ServerObservations, score, ("proxy", "present", "popularity"))
"""
TREE = """
import numpy as np

from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.registry import Attacker


def score(seen):
    return np.bincount(seen.entries.parent, minlength=seen.nodes).astype(float)


ATTACKER = Attacker("mine", "subscriber", TreeObservations, score)
"""
CAPTURE = """
import numpy as np

from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.registry import Attacker


def score(seen):
    '''Subscribers receive copies, and many hand none on.'''
    return np.bincount(seen.dst, minlength=seen.nodes) - np.bincount(seen.src, minlength=seen.nodes)


ATTACKER = Attacker("mine", "subscriber", CaptureObservations, score, ("notes",))
"""
EXPERIMENT = """
title = "t"
claim = "c"
reading = "r"
minutes = 1
seeds = 1
kind = "{kind}"
engines = ["{engine}"]
attackers = ["file:mine.py"]

[base]
attacks = ["mine"]
{base}
"""
KIND = {
    "relay.attacks": (RELAY, "kernel", "relay = 'paper'\nnodes = 40\ntopics = 4\nsteps = [2]\nobservers = ['wires']"),
    "tree.attacks": (TREE, "kernel", "tree = 'paper'\nnodes = 40\ninsiders = 0.2\nsteps = [4]"),
    "tree.definitions": (
        TREE,
        "kernel",
        "tree = 'paper'\nnodes = 40\ninsiders = 0.2\nsteps = [4]\ntopics = 3\nratio = 0.3",
    ),
    "mesh.wires": (CAPTURE, "machines", "wire = 'prompt'\nnodes = 12\nratio = 0.3\npublications = 4"),
}


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    yield
    registry.FOREIGN.clear()


def write(path: Path, code: str) -> Path:
    path.write_text(code)
    return path


@pytest.mark.parametrize("code", [RELAY, TREE, pytest.param(CAPTURE, marks=pytest.mark.all_only)])
def test_an_attacker_that_succeeds_does_so_in_its_control_and_its_shuffled_scores_do_not(
    code: str, tmp_path: Path
) -> None:
    install_attackers([read_attacker_file(write(tmp_path / "mine.py", code))])
    result = run_controls(registry.FOREIGN["mine"])
    assert result.succeeds
    assert result.is_fair
    assert result.positive[0] > 0.6


def test_an_attacker_that_sees_nothing_of_a_tree_is_no_better_than_a_guess(tmp_path: Path) -> None:
    blind = TREE.replace("np.bincount(seen.entries.parent, minlength=seen.nodes).astype(float)", "np.zeros(seen.nodes)")
    install_attackers([read_attacker_file(write(tmp_path / "mine.py", blind))])
    result = run_controls(registry.FOREIGN["mine"])
    assert not result.succeeds
    assert "no better than a guess" in result.describe()


@pytest.mark.all_only
@pytest.mark.parametrize("kind", KIND)
def test_a_sweep_and_an_attack_on_its_tables_with_an_attacker_by_files_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("veilcast.lab.runs.mesh.wires_machines._TRAINED_ON", 1)
    monkeypatch.setattr("veilcast.lab.runs.attacker_controls.SEEDS", 6)
    code, engine, base = KIND[kind]
    mine, out = write(tmp_path / "mine.py", code), tmp_path / "out"
    file = write(tmp_path / "e.toml", EXPERIMENT.format(kind=kind, engine=engine, base=base))
    assert main(["lab", "run", str(file), "--out", str(out), "--keep", "all", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [control["attacker"] for control in told["controls"]] == ["mine"]
    swept = {row["metric"]: row["value"] for row in told["experiments"][0]["scores"] if row["attack"] == "mine"}
    assert "auc" in swept
    assert main(["lab", "attack", str(out), "--attacker", str(mine), "--json"]) == 0
    (attacked,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (attacked["compared"], attacked["different"]) == (attacked["guesses"], 0)
    assert {row["metric"]: row["value"] for row in attacked["scores"]} == swept


@pytest.mark.all_only
def test_an_audit_asks_an_attacker_of_a_file_beside_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("veilcast.lab.runs.attacker_controls.SEEDS", 6)
    taps, known = write_loud_network(tmp_path / "taps"), members(tmp_path / "members.json")
    mine = write(tmp_path / "mine.py", CAPTURE)
    audit = ["audit", str(taps), "--members", str(known), "--json"]
    assert main([*audit, "--attacker", str(mine)]) == 0
    told = json.loads(capsys.readouterr().out)
    [own] = [each for each in told["attackers"] if each["attack"] == "mine"]
    assert own["measures"]["auc"] > 0.6
    assert [control["attacker"] for control in told["controls"]] == ["mine"]
    assert main(audit) == 0
    assert all(each["attack"] != "mine" for each in json.loads(capsys.readouterr().out)["attackers"])
    assert main([*audit, "--attacker", str(write(tmp_path / "tree.py", TREE))]) != 0


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (RELAY.replace("return asked", "return asked[:, :5]"), r"have shape \(4, 5\), and \(4, 40\) were asked for"),
        (RELAY.replace("return asked", "return asked[0]"), "and not rows x columns"),
        (RELAY.replace("return asked", "return asked * np.nan"), "of its scores are no finite numbers"),
    ],
)
def test_scores_of_another_shape_end_the_run_with_one_line(code: str, fault: str, tmp_path: Path) -> None:
    install_attackers([read_attacker_file(write(tmp_path / "mine.py", code))])
    params = RelayAttacks(relay="paper", nodes=40, topics=4, steps=(2,), observers=("wires",), attacks=("mine",))
    with pytest.raises(LocalError, match=fault):
        ENGINES["kernel"](params, 0, None)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (TREE.replace('"subscriber"', '"publisher"'), "looks for 'publisher', not for subscriber"),
        (RELAY.replace('"proxy", "present"', '"wishes"'), "needs 'wishes', and not one of epochs, users"),
    ],
)
def test_roles_and_needs_that_runs_do_not_have_are_refused(code: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_attackers(read_attacker_file(write(tmp_path / "mine.py", code)))


def test_every_served_kind_can_name_attackers(tmp_path: Path) -> None:
    for kind in SERVES:
        assert {"attacks", "guessers"} & set(KINDS[kind].__struct_fields__), kind
    [tree] = load_attackers(read_attacker_file(write(tmp_path / "mine.py", TREE)))
    assert [kind for kind in SERVES if serves(tree, kind)] == ["tree.attacks", "tree.definitions"]


def test_an_executor_loads_the_source_of_an_attacker_that_is_sent_to_it(tmp_path: Path) -> None:
    [attacker] = load_attackers(read_attacker_file(write(tmp_path / "mine.py", TREE)))
    (tmp_path / "sent").write_bytes(pickle.dumps(attacker))
    (tmp_path / "mine.py").unlink()
    code = "import pickle, sys\nprint(pickle.load(open(sys.argv[1], 'rb')).score.attacker.name)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "sent")], capture_output=True, check=True)
    assert done.stdout.strip() == b"mine"
