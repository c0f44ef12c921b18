"""Files of the operator beside the captures: members with their roles, and links.

Both are JSON, a list of objects, or CSV with a line of names; both may have more columns than needed. Members have
`node` and `role`, links `u` and `v`. The output of `veilcast net status --json` serves as members; there the name on
the wire is called `address`.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError

Kind = TypeVar("Kind")


class ListedMember(msgspec.Struct, frozen=True):
    """A member with a known role; nodes are named as on the wire, ADDRESS:PORT."""

    node: str
    role: str
    """`publisher`, `subscriber`, or any other word for a member that is neither."""
    topic: str = ""


def read_members(path: Path) -> tuple[ListedMember, ...]:
    """Every node and role once; at least one publisher or subscriber."""
    found: dict[ListedMember, None] = {}
    for number, row in enumerate(_rows(path), 1):
        known = {"role": "", **row, "node": row.get("address") or row.get("node") or ""}
        member = _convert(path, number, known, ListedMember)
        if not member.node or not member.role:
            raise ConfigError(f"{path}: entry {number} lacks `node` or `role`")
        # With a misspelt role a subscriber would count as a member without a role, and attackers would seem wrong.
        if member.role not in ROLES and (meant := member.role.strip().lower().removesuffix("s")) in ROLES:
            raise ConfigError(f"{path}: entry {number}: the role is {member.role!r}; write {meant!r}")
        found[member] = None
    if not any(member.role in ROLES for member in found):
        raise ConfigError(f"{path} names no member that is {' or '.join(ROLES)}")
    return tuple(found)


class OverlayLink(msgspec.Struct, frozen=True):
    u: str
    v: str


def read_links(path: Path) -> tuple[OverlayLink, ...]:
    """Every link once, whichever way it is written."""
    found: dict[OverlayLink, None] = {}
    for number, row in enumerate(_rows(path), 1):
        link = _convert(path, number, {"u": "", "v": "", **row}, OverlayLink)
        if not link.u or not link.v or link.u == link.v:
            raise ConfigError(f"{path}: entry {number} is no link between two nodes, `u` and `v`")
        found[OverlayLink(min(link.u, link.v), max(link.u, link.v))] = None
    if not found:
        raise ConfigError(f"{path} holds no links")
    return tuple(found)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is neither JSON nor CSV: it is no text") from error
    if text.lstrip()[:1] not in ("[", "{"):
        # `DictReader` puts cells without a name under None, and gives None to names without a cell.
        return [{name: cell or "" for name, cell in row.items() if name} for row in csv.DictReader(io.StringIO(text))]
    found = _DECODER.decode(text, path)
    rows = found.get("nodes") if isinstance(found, dict) else found
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path} is no list of objects")
    return rows


def _convert(path: Path, number: int, row: dict[str, Any], kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: entry {number}: {error}") from error


_DECODER: Final = JsonDecoder(Any, ConfigError, "is no JSON")
ROLES: Final = ("publisher", "subscriber")
