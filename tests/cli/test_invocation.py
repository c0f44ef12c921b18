"""Suggested commands begin with the program's name as the person typed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from veilcast.cli.invocation import VARIABLE, command_name

RUN = Path(__file__).parents[2] / "run"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program, started by its path."""
    path = tmp_path / "bin" / "veilcast"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.delenv(VARIABLE, raising=False)
    return path


def test_a_program_that_the_shell_finds_has_its_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert command_name() == "veilcast"


def test_a_program_that_the_shell_does_not_find_has_its_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert command_name() == str(program)


def test_run_says_how_it_was_called(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "../run veilcast")
    assert command_name() == "../run veilcast"


def test_run_hands_on_its_own_name(tmp_path: Path) -> None:
    """A copy of the script, with a program in place of the real one that prints what it was told."""
    checkout = tmp_path / "checkout"
    (checkout / "locks").mkdir(parents=True)
    script = RUN.read_text().replace("set_up core", ":").replace("set_up lab", ":")
    (checkout / "run").write_text(script)
    program = checkout / ".venv" / "bin" / "veilcast"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "${VARIABLE}"\n')
    for path in (checkout / "run", program):
        path.chmod(0o700)
    for called, where in (("./run", checkout), ("checkout/run", tmp_path)):
        environment = {"PATH": os.environ["PATH"]}
        told = subprocess.run([called, "veilcast", "net"], cwd=where, env=environment, capture_output=True, text=True)
        assert (told.stdout, told.stderr) == (f"{called} veilcast\n", "")
