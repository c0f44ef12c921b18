"""From a node's file to a node that can be served: keyring, store, machine, transport and service, each with its
inputs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.authority.epoch import epoch_of
from veilcast.cli.identity import OpenedIdentity, check_role, open_identity_with_lock
from veilcast.cli.key_erasure import KeyErasure
from veilcast.cli.retrying_file_writer import RetryingFileWriter
from veilcast.cli.tor_setup import NO_TOR, TorEndpoint, make_endpoint
from veilcast.cli.transports import limits_for, make_tls_identity, mqtt_driver, onion_driver, tls_driver
from veilcast.crypto.secret import Secret
from veilcast.net.node_service import NodeService
from veilcast.net.service import NodeSetup, Watchdog
from veilcast.net.transport import LinkTransport, StreamTransport, Transport
from veilcast.node.config import NodeConfig
from veilcast.node.member_records import MemberRecords, complete_topic
from veilcast.node.member_view import MemberView
from veilcast.node.modes import MachineInputs, Mode, NodeMember, mode_of
from veilcast.node.store import NodeStore

if TYPE_CHECKING:
    from veilcast.authority.keyring import Keyring
    from veilcast.cli.tap import WrapMachine
    from veilcast.net.tor import Tor
    from veilcast.topics import Schema


@contextmanager
def compose(
    config: NodeConfig,
    passphrase: Secret,
    around: WrapMachine | None = None,
    anonymous: AbstractContextManager[Tor | None] = NO_TOR,
    warn: Callable[[str], object] | None = None,
) -> Iterator[NodeSetup]:
    """Yield the node that a configuration describes; its open files are closed afterwards. `warn` is called with what
    the owner should know of its settings.

    `anonymous` is the Tor that its mode may need: one that starts now, when nothing else can go wrong, or one that runs
    already and serves several nodes.
    """
    identity, lock = open_identity_with_lock(config, passphrase)
    keyring, revoked, clock, rng = identity
    mode = mode_of(config.mode)
    uses_onions = mode.driver == "onions"
    if uses_onions:
        check_role(keyring, "member")
    with (
        NodeStore(
            Path(config.state),
            keyring.membership.link,
            os.urandom,
            unread_max=config.limits.unread,
            remembered_max=config.limits.remembered,
        ) as store,
        anonymous as tor,
    ):
        endpoint = make_endpoint(config.listen, keyring, tor) if uses_onions else None
        address = config.public_address if endpoint is None else endpoint.address
        inputs = MachineInputs(
            config.settings,
            keyring,
            rng,
            os.urandom,
            address,
            config.contacts,
            store.unsettled_records(),
            clock.now(),
            revoked,
        )
        member = mode.build(inputs)
        transport = _make_transport(config, mode, identity, member, endpoint)
        records = MemberRecords(
            member,
            store,
            clock.now(),
            subscriptions_max=config.limits.subscriptions,
            complete=lambda interest, now: complete_topic(
                interest, keyring.keys_at(epoch_of(now, keyring.epoch_us)).topics
            ),
        )
        if config.mode == "foil" and warn is not None:
            from veilcast.cli.foil_check import check_in_background

            check_in_background(config.settings, _published_schemas(keyring), warn)
        view = MemberView(config, keyring, member, records)
        yield NodeSetup(
            machine=transport.machine if around is None else around(transport.machine, address, keyring.epoch_us),
            make_driver=transport.make_driver,
            make_service=lambda driver: NodeService(records, store, driver, view, transport),
            control=config.control_path,
            metrics=config.metrics.listen,
            clients_max=config.limits.clients,
            clock=clock,
            address=None if endpoint is None else address,
            watch=_join(
                _save_files(config, mode, member) if tor is None else tor.watch,
                KeyErasure(Path(config.keyring), keyring, lock, clock).watch,
            ),
        )


def _published_schemas(keyring: Keyring) -> list[Schema]:
    """The schemas of the topics on which a grant lets this member publish."""
    return [record.schema for grant, record in keyring.records() if grant.role == "publisher"]


def _join(watch: Watchdog | None, erase: Watchdog) -> Watchdog:
    """Run both; they end when `watch` does, if there is one."""
    if watch is None:
        return erase

    async def both() -> None:
        erasing = asyncio.create_task(erase())
        try:
            await watch()
        finally:
            erasing.cancel()

    return both


def _save_files(config: NodeConfig, mode: Mode, member: NodeMember) -> Watchdog | None:
    return None if mode.keep is None else RetryingFileWriter(mode.keep(config.settings, member)).watch


def _make_transport(
    config: NodeConfig, mode: Mode, identity: OpenedIdentity, member: NodeMember, endpoint: TorEndpoint | None
) -> Transport:
    keyring, revoked, clock, rng = identity
    match mode.driver:
        case "onions":
            assert endpoint is not None
            return StreamTransport(member, onion_driver(endpoint))
        case "streams":
            tls = make_tls_identity(keyring, revoked, "member", *mode.hosts)
            return StreamTransport(member, tls_driver(tls, limits_for("member")))
        case "mqtt":
            return StreamTransport(member, mqtt_driver(config.settings))
        case "udp":
            from veilcast.link.config import LinkConfig
            from veilcast.link.machine import LinkMachine

            assert config.listen is not None
            wire = LinkConfig("cells" if config.profile == "hardened" else "prompt", config.rate)
            links = LinkMachine(member, wire, keyring, rng, os.urandom, revoked=revoked)
            return LinkTransport(links, config.listen, clock)
