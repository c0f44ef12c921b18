"""Address grinding: one member with one certificate knocks at every node, from one new address after another.

The insider wants to be the publisher's first relay. At each honest node it has one address at a time. If that node has
handed it nothing for a turn, the insider leaves, and returns from an address that no node has seen. If the node has
handed it something, the insider stays. It drops nothing, and keeps the limits on knocks: all its addresses have one
prefix. It notes which node handed over each publication first. The node that is first most often is its
guess.

With a turn of 0 the insider keeps its first addresses: the null control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.machine import Address, Machine
from veilcast.mesh.config import CertifiedConfig, HardeningConfig, MeshConfig
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.stem import cargo_id
from veilcast.sim.host import Birth
from veilcast.sim.insiders.insider import ActiveInsider
from veilcast.sim.links import LinkDelays
from veilcast.sim.mesh.owners import MeshNodeOwner
from veilcast.sim.mesh.population import MeshPopulation, address_prefix
from veilcast.sim.world import World
from veilcast.wire.base import Message
from veilcast.wire.mesh import Stem


class DrawnKeyringPopulation(MeshPopulation, frozen=True, kw_only=True, tag="drawn"):
    """A mesh population whose keyrings also depend on `draw`, not on the nodes' numbers alone."""

    draw: int

    def insider_keyring(self, epoch_us: int) -> Keyring:
        """A membership that no node of the population has, without any grant."""
        return self._keyring({}, self.nodes, epoch_us)

    def _keyring(self, roles: dict[str, str], number: int, epoch_us: int) -> Keyring:
        return super()._keyring(roles, number + self.draw * KEYRINGS_PER_DRAW, epoch_us)


class GrindingRun:
    """A run of hardened certified members with one insider. The publisher publishes every five heartbeats.

    The insider joins after `FORMING_S` seconds, and then acts in every turn of `turn_us`.
    """

    def __init__(
        self, seed: int, rules: HardeningConfig, turn_us: int, *, nodes: int = 24, kappa: float = 0.78
    ) -> None:
        self.mesh = MeshConfig(profile="hardened", membership="certified", address_bytes_max=12, hardening=rules)
        self.population = DrawnKeyringPopulation(
            nodes=nodes,
            subscribers=0.2,
            notes=NOTES_MAX,
            first_us=FORMING_S * SECOND_US // 2,
            every_us=PUBLISH_EVERY_S * SECOND_US,
            mesh=self.mesh,
            cover_share=kappa,
            checks=(),
            draw=seed + 1,
        )
        self.world = World(seed=seed, links=LinkDelays(latency_us=(10_000, 100_000)), epoch_us=EPOCH_US)
        self.population.populate(self.world, 0)
        self.publisher, _ = self.population.roles(seed)
        keyring = self.population.insider_keyring(EPOCH_US)
        self.insider = GrindingInsider(self.world, self.mesh, keyring, self.population.addresses(), turn_us)
        self.world.after(FORMING_S * SECOND_US, self.insider.start)

    def run(self, seconds: int) -> GrindingRun:
        self.world.run(seconds * SECOND_US)
        return self

    def is_publisher_guessed(self, last: int) -> bool:
        """True if the insider's guess from the last `last` seconds is right."""
        return self.insider.guess(self.world.now - last * SECOND_US) == self.publisher

    def first_hand_share(self, last: int) -> float:
        """Share of the publications of the last `last` seconds that the publisher itself handed to the insider."""
        since_us = self.world.now - last * SECOND_US
        handed = sum(
            source == self.publisher and at_us >= since_us for source, at_us in self.insider.first_handovers.values()
        )
        return min(1.0, handed * PUBLISH_EVERY_S / last)

    def first_relay(self) -> FirstRelay:
        """The publisher's first relay."""
        found = self.world.machine(self.publisher)._profile.first_relay
        assert isinstance(found, FirstRelay)
        return found


class GrindingInsider:
    """The member behind all the addresses. Only the length of a run bounds its memory."""

    def __init__(
        self, world: World, config: MeshConfig, keyring: Keyring, targets: Sequence[Address], turn_us: int
    ) -> None:
        self._world, self._keyring, self._turn_us, self._targets = world, keyring, turn_us, targets
        # One link at each address, to the target, and nothing that another node could find unusual.
        alone = CertifiedConfig(outbound=1, reunions=0, anchors=0, book_max=2, probe_periods=1_000_000)
        quiet = msgspec.structs.replace(config.hardening, covers=False, volunteer=False)
        self._config = msgspec.structs.replace(config, certified=alone, hardening=quiet)
        self._current: dict[Address, Address] = {}
        self._handed: Counter[Address] = Counter()
        """Publications that each target has handed over in this turn."""
        self.first_handovers: dict[bytes, tuple[Address, int]] = {}
        """For each publication, the node that handed it over first, and the time."""
        self.addresses: list[Address] = []

    def start(self) -> None:
        """Join every node, each at its own time."""
        for place, target in enumerate(self._targets):
            self._world.after(1 + place * SECOND_US, lambda target=target: self._come(target))  # type: ignore[misc]

    def record_handover(self, stem: Stem, source: Address, now: int) -> None:
        self._handed[source] += 1
        if not stem.climbing:
            self.first_handovers.setdefault(cargo_id(stem.cargo), (source, now))

    def guess(self, since_us: int) -> Address | None:
        """The node that was first with the most publications since then."""
        counts = Counter(source for source, at_us in self.first_handovers.values() if at_us >= since_us)
        return max(sorted(counts), key=lambda name: counts[name], default=None)

    def _come(self, target: Address) -> None:
        address = Address(f"evil.{len(self.addresses)}")
        self.addresses.append(address)
        self._current[target] = address
        owner = MeshNodeOwner(self._config, self._keyring, {}, [target], address_prefix)
        self._world.add(address, lambda birth: GrindingNode(owner.start(birth), birth, target, self))
        if self._turn_us:
            self._world.after(self._turn_us - LEAVE_US, lambda: self._look(target))

    def _look(self, target: Address) -> None:
        if self._handed.pop(target, 0):
            self._world.after(self._turn_us, lambda: self._look(target))
            return
        address = self._current[target]
        self._world.call(address, lambda machine, now: machine.inner.leave(now))
        self._world.after(LEAVE_US - 1, lambda: self._world.crash(address))
        self._world.after(LEAVE_US, lambda: self._come(target))


class GrindingNode(ActiveInsider):
    """The insider at one address. It talks to its target alone."""

    def __init__(self, inner: Machine, birth: Birth, target: Address, insider: GrindingInsider) -> None:
        super().__init__(inner)
        self._target, self._insider = target, insider

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if source == self._target:
            super().receive(data, source, now)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Stem):
            self._insider.record_handover(message, source, now)


KEYRINGS_PER_DRAW: Final = 1_000
"""Keyrings of each draw."""
SECOND_US: Final = 1_000_000
EPOCH_US: Final = 600 * SECOND_US
FORMING_S: Final = 120
"""Seconds until the mesh has formed."""
PUBLISH_EVERY_S: Final = 5
NOTES_MAX: Final = 64 * 600 // PUBLISH_EVERY_S
"""Publications for the whole validity of the keyrings."""
TURN_S: Final = 36
"""Seconds between two addresses: nodes answer one knock of a prefix in thirty."""
LEAVE_US: Final = 3 * SECOND_US
"""Time to leave: a heartbeat with the message, and its transit."""
