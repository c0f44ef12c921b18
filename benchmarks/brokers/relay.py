"""Our relay as a broker: the commands `veilcast relay server run` and `relay proxy run`, each in a process, with TLS
between all and SQLite on the disk; and members whose keyrings its authority has made.

Subscriptions of members elsewhere are in the records of server and proxy from the start, as if left by
earlier lives: they are found and passed over like any others, and nobody has to make a hundred thousand of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from brokers.broker import Broker, Stage, free_ports
from brokers.members import Joined
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.role import TlsRole as Post
from veilcast.authority.secret_file import replace_file, write_secret
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import Profile
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, make_directory, passphrase_file
from veilcast.cli.local.relay import HOSTS, write_hosts
from veilcast.cli.transports import limits_for, make_tls_identity
from veilcast.crypto.derive import derive
from veilcast.crypto.group import Scalar
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.machine import Address
from veilcast.net.clock import SystemClock
from veilcast.net.streams import TlsStreamDriver
from veilcast.node.record_store import KeepRecord, RecordStore
from veilcast.node.relay import decode_server_line, read_server_keys
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.roster import EnrolledClient, LeasePseudonym
from veilcast.relay.server import LeaseRecord
from veilcast.relay.transformation_key import ServerPublicKey
from veilcast.wire.geometry import LEASE_NAME


class RelayKind(NamedTuple):
    """`batch_us` is for how long its proxy collects."""

    profile: Profile
    batch_us: int
    database: str = ""
    """A PostgreSQL database for the server's records, in place of SQLite. Its schema `veilcast` is made anew."""


@contextmanager
def relay(directory: Path, kind: RelayKind, stage: Stage) -> Iterator[Broker]:
    profile = kind.profile
    keyrings, hosts = _keyrings(profile, tuple(stage.labels), stage.readers)
    for name, keyring in hosts.items():
        make_directory(directory / name)
        write_secret(directory / name / _KEYRING, keyring, _SECRET, cost=PassphraseCost(1, 1), entropy=os.urandom)
        replace_file(passphrase_file(directory / name / _KEYRING), _SECRET.reveal())
    common = {
        "profile": profile,
        "keyring": _KEYRING,
        "passphrase_file": passphrase_file(Path(_KEYRING)).name,
        "log": {"level": "warning"},
    }
    server, proxy = (f"127.0.0.1:{port}" for port in free_ports(2))
    public = decode_server_line("server_key", write_hosts(directory, (server, proxy), common, Context()))
    with (directory / "proxy" / "proxy.toml").open("a") as file:
        file.write(format_toml({"relay": {**_OPEN_HANDED, "batch_us": kind.batch_us}}))
    if kind.database:
        import psycopg  # An optional extra.

        with psycopg.connect(kind.database) as session:
            session.execute("DROP SCHEMA IF EXISTS veilcast CASCADE")
        server_file = directory / "server" / "server.toml"
        server_file.write_text(format_toml({"database": kind.database}) + server_file.read_text())
    _left_by_others(directory, hosts, kind, stage.others)
    with _start_host(directory, "server") as first, _start_host(directory, "proxy") as second:
        join = partial(_join, keyrings, profile, public, Address(proxy))
        yield Broker({"server": first, "proxy": second}, join, [])


def _join(keyrings: list[Keyring], profile: Profile, public: ServerPublicKey, proxy: Address, number: int) -> Joined:
    keyring = keyrings[number]
    config = RelayClientConfig(
        profile,
        ahead_epochs=0,
        spread_us=0,
        flight_max=_WINDOW,
        records_max=_WINDOW,
        unread_max=1 << 16,
        subscriptions_max=1 << 16,
    )
    client = RelayClient(config, keyring, public, [proxy], Random(number), os.urandom, SystemClock().now())
    identity = make_tls_identity(keyring, RevokedKeys(keyring.root, 1), "member")
    return Joined(
        client,
        lambda machine, act_on: TlsStreamDriver(
            machine, listen=[], identity=identity, act_on=act_on, limits=limits_for("member")
        ),
    )


@cache
def _keyrings(profile: Profile, labels: tuple[str, ...], readers: int) -> tuple[list[Keyring], dict[Post, Keyring]]:
    """Keys of the publisher and the subscribers, and of the hosts."""
    authority = issuer.create(_EPOCH_US, os.urandom)
    epoch = epoch_of(SystemClock().now(), _EPOCH_US)
    for label in labels:
        authority = issuer.declare_label(authority, label, profile, os.urandom)
    members: list[Keyring] = []
    hosts: dict[Post, Keyring] = {}
    for number in range(1 + readers):
        role: TopicRole = "subscriber" if number else "publisher"
        wanted = [(label, role) for label in labels]
        authority, keyring = issuer.grant_ready(authority, f"{number}", wanted, epoch, 2, os.urandom, "member")
        members.append(keyring)
    for name in HOSTS:
        authority, hosts[name] = issuer.grant_ready(authority, name, [], epoch, 2, os.urandom, name)
    return members, hosts


def _left_by_others(directory: Path, hosts: dict[Post, Keyring], kind: RelayKind, others: int) -> None:
    """One lease each, of a hundred members in `hardened`; in `paper`, where a member has one filter, of as many."""
    rng, until_us = Random(1), SystemClock().now() + 24 * HOUR_US
    leases: list[bytes] = []
    aliases: list[bytes] = []
    hardened = kind.profile == "hardened"
    for number in range(others):
        pseudonym, client = rng.randbytes(LEASE_NAME), f"member:{number % _OTHERS if hardened else number}"
        if not hardened or number < _OTHERS:
            key = Scalar.draw(rng.randbytes).reveal()
            aliases.append(_ENCODER.encode(EnrolledClient(client, key, b"" if hardened else pseudonym)))
        if hardened:
            aliases.append(_ENCODER.encode(LeasePseudonym(client, rng.randbytes(LEASE_NAME), pseudonym, until_us)))
        part, key = (b"", rng.randbytes(32)) if hardened else (rng.randbytes(16), b"")
        leases.append(_ENCODER.encode(LeaseRecord(pseudonym, part, "proxy:", until_us, ((rng.randbytes(16),),), key)))
    for name, records in zip(HOSTS, (leases, aliases), strict=True):
        if kind.database and name == "server":
            from veilcast.node.postgres import PostgresDatabase

            keys = read_server_keys(directory / name / "server.secret", _SECRET)
            store = RecordStore(PostgresDatabase(kind.database, derive(keys.box, b"vc/relay-state"), os.urandom, print))
        else:
            store = RecordStore.in_directory(directory / name / "state", hosts[name].membership.link, os.urandom)
        with store as ledger:
            ledger.write([KeepRecord(1 + place, data) for place, data in enumerate(records)])


@contextmanager
def _start_host(directory: Path, name: str) -> Iterator[int]:
    command = [sys.executable, "-c", _MAIN, "relay", name, "run", "-c", f"{directory}/{name}/{name}.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening"):
            raise SystemExit(f"the {name} does not start: {line}")
        try:
            yield process.pid
        finally:
            process.terminate()


_EPOCH_US: Final = 24 * HOUR_US
_KEYRING: Final = "keys"
_SECRET: Final = Secret(b"of no importance")
_WINDOW: Final = 1 << 12
_OTHERS: Final = 100
_OPEN_HANDED: Final = {
    "clients_max": 200_000,
    "leases_each": 100_000,
    "publications": {"every_us": 1, "burst": 100_000},
    "requests": {"every_us": 1, "burst": 1_000_000},
    "volume": {"every_us": 1, "burst": 1_000_000},
}
"""One publisher replaces many here, which the proxy would limit separately."""
_MAIN: Final = "import sys; from veilcast.cli.main import main; sys.exit(main())"
_ENCODER: Final = msgspec.msgpack.Encoder()
