"""Names of a local network's nodes by their roles, the same in every network: `DIR/roles/publisher/node.toml`.

Which node publishes is drawn by lot, so its number differs from network to network, and a script needs a name that does
not. The links are not directly below DIR: what a person finds there by `DIR/*/tap` must have each node once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from veilcast.cli.files import make_directory


def role_file(directory: Path, role: str) -> Path:
    """The file of the first node that has this role."""
    return links_directory(directory) / role / "node.toml"


def links_directory(directory: Path) -> Path:
    return directory / _ROLES


def link_roles(directory: Path, roles: Sequence[str], names: Sequence[str]) -> None:
    """Link each node, whose directory has this name, by its role: `publisher`, `publisher-2`, and so on."""
    make_directory(links_directory(directory))
    count = dict.fromkeys(roles, 0)
    for role, name in zip(roles, names, strict=True):
        count[role] += 1
        link = role if count[role] == 1 else f"{role}-{count[role]}"
        (links_directory(directory) / link).symlink_to(Path("..") / name)


_ROLES: Final = "roles"
