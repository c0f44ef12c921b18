"""The table of all targets, by name; a module for each group of parsers."""

from __future__ import annotations

import importlib
import os

from fuzz_target import Target

GROUPS = (
    "targets_wire",
    "targets_authority",
    "targets_net",
    "targets_files",
)


class UnknownTargetError(Exception):
    """No target has this name; the text says which there are."""


def table() -> dict[str, Target]:
    """All targets, in the order in which they run. Tests of the frame name other groups in the environment."""
    found: dict[str, Target] = {}
    for group in os.environ.get("VEILCAST_FUZZ_GROUPS", " ".join(GROUPS)).split():
        for target in importlib.import_module(group).GROUP.targets:
            assert target.name not in found, f"two targets are called {target.name}"
            found[target.name] = target
    return found


def find(name: str) -> Target:
    targets = table()
    if name not in targets:
        raise UnknownTargetError(f"no target {name}; there are: {', '.join(targets)}")
    return targets[name]
