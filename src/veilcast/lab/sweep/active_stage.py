"""Where active insiders act: a neighbourhood of the seed, roles and a coalition in it, and what came of a play.

The link layer is off, for members are inside their links anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
import numpy as np

from veilcast.lab.measure.ranking import auc
from veilcast.lab.sweep.params import Params
from veilcast.lab.sweep.town import BRISK
from veilcast.machine import Address, Delivered, Event
from veilcast.mesh.config import Config, ShellGame
from veilcast.sim.active.infiltrated import Infiltrated, Script
from veilcast.sim.active.mouth import Mouth
from veilcast.sim.chance import generator
from veilcast.sim.checkers import Checker
from veilcast.sim.links import Links
from veilcast.sim.mesh import MeshPopulation
from veilcast.sim.world import World

Actor = TypeVar("Actor", bound=Mouth)


class Stage:
    """Who lives where: the neighbourhood of the seed, and roles for those who are in no coalition."""

    def __init__(self, params: Params, seed: int) -> None:
        self.params, self.seed = params, seed
        self.hardened = params.kappa > 0
        self.first_us = (_FORMING_HARDENED if self.hardened else _FORMING) * PERIOD_US
        self._rng = generator(seed, "stage")
        self._plain = MeshPopulation(
            params.nodes,
            params.degree,
            params.rewire,
            params.ratio,
            mesh=self.mesh,
            cover_share=params.kappa,
            checks=(),
        )
        self.addresses = self._plain.addresses()
        draft = self._infiltrated(self.addresses[0], self.addresses[1:2], (), lambda node, _: node, 0, 1)
        self.neighbours = draft.neighbours_of(seed)

    def drawn(self) -> tuple[Address, tuple[Address, ...], tuple[Address, ...]]:
        """A publisher, readers, and a coalition that has neither role."""
        many = round(self.params.insiders * self.params.nodes)
        publisher, *others = self._rng.sample(self.addresses, self._readers + many + 1)
        return publisher, tuple(others[: self._readers]), tuple(others[self._readers :])

    def besieged(self) -> tuple[Address, tuple[Address, ...], tuple[Address, ...], tuple[Address, ...]]:
        """The same around victims, who have none but hostile neighbours: the publisher, some readers and some others,
        of each as many. Victims share no neighbours, and are none themselves."""
        victims: list[Address] = []
        near: dict[Address, None] = {}
        for address in self._rng.sample(self.addresses, len(self.addresses)):
            around = self.neighbours[address]
            if len(victims) < VICTIMS and address not in near and not any(n in near or n in victims for n in around):
                victims.append(address)
                near |= dict.fromkeys(around)
        publisher, readers = victims[0], victims[1 : 1 + len(victims) // 2]
        free = [address for address in self.addresses if address not in near and address not in victims]
        return publisher, (*readers, *free[: self._readers]), tuple(near), tuple(victims)

    def play(
        self,
        roles: tuple[Address, tuple[Address, ...], tuple[Address, ...]],
        script: Script,
        notes: int,
        every_us: int,
        *,
        joins: bool = False,
        told: Config | None = None,
    ) -> Played:
        """`joins` has the coalition read the topic, too."""
        people = msgspec.structs.replace(self._infiltrated(*roles, script, notes, every_us), joins=joins, told=told)
        links = Links(latency_us=(PERIOD_US // 100, PERIOD_US // 10))
        world = World(seed=self.seed, links=links, epoch_us=EPOCH_US)
        played = Played(world, people)
        people.settle(world, 0)
        return played

    @property
    def _readers(self) -> int:
        return max(1, round(self.params.ratio * self.params.nodes))

    @property
    def mesh(self) -> Config:
        """What honest nodes are told."""
        game = ShellGame()
        if self.params.game == "events":
            wait_us = round(self.params.wait_s * 1_000_000)
            game = ShellGame(start="child", first="exponential", wait_us=wait_us, rate=self.params.decay)
        return Config(
            profile="hardened" if self.hardened else "paper",
            heartbeat_us=PERIOD_US,
            neighbours_max=self.params.degree + 24,
            address_bytes_max=8,
            shellgame=game,
            hardening=BRISK,
        )

    def _infiltrated(
        self,
        publisher: Address,
        readers: tuple[Address, ...],
        coalition: tuple[Address, ...],
        script: Script,
        notes: int,
        every_us: int,
    ) -> Infiltrated:
        fields = msgspec.structs.asdict(self._plain) | {
            "notes": notes, "first_us": self.first_us, "every_us": every_us,
        }  # fmt: skip
        return Infiltrated(**fields, publisher=publisher, readers=readers, coalition=coalition, script=script)


class Played(Checker):
    """A network that runs, and what its readers were given."""

    def __init__(self, world: World, people: Infiltrated) -> None:
        self.world, self.people = world, people
        self.got: dict[tuple[Address, bytes], int] = {}
        world.watch(self)

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and address in self.people.readers:
            place = address, event.note.publication.body
            self.got[place] = self.got.get(place, 0) + 1

    def run(self, duration_us: int) -> None:
        self.world.run(duration_us)

    def actors(self, script: type[Actor]) -> list[Actor]:
        """The coalition, which plays this."""
        return [machine for name in self.people.coalition if isinstance(machine := self.world.machine(name), script)]

    def honest(self) -> list[Address]:
        return [address for address in self.people.addresses() if address not in self.people.coalition]

    def delivered(self) -> dict[str, float]:
        """The share of notes that readers got."""
        return {"delivered": (len(self.got) - self.false()) / (self.people.notes * len(self.people.readers))}

    def false(self) -> int:
        """How many notes readers got that nobody published, or got twice."""
        published = {b"note %d" % number for number in range(self.people.notes)}
        return sum(times - (body in published) for (_, body), times in self.got.items())

    def auc(self, scores: Mapping[Address, float]) -> dict[str, float]:
        """Of readers against others, of those who are honest and were looked at."""
        looked = [name for name in scores if name not in self.people.coalition and name != self.people.publisher]
        reads = np.array([name in self.people.readers for name in looked])
        ranked = auc(np.array([scores[name] for name in looked]), reads)
        return {"auc": ranked, "looked_at": float(len(looked)), "base_rate": float(reads.mean()) if looked else 0.0}


PERIOD_US: Final = 1_000_000
_FORMING: Final = 20
"""Heartbeats until a mesh stands."""
_FORMING_HARDENED: Final = 80
EPOCH_US: Final = 600 * PERIOD_US
VICTIMS: Final = 9
"""The publisher, and of readers and others as many."""
