"""The table of modes: what a node can be, by name, and where the code of each mode is.

An entry names two modules. The member module (`veilcast.node.mesh` and so on) has the constant `MODE`, a `Mode`: the
settings of a member's node, its machine and the driver of its frames. The local module (`veilcast.cli.local.mesh` and
so on) has the constant `LOCAL`, a `LocalMode`: the hosts, files and services of a network on one computer. Both are
imported when the mode is used, so a node loads the code of one mode only.

A package outside Veilcast adds a mode by an entry point of the group `veilcast.modes` whose value is a `ModeEntry`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.machine import Address, Delay, Durable, Entropy, Member, Peers


class ModeEntry(NamedTuple):
    """The modules of one mode, by name."""

    member: str
    """Module with the constant `MODE`."""
    local: str
    """Module with the constant `LOCAL`."""


def mode_of(name: str) -> Mode:
    """Import a mode's settings, machine and driver."""
    mode: Mode = import_module(entry_of(name).member).MODE
    return mode


def entry_of(name: str) -> ModeEntry:
    """Return the entry of a mode. Raises `ConfigError` if neither the table nor an installed package has it."""
    entry = MODES.get(name) or _find_installed(name)
    if entry is None:
        raise ConfigError(f"mode: there is no mode {name!r}, only {', '.join(MODES)}")
    return entry


def _find_installed(name: str) -> ModeEntry | None:
    from importlib.metadata import entry_points  # Only an unknown name pays for this.

    for point in entry_points(group=ENTRY_POINTS, name=name):
        entry: ModeEntry = point.load()
        return entry
    return None


class DurableMember(Member, Peers, Durable, Protocol):
    """The machine of a member whose driver has links and a disk."""


class NodeMember(DurableMember, Protocol):
    """A member's machine that can also report its state to its owner."""

    def group_size(self) -> int:
        """The number of members in the group, including this one, as far as it knows."""

    def swaps_played(self) -> int:
        """Places in meshes that the member has swapped with others; 0 in modes without places."""

    def delay(self, now: int) -> Delay | None:
        """Why the publications that are under way wait; None if no publication is under way."""


class MachineInputs(NamedTuple):
    """All inputs of a member's machine."""

    settings: Any
    """The mode's own settings."""
    keyring: Keyring
    rng: Random
    entropy: Entropy
    address: Address
    peers: Sequence[Address]
    records: Mapping[int, bytes]
    """Records that earlier runs of the machine stored and did not settle."""
    now: int
    revoked: RevokedKeys | None = None
    """Keys that bulletins have revoked, for modes whose members judge the statements of others themselves."""


class Mode(NamedTuple):
    settings: Callable[[Profile, dict[str, Any]], msgspec.Struct]
    """Reads the mode's own table of the file; missing keys have the defaults of a live node."""
    build: Callable[[MachineInputs], NodeMember]
    """Makes the member's machine."""
    driver: Literal["udp", "streams", "onions", "mqtt"]
    hindrances: Callable[[Any, int], Sequence[str]] = lambda member, now: ()
    """Returns what keeps a machine, at a time in Unix microseconds, from its work, in words for the owner."""
    needs_peers: bool = True
    """True if every unreachable peer hinders a member."""
    paths: tuple[str, ...] = ()
    """The settings that are paths."""
    hosts: tuple[TlsRole, ...] = ()
    """On TLS streams: the roles of the peers that a member calls."""
    onion_peers: Callable[[Any], Mapping[str, Address]] = lambda settings: {}
    """Returns addresses in the settings that must fit the table `tor`, by their keys in the file."""
    keep: Callable[[Any, Any], Callable[[], None]] | None = None
    """From settings and machine, makes the function that updates the files that the machine began from."""
    neighbours_are_members: bool = False
    """True if every connected peer is a member. A link is up before the machine counts its peer as a neighbour."""
    publications_hidden: Callable[[Any], int | None] = lambda settings: None
    """From the settings: the number of publications in a month or two for which the stated bound on naming their
    publisher was measured; None in modes without such a bound."""
    cover_profiles: tuple[Profile, ...] = ()
    """The profiles in which other members act as subscribers of the topics that this node reads."""


MODES: Final[Mapping[str, ModeEntry]] = {
    name: ModeEntry(f"veilcast.node.{name}", f"veilcast.cli.local.{name}")
    for name in ("mesh", "relay", "tree", "foil", "brokers")
}
ENTRY_POINTS: Final = "veilcast.modes"
"""The group of entry points by which other packages add modes."""
