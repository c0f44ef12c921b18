"""A street: certified neighbourhoods without their heartbeats. What one sends, the other has at once, in order."""

from __future__ import annotations

from collections import deque
from random import Random

from veilcast.authority.keyring import Keyring
from veilcast.errors import RemoteError
from veilcast.link.address_groups import PrefixOf
from veilcast.machine import Address
from veilcast.mesh.certified import CertifiedNeighbourhood
from veilcast.mesh.config import CertifiedConfig as Rules
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.credentials import Credentials
from veilcast.sim.engine import START_US
from veilcast.sim.graphs import is_connected
from veilcast.sim.mesh.population import address_prefix, make_own_keyring
from veilcast.wire.mesh import Message

PERIOD_US = 1_000_000


class CertifiedNetwork:
    """`now` stands still but for `beat`. `contexts` tell what each neighbourhood did; `refused` why words were in
    vain.
    """

    def __init__(self, rules: Rules | None = None, seed: int = 1, neighbours_max: int = 20) -> None:
        rules = rules or Rules()
        self.config = MeshConfig(
            neighbours_max=neighbours_max, address_bytes_max=12, membership="certified", certified=rules
        )
        self.rng = Random(seed)
        self.now = START_US
        self.nodes: dict[Address, CertifiedNeighbourhood] = {}
        self.contexts: dict[Address, FakeContext] = {}
        self.mail: deque[tuple[Address, Address, Message]] = deque()
        self.sent: list[tuple[Address, Address, Message]] = []
        self.refused: list[str] = []
        self.cut: dict[Address, None] = {}

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
        door = self.contexts[address] = FakeContext(self, address)
        node = self.nodes[address] = CertifiedNeighbourhood(
            self.config,
            address,
            [Address(contact) for contact in contacts],
            door,
            self.credentials(name, keyring),
            prefix,
            Random(self.rng.getrandbits(64)),
            self.now,
            [Address(anchor) for anchor in anchors],
        )
        return node

    def grow(self, count: int) -> None:
        """Let nodes come one after the other, each of its own prefix, by the first."""
        self.add("n0")
        for number in range(1, count):
            self.add(f"n{number}", "n0")
            self.beat()

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += PERIOD_US
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
        """What one has said to the other so far."""
        return [message for by, to, message in self.sent if by == source and to == target]

    def linked(self, name: str) -> list[str]:
        return list(self.nodes[Address(name)].slots.links)

    def kill(self, name: str) -> None:
        """End a node, and let the others notice."""
        del self.nodes[Address(name)]
        for node in self.nodes.values():
            node.on_neighbour_lost(Address(name), self.now)

    def is_connected(self) -> bool:
        index = {name: number for number, name in enumerate(self.nodes)}
        edges = [(index[u], index[v]) for u, node in self.nodes.items() for v in node.slots.links if v in index]
        return is_connected(len(index), edges)


class FakeContext:
    def __init__(self, street: CertifiedNetwork, name: Address) -> None:
        self._street, self._name = street, name
        self.opened: list[Address] = []
        self.closed: list[Address] = []
        self.records: list[list[Address]] = []
        self.silent_us = 0
        self.fresh = True

    def is_present(self, name: Address) -> bool:
        peer = self._street.nodes.get(name)
        return peer is not None and self._name in peer.slots

    def is_fresh(self, name: Address, now: int) -> bool:
        return self.fresh

    def unheard_us(self, now: int) -> int:
        return self.silent_us

    def open(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> None:
        self.opened.append(name)

    def close(self, name: Address, now: int) -> None:
        self.closed.append(name)

    def send(self, name: Address, message: Message) -> None:
        self._street.mail.append((self._name, name, message))
        self._street.sent.append((self._name, name, message))

    def store_anchors(self, anchors: list[Address]) -> None:
        self.records.append(anchors)
