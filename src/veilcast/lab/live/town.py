"""A town: the population of a simulated world on real sockets, all of it or a part, in this process.

It offers what a population asks of a `World`, so the same population settles in either, with the same chance for each
node, and is watched by the same checkers. What differs is who drives: here each machine has a `UdpDriver` on a loopback
address of its own, all on one event loop, and time passes by itself. The clock starts when a simulated world's does, so
the keys that were made for worlds hold. Disks are in memory.

Several processes can each hold a part of one town: they agree on when it `began`, and on nothing else.
"""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

from veilcast.authority.epoch import HOUR_US
from veilcast.machine import Address, Event, Machine, Record, Settled
from veilcast.net.clock import Clock
from veilcast.net.udp import UdpDriver
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth, Factory
from veilcast.sim.mesh import MeshPopulation
from veilcast.sim.world import EventSink, World

Around: TypeAlias = Callable[[Machine, Address], Machine]


def as_it_is(machine: Machine, address: Address) -> Machine:
    return machine


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For tests that run beside one another: towns have the same addresses."""
    place = Path(tempfile.gettempdir()) / "veilcast-town.lock"
    # Another user may own the file. To read it is enough for a lock, and in a shared directory no more is allowed.
    if not place.exists():
        place.touch()
    with place.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


class TownMesh(MeshPopulation, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="town"):
    """A mesh whose nodes have addresses of the loopback interface, one `port`, and each a host of its own."""

    port: int = 4077

    def addresses(self) -> tuple[Address, ...]:
        hosts = (f"127.{number // 250 + 1}.{number % 250 + 1}.1" for number in range(self.nodes))
        return tuple(Address(f"{host}:{self.port}") for host in hosts)


class House:
    """One address: who lives there now, how it is driven, and what the disk holds."""

    def __init__(self, address: Address, factory: Factory) -> None:
        self.address, self.factory = address, factory
        self.incarnation = -1
        self.disk: dict[int, bytes] = {}
        self.machine: Machine | None = None
        self.driver: UdpDriver | None = None


class Town:
    """`home` says where a node listens that others know by another address; `around` may wrap machines; `steady_ns` is
    the clock of the event loop."""

    def __init__(
        self,
        *,
        seed: int,
        epoch_us: int = HOUR_US,
        began_ns: int | None = None,
        here: Container[Address] | None = None,
        home: Callable[[Address], str] = str,
        around: Around = as_it_is,
        on_event: EventSink | None = None,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.seed, self.epoch_us, self.start = seed, epoch_us, START_US
        began = steady_ns() if began_ns is None else began_ns
        self._clock = Clock(lambda: START_US * 1000 + steady_ns() - began, steady_ns)
        self._here, self._home, self._around, self._on_event = here, home, around, on_event
        self._checkers: list[Checker] = []
        self._plans: list[tuple[int, Callable[[], None]]] = []
        self.houses: dict[Address, House] = {}
        self.violations: list[str] = []

    # --- what a population asks of a world

    @property
    def now(self) -> int:
        return self._clock.now()

    def watch(self, checker: Checker) -> None:
        self._checkers.append(checker)

    def add(self, address: Address, factory: Factory, after_us: int = 0) -> None:
        if self._here is None or address in self._here:
            self.houses[address] = House(address, factory)
            self.after(after_us, lambda: self.restart(address))

    def after(self, delay_us: int, act: Callable[[], None]) -> None:
        """From the town's beginning on."""
        self._plans.append((START_US + delay_us, act))

    def connect(self, u: Address, v: Address) -> None:
        """There is a way between any two."""

    def label(self, topic: str, node: Address, role: str, since_us: int, until_us: int) -> None:
        """Nobody asks."""

    def call(self, address: Address, act: Callable[[Any, int], None]) -> None:
        house = self.houses.get(address)
        if house is not None and house.machine is not None:
            machine = house.machine
            self._loop.call_soon(self._called, house, machine, act)

    def machine(self, address: Address) -> Any:
        house = self.houses.get(address)
        return None if house is None else house.machine

    def incarnation(self, address: Address) -> int:
        return self.houses[address].incarnation

    # --- life

    def settle(self, population: MeshPopulation, duration_us: int) -> None:
        population.settle(cast(World, self), duration_us)

    async def run(self, duration_us: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Until so long after the beginning, or until it is enough; then all end at once."""
        self._loop = asyncio.get_running_loop()
        for at_us, act in self._plans:
            self._loop.call_at(self._clock.loop_time(at_us), act)
        while (left_us := START_US + duration_us - self.now) > 0 and not enough():
            await asyncio.sleep(min(left_us / 1e6, LOOK_S))
        for address in self.houses:
            self.crash(address)
        for checker in self._checkers:
            self._check(checker.on_end, cast(World, self))

    def restart(self, address: Address) -> None:
        house = self.houses[address]
        if house.machine is not None:
            return
        house.incarnation += 1
        birth = Birth(address, house.incarnation, self.now, dict(house.disk), self.seed)
        house.machine = self._around(house.factory(birth), address)
        house.driver = UdpDriver(
            house.machine, [self._home(address)], lambda event: self._take(house, event), self._clock
        )
        house.driver.open()

    def crash(self, address: Address) -> None:
        house = self.houses[address]
        if house.driver is not None:
            house.driver.close()
        house.machine = house.driver = None

    # --- inside

    def _take(self, house: House, event: Event) -> None:
        if isinstance(event, Record):
            house.disk.pop(event.record, None)
            house.disk[event.record] = event.data
            number = event.record
            self.call(house.address, lambda machine, now: machine.stored(number, now))
        elif isinstance(event, Settled):
            house.disk.pop(event.record, None)
        for checker in self._checkers:
            self._check(checker.on_event, cast(World, self), house.address, event)
        if self._on_event is not None:
            self._on_event(house.address, event, self.now)

    def _called(self, house: House, machine: Machine, act: Callable[[Any, int], None]) -> None:
        if house.machine is machine and house.driver is not None:
            act(machine, self.now)
            house.driver.touch()

    def _check(self, hook: Callable[..., None], *arguments: object) -> None:
        try:
            hook(*arguments)
        except ViolationError as violation:
            self.violations.append(str(violation))


LOOK_S = 0.2
