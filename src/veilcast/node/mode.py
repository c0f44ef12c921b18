"""What a mode of a node is: a type of settings, a factory of its machine, and the name of the driver of its frames.

The table of all modes is in `modes`. Each mode fills in its own `Mode` in its own module (`mesh_member`, `relay_member`
and so on), so that a node loads the code of one mode only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole
from veilcast.authority.topic_record import Profile
from veilcast.machine import Address, Delay, Durable, Entropy, Member, Peers


class DurableMember(Member, Peers, Durable, Protocol):
    """The machine of a member whose driver has links and a disk."""


class NodeMember(DurableMember, Protocol):
    """One that can also tell its owner how it is."""

    def group_size(self) -> int:
        """Among how many members this one is, itself included, as far as it knows."""

    def swaps_played(self) -> int:
        """Places that it has changed with others; 0 where a mode knows no places."""

    def delay(self, now: int) -> Delay | None:
        """Why the publications that are under way wait; None if there are none."""


class MachineInputs(NamedTuple):
    """All that a machine is built from. `records` is what its earlier lives had stored and did not settle."""

    settings: Any
    """Of the mode's own type."""
    keyring: Keyring
    rng: Random
    entropy: Entropy
    address: Address
    peers: Sequence[Address]
    records: Mapping[int, bytes]
    now: int
    revoked: RevokedKeys | None = None
    """Keys that bulletins have voided, for modes whose members judge statements of others themselves."""


class Mode(NamedTuple):
    settings: Callable[[Profile, dict[str, Any]], msgspec.Struct]
    """Reads the mode's own table of the file; what it does not say has the defaults of a live node."""
    build: Callable[[MachineInputs], NodeMember]
    driver: Literal["udp", "streams", "onions", "mqtt"]
    hindrances: Callable[[Any, int], Sequence[str]] = lambda member, now: ()
    """What keeps a member's machine of this mode, at a time in Unix microseconds, from doing what it was asked for, in
    words for its owner."""
    needs_peers: bool = True
    """Whether a member is hindered by every peer that it cannot reach."""
    paths: tuple[str, ...] = ()
    """Those of its settings that are paths."""
    hosts: tuple[TlsRole, ...] = ()
    """On TLS streams: in which roles those stand whom it calls."""
    onion_peers: Callable[[Any], Mapping[str, Address]] = lambda settings: {}
    """Addresses in the settings that must fit the file's table `tor`, by the key that each has in the file."""
    keep: Callable[[Any, Any], Callable[[], None]] | None = None
    """Of settings and a member's machine: what brings the files that it began from up to date, now and then."""
