"""A relay's settings, files and keys: of a member's node, and of its two hosts.

The file of a member's node:

    mode = "relay"
    keyring = "alice.keyring"

    [relay]
    proxies = ["198.51.100.2:4101"]            # or more: the first for publishing, the others for subscribing
    server_key = "veilcast-server-..."         # the line that the server's operator publishes

A member calls its proxies and nobody calls a member, so its file has no address.

The files of the hosts, `server.toml` and `proxy.toml`:

    keyring = "server.keys"                    # a membership for a server
    listen = "192.0.2.1:4100"
    keys = "server.secret"                     # made by `veilcast relay server init`
    database = "postgresql:///relay"           # if several servers share their records; one serves at a time

    keyring = "proxy.keys"                     # a membership for a proxy
    listen = "198.51.100.2:4101"
    server = "192.0.2.1:4100"                  # or a list, if several servers share a database
    server_key = "veilcast-server-..."         # the line that `veilcast relay server init` printed
    mask = "mask"                              # made by `veilcast relay proxy init`, the same for all proxies

The table `relay` of each file has the settings of its machine: `relay/config.py` explains each key.

The server's keys are locked with the passphrase of its keyring: without them all enrolments are lost, and a thief of
them can act as the server. The proxies' mask is a short secret that the operators of proxies share and the server's
operator must not have; it is in a private file, as a passphrase is. The server's public key is one line, which people
copy into their files, so the line says what it is and detects a slip.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.authority.topic_record import Profile
from veilcast.crypto.group import Scalar
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes, unlock_bytes
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, MalformedError, PassphraseError, TamperedError
from veilcast.machine import Address, Entropy
from veilcast.node import checked_line, toml_file
from veilcast.node.modes import MachineInputs, Mode, NodeMember
from veilcast.node.multiply_pool import THREADS_MAX
from veilcast.node.toml_file import ProcessConfig, RendezvousConfig, check_address, read_own_table, settings_converter
from veilcast.relay.config import PROXIES_MAX, RelayClientConfig, RelayProxyConfig, RelayServerConfig
from veilcast.relay.transformation_key import ServerKeys, ServerPublicKey

if TYPE_CHECKING:
    from veilcast.relay.client import RelayClient


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    proxies: tuple[Address, ...]
    public: ServerPublicKey
    client: RelayClientConfig


def hindrances(client: RelayClient, now: int) -> list[str]:
    """Return that the relay does not answer, and its refusals that the client repeats, in words for the owner."""
    found = [f"{_REFUSALS[code.name]} (requests: {count})" for code, count in client.refusals().items()]
    if silent_us := client.silent_us(now):
        found.append(
            f"the relay has not answered for {silent_us / 1e6:.0f} s although its proxy is up: its server may be down;"
            " what you publish waits in the outbox, and nothing new comes to your subscriptions"
        )
    return found


def read_settings(profile: Profile, table: dict[str, Any]) -> RelaySettings:
    """Read the table `relay` of a node's file: the proxies, the server's key, and the settings of the machine."""
    own = {key: table.pop(key, None) for key in ("proxies", "server_key")}
    for key, value in own.items():
        if value is None:
            raise ConfigError(f"relay.{key}: needed, and not there")
    proxies = msgspec.convert(own["proxies"], tuple[str, ...])
    if not 1 <= len(proxies) <= PROXIES_MAX:
        raise ConfigError(f"relay.proxies: 1 to {PROXIES_MAX}, the first to publish by and the others to subscribe by")
    for place, proxy in enumerate(proxies):
        check_address(f"relay.proxies[{place}]", proxy)
    public = decode_server_line("relay.server_key", str(own["server_key"]))
    client = read_own_table("relay", table, profile, RelayClientConfig)
    if client.copies > len(set(proxies[1:] or proxies)):
        raise ConfigError(f"relay.copies: {client.copies} need as many proxies to subscribe by, after the first one")
    return RelaySettings(tuple(map(Address, proxies)), public, client)


def build(start: MachineInputs) -> NodeMember:
    own: RelaySettings = start.settings
    from veilcast.relay.client import RelayClient  # The hosts' commands need none.

    return RelayClient(
        own.client, start.keyring, own.public, own.proxies, start.rng, start.entropy, start.now, start.records
    )


_REFUSALS: Final = {
    "FULL": "the relay is full; there may be room later",
    "LIMITED": "the relay limits how much and how fast a member may send",
    "MALFORMED": "the relay refuses this as malformed; its versions or profiles differ from ours",
    "UNKNOWN": "the relay has forgotten what this depends on; the node sends that again",
}

MODE: Final = Mode(read_settings, build, "streams", hindrances, hosts=("proxy",))


class RelayHostFile(ProcessConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of both files."""

    listen: str
    threads: int = 0
    """Threads for multiplications in the group; 0 is one for each core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address("listen", self.listen)
        if not 0 <= self.threads <= THREADS_MAX:
            raise ConfigError(f"threads: must be between 0 and {THREADS_MAX}")


class ServerFile(RelayHostFile, frozen=True, forbid_unknown_fields=True, kw_only=True):
    keys: str
    database: str | None = None
    """The PostgreSQL database with the records; None for a database of the server's own, below `state`."""
    settings: RelayServerConfig = RelayServerConfig()


class ProxyFile(RelayHostFile, frozen=True, forbid_unknown_fields=True, kw_only=True):
    server: str | tuple[str, ...]
    """The server's address, or those of all servers that share one database."""
    server_key: str
    mask: str | None = None
    """None in `paper`, which has no masks."""
    rendezvous: RendezvousConfig = RendezvousConfig()
    settings: RelayProxyConfig = RelayProxyConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.server_addresses) <= SERVERS_MAX:
            raise ConfigError(f"server: one address, or a list of 1 to {SERVERS_MAX}")
        for server in self.server_addresses:
            check_address("server", server)
        decode_server_line("server_key", self.server_key)
        if (self.mask is None) != (self.profile == "paper"):
            needed = "needed, and not there" if self.mask is None else "the papers' profile has no masks"
            raise ConfigError(f"mask: {needed}")

    @property
    def server_addresses(self) -> tuple[Address, ...]:
        servers = (self.server,) if isinstance(self.server, str) else self.server
        return tuple(map(Address, servers))


def load_server(path: Path) -> ServerFile:
    return toml_file.load_file(path, parse_server)


def load_proxy(path: Path) -> ProxyFile:
    return toml_file.load_file(path, parse_proxy)


def parse_server(toml: bytes, path: Path) -> ServerFile:
    return toml_file.parse_file(
        toml, path, ServerFile, settings_converter("relay", ServerFile, RelayServerConfig), paths=("keys",)
    )


def parse_proxy(toml: bytes, path: Path) -> ProxyFile:
    return toml_file.parse_file(
        toml, path, ProxyFile, settings_converter("relay", ProxyFile, RelayProxyConfig), paths=("mask",)
    )


def write_server_keys(
    path: Path, keys: ServerKeys, passphrase: Secret, *, cost: PassphraseCost, entropy: Entropy
) -> None:
    locked = lock_bytes(keys.encode().reveal(), passphrase, purpose=_PURPOSE, cost=cost, entropy=entropy)
    replace_file(path, locked)


def read_server_keys(path: Path, passphrase: Secret) -> ServerKeys:
    try:
        return ServerKeys.decode(Secret(unlock_bytes(read_private_file(path), passphrase, purpose=_PURPOSE)))
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error
    except MalformedError as error:
        raise TamperedError(f"{path}: not the keys of a server") from error


def write_mask(path: Path, mask: Scalar) -> None:
    replace_file(path, checked_line.encode_line(_MASK, mask.reveal()).encode() + b"\n")


def read_mask(path: Path) -> Scalar:
    try:
        return Scalar(checked_line.decode_line(_MASK, read_private_file(path).decode().strip()))
    except (ValueError, MalformedError) as error:
        raise TamperedError(f"{path} holds no mask; make one with `veilcast relay proxy init`") from error


def encode_server_line(public: ServerPublicKey) -> str:
    return checked_line.encode_line(_PUBLIC, public.encode())


def decode_server_line(key: str, text: str) -> ServerPublicKey:
    """Decode the server line at this key of a file. Raises `ConfigError` if it is not such a line."""
    try:
        return ServerPublicKey.decode(checked_line.decode_line(_PUBLIC, text))
    except (ValueError, MalformedError) as error:
        raise ConfigError(f"{key}: not the line that `veilcast relay server init` printed; copy it whole") from error


SERVERS_MAX: Final = 8
_PURPOSE: Final = b"veilcast/relay-server"
_PUBLIC: Final = "veilcast-server-"
_MASK: Final = "veilcast-mask-"
