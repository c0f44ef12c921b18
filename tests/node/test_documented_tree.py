"""The table of the tree's files in docs/operator/tree.md, held to the types that read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from veilcast.tree.config import DirectoryConfig, TreeConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "operator" / "tree.md"
SETTINGS: dict[str, type[msgspec.Struct]] = {"node": TreeConfig, "directory": DirectoryConfig}


def test_defaults_are_documented_as_they_are() -> None:
    found = table(DOCUMENT.read_text())
    assert len(found) > 10
    for key, whose, default in found:
        assert default == ("needed" if key == "directory" else spell(defaults(SETTINGS[whose])[key])), key


def test_a_wrong_default_is_noticed() -> None:
    text = DOCUMENT.read_text()
    assert table(text.replace("| `chain` | node | 3 |", "| `chain` | node | 4 |")) != table(text)


def table(text: str) -> list[tuple[str, str, str]]:
    """Key, whose it is, and default."""
    section = text.split("## The tree's files", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", section, re.MULTILINE)


def spell(default: Any) -> str:
    return {None: "more than half", (): "none"}.get(default) or str(default)


def defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}
