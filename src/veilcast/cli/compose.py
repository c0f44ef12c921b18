"""From a node's file to a node that can be served: keyring, store, machine, ways, owner, each handed what it needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.authority.epoch import epoch_of
from veilcast.cli.file_sync import FileSync
from veilcast.cli.identity import OpenedIdentity, check_role, open_identity_with_lock
from veilcast.cli.key_erasure import KeyErasure
from veilcast.cli.tor_setup import NO_TOR, TorEndpoint, make_endpoint
from veilcast.cli.transports import (
    LinkTransport,
    StreamTransport,
    Transport,
    limits_for,
    make_tls_identity,
    onion_driver,
    tls_driver,
)
from veilcast.cli.view import MemberView
from veilcast.crypto.secret import Secret
from veilcast.net.node_service import NodeService
from veilcast.net.service import NodeSetup, Watchdog
from veilcast.node.config import NodeConfig
from veilcast.node.interest_completion import complete_topic
from veilcast.node.member_records import MemberRecords
from veilcast.node.mode import MachineInputs, NodeMember
from veilcast.node.modes import mode_of
from veilcast.node.store import NodeStore

if TYPE_CHECKING:
    from veilcast.cli.tap import MachineWrapper
    from veilcast.net.tor import Tor


@contextmanager
def compose(
    config: NodeConfig,
    passphrase: Secret,
    around: MachineWrapper | None = None,
    anonymous: AbstractContextManager[Tor | None] = NO_TOR,
) -> Iterator[NodeSetup]:
    """The node that a configuration describes; what it holds open is closed afterwards.

    `anonymous` is the Tor that its mode may need: one that starts now, when nothing else can go wrong, or one that runs
    and has several nodes.
    """
    opened, own = open_identity_with_lock(config, passphrase)
    keyring, revoked, clock, rng = opened
    onions = mode_of(config.mode).driver == "onions"
    if onions:
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
        place = make_endpoint(config.listen, keyring, tor) if onions else None
        address = config.public_address if place is None else place.address
        start = MachineInputs(
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
        member = mode_of(config.mode).build(start)
        ways = _ways(config, opened, member, place)
        agent = MemberRecords(
            member,
            store,
            clock.now(),
            subscriptions_max=config.limits.subscriptions,
            complete=lambda interest, now: complete_topic(
                interest, keyring.keys_at(epoch_of(now, keyring.epoch_us)).topics
            ),
        )
        view = MemberView(config, keyring, member, ways, agent, clock)
        yield NodeSetup(
            machine=ways.machine if around is None else around(ways.machine, address, keyring.epoch_us),
            make_driver=ways.make_driver,
            make_service=lambda driver: NodeService(agent, store, driver, view),
            control=config.control_path,
            metrics=config.metrics.listen,
            clients_max=config.limits.clients,
            clock=clock,
            address=None if place is None else address,
            watch=_beside(
                _watch(config, member) if tor is None else tor.watch,
                KeyErasure(Path(config.keyring), keyring, own, clock).watch,
            ),
        )


def _beside(watch: Watchdog | None, erase: Watchdog) -> Watchdog:
    """Both; they end when the watch does, if there is one."""
    if watch is None:
        return erase

    async def both() -> None:
        erasing = asyncio.create_task(erase())
        try:
            await watch()
        finally:
            erasing.cancel()

    return both


def _watch(config: NodeConfig, member: NodeMember) -> Watchdog | None:
    keep = mode_of(config.mode).keep
    return None if keep is None else FileSync(keep(config.settings, member)).watch


def _ways(config: NodeConfig, opened: OpenedIdentity, member: NodeMember, place: TorEndpoint | None) -> Transport:
    keyring, revoked, clock, rng = opened
    if place is not None:
        return StreamTransport(member, onion_driver(place))
    driver = mode_of(config.mode).driver
    if driver == "streams":
        identity = make_tls_identity(keyring, revoked, "member", *mode_of(config.mode).hosts)
        return StreamTransport(member, tls_driver(identity, limits_for("member")))
    if driver == "mqtt":
        from veilcast.cli.ways_mqtt import mqtt_driver

        return StreamTransport(member, mqtt_driver(config.settings))
    from veilcast.link.config import LinkConfig
    from veilcast.link.machine import LinkMachine

    assert config.listen is not None
    wire = LinkConfig("cells" if config.profile == "hardened" else "prompt", config.rate)
    return LinkTransport(LinkMachine(member, wire, keyring, rng, os.urandom, revoked=revoked), config.listen, clock)
