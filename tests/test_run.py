"""`./run` when something is missing: one clear line, exit code 1, and nothing half-made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.waits import HANG_S

ROOT = Path(__file__).parents[1]
BASE_PYTHON = Path(sys.base_prefix) / "bin" / "python3"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that set-up reads, without a .venv."""
    for name in ("run", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "locks", tmp_path / "locks")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path.resolve()


def run(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") and name != "PYTHONPATH"}
    return subprocess.run(
        ["sh", str(checkout / "run"), *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def fake_python(checkout: Path, text: str) -> str:
    """An interpreter that answers as the script says, in the place of one we cannot install here."""
    return script(checkout / "fake-python", text)


BARE = 'case "$1" in -c) ;; *) echo "ensurepip is not available"; exit 1 ;; esac'
"""An interpreter that is new enough and has no venv."""


def path_with(directory: Path) -> str:
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def dead_process() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def assert_one_line(result: subprocess.CompletedProcess[str], word: str, checkout: Path) -> None:
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if not line.endswith("...")]
    assert len(errors) == 1, result.stderr
    assert errors[0].startswith("run: ")
    assert word in errors[0]
    assert not (checkout / ".venv").exists()
    assert not (checkout / ".venv.lock").exists()


def test_a_python_that_is_too_old_is_named(checkout: Path) -> None:
    old = fake_python(checkout, 'case "$1" in --version) echo Python 3.9.1 ;; *) exit 1 ;; esac')
    assert_one_line(run(checkout, "veilcast", PYTHON=old), "found Python 3.9.1", checkout)


def test_a_python_without_venv_gets_an_error_that_names_the_package_to_install(checkout: Path) -> None:
    assert_one_line(run(checkout, "veilcast", PYTHON=fake_python(checkout, BARE)), "python3-venv", checkout)


def test_a_python_whose_path_has_a_space_is_used(checkout: Path) -> None:
    spaced = script(checkout / "my tools" / "python", BARE)
    assert_one_line(run(checkout, "veilcast", PYTHON=spaced), "python3-venv", checkout)


def made(checkout: Path, where: Path | str, layer: str = "core") -> Path:
    """A .venv that looks as if it had been made for this layer at this place."""
    script(checkout / ".venv" / "bin" / "veilcast", "echo as it was")
    script(checkout / ".venv" / "bin" / "python", "exit 0")
    sums = f"cat locks/build.txt locks/{layer}.txt pyproject.toml | cksum"
    stamp = subprocess.run(["sh", "-c", sums], cwd=checkout, capture_output=True, text=True, check=True).stdout
    (checkout / ".venv" / f"stamp-{layer}").write_text(stamp)
    (checkout / ".venv" / "made-in").write_text(f"{where}\n")
    return checkout / ".venv"


def test_an_environment_made_elsewhere_or_without_its_python_is_made_again(checkout: Path) -> None:
    made(checkout, checkout)
    here = run(checkout, "veilcast")
    assert (here.returncode, here.stdout, here.stderr) == (0, "as it was\n", "")
    made(checkout, "/somewhere/else")
    assert_one_line(run(checkout, "veilcast", PYTHON=fake_python(checkout, BARE)), "python3-venv", checkout)
    (made(checkout, checkout) / "bin" / "python").unlink()
    assert_one_line(run(checkout, "veilcast", PYTHON=fake_python(checkout, BARE)), "python3-venv", checkout)


def test_pins_that_cannot_be_had_do_not_cost_the_environment_there_was(checkout: Path) -> None:
    venv = made(checkout, checkout)
    script(venv / "bin" / "pip", "echo 'Connection refused'; exit 1")
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    result = run(checkout, "veilcast", PYTHON=str(BASE_PYTHON))
    assert result.returncode == 1
    assert "index" in result.stderr
    assert (venv / "bin" / "veilcast").exists()
    assert not (checkout / ".venv.lock").exists()


def test_a_link_to_the_door_leads_to_the_same_house(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    made(checkout, checkout)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "run").symlink_to(checkout / "run")
    assert run(elsewhere, "veilcast").stdout == "as it was\n"
    assert not (elsewhere / ".venv").exists()


@pytest.mark.parametrize("arguments", [[], ["--all"], ["--heavy"], ["tests/test_run.py", "--heavy"]])
def test_whole_test_runs_use_all_cores(arguments: list[str], checkout: Path) -> None:
    venv = made(checkout, checkout, "dev")
    for tool in ("ruff", "mypy", "lint-imports"):
        script(venv / "bin" / tool, "exit 0")
    script(venv / "bin" / "python", 'echo "$@"')
    workers = [] if "tests/test_run.py" in arguments else ["-n", "auto"]
    assert run(checkout, "test", *arguments).stdout.split() == ["-m", "pytest", *workers, *arguments]


@pytest.mark.parametrize(
    ("option", "runs"),
    [("", {"plain"}), ("--all", {"plain", "all_only"}), ("--heavy", {"plain", "all_only", "heavy", "all_only heavy"})],
)
def test_heavy_includes_all(option: str, runs: set[str], request: pytest.FixtureRequest) -> None:
    skipped: set[str] = set()
    items = [
        SimpleNamespace(nodeid=marks, keywords=marks.split(), add_marker=lambda skip, marks=marks: skipped.add(marks))
        for marks in ("plain", "all_only", "heavy", "all_only heavy")
    ]
    (conftest,) = (
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(ROOT / "tests" / "conftest.py")
    )
    config = SimpleNamespace(getoption=lambda asked: asked == option, stash={})
    conftest.pytest_collection_modifyitems(config, items)
    assert {" ".join(item.keywords) for item in items} - skipped == runs


@pytest.mark.parametrize("python", ["/bin/false", "./nonexistent", "nonexistent"])
def test_a_missing_interpreter_is_a_one_line_error(python: str, checkout: Path) -> None:
    assert_one_line(run(checkout, "veilcast", PYTHON=python), "needs Python 3.11", checkout)


def test_a_set_up_under_way_is_waited_for_and_said_once(checkout: Path) -> None:
    """The lock is this process's own; the third `sleep` of the one who waits takes it away."""
    (checkout / ".venv.lock").mkdir()
    (checkout / ".venv.lock" / str(os.getpid())).touch()
    script(checkout / "bin" / "sleep", 'echo >>slept; [ "$(wc -l <slept)" -lt 3 ] || rm -rf .venv.lock')
    result = run(checkout, "veilcast", PYTHON=fake_python(checkout, BARE), PATH=path_with(checkout / "bin"))
    assert_one_line(result, "python3-venv", checkout)
    assert result.stderr.count("waiting for another set-up") == 1
    assert (checkout / "slept").read_text() == "\n" * 3


def test_a_lock_that_cannot_be_made_is_an_error_at_once(checkout: Path) -> None:
    script(checkout / "bin" / "mkdir", 'echo "mkdir: .venv.lock: Read-only file system" >&2; exit 1')
    assert_one_line(run(checkout, "veilcast", PATH=path_with(checkout / "bin")), "Read-only", checkout)


def test_the_second_process_at_a_dead_lock_leaves_it_to_the_first(checkout: Path) -> None:
    """Between seeing that the owner is dead and taking its lock, another took it: this process, which lives."""
    (checkout / ".venv.lock").mkdir()
    (checkout / ".venv.lock" / str(dead_process())).touch()
    script(checkout / "bin" / "mv", f'/bin/mv "$1" .venv.lock/{os.getpid()}; exec /bin/mv "$@"')
    script(checkout / "bin" / "sleep", "ls .venv.lock >seen; rm -rf .venv.lock")
    result = run(checkout, "veilcast", PYTHON=fake_python(checkout, BARE), PATH=path_with(checkout / "bin"))
    assert_one_line(result, "python3-venv", checkout)
    assert (checkout / "seen").read_text() == f"{os.getpid()}\n"


def test_one_waiting_set_up_gets_the_lock_of_a_dead_one(checkout: Path) -> None:
    """Each enters alone: two at once would find the other's directory in their way."""
    (checkout / ".venv.lock").mkdir()
    (checkout / ".venv.lock" / str(dead_process())).touch()
    alone = fake_python(
        checkout, 'case "$1" in -c) exit ;; esac; mkdir busy && sleep 0 && rmdir busy && echo ensurepip; exit 1'
    )
    script(checkout / "bin" / "sleep", "exec /bin/sleep 0.01")
    environment = {**os.environ, "PYTHON": alone, "PATH": path_with(checkout / "bin")}
    command = ["sh", str(checkout / "run"), "veilcast"]
    crowd = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    for child in crowd:
        _, errors = child.communicate(timeout=HANG_S)
        assert "python3-venv" in errors, errors
    assert not (checkout / ".venv.lock").exists()


def test_a_full_disk_is_named(checkout: Path) -> None:
    full = fake_python(checkout, 'case "$1" in -c) ;; *) echo "[Errno 28] No space left on device"; exit 1 ;; esac')
    assert_one_line(run(checkout, "veilcast", PYTHON=full), "no space", checkout)


def test_no_package_index_is_named_and_leaves_nothing_behind(checkout: Path) -> None:
    result = run(
        checkout, "veilcast", PYTHON=str(BASE_PYTHON), PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS=""
    )
    assert_one_line(result, "index", checkout)


def test_an_interrupted_set_up_leaves_no_lock_and_no_half_made_environment(checkout: Path) -> None:
    """The set-up is stopped by a signal while it waits for an interpreter that never answers."""
    started = checkout / "started"
    os.mkfifo(started)
    slow = fake_python(checkout, f'case "$1" in -c) ;; *) mkdir .venv; echo >"{started}"; exec sleep 60 ;; esac')
    child = subprocess.Popen(
        ["sh", str(checkout / "run"), "veilcast"], env={**os.environ, "PYTHON": slow}, start_new_session=True
    )
    watchdog = threading.Timer(30, started.write_text, ("never",))
    watchdog.start()
    assert started.read_text() == "\n"
    watchdog.cancel()
    os.killpg(child.pid, signal.SIGTERM)
    assert child.wait(timeout=HANG_S) != 0
    assert not (checkout / ".venv").exists()
    assert not (checkout / ".venv.lock").exists()


def test_an_unknown_command_shows_the_usage(checkout: Path) -> None:
    result = run(checkout, "tset")
    assert result.returncode == 2
    assert "./run COMMAND" in result.stderr
    assert run(checkout, "--help").returncode == 0


@pytest.mark.all_only
def test_a_killed_set_up_is_repaired_by_the_next_call_and_later_calls_are_quick(checkout: Path) -> None:
    """A kill that no trap sees leaves a lock of a dead process and half a .venv; the next call makes it whole."""
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").write_text("broken")
    (checkout / ".venv.lock").mkdir()
    (checkout / ".venv.lock" / str(dead_process())).touch()
    environment = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    result = run(checkout, "veilcast", "--version", PYTHON=str(BASE_PYTHON), **environment)
    if "index" in result.stderr:
        pytest.skip("no package index answers here")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("veilcast ")
    again = run(checkout, "veilcast", "--version")
    assert again.returncode == 0
    assert again.stderr == ""
    assert (checkout / ".venv" / "stamp-core").exists()
    assert not (checkout / ".venv" / "stamp-lab").exists()


@pytest.mark.all_only
def test_pip_install_alone_gives_a_working_command_with_its_data(tmp_path: Path, checkout: Path) -> None:
    venv = tmp_path / "plain"
    subprocess.run([str(BASE_PYTHON), "-m", "venv", str(venv)], check=True, timeout=HANG_S)
    install = subprocess.run(
        [str(venv / "bin" / "pip"), "install", "--quiet", str(checkout)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    if install.returncode and "No matching distribution" in install.stderr:
        pytest.skip("no package index answers here")
    assert install.returncode == 0, install.stderr
    for command in (["--version"], ["sim", "run", "flood", "--json"], ["authority", "init", "a", "--json"]):
        done = subprocess.run(
            [str(venv / "bin" / "veilcast"), *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
        assert done.returncode == 0, done.stderr
