"""The table of the brokers' files in docs/operator/brokers.md, held to the types that read them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from veilcast.brokers.config import BrokerClientConfig, BrokerConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "operator" / "brokers.md"
SETTINGS: dict[str, type[msgspec.Struct]] = {"broker": BrokerConfig, "member": BrokerClientConfig}


def test_defaults_are_documented_as_they_are() -> None:
    found = table(DOCUMENT.read_text())
    assert len(found) > 12
    for key, whose, default in found:
        told = {field.name: str(field.default) for field in msgspec.structs.fields(SETTINGS[whose])}
        assert default == told[key], key


def test_a_wrong_default_is_noticed() -> None:
    text = DOCUMENT.read_text()
    assert table(text.replace("| `keys_max` | broker | 4096 |", "| `keys_max` | broker | 4097 |")) != table(text)


def table(text: str) -> list[tuple[str, str, str]]:
    """Key, whose it is, and default."""
    section = text.split("## The brokers' files", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \| (broker|member) \| (.*?) \|", section, re.MULTILINE)
