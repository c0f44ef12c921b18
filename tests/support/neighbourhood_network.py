"""Networks of neighbourhoods without heartbeats: a message arrives at once and in order.

`ScampNetwork` and `CertifiedNetwork` differ in how they make a node. Time stands still, except in `beat`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from random import Random
from typing import Generic, TypeVar

from veilcast.authority.keyring import Keyring
from veilcast.errors import RemoteError
from veilcast.link.address_groups import PrefixOf
from veilcast.machine import Address
from veilcast.mesh.certified import CertifiedNeighbourhood
from veilcast.mesh.config import CertifiedConfig, MeshConfig, ScampConfig
from veilcast.mesh.credentials import Credentials
from veilcast.mesh.scamp import ScampNeighbourhood
from veilcast.sim.engine import START_US
from veilcast.sim.graphs import is_connected
from veilcast.sim.mesh.population import address_prefix, make_own_keyring
from veilcast.wire.base import Message

PERIOD_US = 1_000_000

Node = TypeVar("Node", ScampNeighbourhood, CertifiedNeighbourhood)


class NeighbourhoodNetwork(Generic[Node]):
    """`contexts` record what each neighbourhood did. `refused` has the errors of refused messages. Messages from and
    to the nodes in `cut` are lost."""

    def __init__(self, config: MeshConfig, seed: int, now: int) -> None:
        self.config, self.rng, self.now = config, Random(seed), now
        self.nodes: dict[Address, Node] = {}
        self.contexts: dict[Address, FakeContext] = {}
        self.mail: deque[tuple[Address, Address, Message]] = deque()
        self.sent: list[tuple[Address, Address, Message]] = []
        self.refused: list[str] = []
        self.cut: dict[Address, None] = {}

    def linked(self, name: str) -> Collection[Address]:
        """The neighbours of a node."""
        raise NotImplementedError

    def beat(self, times: int = 1, periods: int = 1) -> None:
        """Let all nodes beat `times` times, `periods` periods apart."""
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
            if target in self.nodes and source not in self.cut and target not in self.cut:
                try:
                    self.nodes[target].on_message(message, source, self.now)
                except RemoteError as error:
                    self.refused.append(str(error))

    def messages(self, source: str, target: str) -> list[Message]:
        """All messages from one node to the other so far."""
        return [message for by, to, message in self.sent if by == source and to == target]

    def is_connected(self) -> bool:
        index = {name: number for number, name in enumerate(self.nodes)}
        edges = [(index[name], index[other]) for name in self.nodes for other in self.linked(name) if other in index]
        return is_connected(len(index), edges)


class ScampNetwork(NeighbourhoodNetwork[ScampNeighbourhood]):
    def __init__(self, rules: ScampConfig, seed: int = 1, neighbours_max: int = 64) -> None:
        super().__init__(MeshConfig(neighbours_max=neighbours_max, membership="scamp", scamp=rules), seed, 0)

    def add(self, name: str, *contacts: str, kind: type[ScampNeighbourhood] = ScampNeighbourhood) -> ScampNeighbourhood:
        address, known = Address(name), [Address(contact) for contact in contacts]
        context = self.contexts[address] = _ScampContext(self, address)
        rng = Random(self.rng.getrandbits(64))
        node = self.nodes[address] = kind(self.config, address, known, context, rng, self.now)
        return node

    def grow(self, count: int, clan: str = "n", kind: type[ScampNeighbourhood] = ScampNeighbourhood) -> None:
        """Let nodes join one after the other, all through the first."""
        self.add(f"{clan}0", kind=kind)
        for number in range(1, count):
            self.add(f"{clan}{number}", f"{clan}0", kind=kind).beat(self.now)
            self.deliver()

    def linked(self, name: str) -> Collection[Address]:
        return self.nodes[Address(name)].neighbours()

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

    def is_consistent(self) -> bool:
        """True if both ends of every arc between live nodes know it."""
        kept = [
            (name, other)
            for name, node in self.nodes.items()
            for other in node.partial | node.probed
            if other in self.nodes
        ]
        keeping = [(other, name) for name, node in self.nodes.items() for other in node.inward if other in self.nodes]
        return sorted(kept) == sorted(keeping)


class CertifiedNetwork(NeighbourhoodNetwork[CertifiedNeighbourhood]):
    def __init__(self, rules: CertifiedConfig | None = None, seed: int = 1, neighbours_max: int = 20) -> None:
        certified = rules or CertifiedConfig()
        config = MeshConfig(
            neighbours_max=neighbours_max, address_bytes_max=12, membership="certified", certified=certified
        )
        super().__init__(config, seed, START_US)

    def credentials(self, name: str, keyring: Keyring | None = None) -> Credentials:
        ring = keyring or make_own_keyring("forwarder", name)
        return Credentials(ring, Address(name), Random(name).randbytes, 16 * PERIOD_US)

    def add(
        self,
        name: str,
        *contacts: str,
        keyring: Keyring | None = None,
        anchors: tuple[str, ...] = (),
        prefix: PrefixOf = address_prefix,
    ) -> CertifiedNeighbourhood:
        address = Address(name)
        context = self.contexts[address] = FakeContext(self, address)
        node = self.nodes[address] = CertifiedNeighbourhood(
            self.config,
            address,
            [Address(contact) for contact in contacts],
            context,
            self.credentials(name, keyring),
            prefix,
            Random(self.rng.getrandbits(64)),
            self.now,
            [Address(anchor) for anchor in anchors],
        )
        return node

    def grow(self, count: int) -> None:
        """Let nodes join one after the other, each of its own prefix, through the first."""
        self.add("n0")
        for number in range(1, count):
            self.add(f"n{number}", "n0")
            self.beat()

    def linked(self, name: str) -> list[Address]:
        return list(self.nodes[Address(name)].slots.links)

    def kill(self, name: str) -> None:
        """End a node, and let the others notice."""
        del self.nodes[Address(name)]
        for node in self.nodes.values():
            node.on_neighbour_lost(Address(name), self.now)


class FakeContext:
    """A `NeighbourhoodContext` that records its calls. A neighbour is present if both ends are linked."""

    def __init__(self, network: ScampNetwork | CertifiedNetwork, name: Address) -> None:
        self._network, self._name = network, name
        self.opened: list[Address] = []
        self.closed: list[Address] = []
        self.records: list[list[Address]] = []
        self.silent_us = 0
        self.fresh = True

    def is_present(self, name: Address) -> bool:
        return name in self._network.nodes and self._name in self._network.linked(name)

    def is_fresh(self, name: Address, now: int) -> bool:
        return self.fresh

    def unheard_us(self, now: int) -> int:
        return self.silent_us

    def open(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> None:
        self.opened.append(name)

    def close(self, name: Address, now: int) -> None:
        self.closed.append(name)

    def send(self, name: Address, message: Message) -> None:
        self._network.mail.append((self._name, name, message))
        self._network.sent.append((self._name, name, message))

    def mark_lost(self, name: Address, now: int) -> None:
        raise AssertionError("only a fixed neighbourhood keeps the links of lost neighbours")

    def store_anchors(self, anchors: list[Address]) -> None:
        self.records.append(anchors)


class _ScampContext(FakeContext):
    def unheard_us(self, now: int) -> int:
        heard = any(self.is_present(name) for name in self._network.linked(self._name))
        return 0 if heard else now + (1 << 40)
