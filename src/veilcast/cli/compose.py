"""From a node's file to a node that can be served: keyring, store, machine, transport and service, each with its
inputs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from veilcast.authority.epoch import epoch_of
from veilcast.cli.identity import OpenedIdentity, check_role, open_identity_with_lock
from veilcast.cli.key_erasure import KeyErasure
from veilcast.cli.key_updates import KeyUpdates
from veilcast.cli.retrying_file_writer import RetryingFileWriter
from veilcast.cli.tor_setup import NO_TOR, TorEndpoint, make_endpoint
from veilcast.cli.transports import limits_for, make_tls_identity, mqtt_driver, onion_driver, tls_driver
from veilcast.crypto.secret import Secret
from veilcast.machine import Address
from veilcast.net.node_service import NodeService
from veilcast.net.service import NodeSetup, Watchdog
from veilcast.net.transport import LinkTransport, StreamTransport, Transport
from veilcast.node.config import NodeConfig
from veilcast.node.member_records import MemberRecords, complete_topic
from veilcast.node.member_view import MemberView
from veilcast.node.modes import MachineInputs, Mode, NodeMember, mode_of
from veilcast.node.store import NodeStore
from veilcast.node.toml_file import RendezvousConfig

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
        disk = Lock()
        updates = KeyUpdates(Path(config.keyring), Path(config.bulletins), keyring, lock, clock, disk)
        yield NodeSetup(
            machine=transport.machine if around is None else around(transport.machine, address, keyring.epoch_us),
            make_driver=transport.make_driver,
            make_service=lambda driver: NodeService(records, store, driver, view, transport, updates.reload),
            control=config.control_path,
            metrics=config.metrics.listen,
            clients_max=config.limits.clients,
            clock=clock,
            address=None if endpoint is None else address,
            reload=updates.reload,
            watch=join_watchdogs(
                _save_files(config, mode, member) if tor is None else tor.watch,
                KeyErasure(Path(config.keyring), keyring, lock, clock, disk).watch,
                updates.watch,
                offer_rendezvous(config.rendezvous, identity),
            ),
        )


def _published_schemas(keyring: Keyring) -> list[Schema]:
    """The schemas of the topics on which a grant lets this member publish."""
    return [record.schema for grant, record in keyring.records() if grant.role == "publisher"]


def offer_rendezvous(config: RendezvousConfig, identity: OpenedIdentity) -> Watchdog | None:
    """The rendezvous of a process whose file has one; it serves beside the process's own machine."""
    if config.listen is None:
        return None
    from veilcast.invitation.rendezvous import Rendezvous
    from veilcast.net.invitations import serve_callers

    keyring, revoked, clock, _ = identity
    machine = Rendezvous(keyring.root, keyring.epoch_us, Address(config.place), revoked)
    return partial(serve_callers, machine, config.listen, "rendezvous.listen", clock)


def join_watchdogs(*watchdogs: Watchdog | None) -> Watchdog | None:
    """Run all of them; what one raises ends all."""
    given = [each for each in watchdogs if each is not None]
    if len(given) < 2:
        return given[0] if given else None

    async def run_all() -> None:
        tasks = [asyncio.create_task(each()) for each in given]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return run_all


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
