"""Our overlay of brokers as one broker: virtual nodes in a line, each of several replicas, all in two processes with
TLS between them; and members whose keyrings its authority has made. Who publishes is at one end, who reads at the
other.
"""

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
from veilcast.authority.record import Profile
from veilcast.authority.revoked import Revoked
from veilcast.authority.topickeys import Role
from veilcast.authority.vault import read_private, read_secret
from veilcast.brokers.client import Client
from veilcast.brokers.config import ClientConfig
from veilcast.brokers.content import Strategy
from veilcast.brokers.overlay import SignedOverlay
from veilcast.cli import localbrokers
from veilcast.cli.context import Context
from veilcast.cli.files import state_file
from veilcast.cli.localbrokers import NodePlan, OverlayPlan
from veilcast.cli.localnet import Plan, lay_out
from veilcast.cli.plaintoml import spell
from veilcast.cli.ways import identity_of, limits_of
from veilcast.crypto.passphrase import Cost
from veilcast.crypto.secret import Secret
from veilcast.errors import UnreachableError
from veilcast.machine import Address
from veilcast.net.clock import Clock
from veilcast.net.inquiries import inquire
from veilcast.net.streams import StreamDriver
from veilcast.node.broker_files import load_broker, read_signed


class Kind(NamedTuple):
    """`byzantine` is what one replica of each node does wrong."""

    profile: Profile
    nodes: int = 4
    replicas: int = 3
    strategy: Strategy = Strategy.COPIES
    byzantine: str | None = None


@contextmanager
def overlay(directory: Path, kind: Kind, stage: Stage) -> Iterator[Broker]:
    names = [f"n{number}" for number in range(kind.nodes)]
    lies = () if kind.byzantine is None else (kind.byzantine,)
    plan = OverlayPlan(
        tuple(NodePlan(name, kind.replicas, lies) for name in names),
        tuple(pairwise(names)),
        (names[0],),
    )
    net = lay_out(
        directory,
        Plan(
            nodes=1,
            mode="brokers",
            profile=kind.profile,
            epoch_us=_EPOCH_US,
            publishers=1,
            subscribers=0,
            overlay=plan,
            roles=("publisher",),
        ),
        Context(cost=Cost(1, 1)),
        Random(os.urandom(8)),
    )
    for host in plan.hosts:
        with localbrokers.broker_file(directory, host).open("a") as file:
            file.write(spell({"brokers": {"strategy": kind.strategy, **_OPEN_HANDED}}))
    keyrings = _keyrings(directory, kind.profile, stage)
    config = load_broker(localbrokers.broker_file(directory, plan.hosts[0]))
    signed = read_signed(Path(config.overlay), config.operator_key)
    with ExitStack() as parts:
        pids = {
            f"brokers {worker}": parts.enter_context(_running(directory, worker, net.plan.hosts[worker::_WORKERS]))
            for worker in range(_WORKERS)
        }
        ends = (names[0], names[-1])
        yield Broker(pids, partial(_join, keyrings, kind, signed, config.operator_key, ends), [])


def _join(
    keyrings: list[Keyring], kind: Kind, signed: SignedOverlay, operator: bytes, ends: tuple[str, str], number: int
) -> Joined:
    keyring = keyrings[number]
    config = ClientConfig(
        kind.profile, strategy=kind.strategy, records_max=_WINDOW, unread_max=1 << 16, contents_max=_WINDOW
    )
    edge = ends[0 if number == 0 else 1]
    client = Client(config, keyring, signed, operator, edge, Address(""), Random(number), os.urandom, Clock().now())
    identity = identity_of(keyring, Revoked(keyring.root, 1), "member", "broker")
    return Joined(
        client,
        lambda machine, act_on: StreamDriver(
            machine, listen=[], identity=identity, act_on=act_on, limits=limits_of("member")
        ),
    )


def _keyrings(directory: Path, profile: Profile, stage: Stage) -> list[Keyring]:
    """Of the publisher and the readers, by the authority that was laid out."""
    home = directory / "authority"
    authority = read_secret(state_file(home), Authority, Secret(read_private(home / "passphrase")))
    epoch, members = epoch_of(Clock().now(), _EPOCH_US), list[Keyring]()
    for label in stage.labels:
        authority = issuer.declare_label(authority, label, profile, os.urandom)
    for number in range(1 + stage.readers):
        role: Role = "subscriber" if number else "publisher"
        wanted = [(label, role) for label in stage.labels]
        authority, keyring = issuer.grant_ready(authority, f"m{number}", wanted, epoch, 2, os.urandom, "member")
        members.append(keyring)
    return members


@contextmanager
def _running(directory: Path, worker: int, hosts: tuple[str, ...]) -> Iterator[int]:
    command = [sys.executable, "-m", "veilcast.cli.worker", str(directory), str(worker), "1"]
    command += [f"--only={host}" for host in hosts]
    with subprocess.Popen(command) as process:
        try:
            for host in hosts:
                _wait_for(process, localbrokers.broker_socket(directory, host))
            yield process.pid
        finally:
            process.terminate()
            process.terminate()


def _wait_for(process: subprocess.Popen[bytes], path: Path) -> None:
    for _ in range(2_000):
        try:
            inquire(path, {"ask": "facts"})
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
"""One publisher stands for many here, whom brokers would not limit together."""
