"""From a node's file to a node that can be served: keyring, store, machine, links, owner, each handed what it needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Final

from veilcast.authority import bulletin
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revoked import Revoked
from veilcast.authority.vault import read_secret
from veilcast.cli.files import read_file
from veilcast.cli.show import date_of
from veilcast.cli.tap import Around
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, ExpiredError, RemoteError
from veilcast.link.config import LinkConfig
from veilcast.link.machine import LinkMachine
from veilcast.net.agent import Peer
from veilcast.net.clock import Clock
from veilcast.net.owner import About, NodeOwner
from veilcast.net.service import Service
from veilcast.net.udp import over_udp
from veilcast.node.agent import Agent
from veilcast.node.config import NodeConfig
from veilcast.node.modes import LiveMember, Start, mode_of
from veilcast.node.naming import with_topic
from veilcast.node.store import Store
from veilcast.topics import TOPIC, Equal


@contextmanager
def compose(config: NodeConfig, passphrase: Secret, around: Around | None = None) -> Iterator[Service]:
    """The node that a configuration describes; what it holds open is closed afterwards."""
    keyring = read_secret(Path(config.keyring), Keyring, passphrase)
    clock, rng = Clock(), SystemRandom()
    _check_current(keyring, config.keyring, clock.now())
    with Store(
        Path(config.state),
        keyring.membership.link,
        os.urandom,
        unread_max=config.limits.unread,
        remembered_max=config.limits.remembered,
    ) as store:
        start = Start(
            config.settings, keyring, rng, os.urandom, config.told, config.contacts, store.records(), clock.now()
        )
        member = mode_of(config.mode).build(start)
        wire = LinkConfig("cells" if config.profile == "hardened" else "prompt", config.rate)
        revoked = _revoked(Path(config.bulletins), keyring, clock.now())
        links = LinkMachine(member, wire, keyring, rng, os.urandom, revoked=revoked)
        agent = Agent(
            member,
            store,
            clock.now(),
            subscriptions_max=config.limits.subscriptions,
            complete=lambda interest, now: with_topic(interest, keyring.at(epoch_of(now, keyring.epoch_us)).topics),
        )
        view = _View(config, keyring, member, links, agent, clock)
        yield Service(
            machine=links if around is None else around(links, keyring.epoch_us),
            hire=lambda driver: NodeOwner(agent, store, driver, view),
            drive=over_udp(config.listen),
            control=config.control_path,
            metrics=config.metrics.listen,
            clients_max=config.limits.clients,
            clock=clock,
        )


class _View:
    """What can be told of a machine and its links: how hidden its member is, its peers, its numbers."""

    def __init__(
        self, config: NodeConfig, keyring: Keyring, member: LiveMember, links: LinkMachine, agent: Agent, clock: Clock
    ) -> None:
        self._config, self._keyring, self._clock = config, keyring, clock
        self._member, self._links, self._agent = member, links, agent

    def about(self) -> About:
        return About(
            mode=self._config.mode,
            profile=self._config.profile,
            members=self._member.group_size(),
            cover_share=self._cover_share(),
            neighbours=len(self._links.peers()),
            member_until_us=(self._keyring.membership.certificate.leaf.last + 1) * self._keyring.epoch_us,
        )

    def peers(self) -> list[Peer]:
        now = self._clock.now()
        return [
            Peer(address=name, up=up, since_s=max(0, now - since_us) / 1e6)
            for name, up, since_us in self._links.known()
        ]

    def numbers(self) -> Mapping[str, float]:
        links, kept = self._links.status(self._clock.now()), self._agent.status()
        return {
            "cells_sent_total": links["cells"],
            "cells_padding_total": round(links["cells"] * links["padding share"]),
            "queue_age_seconds": links["queue age us"] / 1e6,
            "swaps_total": self._member.swaps_played(),
            "delivery_latency_seconds_sum": kept.settled_us / 1e6,
            "delivery_latency_seconds_count": kept.settled,
        }

    def _cover_share(self) -> float:
        """The smallest among the topics that are read; the papers' profile has no such covers."""
        try:
            topics = self._keyring.at(epoch_of(self._clock.now(), self._keyring.epoch_us)).topics
        except ExpiredError:
            return 0.0
        constraints = [
            constraint for interest in self._agent.interests().values() for constraint in interest.constraints
        ]
        read = [each.text for each in constraints if isinstance(each, Equal) and each.attribute == TOPIC]
        shares = [topics[name].record.cover_share for name in read if name in topics]
        return min(shares, default=0.0) if self._config.profile == "hardened" else 0.0


def _check_current(keyring: Keyring, name: str, now: int) -> None:
    """Say in dates what the keyring itself says in epochs."""
    leaf, epoch = keyring.membership.certificate.leaf, epoch_of(now, keyring.epoch_us)
    if epoch > leaf.last:
        ended = date_of(leaf.last + 1, keyring.epoch_us)
        raise ExpiredError(f"{name}: the membership ended {ended}; ask the authority for a new grant")
    if epoch < leaf.first:
        begins = date_of(leaf.first, keyring.epoch_us)
        raise ExpiredError(f"{name}: the membership begins {begins}; if that is past, set this machine's clock")


def _revoked(directory: Path, keyring: Keyring, now: int) -> Revoked:
    """Whom the bulletins in a directory shut out."""
    revoked = Revoked(keyring.root, _VOID_MAX)
    for path in sorted(directory.glob("*.bulletin")):
        try:
            revoked.add(bulletin.decode(read_file(path)), epoch_of(now, keyring.epoch_us))
        except RemoteError as error:
            raise ConfigError(f"bulletins: {path} is not of this keyring's authority, or damaged: {error}") from error
    return revoked


_VOID_MAX: Final = 65_536
