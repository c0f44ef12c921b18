"""From the files of a relay's server and proxy to hosts that can be served: keyring, records, machine, streams.

Each function imports its own machine: a server's tag index needs numpy, and a proxy has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from veilcast.authority.role import TlsRole
from veilcast.cli.compose import offer_rendezvous
from veilcast.cli.identity import OpenedIdentity, open_identity
from veilcast.cli.transports import limits_for, make_tls_identity, tls_driver
from veilcast.crypto.derive import derive
from veilcast.crypto.group import Multiply
from veilcast.crypto.secret import Secret
from veilcast.net.service import HostService, ServiceSetup, Watchdog
from veilcast.net.transport import StreamTransport
from veilcast.node.multiply_pool import MultiplyPool
from veilcast.node.record_store import HostRecords, RecordStore
from veilcast.node.relay import ProxyFile, RelayHostFile, ServerFile, decode_server_line, read_mask, read_server_keys

if TYPE_CHECKING:
    from veilcast.relay.proxy import RelayProxy
    from veilcast.relay.server import RelayServer

_M = TypeVar("_M", "RelayServer", "RelayProxy")


@contextmanager
def compose_server(
    config: ServerFile, passphrase: Secret, told: Callable[[str], object] = lambda _: None
) -> Iterator[ServiceSetup[HostService]]:
    """With a `database`, wait until no other server has it; `told` receives a sentence if one has."""
    from veilcast.relay.server import RelayServer

    opened = open_identity(config, passphrase)
    keys = read_server_keys(Path(config.keys), passphrase)

    def build(now: int, records: Mapping[int, bytes], multiply: Multiply) -> RelayServer:
        shared = config.database is not None
        return RelayServer(config.settings, keys, opened.rng, os.urandom, now, records, multiply, shared=shared)

    def open_state() -> _HostState:
        if config.database is None:
            return _open_own_state(config, opened)
        from veilcast.node.postgres import PostgresDatabase

        # Not the keyring's key: each server of a relay has a membership of its own.
        database = PostgresDatabase(config.database, derive(keys.box, b"vc/relay-state"), os.urandom, told)
        return _HostState(RecordStore(database), database.watch)

    with _compose_host(config, opened, "server", open_state, build, _server_numbers) as setup:
        yield setup


@contextmanager
def compose_proxy(config: ProxyFile, passphrase: Secret) -> Iterator[ServiceSetup[HostService]]:
    from veilcast.relay.proxy import RelayProxy

    opened = open_identity(config, passphrase)
    public = decode_server_line("server_key", config.server_key)
    mask = None if config.mask is None else read_mask(Path(config.mask))

    def build(now: int, records: Mapping[int, bytes], multiply: Multiply) -> RelayProxy:
        servers = config.server_addresses
        return RelayProxy(config.settings, public, servers, mask, opened.rng, os.urandom, now, records, multiply)

    def open_state() -> _HostState:
        return _open_own_state(config, opened)._replace(watch=offer_rendezvous(config.rendezvous, opened))

    with _compose_host(config, opened, "proxy", open_state, build, _proxy_numbers) as setup:
        yield setup


class _HostState(NamedTuple):
    records: RecordStore
    watch: Watchdog | None = None


def _open_own_state(config: RelayHostFile, opened: OpenedIdentity) -> _HostState:
    return _HostState(RecordStore.in_directory(Path(config.state), opened.keyring.membership.link, os.urandom))


@contextmanager
def _compose_host(
    config: RelayHostFile,
    opened: OpenedIdentity,
    standing: TlsRole,
    open_state: Callable[[], _HostState],
    build: Callable[[int, Mapping[int, bytes], Multiply], _M],
    numbers: Callable[[_M], dict[str, float]],
) -> Iterator[ServiceSetup[HostService]]:
    identity = make_tls_identity(opened.keyring, opened.revoked, standing)
    threads = config.threads or os.cpu_count() or 1
    state = open_state()
    with state.records as ledger, MultiplyPool(threads) as multiply:
        machine = build(opened.clock.now(), ledger.unsettled(), multiply)
        streams = StreamTransport(machine, tls_driver(identity, limits_for(standing), [config.listen]))
        yield ServiceSetup(
            machine=machine,
            make_driver=streams.make_driver,
            make_service=lambda driver: HostService(
                HostRecords(machine), ledger.write, driver, lambda: numbers(machine)
            ),
            metrics=config.metrics.listen,
            clock=opened.clock,
            watch=state.watch,
        )


def _numbers(machine: RelayServer | RelayProxy) -> dict[str, float]:
    return {"relay_leases": machine.sizes()["leases"], "relay_refused_total": machine.refused.total()}


def _server_numbers(server: RelayServer) -> dict[str, float]:
    return {**_numbers(server), "relay_held": server.sizes()["held"], "relay_given_up_total": server.abandoned}


def _proxy_numbers(proxy: RelayProxy) -> dict[str, float]:
    return {**_numbers(proxy), "relay_members": proxy.sizes()["clients"]}
