"""The mode "brokers" of a member's node: which overlay it uses, at which of its virtual nodes, and its machine.

    mode = "brokers"
    keyring = "alice.keyring"

    [brokers]
    overlay = "overlay.signed"                 # what the overlay's operator hands everybody
    operator = "veilcast-operator-..."         # the line by which the operator is known
    edge = "north"                             # the virtual node whose replicas it calls

A member calls all replicas of its edge node and is called by nobody, so its file has no address.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from veilcast.authority.record import Profile
from veilcast.brokers.client import Client
from veilcast.brokers.config import ClientConfig
from veilcast.brokers.overlay import SignedOverlay
from veilcast.brokers.sharing.scheme import majority
from veilcast.errors import ConfigError, LocalError
from veilcast.node.broker_files import read_for
from veilcast.node.broker_keys import read_operator
from veilcast.node.kept_overlay import KeptOverlay
from veilcast.node.tomlfile import own_table


class BrokersSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    overlay: str
    operator: bytes
    edge: str
    client: ClientConfig


def read_settings(profile: Profile, table: dict[str, Any]) -> BrokersSettings:
    """The table `brokers` of a node's file: the way to the overlay, and what the machine can be told."""
    way = {key: table.pop(key, None) for key in ("overlay", "operator", "edge")}
    for key, value in way.items():
        if value is None:
            raise ConfigError(f"brokers.{key}: needed, and not there")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"brokers.{key}: must be a text")
    operator = read_operator("brokers.operator", str(way["operator"]))
    client = own_table("brokers", table, profile, ClientConfig)
    return BrokersSettings(str(way["overlay"]), operator, str(way["edge"]), client)


def read_overlay(settings: BrokersSettings) -> SignedOverlay:
    """What the file names, if the operator has signed it and it has this edge node and suits the profile."""
    signed = read_for(Path(settings.overlay), settings.operator, settings.client.profile)
    overlay = signed.verify(settings.operator)
    try:
        overlay.node(settings.edge)
    except LocalError:
        names = ", ".join(node.name for node in overlay.nodes[:_SHOWN])
        more = ", ..." if len(overlay.nodes) > _SHOWN else ""
        raise ConfigError(f"brokers.edge: no virtual node is called {settings.edge!r}, only {names}{more}") from None
    return signed


def hindrances(client: Client) -> list[str]:
    """Fewer than half of the replicas may be away or lie; with more away, nothing goes in or out."""
    up, size = client.edge_up()
    if up >= majority(size):
        return []
    return [f"{up} of the {size} replicas of the edge node answer, and {majority(size)} are needed"]


def keep(settings: BrokersSettings, client: Client) -> Callable[[], None]:
    """What brings the overlay's file up to date whenever it is called."""
    kept = KeptOverlay(Path(settings.overlay), settings.operator, client.signed)
    return lambda: kept.keep(client.signed)


PATHS: Final = ("overlay",)
"""Those of its keys that are paths."""
_SHOWN: Final = 8
