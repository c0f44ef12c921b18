"""The tables of the relay's files in docs/operator/relay.md, held to the types that read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from veilcast.node.relay import ProxyFile, ServerFile
from veilcast.node.toml_file import ProcessConfig
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig, RelayServerConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "operator" / "relay.md"
SETTINGS: dict[str, type[msgspec.Struct]] = {
    "server": RelayServerConfig,
    "proxy": RelayProxyConfig,
    "member": RelayClientConfig,
}


def test_every_key_of_its_own_is_documented_for_server_and_proxy() -> None:
    files, _ = tables(DOCUMENT.read_text())
    for kind, name in ((ServerFile, "server"), (ProxyFile, "proxy")):
        own = set(kind.__struct_fields__) - set(ProcessConfig.__struct_fields__) - {"settings"}
        assert {key for key, whose, _ in files if whose in (name, "both")} == own


def test_defaults_are_documented_as_they_are() -> None:
    files, machines = tables(DOCUMENT.read_text())
    for key, whose, default in machines:
        assert default == str(defaults(SETTINGS[whose])[key]), key
    told = {key: default for key, _, default in files if default != "needed"}
    assert told == {"threads": str(defaults(ServerFile)["threads"]), "database": "none", "rendezvous": "none"}
    assert defaults(ServerFile)["database"] is None


def test_a_wrong_default_is_noticed() -> None:
    text = DOCUMENT.read_text()
    assert tables(text.replace("| `held_max` | server | 100000 |", "| `held_max` | server | 1 |")) != tables(text)


def tables(text: str) -> list[list[tuple[str, str, str]]]:
    """Key, whose it is, and default: of the files, and of what the machines can be told."""
    section = text.split("## The relay's files", 1)[1].split("\n## ", 1)[0]
    found = [re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", part, re.MULTILINE) for part in section.split("| key |")]
    return found[1:]


def defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}
