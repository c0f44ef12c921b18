"""The table of all targets, by name; a module for each group of parsers."""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path

from support.fuzz.fuzz_target import Target

HERE = Path(__file__).parent
GROUPS = (
    "targets_wire",
    "targets_authority",
    "targets_net",
    "targets_files",
    "targets_brokers",
    "targets_foil",
    "targets_link",
    "targets_stores",
    "targets_capture",
    "targets_machines",
    "targets_invitation",
)


class UnknownTargetError(Exception):
    """No target has this name; the text lists the names."""


def table() -> dict[str, Target]:
    """All targets, in the order in which they run. Tests of the fuzzer name other groups in the environment."""
    found: dict[str, Target] = {}
    for group in _groups():
        for target in importlib.import_module(f"support.fuzz.{group}").GROUP.targets:
            assert target.name not in found, f"two targets are called {target.name}"
            found[target.name] = target
    return found


def find(name: str) -> Target:
    """Find one target. Imports no other group: a fuzzer instruments every imported module, which takes long."""
    for group in _groups():
        if re.search(rf'GROUP\.target\(\s*"{re.escape(name)}"', (HERE / f"{group}.py").read_text()):
            targets: list[Target] = importlib.import_module(f"support.fuzz.{group}").GROUP.targets
            return next(target for target in targets if target.name == name)
    raise UnknownTargetError(f"no target {name}; there are: {', '.join(table())}")


def _groups() -> list[str]:
    return os.environ.get("VEILCAST_FUZZ_GROUPS", " ".join(GROUPS)).split()
