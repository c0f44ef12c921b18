"""The table of modes: what a node can be, by name.

A node runs one mode. `mode_of` imports that mode's code when it is asked for the mode, and no other mode's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from veilcast.errors import ConfigError
from veilcast.node.mode import Mode


def mode_of(name: str) -> Mode:
    mode = MODES.get(name)
    if mode is None:
        raise ConfigError(f"mode: there is no mode {name!r}, only {', '.join(MODES)}")
    return mode()


def _mesh() -> Mode:
    from veilcast.node.mesh_member import MODE

    return MODE


def _relay() -> Mode:
    from veilcast.node.relay_member import MODE

    return MODE


def _tree() -> Mode:
    from veilcast.node.tree_member import MODE

    return MODE


def _foil() -> Mode:
    from veilcast.node.foil_member import MODE

    return MODE


def _brokers() -> Mode:
    from veilcast.node.broker_member import MODE

    return MODE


MODES: Final[Mapping[str, Callable[[], Mode]]] = {
    "mesh": _mesh,
    "relay": _relay,
    "tree": _tree,
    "foil": _foil,
    "brokers": _brokers,
}
