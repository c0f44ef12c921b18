"""The table of foiling in docs/operator/foil.md, held to the types that read it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from veilcast.foil.config import FoilConfig
from veilcast.node.foil import FoilSettings

DOCUMENT = Path(__file__).parents[2] / "docs" / "operator" / "foil.md"


def test_defaults_are_documented_as_they_are() -> None:
    found = table(DOCUMENT.read_text())
    assert len(found) > 12
    told = {field.name: str(field.default) for field in msgspec.structs.fields(FoilConfig)}
    for key, default in found.items():
        if re.fullmatch(r"\d+|`\w+`", default):
            assert default.strip("`") == told[key], key
        else:
            assert key in told or key in FoilSettings.__struct_fields__, key


def test_a_wrong_default_is_noticed() -> None:
    text = DOCUMENT.read_text()
    assert table(text.replace("| `k_p` | 9 |", "| `k_p` | 5 |")) != table(text)


def table(text: str) -> dict[str, str]:
    section = text.split("## The table of foiling", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
