"""Killed at every write, a node loses nothing that it confirmed, and delivers no acknowledged note again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.waits import HANG_S


def killed_everywhere(work: Path, bug: str = "") -> dict[str, Any]:
    """Runs in a process without threads, because it forks."""
    program = [
        sys.executable,
        "-W",
        "error",
        str(Path(__file__).parents[1] / "support" / "killed_node.py"),
        str(work),
        bug,
    ]
    child = subprocess.run(program, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def test_killed_at_every_point_of_every_write_a_node_keeps_its_promises(disk: Path) -> None:
    found = killed_everywhere(disk)
    assert found["violations"] == []
    assert found["points"] > 200


@pytest.mark.parametrize(
    ("bug", "seen"),
    [
        ("early", "was lost"),
        ("hasty", "again after its acknowledgement"),
        ("same stream", "is the place of"),
    ],
)
def test_the_planted_bugs_are_seen(bug: str, seen: str, disk: Path) -> None:
    found = killed_everywhere(disk, bug)
    assert any(seen in violation for violation in found["violations"]), found
