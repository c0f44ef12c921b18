"""A simulated mesh: the nodes of `veilcast.mesh` in the simulator, on an overlay of the models.

Node i of the overlay is the machine at address `n<i>`. So under one seed machines and models have the same overlay,
publisher and readers. Clients are as simple as in the simulator's own populations: a subscriber subscribes when its
node starts, the publisher advertises, and deliveries are acknowledged. The link layer is off, as in P0: notifications
travel as frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.errors import ConfigError
from veilcast.lab.runs.mesh.overlay_setup import OverlaySetup
from veilcast.machine import Address, Machine, Publication
from veilcast.mesh.config import HardeningConfig, MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.checkers import Checker
from veilcast.sim.keyrings import KEYRING_EPOCHS, make_hardened_keyring
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import TOPIC, address_prefix, role_keyrings
from veilcast.sim.recorder import RowSink
from veilcast.sim.workload import AcknowledgingClients
from veilcast.sim.world import EventSink, World
from veilcast.topics import Label


class MeshSimulation:
    """Its nodes start at once, in `world`. In the hardened profile `kappa` is the topic's share of covers. Keys hold
    for `key_epochs`. `outfits` can give some nodes their own configuration."""

    def __init__(
        self,
        scene: OverlaySetup,
        config: MeshConfig,
        seed: int,
        *,
        latency_us: tuple[int, ...],
        epoch_us: int = 3_600_000_000,
        kappa: float = 0.0,
        key_epochs: int = KEYRING_EPOCHS,
        outfits: dict[int, MeshConfig] | None = None,
        recorder: RowSink | None = None,
        on_event: EventSink | None = None,
        checkers: Sequence[Checker] = (),
    ) -> None:
        self.graph, self.publisher, self.subscribers = scene
        self.config, self._kappa, self._epoch_us, self._key_epochs = config, kappa, epoch_us, key_epochs
        if (most := int(self.graph.degrees.max(initial=0))) > config.neighbours_max:
            raise ConfigError(f"a machine cannot have {most} neighbours: links_max takes some of a hub's")
        links = LinkDelays(latency_us=latency_us)
        self.world = World(seed=seed, links=links, recorder=recorder, epoch_us=epoch_us, disk_us=0, on_event=on_event)
        for checker in (AcknowledgingClients(), *checkers):
            self.world.watch(checker)
        reads = {int(node) for node in self.subscribers}
        for node in range(self.graph.nodes):
            role = "publisher" if node == self.publisher else "subscriber" if node in reads else "forwarder"
            known = [node_address(int(near)) for near in self.graph.neighbours(node)]
            own = (outfits or {}).get(node, config)
            roles = {} if role == "forwarder" else {TOPIC: role}
            self.world.add(
                node_address(node), MeshNodeOwner(own, self._keyring(role, node), roles, known, address_prefix).start
            )
        for u, v in zip(*self.graph.edges(), strict=True):
            self.world.connect(node_address(int(u)), node_address(int(v)))

    def run(self, periods: float) -> None:
        self.world.run(round(periods * self.config.heartbeat_us))

    def publish(self, body: bytes) -> None:
        """Takes effect when the simulation runs next."""
        note = Publication((Label(TOPIC).pair,), body)

        def publish(machine: Machine, now: int) -> None:
            if isinstance(machine, MeshNode):
                machine.publish(note, now)

        self.world.call(node_address(self.publisher), publish)

    def members(self) -> list[int]:
        """The nodes of the mesh, V_a: the origin of the topic, and every node with a neighbour in the mesh."""
        token = self.token
        return [
            number
            for number, node in self.nodes()
            if node.overlay.originates(token) or token in node.overlay.branches.tokens()
        ]

    def links(self) -> list[tuple[int, int]]:
        """The link from which each node receives the topic, in the direction of notifications."""
        token = self.token
        return [
            (node_number(above), number)
            for number, node in self.nodes()
            for above in node.overlay.branches.inward(token)
        ]

    def count_swaps(self) -> int:
        return sum(node.swaps_played() for _, node in self.nodes())

    def count_sent(self) -> Counter[str]:
        """Number of messages of each kind that the running nodes have sent."""
        return sum((node.sent for _, node in self.nodes()), Counter())

    def nodes(self) -> list[tuple[int, MeshNode]]:
        """The running nodes."""
        machines = ((number, self.world.machine(node_address(number))) for number in range(self.graph.nodes))
        return [(number, machine) for number, machine in machines if isinstance(machine, MeshNode)]

    @property
    def token(self) -> bytes:
        """The current token of the topic."""
        return self.keyring.keys_at(epoch_of(self.world.now, self.keyring.epoch_us)).topic(TOPIC).token

    @property
    def keyring(self) -> Keyring:
        """The publisher's keyring."""
        return self._keyring("publisher", self.publisher)

    def _keyring(self, role: str, node: int) -> Keyring:
        """In the paper's profile all nodes of one role share a keyring: its personal part is not used there."""
        if self.config.profile == "paper":
            return role_keyrings()[role]
        return make_hardened_keyring(TOPIC, self._kappa, self._epoch_us, role, node, self._key_epochs)


def node_address(node: int) -> Address:
    return Address(f"n{node}")


def node_number(name: str) -> int:
    """The node at this address."""
    return int(name[1:])


def link_ends(links: list[tuple[int, int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sources and destinations of links, each link once."""
    array = np.array(list(dict.fromkeys(links)), dtype=np.int32).reshape(-1, 2)
    return array[:, 0], array[:, 1]


FAST_HARDENING: Final = HardeningConfig(window_periods=12, lead_periods=32, bit_periods=2, uptime_periods=1)
"""A window of twice the diameter, for measurements of the final mesh."""
