"""Writing a table as TOML: of texts, numbers, lists and tables, which is all that our files have."""

from __future__ import annotations

import json
from typing import Any


def spell(table: dict[str, Any], name: str = "") -> str:
    """Plain values first, then the tables inside. What JSON writes for these values is TOML too."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    if name:
        lines.insert(0, f"\n[{name}]")
    text = "".join(f"{line}\n" for line in lines)
    inner = ((f"{name}.{key}".lstrip("."), value) for key, value in table.items() if isinstance(value, dict))
    return text + "".join(spell(value, key) for key, value in inner)
