"""The table of the node's file in docs/member.md, held to the types that read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from veilcast.node.config import NodeConfig, NodeLimits
from veilcast.node.modes import MODES
from veilcast.node.toml_file import LogConfig, MetricsConfig, RendezvousConfig
from veilcast.node.tor_table import TorTable

DOCUMENT = Path(__file__).parents[2] / "docs" / "member.md"
TABLES: dict[str, type[msgspec.Struct]] = {
    "limits": NodeLimits,
    "log": LogConfig,
    "metrics": MetricsConfig,
    "rendezvous": RendezvousConfig,
    "tor": TorTable,
}


def test_every_key_of_the_file_is_documented_with_its_default() -> None:
    documented = rows(DOCUMENT.read_text())
    assert documented == dict(defaults(NodeConfig)) | dict.fromkeys(MODES)


def test_a_key_that_is_missing_or_has_another_default_is_noticed() -> None:
    text = DOCUMENT.read_text()
    assert rows(text.replace("| `rate` | 4 |", "| `rate` | 16 |")) != rows(text)
    assert rows(text.replace("| `limits.unread` |", "| limits.unread |")) != rows(text)


def rows(text: str) -> dict[str, str | None]:
    """Return key and default of the table's lines; None for a default in words, or a missing one."""
    section = text.split("## The node's file", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", section, re.MULTILINE)
    return {key: value.strip("`") if re.fullmatch(r"`\w+`|\d+", value) else None for key, value in found}


def defaults(kind: type[msgspec.Struct], within: str = "") -> Iterator[tuple[str, str | None]]:
    for field in msgspec.structs.fields(kind):
        if field.name in TABLES:
            yield from defaults(TABLES[field.name], f"{field.name}.")
        elif field.name != "settings":  # It stands in the file under the name of its mode.
            yield within + field.name, _spelled(field.default)


def _spelled(default: Any) -> str | None:
    if isinstance(default, bool):
        return str(default).lower()
    return None if default in (None, (), msgspec.NODEFAULT) else str(default)
