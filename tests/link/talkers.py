"""Talkers: the least machine that links can carry, and a world of them."""

from __future__ import annotations

import random
from functools import cache

from veilcast.authority import issuer
from veilcast.authority.epoch import HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.link.config import LinkConfig
from veilcast.link.machine import LinkMachine
from veilcast.machine import Address, Event, Frame
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth
from veilcast.sim.links import Links
from veilcast.sim.world import World


@cache
def rings(count: int, epochs: int = 2) -> list[Keyring]:
    """Members of one network, for this many hours from the start of a world."""
    entropy = random.Random(1).randbytes
    root, made = issuer.create(HOUR_US, entropy), []
    for number in range(count):
        root, ring = issuer.grant_ready(root, f"member {number}", [], epoch_of(START_US, HOUR_US), epochs, entropy)
        made.append(ring)
    return made


class Talker:
    """Says what it is told to, and remembers what it hears, and who came and went."""

    def __init__(self) -> None:
        self.said: list[Frame] = []
        self.heard: list[tuple[Address, bytes]] = []
        self.notices: list[tuple[str, Address]] = []
        self.times: list[int] = []

    def say(self, peer: Address, *messages: bytes) -> None:
        self.said += [Frame(peer, message) for message in messages]

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.heard.append((source, data))
        self.times.append(now)

    def handle_timer(self, now: int) -> None:
        pass

    def next_timer(self) -> int | None:
        return None

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self.said = self.said[:limit], self.said[limit:]
        return frames

    def next_event(self) -> Event | None:
        return None

    def peer_up(self, peer: Address, now: int) -> None:
        self.notices.append(("up", peer))

    def peer_lost(self, peer: Address, now: int) -> None:
        self.notices.append(("lost", peer))

    def stored(self, record: int, now: int) -> None:
        pass


class Street(World):
    """Members who talk over links."""

    def __init__(
        self,
        *names: str,
        config: LinkConfig | None = None,
        seed: int = 1,
        latency_us: int = 20_000,
        keyrings: dict[str, Keyring] | None = None,
    ) -> None:
        super().__init__(seed=seed, links=Links(latency_us=(latency_us,)))
        self._rings = dict(zip(names, rings(len(names)), strict=True)) | (keyrings or {})
        self._config = config or LinkConfig()
        for name in names:
            self.add(Address(name), self._make)

    def _make(self, birth: Birth) -> LinkMachine:
        return LinkMachine(Talker(), self._config, self._rings[birth.address], birth.rng, birth.entropy)

    def links(self, name: str) -> LinkMachine:
        machine = self.machine(Address(name))
        assert isinstance(machine, LinkMachine)
        return machine

    def talker(self, name: str) -> Talker:
        inner = self.links(name).inner
        assert isinstance(inner, Talker)
        return inner

    def tell(self, name: str, peer: str, *messages: bytes) -> None:
        """Let a talker say something."""
        self.call(Address(name), lambda machine, now: machine.inner.say(Address(peer), *messages))

    def heard(self, name: str) -> list[bytes]:
        return [message for _, message in self.talker(name).heard]
