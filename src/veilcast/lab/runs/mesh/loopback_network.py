"""A loopback network: the population of a simulated world on real sockets, all of it or a part, in this process.

It offers what a population needs of a `World`. So the same population settles in either, with the same random draws for
each node, and the same checkers watch it. The difference is the driver: each machine has a `UdpDriver` on its own
loopback address, all on one event loop, and time passes by itself. The clock starts when a simulated world's does, so
keys made for worlds are valid. Disks are in memory.

Several processes can each hold a part of one network: they agree on when it `began`, and on nothing else.

`DeliveryStats` counts the notifications that readers received. `WireRecorder` wraps a node's machine and records what
an observer of its wire sees: the time, destination and size of each datagram, at the moment when the driver takes each
frame. An observer cannot see how late a cell is, because each leaves at a time that was drawn for it; the recorder asks
the links.
"""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

from veilcast.authority.epoch import HOUR_US
from veilcast.machine import Address, Delivered, Event, Frame, Machine, Record, Settled
from veilcast.net.clock import SystemClock
from veilcast.net.udp import UdpDriver
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.sim.engine import START_US
from veilcast.sim.host import Birth, MachineFactory
from veilcast.sim.mesh.population import MeshPopulation
from veilcast.sim.world import EventSink, World
from veilcast.sim.wrappers import MachineWrapper


class DeliveryStats:
    """Counts the deliveries of a network with one topic; `record_event` is its `on_event`."""

    def __init__(self, population: MeshPopulation, seed: int) -> None:
        self._population = population
        self.readers = population.roles(seed)[1]
        self._got: Counter[tuple[Address, int]] = Counter()
        self.late_us: list[int] = []
        """Delay of each delivery since the planned publication time."""

    def record_event(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            number = int(event.note.publication.body.split()[1])
            if not self._got[address, number]:
                self.late_us.append(now - START_US - self._population.first_us - number * self._population.every_us)
            self._got[address, number] += 1

    @property
    def pairs(self) -> int:
        """Number of pairs of a notification and a reader that should receive it."""
        return self._population.notes * len(self.readers)

    @property
    def delivered(self) -> int:
        return len(self._got)

    @property
    def repeated(self) -> int:
        """Deliveries of notifications that were delivered, and acknowledged, before."""
        return self._got.total() - len(self._got)

    def missing(self) -> list[tuple[Address, int]]:
        return [
            (reader, number)
            for reader in self.readers
            for number in range(self._population.notes)
            if (reader, number) not in self._got
        ]


def sample_quantile(values: list[int], share: float) -> float:
    """The quantile in the unit of the values; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


SentDatagrams: TypeAlias = dict[Address, tuple["array[int]", "array[int]"]]
"""Times in microseconds, and sizes, of the datagrams sent to each peer."""


class WireRecorder(MachineWrapper):
    def __init__(self, inner: Machine, clock: Callable[[], int]) -> None:
        super().__init__(inner)
        self._clock = clock
        self.sent: SentDatagrams = {}
        self.late: list[tuple[int, int]] = []
        """When each cell left, and how late it was."""
        self._due: dict[Address, int] = {}

    def handle_timer(self, now: int) -> None:
        for link in self.inner._links.values():
            if link.slots.next_us <= now and not link.slots.is_deferred:
                self._due[link.route.path] = link.slots.next_us
        super().handle_timer(now)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames = self._inner.frames_to_send(now, limit)
        if frames:
            at = self._clock()
            for frame in frames:
                times, sizes = self.sent.setdefault(frame.destination, (array("q"), array("i")))
                times.append(at)
                sizes.append(len(frame.data))
                if (due_us := self._due.pop(frame.destination, None)) is not None:
                    self.late.append((at, at - due_us))
        return frames


WrapMachine: TypeAlias = Callable[[Machine, Address], Machine]


def keep_machine(machine: Machine, address: Address) -> Machine:
    return machine


@contextmanager
def exclusive_addresses() -> Iterator[None]:
    """Hold a lock, for tests that run side by side: all networks have the same addresses."""
    place = Path(tempfile.gettempdir()) / "veilcast-town.lock"
    # Another user may own the file. Reading is enough for a lock, and a shared directory allows no more.
    if not place.exists():
        place.touch()
    with place.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


class LoopbackPopulation(MeshPopulation, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="town"):
    """A mesh whose nodes have addresses of the loopback interface: one `port`, and a host for each."""

    port: int = 4077

    def addresses(self) -> tuple[Address, ...]:
        hosts = (f"127.{number // 250 + 1}.{number % 250 + 1}.1" for number in range(self.nodes))
        return tuple(Address(f"{host}:{self.port}") for host in hosts)


class LoopbackHost:
    """One address: its machine, its driver, and the contents of its disk."""

    def __init__(self, address: Address, factory: MachineFactory) -> None:
        self.address, self.factory = address, factory
        self.incarnation = -1
        self.disk: dict[int, bytes] = {}
        self.machine: Machine | None = None
        self.driver: UdpDriver | None = None


class LoopbackNetwork:
    """A population on loopback sockets. `home` maps the address of a node to the one it listens on; `around` can wrap
    machines; `steady_ns` is the clock of the event loop."""

    def __init__(
        self,
        *,
        seed: int,
        epoch_us: int = HOUR_US,
        began_ns: int | None = None,
        here: Container[Address] | None = None,
        home: Callable[[Address], str] = str,
        around: WrapMachine = keep_machine,
        on_event: EventSink | None = None,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.seed, self.epoch_us, self.start = seed, epoch_us, START_US
        began = steady_ns() if began_ns is None else began_ns
        self._clock = SystemClock(lambda: START_US * 1000 + steady_ns() - began, steady_ns)
        self._here, self._home, self._around, self._on_event = here, home, around, on_event
        self._checkers: list[Checker] = []
        self._plans: list[tuple[int, Callable[[], None]]] = []
        self.hosts: dict[Address, LoopbackHost] = {}
        self.violations: list[str] = []

    # --- the interface of a world

    @property
    def now(self) -> int:
        return self._clock.now()

    def watch(self, checker: Checker) -> None:
        self._checkers.append(checker)

    def add(self, address: Address, factory: MachineFactory, after_us: int = 0) -> None:
        if self._here is None or address in self._here:
            self.hosts[address] = LoopbackHost(address, factory)
            self.after(after_us, lambda: self.restart(address))

    def after(self, delay_us: int, act: Callable[[], None]) -> None:
        """The delay counts from the start of the network."""
        self._plans.append((START_US + delay_us, act))

    def connect(self, u: Address, v: Address) -> None:
        """Does nothing: any two nodes can reach one another."""

    def label(self, topic: str, node: Address, role: str, since_us: int, until_us: int) -> None:
        """Does nothing: labels are for records of simulated worlds."""

    def call(self, address: Address, act: Callable[[Any, int], None]) -> None:
        host = self.hosts.get(address)
        if host is not None and host.machine is not None:
            machine = host.machine
            self._loop.call_soon(self._called, host, machine, act)

    def machine(self, address: Address) -> Any:
        host = self.hosts.get(address)
        return None if host is None else host.machine

    def incarnation(self, address: Address) -> int:
        return self.hosts[address].incarnation

    # --- start and stop

    def settle(self, population: MeshPopulation, duration_us: int) -> None:
        population.populate(cast(World, self), duration_us)

    async def run(self, duration_us: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Run until this long after the start, or until `enough`; then stop all nodes at once."""
        self._loop = asyncio.get_running_loop()
        for at_us, act in self._plans:
            self._loop.call_at(self._clock.loop_time(at_us), act)
        while (left_us := START_US + duration_us - self.now) > 0 and not enough():
            await asyncio.sleep(min(left_us / 1e6, POLL_S))
        for address in self.hosts:
            self.crash(address)
        for checker in self._checkers:
            self._check(checker.on_end, cast(World, self))

    def restart(self, address: Address) -> None:
        host = self.hosts[address]
        if host.machine is not None:
            return
        host.incarnation += 1
        birth = Birth(address, host.incarnation, self.now, dict(host.disk), self.seed)
        host.machine = self._around(host.factory(birth), address)
        host.driver = UdpDriver(host.machine, [self._home(address)], lambda event: self._take(host, event), self._clock)
        host.driver.open()

    def crash(self, address: Address) -> None:
        host = self.hosts[address]
        if host.driver is not None:
            host.driver.close()
        host.machine = host.driver = None

    # --- inside

    def _take(self, host: LoopbackHost, event: Event) -> None:
        if isinstance(event, Record):
            host.disk.pop(event.record, None)
            host.disk[event.record] = event.data
            number = event.record
            self.call(host.address, lambda machine, now: machine.stored(number, now))
        elif isinstance(event, Settled):
            host.disk.pop(event.record, None)
        for checker in self._checkers:
            self._check(checker.on_event, cast(World, self), host.address, event)
        if self._on_event is not None:
            self._on_event(host.address, event, self.now)

    def _called(self, host: LoopbackHost, machine: Machine, act: Callable[[Any, int], None]) -> None:
        if host.machine is machine and host.driver is not None:
            act(machine, self.now)
            host.driver.touch()

    def _check(self, hook: Callable[..., None], *arguments: object) -> None:
        try:
            hook(*arguments)
        except ViolationError as violation:
            self.violations.append(str(violation))


POLL_S = 0.2
