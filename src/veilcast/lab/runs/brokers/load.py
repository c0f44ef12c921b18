"""P4's brokers under a steady load, in the simulator, with the settings of a member's file: a key serves for many
publications.

A line of virtual nodes, a publisher at one end and a reader at the other. First, publications leave at a steady rate:
how long does each take? Then, in another run, each leaves as soon as another has arrived, and a fixed number is under
way: how many arrive in a second? In that run every machine has a processor, and each frame takes its time there
(`sim.busy_machine`). The first bulks are not counted: they show how long a publisher takes to begin, `first_s`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from veilcast.brokers.config import BrokerClientConfig
from veilcast.lab.experiment.broker_params import BrokersLoad
from veilcast.lab.experiment.params import Measure
from veilcast.machine import Address, Delivered, Event, Machine, Publication
from veilcast.sim.brokers.adversaries import BEHAVIOURS
from veilcast.sim.brokers.population import BrokersPopulation
from veilcast.sim.busy_machine import BusyMachine
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.links import LinkDelays
from veilcast.sim.world import World
from veilcast.sim.wrappers import unwrap
from veilcast.topics import Label


def run(params: BrokersLoad, seed: int, data: Path | None = None) -> list[Measure]:
    steady = LoadedLine(params, seed, frame_us=0)
    first_us = steady.publish_paced(1, 0)[0]
    took = sorted(steady.publish_paced(params.notes, params.every_ms * 1_000))
    busy = LoadedLine(params, seed, frame_us=params.frame_us)
    busy.publish_window(_WARM_NOTES, params.window)
    values = {
        "first_s": first_us / 1e6,
        "p50_ms": took[len(took) // 2] / 1e3,
        "p99_ms": took[len(took) * 99 // 100] / 1e3,
        "late": sum(us > _LATE_US for us in took) / len(took),
        "rate": busy.publish_window(params.notes, params.window),
    }
    return [Measure("", name, 0, value) for name, value in values.items()]


class LoadedLine:
    """A line of virtual nodes whose publisher has advertised some seconds ago."""

    def __init__(self, params: BrokersLoad, seed: int, *, frame_us: int) -> None:
        self._sent: dict[bytes, int] = {}
        self._heard: dict[bytes, int] = {}
        self._remaining = 0
        """Publications that follow when others have arrived."""
        links = LinkDelays(latency_us=(1_000, 5_000))
        self._world = _BusyWorld(seed=seed, links=links, disk_us=1, on_event=self._hear)
        self._world.frame_us = frame_us
        settings = BrokerClientConfig() if params.ahead else BrokerClientConfig(overtime_us=0)
        population = BrokersPopulation(
            nodes=params.nodes,
            replicas=params.replicas,
            liars=params.liars if params.lie != "none" else 0,
            behaviours=(params.lie,) if params.lie != "none" else BEHAVIOURS,
            readers=1,
            topics=1,
            bits=0,
            notes=0,
            client=settings,
            checks=(),
        )
        population.populate(self._world, _WHOLE_US)
        self._world.run(_SETTLED_US)

    def publish_paced(self, count: int, every_us: int) -> list[int]:
        """Publish this many, and wait for all. Returns how long each took, at most `PATIENCE_US`."""
        bodies = []
        for _ in range(count):
            bodies.append(self._publish())
            self._world.run(every_us)
        end_us = self._world.now + PATIENCE_US
        while self._world.now < end_us and any(body not in self._heard for body in bodies):
            self._world.run(_LOOK_US)
        return [self._heard.get(body, self._sent[body] + PATIENCE_US) - self._sent[body] for body in bodies]

    def publish_window(self, count: int, window: int) -> float:
        """Publish this many, with `window` of them under way. Returns how many arrived in a second."""
        before, start_us = len(self._heard), self._world.now
        self._remaining = count
        for _ in range(min(window, count)):
            self._publish_next()
        while len(self._heard) - before < count and self._world.now < start_us + PATIENCE_US:
            self._world.run(_LOOK_US)
        self._remaining = 0
        arrived = len(self._heard) - before
        end_us = max(self._heard.values()) if arrived == count else self._world.now
        return arrived / (end_us - start_us) * 1e6

    def _publish_next(self) -> None:
        if self._remaining:
            self._remaining -= 1
            self._publish()

    def _publish(self) -> bytes:
        body = b"%d" % len(self._sent)
        self._sent[body] = self._world.now
        note = Publication((Label(_TOPIC).pair,), body)

        def publish(machine: Any, now: int) -> None:
            unwrap(machine).publish(note, now)

        self._world.call(_PUBLISHER, publish)
        return body

    def _hear(self, _: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered) and event.note.publication.body not in self._heard:
            self._heard[event.note.publication.body] = now
            self._publish_next()


class _BusyWorld(World):
    """A world whose machines have processors, if a frame takes time there."""

    frame_us = 0

    def add(self, address: Address, factory: MachineFactory, after_us: int = 0) -> None:
        if not self.frame_us:
            super().add(address, factory, after_us)
            return
        receiving, sending = self.frame_us, self.frame_us // 2

        def start(birth: Birth) -> Machine:
            machine: Any = factory(birth)
            return BusyMachine(machine, lambda _: receiving, lambda _: sending)

        super().add(address, start, after_us)


PATIENCE_US: Final = 90_000_000
"""Longest wait for a publication."""
_LATE_US: Final = 1_000_000
_WARM_NOTES: Final = 64
_PUBLISHER: Final = Address("c0")
_TOPIC: Final = "brokers/0"
_SETTLED_US: Final = 60_000_000
"""A publisher that has been up for a minute."""
_LOOK_US: Final = 50_000
_WHOLE_US: Final = 3_000_000_000
