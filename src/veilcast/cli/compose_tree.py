"""From the file of a tree's directory to what can be served: keyring, ledger, machine, streams through Tor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.cli.anonymity import NO_TOR, place_of
from veilcast.cli.opening import check_standing, open_keyring
from veilcast.cli.ways import Streams, over_tor
from veilcast.crypto.secret import Secret
from veilcast.net.service import Station
from veilcast.net.station import StationOwner
from veilcast.node.clerk import Clerk
from veilcast.node.ledger import Ledger
from veilcast.node.tree_files import DirectoryFile
from veilcast.tree.directory import Directory

if TYPE_CHECKING:
    from veilcast.net.tor import Tor


@contextmanager
def compose_directory(
    config: DirectoryFile, passphrase: Secret, anonymous: AbstractContextManager[Tor | None] = NO_TOR
) -> Iterator[Station[StationOwner]]:
    keyring, revoked, clock, _ = open_keyring(config, passphrase)
    check_standing(keyring, "directory")
    with Ledger(Path(config.state), keyring.membership.link, os.urandom) as ledger, anonymous as tor:
        place = place_of(config.listen, keyring, tor)
        machine = Directory(config.settings, keyring, clock.now(), ledger.kept(), revoked)
        yield Station(
            machine=machine,
            drive=Streams(machine, over_tor(place)).drive,
            hire=lambda driver: StationOwner(Clerk(machine), ledger.write, driver, lambda: _numbers(machine)),
            metrics=config.metrics.listen,
            clock=clock,
            address=place.address,
            watch=None if tor is None else tor.gone,
        )


def _numbers(machine: Directory) -> dict[str, float]:
    return {"tree_listed": machine.sizes()["nodes"], "tree_refused_total": machine.refused.total()}
