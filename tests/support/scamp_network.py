"""A colony: the membership of many nodes without their heartbeats. What one sends, the other has at once, in order."""

from __future__ import annotations

from collections import deque
from random import Random

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.config import ScampConfig as Rules
from veilcast.mesh.scamp import ScampNeighbourhood
from veilcast.sim.graphs import is_connected
from veilcast.wire.mesh import Message

PERIOD_US = 1_000_000


class ScampNetwork:
    """`now` stands still but for `beat`."""

    def __init__(self, rules: Rules, seed: int = 1, neighbours_max: int = 64) -> None:
        self.config = MeshConfig(neighbours_max=neighbours_max, membership="scamp", scamp=rules)
        self.rng = Random(seed)
        self.now = 0
        self.nodes: dict[Address, ScampNeighbourhood] = {}
        self.mail: deque[tuple[Address, Address, Message]] = deque()
        self.sent: list[tuple[Address, Address, Message]] = []
        self.refused = 0

    def add(self, name: str, *contacts: str, kind: type[ScampNeighbourhood] = ScampNeighbourhood) -> ScampNeighbourhood:
        address, known = Address(name), [Address(contact) for contact in contacts]
        rng = Random(self.rng.getrandbits(64))
        node = self.nodes[address] = kind(self.config, address, known, _Context(self, address), rng, self.now)
        return node

    def grow(self, count: int, clan: str = "n", kind: type[ScampNeighbourhood] = ScampNeighbourhood) -> None:
        """Let nodes join one after the other, all by the first."""
        self.add(f"{clan}0", kind=kind)
        for number in range(1, count):
            self.add(f"{clan}{number}", f"{clan}0", kind=kind).beat(self.now)
            self.deliver()

    def beat(self, times: int = 1, periods: int = 1) -> None:
        """Let all beat that often, each so many periods after the last."""
        for _ in range(times):
            self.now += periods * PERIOD_US
            for node in list(self.nodes.values()):
                node.beat(self.now)
            self.deliver()

    def tell(self, source: str, target: str, message: Message) -> None:
        self.mail.append((Address(source), Address(target), message))
        self.deliver()

    def deliver(self) -> None:
        while self.mail:
            source, target, message = self.mail.popleft()
            if target in self.nodes:
                try:
                    self.nodes[target].on_message(message, source, self.now)
                except RemoteError:
                    self.refused += 1

    def kill(self, names: list[Address]) -> None:
        """End these nodes, and let the others notice."""
        for name in names:
            del self.nodes[name]
        while dead := [
            (node, name) for node in self.nodes.values() for name in node.neighbours() if name not in self.nodes
        ]:
            for node, name in dead:
                node.on_neighbour_lost(name, self.now)
            self.deliver()

    def arcs(self) -> int:
        return sum(len(node.partial) for node in self.nodes.values())

    def mean_view(self) -> float:
        return self.arcs() / len(self.nodes)

    def is_connected(self) -> bool:
        index = {name: number for number, name in enumerate(self.nodes)}
        edges = [
            (index[name], index[other])
            for name, node in self.nodes.items()
            for other in node.neighbours()
            if other in index
        ]
        return is_connected(len(index), edges)

    def is_consistent(self) -> bool:
        """Whether everybody who keeps somebody alive is known to it, and the other way round."""
        kept = [
            (name, other)
            for name, node in self.nodes.items()
            for other in node.partial | node.probed
            if other in self.nodes
        ]
        keeping = [(other, name) for name, node in self.nodes.items() for other in node.inward if other in self.nodes]
        return sorted(kept) == sorted(keeping)


class _Context:
    def __init__(self, colony: ScampNetwork, name: Address) -> None:
        self._colony, self._name = colony, name

    def is_present(self, name: Address) -> bool:
        peer = self._colony.nodes.get(name)
        return peer is not None and self._name in peer.neighbours()

    def is_fresh(self, name: Address, now: int) -> bool:
        return True

    def unheard_us(self, now: int) -> int:
        heard = any(self.is_present(name) for name in self._colony.nodes[self._name].neighbours())
        return 0 if heard else now + (1 << 40)

    def open(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> None:
        pass

    def close(self, name: Address, now: int) -> None:
        pass

    def send(self, name: Address, message: Message) -> None:
        self._colony.mail.append((self._name, name, message))
        self._colony.sent.append((self._name, name, message))

    def store_anchors(self, anchors: list[Address]) -> None:
        pass
