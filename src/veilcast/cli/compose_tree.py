"""From the file of a tree's directory to a host that can be served: keyring, records, machine, streams through Tor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from veilcast.cli.identity import check_role, open_identity
from veilcast.cli.tor_setup import NO_TOR, make_endpoint
from veilcast.cli.transports import onion_driver
from veilcast.crypto.secret import Secret
from veilcast.net.service import HostService, ServiceSetup
from veilcast.net.transport import StreamTransport
from veilcast.node.record_store import HostRecords, RecordStore
from veilcast.node.tree import DirectoryFile
from veilcast.tree.directory import Directory

if TYPE_CHECKING:
    from veilcast.net.tor import Tor


@contextmanager
def compose_directory(
    config: DirectoryFile, passphrase: Secret, anonymous: AbstractContextManager[Tor | None] = NO_TOR
) -> Iterator[ServiceSetup[HostService]]:
    keyring, revoked, clock, _ = open_identity(config, passphrase)
    check_role(keyring, "directory")
    with RecordStore.in_directory(Path(config.state), keyring.membership.link, os.urandom) as ledger, anonymous as tor:
        place = make_endpoint(config.listen, keyring, tor)
        machine = Directory(config.settings, keyring, SystemRandom(), clock.now(), ledger.unsettled(), revoked)
        yield ServiceSetup(
            machine=machine,
            make_driver=StreamTransport(machine, onion_driver(place)).make_driver,
            make_service=lambda driver: HostService(
                HostRecords(machine), ledger.write, driver, lambda: _numbers(machine)
            ),
            metrics=config.metrics.listen,
            clock=clock,
            address=place.address,
            watch=None if tor is None else tor.watch,
        )


def _numbers(machine: Directory) -> dict[str, float]:
    return {"tree_listed": machine.sizes()["nodes"], "tree_refused_total": machine.refused.total()}
