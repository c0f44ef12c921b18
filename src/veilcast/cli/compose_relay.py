"""From the files of a relay's server and proxy to what can be served: keyring, ledger, machine, streams.

Each function imports its own machine: a server's index of tags needs numpy, and a proxy has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from veilcast.authority.standing import Standing
from veilcast.cli.opening import Opened, open_keyring
from veilcast.cli.ways import Streams, identity_of, limits_of, over_tls
from veilcast.crypto.bulk import Multiply
from veilcast.crypto.secret import Secret
from veilcast.net.service import Station
from veilcast.net.station import StationOwner
from veilcast.node.clerk import Clerk
from veilcast.node.ledger import Ledger
from veilcast.node.relay_files import Host, ProxyFile, ServerFile
from veilcast.node.relay_keys import read_mask, read_public, read_server_keys
from veilcast.node.workers import Workers

if TYPE_CHECKING:
    from veilcast.relay.proxy import Proxy
    from veilcast.relay.server import Server

_M = TypeVar("_M", "Server", "Proxy")


@contextmanager
def compose_server(config: ServerFile, passphrase: Secret) -> Iterator[Station[StationOwner]]:
    from veilcast.relay.server import Server

    opened = open_keyring(config, passphrase)
    keys = read_server_keys(Path(config.keys), passphrase)

    def build(now: int, records: Mapping[int, bytes], multiply: Multiply) -> Server:
        return Server(config.settings, keys, opened.rng, os.urandom, now, records, multiply)

    with _station(config, opened, "server", build, _server_numbers) as station:
        yield station


@contextmanager
def compose_proxy(config: ProxyFile, passphrase: Secret) -> Iterator[Station[StationOwner]]:
    from veilcast.relay.proxy import Proxy

    opened = open_keyring(config, passphrase)
    public = read_public("server_key", config.server_key)
    mask = None if config.mask is None else read_mask(Path(config.mask))

    def build(now: int, records: Mapping[int, bytes], multiply: Multiply) -> Proxy:
        server = config.server_address
        return Proxy(config.settings, public, server, mask, opened.rng, os.urandom, now, records, multiply)

    with _station(config, opened, "proxy", build, _proxy_numbers) as station:
        yield station


@contextmanager
def _station(
    config: Host,
    opened: Opened,
    standing: Standing,
    build: Callable[[int, Mapping[int, bytes], Multiply], _M],
    numbers: Callable[[_M], dict[str, float]],
) -> Iterator[Station[StationOwner]]:
    identity = identity_of(opened.keyring, opened.revoked, standing)
    threads = config.threads or os.cpu_count() or 1
    with Ledger(Path(config.state), opened.keyring.membership.link, os.urandom) as ledger, Workers(threads) as multiply:
        machine = build(opened.clock.now(), ledger.kept(), multiply)
        streams = Streams(machine, over_tls(identity, limits_of(standing), [config.listen]))
        yield Station(
            machine=machine,
            drive=streams.drive,
            hire=lambda driver: StationOwner(Clerk(machine), ledger.write, driver, lambda: numbers(machine)),
            metrics=config.metrics.listen,
            clock=opened.clock,
        )


def _numbers(machine: Server | Proxy) -> dict[str, float]:
    return {"relay_leases": machine.sizes()["leases"], "relay_refused_total": machine.refused.total()}


def _server_numbers(server: Server) -> dict[str, float]:
    return {**_numbers(server), "relay_held": server.sizes()["held"], "relay_given_up_total": server.given_up}


def _proxy_numbers(proxy: Proxy) -> dict[str, float]:
    return {**_numbers(proxy), "relay_members": proxy.sizes()["clients"]}
