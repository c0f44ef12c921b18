"""The mode "relay" of a member's node: which proxies it uses, whose server stands behind them, and its machine.

    mode = "relay"
    keyring = "alice.keyring"

    [relay]
    proxies = ["198.51.100.2:4101"]            # or two: by the first it publishes, by the second it subscribes
    server_key = "veilcast-server-..."         # the line that the server's operator tells everybody

A member calls its proxies and is called by nobody, so its file has no address.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from veilcast.authority.topic_record import Profile
from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.node.mode import MachineInputs, Mode, NodeMember
from veilcast.node.relay_keys import decode_server_line
from veilcast.node.toml_file import check_address
from veilcast.node.toml_file import read_settings as own_table
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.enrolment import ServerPublic
from veilcast.wire.relay import ReplyCode


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    proxies: tuple[Address, ...]
    public: ServerPublic
    client: RelayClientConfig


def hindrances(client: RelayClient, now: int) -> list[str]:
    """A relay that does not answer, and what it has refused and is asked for again, in words for the client's owner."""
    told = [f"{_REFUSALS[code]} (requests: {count})" for code, count in client.refusals().items()]
    if silent_us := client.silent_us(now):
        told.append(
            f"the relay has not answered for {silent_us / 1e6:.0f} s although its proxy is up: its server may be down;"
            " what you publish waits in the outbox, and nothing new comes to your subscriptions"
        )
    return told


def read_settings(profile: Profile, table: dict[str, Any]) -> RelaySettings:
    """The table `relay` of a node's file: the way to the relay, and what its client's machine can be told."""
    way = {key: table.pop(key, None) for key in ("proxies", "server_key")}
    for key, value in way.items():
        if value is None:
            raise ConfigError(f"relay.{key}: needed, and not there")
    proxies = msgspec.convert(way["proxies"], tuple[str, ...])
    if not 1 <= len(proxies) <= 2:
        raise ConfigError("relay.proxies: one, or one to publish by and one to subscribe by")
    for place, proxy in enumerate(proxies):
        check_address(f"relay.proxies[{place}]", proxy)
    public = decode_server_line("relay.server_key", str(way["server_key"]))
    return RelaySettings(tuple(map(Address, proxies)), public, own_table("relay", table, profile, RelayClientConfig))


def build(start: MachineInputs) -> NodeMember:
    way: RelaySettings = start.settings
    return RelayClient(
        way.client, start.keyring, way.public, way.proxies, start.rng, start.entropy, start.now, start.records
    )


_REFUSALS: Final = {
    ReplyCode.FULL: "the relay is full; there may be room later",
    ReplyCode.LIMITED: "the relay gives no member so much, or so fast",
    ReplyCode.MALFORMED: "the relay refuses this as malformed; its versions or profiles differ from ours",
    ReplyCode.UNKNOWN: "the relay does not know what this rests on; it is told anew",
}

MODE: Final = Mode(read_settings, build, "streams", hindrances, hosts=("proxy",))
