"""Attackers from outside the package: by file or entry point, guarded, with controls, or refused in one line."""

from __future__ import annotations

import configparser
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.experiment_reference import OWN_ATTACKER
from veilcast.cli.lab import own_attacker_lines
from veilcast.cli.main import main
from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.lab.attack import foreign, registry
from veilcast.lab.attack.foreign import install_attackers, read_attacker_file
from veilcast.lab.experiment.definition import load_experiment
from veilcast.lab.experiment.manifest import describe_sweep, find_difference
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import entry_point_names
from veilcast.lab.experiment.user_inputs import RunWithAttackers, add_attackers, check_attackers, find_sources
from veilcast.lab.runs.attacker_controls import run_controls
from veilcast.lab.runs.table import ENGINES

EXPERIMENT = """
title = "t"
claim = "c"
reading = "r"
minutes = 1
seeds = 2
kind = "mesh.epochs"
attackers = ["file:mine.py"]

[base]
nodes = 60
steps = [2]
attacks = ["leaf", "members"]
"""
HEAD = (
    "import numpy as np\n"
    "from veilcast.lab.attack.observer.observations import WireObservations\n"
    "from veilcast.lab.attack.registry import Attacker\n"
)


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    yield
    registry.FOREIGN.clear()


def write(path: Path, code: str) -> Path:
    path.write_text(code)
    return path


def attacker(score: str, name: str = "mine", role: str = "subscriber", more: str = "") -> str:
    made = f"ATTACKER = Attacker('{name}', '{role}', WireObservations, score)"
    return f"{HEAD}{more}\ndef score(seen):\n    {score}\n{made}\n"


def run_one(code: str, path: Path) -> dict[tuple[str, str], float]:
    install_attackers([read_attacker_file(write(path, code))])
    params = MeshEpochs(nodes=60, steps=(2,), attacks=("leaf", "mine"))
    return {(one.attack, one.metric): one.value for one in ENGINES["kernel"](params, 0, None)}


def test_the_example_of_the_documentation_succeeds_and_its_shuffled_scores_are_a_guess(tmp_path: Path) -> None:
    install_attackers([read_attacker_file(write(tmp_path / "mine.py", OWN_ATTACKER))])
    [(name, known)] = registry.FOREIGN.items()
    result = run_controls(known)
    assert (name, result.succeeds, result.is_fair) == ("members", True, True)
    assert result.positive[0] > 0.8
    assert abs(result.null[0] - 0.5) < 0.05


def test_an_attacker_that_sees_nothing_fails_its_positive_control_and_is_said_to(tmp_path: Path) -> None:
    code = attacker("return np.random.default_rng(seen.nodes).random(seen.nodes)")
    install_attackers([read_attacker_file(write(tmp_path / "blind.py", code))])
    result = run_controls(registry.FOREIGN["mine"])
    assert not result.succeeds
    assert "no better than a guess" in result.describe()


def test_an_attacker_on_streams_and_one_on_a_coalition_have_controls_too(tmp_path: Path) -> None:
    code = (
        "import numpy as np\nfrom veilcast.lab.attack.registry import Attacker\n"
        "from veilcast.lab.attack.stream.model import StreamObservations\n"
        "from veilcast.lab.attack.insider.observations import CoalitionObservations\n"
        "def middle(seen):\n"
        "    far = np.abs(seen.candidates - np.median(seen.candidates, axis=-1, keepdims=True))\n"
        "    near = far == far.min(axis=-1, keepdims=True)\n"
        "    return near / near.sum(axis=-1, keepdims=True)\n"
        "ATTACKERS = [Attacker('middle', 'truth', StreamObservations, middle),\n"
        "    Attacker('beliefs', 'subscriber', CoalitionObservations, lambda seen: seen.belief)]\n"
    )
    install_attackers([read_attacker_file(write(tmp_path / "two.py", code))])
    for name in ("middle", "beliefs"):
        result = run_controls(registry.FOREIGN[name])
        assert result.succeeds, result.describe()
        assert result.is_fair, result.describe()


@pytest.mark.parametrize(
    ("score", "fault"),
    [
        ("return 1 / 0", r"attacker mine \(.*mine.py\): ZeroDivisionError: division by zero, line 6$"),
        ("return np.zeros(3)", r"its scores have shape \(3,\), and there are 60 nodes"),
        ("return np.full(seen.nodes, np.nan)", "60 of its scores are no finite numbers"),
        ("return 'all'", "attacker mine .*ValueError"),
    ],
)
def test_a_failing_attacker_ends_the_run_with_one_line_that_names_it(score: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=fault) as told:
        run_one(attacker(score), tmp_path / "mine.py")
    assert "\n" not in str(told.value)


def test_an_attacker_cannot_change_what_others_see(tmp_path: Path) -> None:
    plain = run_one(attacker("return np.zeros(seen.nodes)"), tmp_path / "mine.py")
    spoils = "seen.graph.targets[:] = 0; [mesh.members.fill(True) for mesh in seen.meshes]; return np.zeros(seen.nodes)"
    registry.FOREIGN.clear()
    (tmp_path / "b").mkdir()
    assert run_one(attacker(spoils), tmp_path / "b" / "mine.py") == plain


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("", "is empty; it is a Python file"),
        ("x = 1\n", "has neither ATTACKER nor ATTACKERS"),
        ("ATTACKERS = []\n", "ATTACKERS is empty"),
        ("ATTACKER = 5\n", "5 is no Attacker"),
        ("def f(:\n", "mine.py, line 1: SyntaxError"),
        ("x = 1\nraise ValueError('no luck')\n", "mine.py, line 2: ValueError: no luck"),
        ("import sys\nsys.exit(0)\n", "mine.py, line 2: SystemExit: 0"),
        ("import nothing_of_this_name\n", "mine.py, line 1: ModuleNotFoundError"),
        (attacker("return 0", name="leaf"), "'leaf' is an attacker of the package"),
        (attacker("return 0", name="Bad Name"), "'Bad Name' is no name"),
        (attacker("return 0", role="broker"), "looks for 'broker', not for subscriber or publisher"),
        (HEAD + "ATTACKER = Attacker('mine', 'subscriber', dict, len)\n", "observes none of WireObservations"),
        (HEAD + "ATTACKER = Attacker('mine', 'subscriber', WireObservations, 7)\n", "is no function"),
        (
            attacker("return 0", more="import veilcast.lab.measure.ranking"),
            "line 4: an attacker cannot import veilcast.lab.m",
        ),
        (attacker("from veilcast.lab import runs; return 0"), "line 6: an attacker cannot import veilcast.lab.runs"),
        (attacker("from veilcast import mesh; return 0"), "cannot import veilcast.mesh"),
    ],
)
def test_a_file_that_is_no_attacker_is_refused_in_one_line(code: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=fault) as told:
        install_attackers([read_attacker_file(write(tmp_path / "mine.py", code))])
    assert "\n" not in str(told.value)
    with pytest.raises(StorageError, match="cannot read"):
        read_attacker_file(tmp_path / "none.py")


def test_two_files_cannot_have_one_name(tmp_path: Path) -> None:
    files = [write(tmp_path / name, attacker(f"return {name[0]}")) for name in ("1.py", "2.py")]
    with pytest.raises(ConfigError, match=r"2.py: there is another attacker 'mine'"):
        install_attackers(map(read_attacker_file, files))


def test_the_rooms_that_a_file_cannot_import_are_those_of_the_wall() -> None:
    walls = configparser.ConfigParser()
    walls.read(Path(__file__).parents[3] / ".importlinter")
    assert set(foreign.FORBIDDEN) == set(walls["importlinter:contract:attackers"]["forbidden_modules"].split())


def test_an_attacker_of_an_entry_point_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "spy-1.0.dist-info").mkdir(parents=True)
    (site / "spy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: spy\nVersion: 1.0\n")
    (site / "spy-1.0.dist-info" / "entry_points.txt").write_text("[veilcast.attackers]\nmine = spy_attacker:ATTACKER\n")
    write(site / "spy_attacker.py", attacker("return np.arange(float(seen.nodes))"))
    file = write(
        tmp_path / "e.toml", EXPERIMENT.replace('attackers = ["file:mine.py"]\n', "").replace("members", "mine")
    )
    entry_point_names.cache_clear()
    with pytest.raises(ConfigError, match="there is no attacker 'mine'"):
        load_experiment(file)
    monkeypatch.syspath_prepend(str(site))
    entry_point_names.cache_clear()
    name, experiment = load_experiment(file)
    assert list(check_attackers(name, experiment)) == ["mine"]
    monkeypatch.undo()
    entry_point_names.cache_clear()


def test_experiments_name_attackers_of_their_files_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "mine.py", OWN_ATTACKER)
    name, experiment = load_experiment(write(tmp_path / "e.toml", EXPERIMENT))
    assert list(check_attackers(name, experiment)) == ["members"]
    name, wrong = load_experiment(write(tmp_path / "e.toml", EXPERIMENT.replace('"members"', '"member"')))
    with pytest.raises(ConfigError, match=r"there is no attacker 'member'.*did you mean 'members'"):
        check_attackers(name, wrong)
    with pytest.raises(ConfigError, match=r'attackers: \'mine.py\' is not "file:PATH"'):
        load_experiment(write(tmp_path / "e.toml", EXPERIMENT.replace("file:mine.py", "mine.py")))


def test_results_of_another_attacker_of_that_name_do_not_mix(tmp_path: Path) -> None:
    write(tmp_path / "mine.py", OWN_ATTACKER)
    file = write(tmp_path / "e.toml", EXPERIMENT)
    means: dict[str, Any] = {"engine": "kernel", "quick": True, "folder": None, "command": ""}
    before = describe_sweep("e", load_experiment(file)[1], **means)
    write(tmp_path / "mine.py", f"{OWN_ATTACKER}# another\n")
    after = describe_sweep("e", load_experiment(file)[1], **means)
    assert find_difference(before, before) == ""
    assert find_difference(before, after) == f"from another {tmp_path / 'mine.py'}"


def test_an_attacker_of_the_command_line_joins_each_series_that_shows_what_it_observes(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.py", OWN_ATTACKER)
    name, experiment = load_experiment("mesh-attacks", [path])
    found = check_attackers(name, experiment)
    changed = add_attackers(experiment, found)
    assert all("members" in cell.params.named_attackers() for cell in changed.make_cells())
    name, other = load_experiment("mesh-fig12", [path])
    assert add_attackers(other, check_attackers(name, other)).series == other.series


def test_a_run_with_attackers_can_be_sent_to_another_process(tmp_path: Path) -> None:
    write(tmp_path / "mine.py", OWN_ATTACKER)
    experiment = load_experiment(write(tmp_path / "e.toml", EXPERIMENT))[1]
    sent = pickle.dumps(RunWithAttackers(ENGINES["kernel"], find_sources(experiment)))
    (tmp_path / "mine.py").unlink()
    code = (
        "import pickle, sys\nfrom veilcast.lab.experiment.mesh_params import MeshEpochs\n"
        "run = pickle.load(open(sys.argv[1], 'rb'))\n"
        "found = run(MeshEpochs(nodes=60, steps=(2,), attacks=('members',)), 0, None)\n"
        "print(max(one.value for one in found if (one.attack, one.metric) == ('members', 'auc')))\n"
    )
    (tmp_path / "sent").write_bytes(sent)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "sent")], capture_output=True, check=True)
    assert float(done.stdout) > 0.6


def test_the_last_step_of_an_attacker_is_printed_by_cell() -> None:
    scores = [
        {"attack": attack, "cell": "all", "metric": metric, "step": step, "value": step / 10}
        for attack in ("leaf", "mine")
        for metric in ("auc", "bits")
        for step in (1.0, 5.0)
    ]
    assert own_attacker_lines(scores, {"mine"}) == ["  attacker mine, all: auc 0.5 at step 5"]


@pytest.mark.all_only
def test_a_sweep_with_an_attacker_by_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "mine.py", OWN_ATTACKER)
    file = write(tmp_path / "e.toml", EXPERIMENT)
    assert (
        main(["lab", "run", str(file), "--quick", "--out", str(tmp_path / "out"), "--master", "local[2]", "--json"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    [control] = told["controls"]
    assert control["attacker"] == "members"
    [auc] = [
        row["value"] for row in told["experiments"][0]["scores"] if (row["attack"], row["metric"]) == ("members", "auc")
    ]
    assert np.isfinite(auc)
    assert auc > 0.6
