"""Our overlay of brokers as one broker: virtual nodes in a line, each of several replicas, all in two processes with
TLS between them; and members whose keyrings its authority has made. The publisher is at one end, the subscribers are at
the other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from brokers.broker import Broker, Stage
from brokers.members import Joined
from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.authority.secret_file import read_private_file, read_secret
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import Profile
from veilcast.brokers.client import BrokerClient
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.content.blocks import Strategy
from veilcast.brokers.overlay import SignedOverlay
from veilcast.cli.context import Context
from veilcast.cli.files import format_toml, state_file
from veilcast.cli.local import brokers
from veilcast.cli.local.network import NetworkPlan, lay_out
from veilcast.cli.local.overlay_plan import OverlayPlan, VirtualNodePlan
from veilcast.cli.transports import limits_for, make_tls_identity
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import UnreachableError
from veilcast.machine import Address
from veilcast.net.clock import SystemClock
from veilcast.net.host_queries import ask_host
from veilcast.net.streams import TlsStreamDriver
from veilcast.node.broker_overlay import load_broker, read_signed


class OverlayKind(NamedTuple):
    """`byzantine` is what one replica of each node does wrong."""

    profile: Profile
    nodes: int = 4
    replicas: int = 3
    strategy: Strategy = Strategy.COPIES
    byzantine: str | None = None


@contextmanager
def overlay(directory: Path, kind: OverlayKind, stage: Stage) -> Iterator[Broker]:
    names = [f"n{number}" for number in range(kind.nodes)]
    lies = () if kind.byzantine is None else (kind.byzantine,)
    plan = OverlayPlan(
        tuple(VirtualNodePlan(name, kind.replicas, lies) for name in names),
        tuple(pairwise(names)),
        (names[0],),
    )
    net = lay_out(
        directory,
        NetworkPlan(
            nodes=1,
            mode="brokers",
            profile=kind.profile,
            epoch_us=_EPOCH_US,
            publishers=1,
            subscribers=0,
            overlay=plan,
            roles=("publisher",),
        ),
        Context(cost=PassphraseCost(1, 1)),
        Random(os.urandom(8)),
    )
    for host in plan.hosts:
        with brokers.broker_file(directory, host).open("a") as file:
            file.write(format_toml({"brokers": {"strategy": kind.strategy, **_OPEN_HANDED}}))
    keyrings = _keyrings(directory, kind.profile, stage)
    config = load_broker(brokers.broker_file(directory, plan.hosts[0]))
    signed = read_signed(Path(config.overlay), config.operator_key)
    with ExitStack() as parts:
        pids = {
            f"brokers {worker}": parts.enter_context(_start_worker(directory, worker, net.plan.hosts[worker::_WORKERS]))
            for worker in range(_WORKERS)
        }
        ends = (names[0], names[-1])
        yield Broker(pids, partial(_join, keyrings, kind, signed, config.operator_key, ends), [])


def _join(
    keyrings: list[Keyring],
    kind: OverlayKind,
    signed: SignedOverlay,
    operator: bytes,
    ends: tuple[str, str],
    number: int,
) -> Joined:
    keyring = keyrings[number]
    config = BrokerClientConfig(
        kind.profile, strategy=kind.strategy, records_max=_WINDOW, unread_max=1 << 16, contents_max=_WINDOW
    )
    edge = ends[0 if number == 0 else 1]
    client = BrokerClient(
        config, keyring, signed, operator, edge, Address(""), Random(number), os.urandom, SystemClock().now()
    )
    identity = make_tls_identity(keyring, RevokedKeys(keyring.root, 1), "member", "broker")
    return Joined(
        client,
        lambda machine, act_on: TlsStreamDriver(
            machine, listen=[], identity=identity, act_on=act_on, limits=limits_for("member")
        ),
    )


def _keyrings(directory: Path, profile: Profile, stage: Stage) -> list[Keyring]:
    """Of the publisher and the readers, by the authority that was laid out."""
    home = directory / "authority"
    authority = read_secret(state_file(home), Authority, Secret(read_private_file(home / "passphrase")))
    epoch, members = epoch_of(SystemClock().now(), _EPOCH_US), list[Keyring]()
    for label in stage.labels:
        authority = issuer.declare_label(authority, label, profile, os.urandom)
    for number in range(1 + stage.readers):
        role: TopicRole = "subscriber" if number else "publisher"
        wanted = [(label, role) for label in stage.labels]
        authority, keyring = issuer.grant_ready(authority, f"m{number}", wanted, epoch, 2, os.urandom, "member")
        members.append(keyring)
    return members


@contextmanager
def _start_worker(directory: Path, worker: int, hosts: tuple[str, ...]) -> Iterator[int]:
    command = [sys.executable, "-m", "veilcast.cli.local.worker", str(directory), str(worker), "1"]
    command += [f"--only={host}" for host in hosts]
    with subprocess.Popen(command) as process:
        try:
            for host in hosts:
                _wait_for(process, brokers.broker_socket(directory, host))
            yield process.pid
        finally:
            process.terminate()
            process.terminate()


def _wait_for(process: subprocess.Popen[bytes], path: Path) -> None:
    for _ in range(2_000):
        try:
            ask_host(path, {"ask": "facts"})
        except UnreachableError:
            if process.poll() is not None:
                raise SystemExit("the brokers do not start") from None
            time.sleep(0.01)
        else:
            return
    raise SystemExit("a broker does not start")


_EPOCH_US: Final = 24 * HOUR_US
_WINDOW: Final = 1 << 12
_WORKERS: Final = 2
_OPEN_HANDED: Final = {"messages_every_us": 1, "messages_burst": 1 << 20}
"""One publisher replaces many here, which brokers would limit separately."""
