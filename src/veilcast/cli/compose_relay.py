"""From the files of a relay's server and proxy to what can be served: keyring, ledger, machine, streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilcast.authority.tls import Standing
from veilcast.cli.opening import Opened, open_keyring
from veilcast.cli.ways import Streams, identity_of
from veilcast.crypto.secret import Secret
from veilcast.net.service import Station
from veilcast.net.station import StationOwner
from veilcast.node.clerk import Clerk
from veilcast.node.ledger import Ledger
from veilcast.node.relay_files import ProxyFile, ServerFile
from veilcast.node.relay_keys import read_mask, read_public, read_server_keys
from veilcast.node.tomlfile import Process
from veilcast.relay.proxy import Proxy
from veilcast.relay.server import Server


@contextmanager
def compose_server(config: ServerFile, passphrase: Secret) -> Iterator[Station[StationOwner]]:
    opened = open_keyring(config, passphrase)
    keys = read_server_keys(Path(config.keys), passphrase)
    with _ledger(config, opened) as ledger:
        machine = Server(config.settings, keys, opened.rng, os.urandom, opened.clock.now(), ledger.kept())
        yield _station(config, config.listen, machine, "server", ledger, opened)


@contextmanager
def compose_proxy(config: ProxyFile, passphrase: Secret) -> Iterator[Station[StationOwner]]:
    opened = open_keyring(config, passphrase)
    public = read_public("server_key", config.server_key)
    mask = None if config.mask is None else read_mask(Path(config.mask))
    with _ledger(config, opened) as ledger:
        machine = Proxy(
            *(config.settings, public, config.server_address, mask, opened.rng, os.urandom),
            *(opened.clock.now(), ledger.kept()),
        )
        yield _station(config, config.listen, machine, "proxy", ledger, opened)


def _ledger(config: Process, opened: Opened) -> Ledger:
    return Ledger(Path(config.state), opened.keyring.membership.link, os.urandom)


def _station(
    config: Process, listen: str, machine: Server | Proxy, standing: Standing, ledger: Ledger, opened: Opened
) -> Station[StationOwner]:
    streams = Streams(machine, identity_of(opened.keyring, opened.revoked, standing), [listen])
    return Station(
        machine=machine,
        drive=streams.drive,
        hire=lambda driver: StationOwner(Clerk(machine), ledger.write, driver, streams.numbers),
        metrics=config.metrics.listen,
        clock=opened.clock,
    )
