"""The settings of a member's node in the mode "brokers": its paths, each an overlay and one of its virtual nodes.

    mode = "brokers"
    keyring = "alice.keyring"

    [brokers]
    overlay = "overlay.signed"                 # the file that the overlay's operator hands out
    operator = "veilcast-operator-..."         # the line that identifies the operator
    edge = "north"                             # the virtual node whose replicas the member calls

    [[brokers.also]]                           # another path, any number of times: an overlay of other brokers
    overlay = "second.signed"
    operator = "veilcast-operator-..."
    edge = "west"

A member calls all replicas of its edge node and nobody calls a member, so its file has no address.

Replicas are replaced while members run, and over time all of them may be. A member that started again from an old
description would call replicas that no longer exist. So `StoredOverlay` updates the file to the description that the
machine uses. A description on the disk that is as new, or newer, is left alone, because the operator may write to the
same file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.keys.scheme import majority
from veilcast.brokers.multipath_client import MultipathClient
from veilcast.brokers.overlay import SignedOverlay
from veilcast.errors import ConfigError, ForgedError, LocalError, StorageError, TamperedError
from veilcast.node.broker_overlay import decode_operator_line, read_signed, read_signed_for, write_signed
from veilcast.node.modes import MachineInputs, Mode, NodeMember
from veilcast.node.toml_file import read_own_table


class StoredOverlay:
    def __init__(self, path: Path, operator: bytes, signed: SignedOverlay) -> None:
        """`signed` is the content of the file."""
        self._path, self._operator, self._kept = path, operator, signed

    def update(self, signed: SignedOverlay) -> None:
        """Write the overlay that the machine uses now, if it is newer. Raises `StorageError` if that fails; the next
        call repeats it."""
        if signed != self._kept:
            if self._there() < signed.verify(self._operator).version:
                write_signed(self._path, signed)
            self._kept = signed

    def _there(self) -> int:
        """Return the version on the disk; -1 if no version can be read."""
        with suppress(ConfigError, ForgedError, StorageError, TamperedError):
            return read_signed(self._path, self._operator).verify(self._operator).version
        return -1


class BrokerPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A path: one overlay, and one of its virtual nodes as the edge. `key` is its key in the file."""

    key: str
    overlay: str
    operator: bytes
    edge: str


class BrokersSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ways: tuple[BrokerPath, ...]
    client: BrokerClientConfig


def read_settings(profile: Profile, table: dict[str, Any]) -> BrokersSettings:
    """Read the table `brokers` of a node's file: the paths, and the settings of the machine."""
    also = table.pop("also", [])
    if not isinstance(also, list) or not all(isinstance(each, dict) for each in also):
        raise ConfigError("brokers.also: must be tables, each headed [[brokers.also]]")
    ways = [_read_path("brokers", table)]
    for place, each in enumerate(also):
        ways.append(_read_path(f"brokers.also[{place}]", each))
        if each:
            raise ConfigError(f"brokers.also[{place}].{next(iter(each))}: unknown key")
    return BrokersSettings(tuple(ways), read_own_table("brokers", table, profile, BrokerClientConfig))


def read_overlays(settings: BrokersSettings) -> list[SignedOverlay]:
    """Read the overlays of the settings. Raises an error unless their operators have signed them, they have these edge
    nodes and this profile, and no broker is on two paths."""
    every = [_read_overlay(path, settings.client.profile) for path in settings.ways]
    whose: dict[bytes, BrokerPath] = {}
    for path, signed in zip(settings.ways, every, strict=True):
        for node in signed.verify(path.operator).all_nodes:
            for replica in node.replicas:
                if (other := whose.setdefault(replica.key, path)) is not path:
                    what = f"the broker at {replica.address.rpartition('@')[2]} is in {other.key}.overlay, too"
                    raise ConfigError(f"{path.key}.overlay: {what}; paths have no broker in common")
    return every


def hindrances(member: BrokerClient | MultipathClient, now: int) -> list[str]:
    """Fewer than half of the replicas of a node may be unreachable or Byzantine; with more, nothing passes the node. A
    client sees the state of its edge node; of the nodes beyond it, a client sees only that they confirm nothing."""
    clients = clients_of(member)
    found = []
    for number, client in enumerate(clients, 1):
        up, size = client.edge_up()
        where = f"on path {number} of {len(clients)}, " if len(clients) > 1 else ""
        if up < majority(size):
            found.append(f"{where}{up} of the {size} replicas of the edge node answer, and {majority(size)} are needed")
        elif unconfirmed_us := client.unconfirmed_us(now):
            found.append(
                f"{where}the brokers have not confirmed for {unconfirmed_us / 1e6:.0f} s that subscribers have what you"
                " published: a node beyond the edge may lack its majority, or a subscriber is away"
            )
    return found


def build(start: MachineInputs) -> NodeMember:
    brokers: BrokersSettings = start.settings
    clients = [
        BrokerClient(
            brokers.client,
            start.keyring,
            overlay,
            path.operator,
            path.edge,
            start.address,
            start.rng,
            start.entropy,
            start.now,
            start.records,
        )
        for path, overlay in zip(brokers.ways, read_overlays(brokers), strict=True)
    ]
    return (
        clients[0] if len(clients) == 1 else MultipathClient(clients, start.records, brokers.client.seen_max, start.now)
    )


def keep(settings: BrokersSettings, member: BrokerClient | MultipathClient) -> Callable[[], None]:
    """Return the function that updates the overlays' files."""
    clients = clients_of(member)
    kept = [
        StoredOverlay(Path(path.overlay), path.operator, client.signed)
        for path, client in zip(settings.ways, clients, strict=True)
    ]

    def follow() -> None:
        for each, client in zip(kept, clients, strict=True):
            each.update(client.signed)

    return follow


def clients_of(member: BrokerClient | MultipathClient) -> tuple[BrokerClient, ...]:
    return member.clients if isinstance(member, MultipathClient) else (member,)


def _read_path(key: str, table: dict[str, Any]) -> BrokerPath:
    texts = {}
    for name in ("overlay", "operator", "edge"):
        value = table.pop(name, None)
        if value is None:
            raise ConfigError(f"{key}.{name}: needed, and not there")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{key}.{name}: must be a text")
        texts[name] = value
    return BrokerPath(key, texts["overlay"], decode_operator_line(f"{key}.operator", texts["operator"]), texts["edge"])


def _read_overlay(path: BrokerPath, profile: Profile) -> SignedOverlay:
    signed = read_signed_for(Path(path.overlay), path.operator, profile)
    overlay = signed.verify(path.operator)
    try:
        overlay.node(path.edge)
    except LocalError:
        names = ", ".join(node.name for node in overlay.nodes[:_SHOWN])
        more = ", ..." if len(overlay.nodes) > _SHOWN else ""
        raise ConfigError(f"{path.key}.edge: no virtual node is called {path.edge!r}, only {names}{more}") from None
    return signed


PATHS: Final = ("ways.overlay",)
"""The settings that are paths."""
_SHOWN: Final = 8

MODE: Final = Mode(
    read_settings,
    build,
    "streams",
    hindrances,
    needs_peers=False,
    paths=PATHS,
    hosts=("broker",),
    keep=keep,
)
