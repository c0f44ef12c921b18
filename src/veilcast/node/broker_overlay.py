"""The files and keys of an overlay of brokers: each broker's `broker.toml`, the operator's `overlay.toml`, and its
signature.

    keyring = "broker.keys"                    # a membership for a broker
    listen = "192.0.2.1:4200"
    overlay = "overlay.signed"                 # written by `veilcast brokers overlay sign`, the same for everybody
    operator = "veilcast-operator-..."         # the line that `veilcast brokers overlay init` printed

The table `brokers` has the settings of the machine: `brokers/config.py` explains each key. The overlay's description
says which virtual node a broker belongs to, and which nodes are its neighbours:

    profile = "hardened"
    links = [["north", "centre"], ["centre", "south"]]

    [[nodes]]
    name = "north"
    replicas = [
      { broker = "veilcast-broker-...", address = "192.0.2.1:4200" },
      ...
    ]

Nodes and links are a tree, and in `hardened` a node has an odd number of replicas, three or more. An address is where
members and brokers call the broker; its certificate shows that this broker answers there.

If keys travel out of band, `repository` has replicas of its own, written like those of a node.

The operator's key is locked with a passphrase, and needed only to sign a description. Everybody has its public half,
and uses no description without its signature. A broker identifies itself to the operator in one line: its signing key,
and the name in its certificate.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.role import derive_broker_key
from veilcast.authority.secret_file import read_private_file, replace_file
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.overlay import ORIGIN_BYTES, BrokerOverlay, NodeEntry, Replica, SignedOverlay
from veilcast.crypto.derive import FINGERPRINT, fingerprint
from veilcast.crypto.passphrase import PassphraseCost, lock_bytes, unlock_bytes
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC, SEED, SigningKey
from veilcast.decoding import read_toml
from veilcast.errors import ConfigError, ForgedError, PassphraseError, RemoteError, StorageError, TamperedError
from veilcast.machine import Entropy
from veilcast.node import checked_line, toml_file
from veilcast.node.toml_file import ProcessConfig, check_address, explain_error, parse_ip, settings_converter


class BrokerFile(ProcessConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    listen: str
    overlay: str
    operator: str
    control: str | None = None
    """The query socket (default: `control.sock` in the state directory)."""
    settings: BrokerConfig = BrokerConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address("listen", self.listen)
        decode_operator_line("operator", self.operator)

    @property
    def operator_key(self) -> bytes:
        return decode_operator_line("operator", self.operator)

    @property
    def control_path(self) -> Path:
        return Path(self.control) if self.control is not None else Path(self.state) / "control.sock"


class ReplicaTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    broker: str
    address: str


class OverlayNodeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    replicas: list[ReplicaTable]


class OverlayFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The operator's description."""

    nodes: list[OverlayNodeTable]
    links: list[tuple[str, str]] = []
    repository: list[ReplicaTable] = []
    profile: Profile = "hardened"


def load_broker(path: Path) -> BrokerFile:
    return toml_file.load_file(path, parse_broker)


def parse_broker(toml: bytes, path: Path) -> BrokerFile:
    convert = settings_converter("brokers", BrokerFile, BrokerConfig)
    return toml_file.parse_file(toml, path, BrokerFile, convert, paths=("overlay", "control"))


def load_overlay(path: Path, before: BrokerOverlay | None = None) -> BrokerOverlay:
    """Read an operator's description; the successor of `before`, if there is one."""
    table = read_toml(_read(path), path)
    try:
        described = msgspec.convert(table, OverlayFile)
        check_links(described.links)
        _check_distinct(described)
        nodes = [(node.name, _make_replicas(f"nodes.{node.name}.replicas", node.replicas)) for node in described.nodes]
        return next_overlay(before, nodes, described)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain_error(str(error), kind=OverlayFile)}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def next_overlay(
    before: BrokerOverlay | None, nodes: Sequence[tuple[str, Sequence[Replica]]], described: OverlayFile
) -> BrokerOverlay:
    """Make the overlay of these nodes and links. A node whose replicas differ from those in `before` has a new
    scheme."""
    known = {} if before is None else {node.name: node for node in before.all_nodes}
    entries, shelves = [], _make_replicas(REPOSITORY, described.repository)
    if shelves:
        nodes = [*nodes, (REPOSITORY, shelves)]
    for name, replicas in nodes:
        old = known.get(name)
        if not replicas:
            raise ConfigError(f"virtual node {name!r} has no replica")
        changed = old is None or old.replicas != tuple(replicas)
        entries.append(NodeEntry(name, (0 if old is None else old.version) + changed, tuple(replicas)))
    repository = entries.pop() if shelves else None
    version = 1 if before is None else before.version + 1
    origin = os.urandom(ORIGIN_BYTES) if before is None else before.origin
    overlay = BrokerOverlay(version, tuple(entries), tuple(described.links), repository, described.profile, origin)
    overlay.check(described.profile)
    if before is not None:
        try:
            before.check_successor(overlay)
        except RemoteError as error:
            reason = f"brokers that go by version {before.version} would not take this: {error}"
            raise ConfigError(reason) from error
    return overlay


def check_links(links: Sequence[tuple[str, str]]) -> None:
    """Raise `ConfigError` for a link of a node to itself, or a repeated link. `OverlayTree` finds gaps and cycles."""
    seen: dict[frozenset[str], int] = {}
    for at, (one, other) in enumerate(links):
        if one == other:
            raise ConfigError(f"links[{at}]: {one!r} is linked to itself; name another virtual node, or take it away")
        if (first := seen.setdefault(frozenset((one, other)), at)) != at:
            raise ConfigError(f"links[{at}]: links[{first}] links {one!r} and {other!r} already; take one away")


def replica_at(public: BrokerPublic, address: str) -> Replica:
    """Return a replica at the address where others call it; the address is pinned to the broker's certificate."""
    return Replica(public.key, f"{public.tls_name}@{address}", public.tls_name)


def write_signed(path: Path, signed: SignedOverlay) -> None:
    replace_file(path, MAGIC + signed.encode(), mode=0o644)


def read_signed(path: Path, operator: bytes) -> SignedOverlay:
    """Read a signed overlay. Raises `TamperedError` or `ForgedError` if it is damaged or not signed by this
    operator."""
    data = _read(path)
    try:
        if not data.startswith(MAGIC):
            raise TamperedError(f"{path}: not an overlay that `veilcast brokers overlay sign` has written")
        signed = SignedOverlay.decode(data[len(MAGIC) :])
        signed.verify(operator)
    except ForgedError as error:
        raise ForgedError(
            f"{path}: not signed by this operator; compare the line, or the key, with the operator's"
        ) from error
    except RemoteError as error:
        raise TamperedError(f"{path}: {error}") from error
    return signed


def read_signed_for(path: Path, operator: bytes, profile: Profile) -> SignedOverlay:
    """Read a signed overlay for a process of this profile. Raises `ConfigError` if the overlay has another profile."""
    signed = read_signed(path, operator)
    overlay = signed.verify(operator)
    if overlay.profile != profile:
        reason = f'{path} is of the profile "{overlay.profile}", and all that use it must have the same profile'
        raise ConfigError(f'profile: {reason}; say profile = "{overlay.profile}", or take another overlay')
    overlay.check(profile)
    return signed


def _check_distinct(described: OverlayFile) -> None:
    """Raise `ConfigError` unless each broker has one place and an address of its own."""
    seen: dict[str | bytes, str] = {}
    tables = [(f"nodes.{node.name}.replicas", node.replicas) for node in described.nodes]
    for name, replicas in (*tables, (REPOSITORY, described.repository)):
        for place, replica in enumerate(replicas):
            where = f"{name}[{place}]"
            key = decode_broker_line(f"{where}.broker", replica.broker).key
            for value, reason in ((replica.address, f"address, {replica.address}"), (key, "key")):
                if value in seen:
                    both = f"{seen[value]} and {where}"
                    raise ConfigError(f"{both}: two replicas have one {reason}; each is a broker of its own")
                seen[value] = where


def _make_replicas(name: str, tables: Sequence[ReplicaTable]) -> list[Replica]:
    made = []
    for place, table in enumerate(tables):
        where = f"{name}[{place}]"
        address = check_address(f"{where}.address", table.address)
        if parse_ip(address).is_unspecified:
            reason = f"at {address} a broker listens, and nobody can call it there"
            raise ConfigError(f"{where}.address: {reason}; name the one by which others reach it")
        made.append(replica_at(decode_broker_line(f"{where}.broker", table.broker), address))
    return made


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > FILE_MAX:
        raise ConfigError(f"{path} is larger than any description of an overlay")
    return data


REPOSITORY: Final = "repository"
MAGIC: Final = b"veilcast overlay\n"
FILE_MAX: Final = 1 << 20


class BrokerPublic(NamedTuple):
    """The public identity of a broker."""

    key: bytes
    name: bytes
    """The name in its certificate."""

    @property
    def tls_name(self) -> str:
        """Its peer name on TLS streams."""
        return f"broker:{self.name.hex()}"


def broker_public(keyring: Keyring) -> BrokerPublic:
    return BrokerPublic(
        derive_broker_key(keyring.membership.link).public, fingerprint(keyring.membership.certificate.leaf.subject)
    )


def encode_broker_line(public: BrokerPublic) -> str:
    return checked_line.encode_line(_BROKER, public.key + public.name)


def decode_broker_line(key: str, text: str) -> BrokerPublic:
    """Decode the broker line at this key of a file. Raises `ConfigError` if it is not such a line."""
    try:
        data = checked_line.decode_line(_BROKER, text)
        if len(data) != PUBLIC + FINGERPRINT:
            raise ValueError("another length")
    except ValueError as error:
        raise ConfigError(f"{key}: not the line that `veilcast brokers init` printed; copy it whole") from error
    return BrokerPublic(data[:PUBLIC], data[PUBLIC:])


def encode_operator_line(public: bytes) -> str:
    return checked_line.encode_line(_OPERATOR, public)


def decode_operator_line(key: str, text: str) -> bytes:
    try:
        data = checked_line.decode_line(_OPERATOR, text)
        if len(data) != PUBLIC:
            raise ValueError("another length")
    except ValueError as error:
        raise ConfigError(f"{key}: not the line that `veilcast brokers overlay init` printed; copy it whole") from error
    return data


def write_operator_key(
    path: Path, key: SigningKey, passphrase: Secret, *, cost: PassphraseCost, entropy: Entropy
) -> None:
    replace_file(path, lock_bytes(key.seed.reveal(), passphrase, purpose=_PURPOSE, cost=cost, entropy=entropy))


def read_operator_key(path: Path, passphrase: Secret) -> SigningKey:
    try:
        seed = unlock_bytes(read_private_file(path), passphrase, purpose=_PURPOSE)
    except TamperedError as error:
        raise TamperedError(f"{path}: {error}, or it is another kind of file") from error
    except PassphraseError as error:
        raise PassphraseError(f"{path}: {error}") from error
    if len(seed) != SEED:
        raise TamperedError(f"{path}: not the key of an operator")
    return SigningKey(Secret(seed))


_PURPOSE: Final = b"veilcast/overlay-operator"
_BROKER: Final = "veilcast-broker-"
_OPERATOR: Final = "veilcast-operator-"
