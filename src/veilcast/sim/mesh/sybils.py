"""A population of honest mesh nodes, and one adversary with many more addresses, in few prefixes.

Every Sybil knocks at honest nodes without pause, shares only addresses of Sybils, sends heartbeats over every link it
gets, and forwards nothing. Some have stolen certificates with their keys; the others show these certificates without
the keys. SCAMP demands neither, and against it Sybils only claim to keep every node. With `lures` they forward
advertisements, so that other nodes subscribe through them, and drop the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from veilcast.crypto.certificate import CertificateChain
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.machine import Address, Event, Frame
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.credentials import COOKIE_PERIODS, Credentials, ProofContext
from veilcast.mesh.heartbeat import read_heartbeat
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.mesh.checkers import mesh_node_at
from veilcast.sim.mesh.population import MeshPopulation, make_own_keyring
from veilcast.sim.world import World
from veilcast.wire import decode, encode, pad
from veilcast.wire.base import Message
from veilcast.wire.geometry import LENGTH_PREFIX, PROOF, SHARED_ADDRESSES_MAX
from veilcast.wire.mesh import Admit, Advert, Answer, ForwardJoin, Heartbeat, Join, Keep, Knock, Show


class SybilPopulation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sybils"):
    """Honest nodes, and Sybils that attack them from `attack_us` on."""

    honest: MeshPopulation
    sybils: int = 400
    stolen: int = 25
    """Number of Sybils that have a certificate and its key."""
    prefixes: int = 40
    attack_us: int = 0
    knocks: int = 1
    """Honest nodes that each Sybil knocks at with every heartbeat."""
    lures: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.stolen <= self.sybils:
            raise ConfigError("population.stolen must be between 0 and population.sybils")
        if self.attack_us < 0 or self.knocks < 0:
            raise ConfigError("population.attack_us and population.knocks must not be negative")
        if self.prefixes < 1:
            raise ConfigError("population.prefixes must be at least 1")
        if self.honest.mesh.membership == "fixed":
            raise ConfigError("population.honest.mesh.membership must not be fixed: nobody could come in")

    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the honest nodes, which faults may hit."""
        return self.honest.addresses()

    def sybil_addresses(self) -> tuple[Address, ...]:
        return tuple(Address(f"s{i % self.prefixes}.{i}") for i in range(self.sybils))

    def populate(self, world: World, duration_us: int) -> None:
        self.honest.populate(world, duration_us)
        plot = _SybilPlan(self.honest.mesh, self.addresses(), self.sybil_addresses(), self.knocks, self.lures)
        for number, address in enumerate(plot.ours):
            # A Sybil without a key shows the certificate of one with a key.
            world.add(address, self._start(plot, number, number < self.stolen), max(1, self.attack_us))

    def facts(self, world: World) -> dict[str, int]:
        """Links of honest nodes by the kind of peer, and the number of honest nodes with Sybils as their only peers."""
        ours = dict.fromkeys(self.addresses())
        thieves = dict.fromkeys(self.sybil_addresses()[: self.stolen])
        links = {"honest": 0, "stolen": 0, "uncertified": 0}
        eclipsed = 0
        for machine in (mesh_node_at(world, address) for address in self.addresses()):
            if machine is None:
                continue
            present = machine.overlay.present_neighbours()
            for name in present:
                links["honest" if name in ours else "stolen" if name in thieves else "uncertified"] += 1
            eclipsed += not any(name in ours for name in present)
        named = {f"links to {kind}": count for kind, count in links.items()}
        return {**self.honest.facts(world), **named, "eclipsed": eclipsed}

    def _start(self, plot: _SybilPlan, number: int, has_key: bool) -> MachineFactory:
        def start(birth: Birth) -> _Sybil:
            if plot.config.membership == "scamp":
                return _Joiner(plot, birth)
            return _Thief(plot, birth, f"stolen {number % max(1, self.stolen)}", has_key)

        return start


class _SybilPlan(msgspec.Struct, frozen=True):
    """Knowledge that all Sybils share."""

    config: MeshConfig
    honest: Sequence[Address]
    ours: Sequence[Address]
    knocks: int
    lures: bool


class _Sybil:
    """One address of the adversary. Its messages wait for the next heartbeat, and its memory is not bounded."""

    version = 0

    def __init__(self, plot: _SybilPlan, birth: Birth) -> None:
        self._plot, self._name, self._rng = plot, birth.address, birth.rng
        self._links: dict[Address, None] = {}
        self._words: dict[Address, list[Message]] = {}
        self._number = 0
        self._next_us = birth.now + birth.rng.randrange(plot.config.heartbeat_us)
        self._frames: list[Frame] = []

    def knock(self, target: Address) -> None:
        """Begin to get a link to an honest node."""

    def on_message(self, message: Message, source: Address, now: int) -> None:
        """Answer so as to get a link, or to prevent links of others."""

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if data[:1] != b"\0" or int.from_bytes(data[:LENGTH_PREFIX], "big") < _IDLE_MAX:
            return
        for rider in read_heartbeat(data, self._plot.config.heartbeat_bytes).riders:
            message = decode(rider)
            if isinstance(message, Advert) and self._plot.lures:
                for name in self._links:
                    self.queue(name, message)
            self.on_message(message, source, now)

    def queue(self, name: Address, *messages: Message) -> None:
        self._words.setdefault(name, []).extend(messages)

    def handle_timer(self, now: int) -> None:
        if now < self._next_us:
            return
        self._next_us = now + self._plot.config.heartbeat_us
        for target in self._rng.sample(self._plot.honest, min(self._plot.knocks, len(self._plot.honest))):
            if target not in self._links:
                self.knock(target)
        self._number += 1
        words, self._words = self._words, {}
        idle = self._beat()
        for name in dict.fromkeys((*self._links, *words)):
            data = self._beat(*words[name][:_WORDS_MAX]) if name in words else idle
            self._frames.append(Frame(name, data))

    def next_timer(self) -> int | None:
        return self._next_us

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None

    def peer_lost(self, peer: Address, now: int) -> None:
        self._links.pop(peer, None)

    def sizes(self) -> dict[str, int]:
        """Nothing that a checker must look at."""
        return {}

    def _beat(self, *messages: Message) -> bytes:
        riders = tuple(encode(message) for message in messages)
        return pad(encode(Heartbeat(self._number, riders)), self._plot.config.heartbeat_bytes)


class _Joiner(_Sybil):
    """Against SCAMP: it keeps every node, and offers itself whenever a node joins. Every node that sends a heartbeat
    counts as linked."""

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._links[source] = None
        super().receive(data, source, now)

    def knock(self, target: Address) -> None:
        self.queue(target, Keep(_LEASE_MS))

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Join):
            self.queue(source, ForwardJoin(self._name, _LEASE_MS, 0))
        elif isinstance(message, ForwardJoin):
            self.knock(Address(message.newcomer))


class _Thief(_Sybil):
    """Against certified membership: it has a certificate, and perhaps its key."""

    def __init__(self, plot: _SybilPlan, birth: Birth, member: str, has_key: bool) -> None:
        super().__init__(plot, birth)
        keyring = make_own_keyring("forwarder", member)
        self._credentials = Credentials(
            keyring, birth.address, birth.entropy, COOKIE_PERIODS * plot.config.heartbeat_us
        )
        self._has_key = has_key
        self._expected: dict[Address, bytes] = {}

    def knock(self, target: Address) -> None:
        self._expected[target] = self._rng.randbytes(16)
        self.queue(target, Knock(self._expected[target]))

    def on_message(self, message: Message, source: Address, now: int) -> None:
        ours, epoch = self._credentials.certificate(now), self._credentials.epoch(now)
        if isinstance(message, Knock):
            cookie = self._credentials.cookie(source, message.nonce, now)
            self.queue(source, Answer(message.nonce, cookie, ours))
        elif isinstance(message, Answer) and self._expected.get(source) == message.nonce:
            meeting = ProofContext(self._name, source, message.nonce, message.cookie, epoch)
            proof = self._proof(message.certificate, meeting, now)
            self.queue(source, Show(message.nonce, message.cookie, epoch, ours, proof, True))
        elif isinstance(message, Show):
            meeting = ProofContext(source, self._name, message.nonce, message.cookie, message.epoch)
            proof = self._proof(message.certificate, meeting, now)
            names = tuple(self._rng.sample(self._plot.ours, min(SHARED_ADDRESSES_MAX, len(self._plot.ours))))
            self.queue(source, Admit(message.nonce, proof, True, names))
            self._links[source] = None
        elif isinstance(message, Admit) and message.linked:
            self._links[source] = None

    def _proof(self, peer: CertificateChain, meeting: ProofContext, now: int) -> bytes:
        if not self._has_key:
            return self._rng.randbytes(PROOF)
        proofs = self._credentials.prove(peer, meeting, now)
        proof: Secret = proofs.knocker if meeting.knocker == self._name else proofs.answerer
        return proof.reveal()


_IDLE_MAX: Final = 12
"""Most bytes of a heartbeat without riders."""
_WORDS_MAX: Final = 2
"""Messages that surely fit into one heartbeat."""
_LEASE_MS: Final = 3_600_000
