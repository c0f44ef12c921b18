"""The real machines on an overlay of the models, to compare the two."""

from __future__ import annotations

from random import Random

import numpy as np

from veilcast.lab.models.graph import Graph
from veilcast.lab.models.mesh import MeshTree
from veilcast.machine import Address, Machine
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.sim.host import Birth
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.population import TOPIC, role_keyrings, topic_token
from veilcast.sim.world import World
from veilcast.topics import Label


class MachinesOnGraph:
    """A world of mesh nodes: 0 to n - 1, with links of one length.

    With `in_turn` the nodes beat in order, one shortly after the other, and at a distance from the arrival of frames.
    """

    def __init__(
        self,
        graph: Graph,
        publisher: int,
        subscribers: np.ndarray,
        config: MeshConfig,
        seed: int,
        *,
        in_turn: bool = False,
    ) -> None:
        self.graph, self.publisher, self.config = graph, publisher, config
        self.subscribers = {int(node) for node in subscribers}
        self.in_turn = in_turn
        latency_us = config.heartbeat_us // 2 if in_turn else config.heartbeat_us // 20
        self.world = World(seed=seed, links=LinkDelays(latency_us=(latency_us,)))
        for node in range(graph.nodes):
            self.world.add(Address(f"n{node}"), self._start)
        for u, v in zip(*graph.edges(), strict=True):
            self.world.connect(Address(f"n{u}"), Address(f"n{v}"))

    def run(self, periods: int) -> None:
        self.world.run(periods * self.config.heartbeat_us)

    def mesh(self) -> MeshTree:
        """The parent of each node in the topic's mesh."""
        parent = np.full(self.graph.nodes, -1, np.int32)
        parent[self.publisher] = self.publisher
        for node in range(self.graph.nodes):
            if inward := self._machine(node).overlay.branches.inward(topic_token()):
                (above,) = inward
                parent[node] = int(above[1:])
        return MeshTree(self.publisher, parent, np.zeros_like(parent))

    def swaps(self) -> int:
        return sum(self._machine(node).overlay.policy.swaps_completed() for node in range(self.graph.nodes))

    def _machine(self, node: int) -> MeshNode:
        machine = self.world.machine(Address(f"n{node}"))
        assert isinstance(machine, MeshNode)
        return machine

    def _start(self, birth: Birth) -> Machine:
        number = int(birth.address[1:])
        around = [Address(f"n{other}") for other in self.graph.neighbours(number)]
        role = "publisher" if number == self.publisher else "subscriber" if number in self.subscribers else "forwarder"
        rng = _Punctual(100 * number) if self.in_turn else birth.rng
        node = MeshNode(self.config, role_keyrings()[role], rng, birth.entropy, around, birth.now, birth.address)
        if role == "publisher":
            node.advertise(TOPIC, birth.now)
        elif role == "subscriber":
            node.subscribe(Label(TOPIC), birth.now)
        return node


class _Punctual(Random):
    """A random source whose first number, which decides a node's phase, is given."""

    def __init__(self, phase_us: int) -> None:
        super().__init__(phase_us)
        self._given = [phase_us]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self._given.pop() if self._given else super().randrange(start, stop, step)
