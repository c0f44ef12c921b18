"""From the files of a relay's server and proxy to what can be served: keyring, ledger, machine, streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
from veilcast.relay.proxy import Proxy
from veilcast.relay.server import Server


@contextmanager
def compose_server(config: ServerFile, passphrase: Secret) -> Iterator[Station[StationOwner]]:
    opened = open_keyring(config, passphrase)
    keys = read_server_keys(Path(config.keys), passphrase)

    def build(now: int, records: Mapping[int, bytes], multiply: Multiply) -> Server:
        return Server(config.settings, keys, opened.rng, os.urandom, now, records, multiply)

    with _station(config, opened, "server", build) as station:
        yield station


@contextmanager
def compose_proxy(config: ProxyFile, passphrase: Secret) -> Iterator[Station[StationOwner]]:
    opened = open_keyring(config, passphrase)
    public = read_public("server_key", config.server_key)
    mask = None if config.mask is None else read_mask(Path(config.mask))

    def build(now: int, records: Mapping[int, bytes], multiply: Multiply) -> Proxy:
        server = config.server_address
        return Proxy(config.settings, public, server, mask, opened.rng, os.urandom, now, records, multiply)

    with _station(config, opened, "proxy", build) as station:
        yield station


@contextmanager
def _station(
    config: Host,
    opened: Opened,
    standing: Standing,
    build: Callable[[int, Mapping[int, bytes], Multiply], Server | Proxy],
) -> Iterator[Station[StationOwner]]:
    identity = identity_of(opened.keyring, opened.revoked, standing)
    threads = config.threads or os.cpu_count() or 1
    with Ledger(Path(config.state), opened.keyring.membership.link, os.urandom) as ledger, Workers(threads) as multiply:
        machine = build(opened.clock.now(), ledger.kept(), multiply)
        streams = Streams(machine, over_tls(identity, limits_of(standing), [config.listen]))
        yield Station(
            machine=machine,
            drive=streams.drive,
            hire=lambda driver: StationOwner(Clerk(machine), ledger.write, driver, lambda: _numbers(machine)),
            metrics=config.metrics.listen,
            clock=opened.clock,
        )


def _numbers(machine: Server | Proxy) -> dict[str, float]:
    sizes = machine.sizes()
    common = {"relay_leases": sizes["leases"], "relay_refused_total": machine.refused.total()}
    if isinstance(machine, Proxy):
        return {**common, "relay_members": sizes["clients"]}
    return {**common, "relay_held": sizes["held"], "relay_given_up_total": machine.given_up}
