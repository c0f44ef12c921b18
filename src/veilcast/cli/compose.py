"""From a node's file to a node that can be served: keyring, store, machine, ways, owner, each handed what it needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from veilcast.authority.epoch import epoch_of
from veilcast.cli.anonymity import NO_TOR, Place, place_of
from veilcast.cli.keeping import Keeping
from veilcast.cli.key_erasure import KeyErasure
from veilcast.cli.opening import Opened, check_standing, open_with_lock
from veilcast.cli.view import View
from veilcast.cli.ways import Links, Streams, Ways, identity_of, limits_of, over_tls, over_tor
from veilcast.crypto.secret import Secret
from veilcast.net.owner import NodeOwner
from veilcast.net.service import Service, Watch
from veilcast.node.agent import Agent
from veilcast.node.config import NodeConfig
from veilcast.node.mode import LiveMember, Start
from veilcast.node.modes import mode_of
from veilcast.node.naming import with_topic
from veilcast.node.store import Store

if TYPE_CHECKING:
    from veilcast.cli.tap import Around
    from veilcast.net.tor import Tor


@contextmanager
def compose(
    config: NodeConfig,
    passphrase: Secret,
    around: Around | None = None,
    anonymous: AbstractContextManager[Tor | None] = NO_TOR,
) -> Iterator[Service]:
    """The node that a configuration describes; what it holds open is closed afterwards.

    `anonymous` is the Tor that its mode may need: one that starts now, when nothing else can go wrong, or one that runs
    and has several nodes.
    """
    opened, own = open_with_lock(config, passphrase)
    keyring, revoked, clock, rng = opened
    onions = mode_of(config.mode).driver == "onions"
    if onions:
        check_standing(keyring, "member")
    with (
        Store(
            Path(config.state),
            keyring.membership.link,
            os.urandom,
            unread_max=config.limits.unread,
            remembered_max=config.limits.remembered,
        ) as store,
        anonymous as tor,
    ):
        place = place_of(config.listen, keyring, tor) if onions else None
        address = config.told if place is None else place.address
        start = Start(
            config.settings,
            keyring,
            rng,
            os.urandom,
            address,
            config.contacts,
            store.records(),
            clock.now(),
            revoked,
        )
        member = mode_of(config.mode).build(start)
        ways = _ways(config, opened, member, place)
        agent = Agent(
            member,
            store,
            clock.now(),
            subscriptions_max=config.limits.subscriptions,
            complete=lambda interest, now: with_topic(interest, keyring.at(epoch_of(now, keyring.epoch_us)).topics),
        )
        view = View(config, keyring, member, ways, agent, clock)
        yield Service(
            machine=ways.machine if around is None else around(ways.machine, address, keyring.epoch_us),
            drive=ways.drive,
            hire=lambda driver: NodeOwner(agent, store, driver, view),
            control=config.control_path,
            metrics=config.metrics.listen,
            clients_max=config.limits.clients,
            clock=clock,
            address=None if place is None else address,
            watch=_beside(
                _watch(config, member) if tor is None else tor.gone,
                KeyErasure(Path(config.keyring), keyring, own, clock).watch,
            ),
        )


def _beside(watch: Watch | None, erase: Watch) -> Watch:
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


def _watch(config: NodeConfig, member: LiveMember) -> Watch | None:
    keep = mode_of(config.mode).keep
    return None if keep is None else Keeping(keep(config.settings, member)).watch


def _ways(config: NodeConfig, opened: Opened, member: LiveMember, place: Place | None) -> Ways:
    keyring, revoked, clock, rng = opened
    if place is not None:
        return Streams(member, over_tor(place))
    driver = mode_of(config.mode).driver
    if driver == "streams":
        identity = identity_of(keyring, revoked, "member", *mode_of(config.mode).hosts)
        return Streams(member, over_tls(identity, limits_of("member")))
    if driver == "mqtt":
        from veilcast.cli.ways_mqtt import over_mqtt

        return Streams(member, over_mqtt(config.settings))
    from veilcast.link.config import LinkConfig
    from veilcast.link.machine import LinkMachine

    assert config.listen is not None
    wire = LinkConfig("cells" if config.profile == "hardened" else "prompt", config.rate)
    return Links(LinkMachine(member, wire, keyring, rng, os.urandom, revoked=revoked), config.listen, clock)
