"""Owners of mesh nodes: they start a node and give it its roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.link.config import LinkConfig
from veilcast.link.machine import LinkMachine
from veilcast.machine import Address, Machine, Publication
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.host import Birth
from veilcast.sim.mesh.adversaries import Forger
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label


class MeshNodeOwner:
    """Starts a node, and at every start subscribes and advertises as its roles in the topics demand.

    At its first start a node knows only the first `earlier` contacts. Otherwise two nodes could wait for each other,
    each with its own newcomers, and form two networks.
    """

    def __init__(
        self,
        config: MeshConfig,
        keyring: Keyring,
        roles: dict[str, str],
        neighbours: Sequence[Address],
        prefix_of: Callable[[Address], str],
        earlier: int | None = None,
        link: LinkConfig | None = None,
    ) -> None:
        self._config, self._keyring, self._roles = config, keyring, roles
        self._neighbours, self._prefix_of, self._earlier, self._link = neighbours, prefix_of, earlier, link

    def with_config(self, config: MeshConfig) -> Self:
        """A copy of this owner that starts its node with another configuration."""
        other = copy(self)
        other._config = config
        return other

    def start(self, birth: Birth) -> Machine:
        known = self._neighbours[: None if birth.incarnation else self._earlier]
        node = MeshNode(
            self._config,
            self._keyring,
            birth.rng,
            birth.entropy,
            known,
            birth.now,
            birth.address,
            self._prefix_of,
            birth.stored,
        )
        for topic, role in self._roles.items():
            if role in ("publisher", "both"):
                node.advertise(topic, birth.now)
            if role in ("subscriber", "both"):
                node.subscribe(Label(topic), birth.now)
        for topic in (topic for topic, role in self._roles.items() if role == "forger"):
            epoch = epoch_of(birth.now, self._keyring.epoch_us)
            forged = Publication((Label(topic).pair,), b"note of a forger")
            return self._linked(
                Forger(node, self._keyring.keys_at(epoch).topic(topic), epoch, forged, birth.entropy), birth
            )
        return self._linked(node, birth)

    def _linked(self, node: MeshNode | Forger, birth: Birth) -> Machine:
        if self._link is None:
            return node
        return LinkedNode(node, self._link, self._keyring, birth.rng, birth.entropy)


class LinkedNode(LinkMachine):
    """A node with its links, with the `version` that checkers read."""

    @property
    def version(self) -> int:
        return int(unwrap(self).version)
